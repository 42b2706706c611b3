# The nginx operator 0.0.1: the base image with the role.
ARG BASE_IMAGE=localhost/operator-runner:latest
FROM ${BASE_IMAGE}
COPY watches.yaml ${HOME}/watches.yaml
COPY roles ${HOME}/roles

# The nginx operator: the base image with the role. `make image` builds the base image before.
ARG BASE_IMAGE=localhost/operator-runner:latest
FROM ${BASE_IMAGE}
COPY watches.yaml ${HOME}/watches.yaml
COPY roles ${HOME}/roles

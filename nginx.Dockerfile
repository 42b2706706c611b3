# The nginx operator: the base image with playbook and role. `make image` builds the base image before.
ARG BASE_IMAGE=localhost/operator-runner:latest
FROM ${BASE_IMAGE}
COPY watches.yaml ${HOME}/watches.yaml
COPY playbooks ${HOME}/playbooks
COPY roles ${HOME}/roles

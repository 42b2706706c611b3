# The base image of operators: roles, playbooks and watches.yaml are copied into /opt/ansible.
#
#   docker build --tag operator-runner .        (or: make image CONTAINER_TOOL=buildah)
#
# It takes the place of ansible-operator's image: same entry point, user, home and settings.
ARG DEBIAN_IMAGE=docker.io/library/debian:trixie-slim

FROM ${DEBIAN_IMAGE} AS python
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates curl python3 python3-venv tini \
 && rm -rf /var/lib/apt/lists/* /var/log/*

FROM python AS build
WORKDIR /build
COPY requirements.lock pyproject.toml README.md CHANGELOG.md LICENSE ./
# The tested versions with their markers, because the release of Python decides which ansible it is.
# Without hashes, because the lock also has packages for development. rich is for commands on
# people's machines; see _NOT_IN_IMAGE in operator_runner/cli.py.
RUN sed --quiet 's/^\([A-Za-z0-9._-]*==[^\\]*\).*/\1/p' requirements.lock > versions.txt \
 && python3 -m venv /opt/operator-runner \
 && python3 -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; print(*project["dependencies"], *project["optional-dependencies"]["otel"], sep="\n")' | grep --invert-match '^rich' > wanted.txt \
 && /opt/operator-runner/bin/pip install --no-cache-dir --no-compile --constraint versions.txt --requirement wanted.txt
# Of the distribution `ansible` only kubernetes.core; others come with requirements.yml.
RUN cd /opt/operator-runner/lib/python3*/site-packages/ansible_collections \
 && find . -mindepth 1 -maxdepth 1 -type d ! -name kubernetes -exec rm -rf {} + \
 && find kubernetes -mindepth 1 -maxdepth 1 ! -name core -exec rm -rf {} + \
 && rm -rf kubernetes/core/tests kubernetes/core/docs ../ansible_test
COPY hatch_build.py ./
COPY operator_runner operator_runner
COPY controlplane controlplane
# The commit, for the metric ansible_operator_build_info: the sources come without their history.
ARG OPERATOR_RUNNER_COMMIT=""
# Bytecode cannot be written at run time. APIs and models of the asyncio client are not used.
RUN /opt/operator-runner/bin/pip install --no-cache-dir --no-compile --no-deps . \
 && rm -r /opt/operator-runner/lib/python3*/site-packages/operator_runner/devcluster \
 && /opt/operator-runner/bin/python -m compileall -q -j 0 -x '/kubernetes/aio/client/(api|models)/[^_]' /opt/operator-runner/lib

FROM python
# LOGNAME: Python 3.13 ends programs of Ansible whose user id has no name, as on OpenShift.
ENV HOME=/opt/ansible \
    USER_NAME=ansible \
    LOGNAME=ansible \
    USER_UID=1001 \
    LANG=C.UTF-8 \
    PATH=/opt/operator-runner/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
COPY --from=build /opt/operator-runner /opt/operator-runner
# Inventories name the interpreter by its path in the image of ansible-operator, with its libraries.
RUN for version in 3.8 3.9 3.12; do ln -s python3 /usr/bin/python$version; done \
 && echo /opt/operator-runner/lib/python3*/site-packages \
      > "$(/usr/bin/python3 -c 'import site; print(site.getsitepackages()[0])')/operator-runner.pth"
# Any user id works, as OpenShift gives them: all that is written belongs to group 0.
RUN useradd --uid ${USER_UID} --gid 0 --home-dir ${HOME} --no-create-home --shell /usr/sbin/nologin ${USER_NAME} \
 && mkdir -p ${HOME}/.ansible/galaxy_cache ${HOME}/.ansible/tmp /etc/ansible /usr/share/ansible/openshift /usr/share/ansible/collections/ansible_collections /var/lib/operator-runner \
 && printf '[defaults]\nroles_path = /opt/ansible/roles\nlibrary = /usr/share/ansible/openshift\n' > /etc/ansible/ansible.cfg \
 && chown -R ${USER_UID}:0 ${HOME} \
 && chmod -R g=u ${HOME} \
 && chmod 0770 /var/lib/operator-runner \
 && ln -s /opt/operator-runner/lib/python3*/site-packages/operator_runner/collections/ansible_collections/operator_sdk \
      /usr/share/ansible/collections/ansible_collections/ \
 && ln -s /usr/bin/tini /tini \
 && ln -s /opt/operator-runner/bin/operator-runner /usr/local/bin/operator-runner \
 && ln -s operator-runner /usr/local/bin/ansible-operator
WORKDIR ${HOME}
USER ${USER_UID}
ENTRYPOINT ["/tini", "--", "/usr/local/bin/ansible-operator", "run", "--watches-file=./watches.yaml"]

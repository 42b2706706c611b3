"""Warnings about lines of a Dockerfile that need a base image of Red Hat."""

from __future__ import annotations

from pathlib import Path

from operator_runner.tools.validate.requirements import foreign_packages

DOCKERFILE = r"""ARG BASE="example.com/operator-framework/ansible-operator:v1.34.0"
FROM golang:1.26 AS build
RUN dnf install -y make
FROM ${BASE} as base
# RUN dnf install -y git
USER root
RUN set -e; \
    microdnf install -y openssl && \
    # a comment
    pip3 install netaddr
RUN <<EOF
yum upgrade -y
EOF
COPY --from=build /yum /opt/dnf
FROM base
RUN /usr/bin/dnf clean all
RUN ansible-galaxy collection install -r requirements.yml
FROM ubi9
RUN dnf install -y git
"""


def test_package_managers_of_red_hat_are_reported_in_stages_on_the_base_image(
    tmp_path: Path,
) -> None:
    """The base image is Debian; other stages of the build, and what needs no package, are right."""
    assert list(foreign_packages(tmp_path)) == []
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    found = list(foreign_packages(tmp_path))
    assert [(each.line, each.message.split()[0]) for each in found] == [
        (8, "microdnf"),
        (12, "yum"),
        (16, "dnf"),
    ]
    assert not any(each.is_error for each in found)

"""Lines of a project's Dockerfile that need another base image than this project's, on Debian."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from operator_runner.core.image_paths import dockerfiles
from operator_runner.tools.validate.findings import Finding

_BASE = re.compile(r"ansible[\w.-]*operator|operator-runner")
"""Base images of operators; stages of a build on other images keep their package manager."""
_MANAGER = re.compile(r"(?:^|[\s;&|(/])(dnf|microdnf|yum|rpm)(?=\s)")
_INSTRUCTION = re.compile(
    r"\s*(ADD|ARG|CMD|COPY|ENTRYPOINT|ENV|EXPOSE|FROM|HEALTHCHECK|LABEL|ONBUILD|RUN|SHELL|USER"
    r"|VOLUME|WORKDIR)\s+(.*)",
    re.IGNORECASE,
)
_FROM = re.compile(r"(?:--\S+\s+)*(\S+)(?:\s+as\s+(\S+))?", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{?(\w+)(?::-[^}]*)?\}?")


def foreign_packages(folder: Path) -> Iterator[Finding]:
    """Yield a warning for each line that calls a package manager of Red Hat in the base image."""
    for file, _ in dockerfiles(folder):
        yield from _in_dockerfile(file)


def _in_dockerfile(file: Path) -> Iterator[Finding]:
    arguments: dict[str, str] = {}
    stages: dict[str, str] = {}
    image, keyword = "", ""
    is_continued = False
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines()):
        if line.lstrip().startswith("#"):
            continue
        found = None if is_continued else _INSTRUCTION.match(line)
        if found is not None:
            keyword, rest = found[1].upper(), found[2]
            if keyword == "ARG":
                name, _, value = rest.strip().partition("=")
                arguments[name] = value.strip("\"'")
            elif keyword == "FROM" and (base := _FROM.match(rest)) is not None:
                named = _VARIABLE.sub(lambda each: arguments.get(each[1], each[0]), base[1])
                image = stages.get(named.lower(), named)
                stages[(base[2] or "").lower()] = image
        is_continued = line.rstrip().endswith("\\")
        if keyword == "RUN" and _BASE.search(image) and (manager := _MANAGER.search(line)):
            yield Finding(
                file,
                number + 1,
                f"{manager[1]} is not in the base image, which is Debian: install the package with "
                "`apt-get update && apt-get install --yes NAME`, where NAME is that of Debian",
                is_error=False,
            )

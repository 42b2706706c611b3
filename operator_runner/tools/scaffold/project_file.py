"""The file PROJECT: the names of a project and of its kinds, checked by the rules of Kubernetes.

Pure. `operator-sdk` reads and writes the same file; its other keys are kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from operator_runner.core.errors import ConfigError
from operator_runner.core.object_names import pluralize
from operator_runner.tools.yaml_io import load

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_VERSION = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,61}")

# Names are not quoted in YAML, which does not read these as text.
_NO_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})

# The longest name that is made of the project's is that of a Service, a label of 63 characters:
# <project>-controller-manager-metrics-service.
_PROJECT_LENGTH = 63 - len("-controller-manager-metrics-service")


@dataclass(frozen=True, slots=True)
class Project:
    """A project as PROJECT names it: `domain` is the end of its groups, such as example.com."""

    name: str
    domain: str
    multigroup: bool = False


@dataclass(frozen=True, slots=True)
class ApiNames:
    """One kind of resource. `group` is the part before the domain and may be empty."""

    group: str
    version: str
    kind: str
    plural: str

    @property
    def lower(self) -> str:
        """The kind in lower case: the name of its role, its files and its singular."""
        return self.kind.lower()

    def full_group(self, domain: str) -> str:
        """Return the API group, with the project's domain at its end."""
        return ".".join(part for part in (self.group, domain) if part)


def project(name: str, domain: str) -> Project:
    """Check the flags of `init`; raises ConfigError with all that is wrong."""
    problems = []
    if (
        not _LABEL.fullmatch(name)
        or not name[0].isalpha()
        or len(name) > _PROJECT_LENGTH
        or name in _NO_TEXT
    ):
        problems.append(
            f"--project-name {name!r}: invalid prefix of names: expected a lower-case letter,"
            f" then lower-case letters, digits and dashes, at most {_PROJECT_LENGTH} characters; "
            f"write --project-name={_as_label(name)}"
        )
    if not _DOMAIN.fullmatch(domain):
        problems.append(
            f"--domain {domain!r}: invalid domain of groups: expected a DNS name in lower case; "
            "write for example --domain=example.com"
        )
    if problems:
        raise ConfigError(*problems)
    return Project(name, domain)


def api(group: str, version: str, kind: str, plural: str = "") -> ApiNames:
    """Check the flags of `create api`; raises ConfigError with all that is wrong.

    Without a `plural` it is made of the kind.
    """
    problems = []
    if group and not _DOMAIN.fullmatch(group):
        problems.append(
            f"--group {group!r}: invalid group: expected a DNS name in lower case, without the "
            "domain of the project; write for example --group=cache"
        )
    if not _VERSION.fullmatch(version):
        problems.append(
            f"--version {version!r}: invalid version: expected v1, v1beta1 or v1alpha1, with any "
            "numbers; write for example --version=v1alpha1"
        )
    if not _KIND.fullmatch(kind) or kind.lower() in _NO_TEXT:
        problems.append(
            f"--kind {kind!r}: invalid kind: expected CamelCase of letters and digits; "
            f"write --kind={_as_kind(kind)}"
        )
    if plural and not _LABEL.fullmatch(plural):
        problems.append(
            f"--plural {plural!r}: invalid plural: expected lower-case letters, digits and dashes; "
            "write for example --plural=indices"
        )
    if problems:
        raise ConfigError(*problems)
    return ApiNames(group, version, kind, plural or pluralize(kind.lower()))


def _as_label(name: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).lstrip("-0123456789")
    short = words[:_PROJECT_LENGTH].strip("-")
    return "my-operator" if not short or short in _NO_TEXT else short


def _as_kind(kind: str) -> str:
    words = re.findall(r"[A-Za-z0-9]+", kind)
    joined = "".join(word[0].upper() + word[1:] for word in words).lstrip("0123456789")
    camel = joined[:1].upper() + joined[1:62]
    return "Memcached" if not camel or camel.lower() in _NO_TEXT else camel


PATH = "PROJECT"

# Plugins of operator-sdk that support the project.
_LAYOUT = "ansible.sdk.operatorframework.io/v1"
_PLUGINS: dict[str, Any] = {
    "manifests.sdk.operatorframework.io/v2": {},
    "scorecard.sdk.operatorframework.io/v2": {},
}
_HEADER = "# Kinds of the project, written by `operator-runner create api` and operator-sdk.\n"


def new(project: Project) -> str:
    """Return the text of a new project's file."""
    return _dump(
        _HEADER,
        {
            "domain": project.domain,
            "layout": [_LAYOUT],
            "plugins": _PLUGINS,
            "projectName": project.name,
            "version": "3",
        },
    )


def read(text: str) -> Project:
    """Return the project of a file."""
    content = _load(text)
    name, domain = content.get("projectName"), content.get("domain", "")
    if not isinstance(name, str) or not isinstance(domain, str):
        raise ConfigError(f"{PATH}: invalid `projectName` or `domain`: expected text in both")
    layout = content.get("layout")
    if _LAYOUT not in (layout if isinstance(layout, list) else [layout]):
        raise ConfigError(f"{PATH}: unsupported `layout` {layout!r}: expected {_LAYOUT}")
    return Project(name, domain, multigroup=bool(content.get("multigroup")))


def kinds(text: str) -> tuple[ApiNames, ...]:
    """Return the kinds that were made."""
    return tuple(
        ApiNames(
            str(entry.get("group") or ""),
            str(entry.get("version") or ""),
            str(entry.get("kind") or ""),
            str(entry.get("plural") or ""),
        )
        for entry in _load(text).get("resources") or ()
    )


def add(text: str, api: ApiNames, crd_version: str, *, regular_plural: bool) -> str:
    """Return the text with one more kind."""
    content = _load(text)
    entry: dict[str, Any] = {
        "api": {"crdVersion": crd_version, "namespaced": True},
        "domain": content.get("domain", ""),
        "group": api.group,
        "kind": api.kind,
        "version": api.version,
    }
    if not api.group:
        del entry["group"]
    if not regular_plural:
        entry["plural"] = api.plural
    content["resources"] = [*(content.get("resources") or ()), entry]
    header = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    return _dump(header, content)


def _load(text: str) -> dict[str, Any]:
    content = load(text, PATH)
    if not isinstance(content, dict):
        raise ConfigError(f"{PATH}: expected a mapping with projectName, domain and layout")
    return content


def _dump(header: str, content: dict[str, Any]) -> str:
    return header + str(yaml.safe_dump(content, sort_keys=True, allow_unicode=True))

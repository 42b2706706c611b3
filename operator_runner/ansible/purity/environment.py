"""Digest of what Ansible takes from its installation and its environment."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

from operator_runner import __version__
from operator_runner.ansible.purity.content import ContentState
from operator_runner.core.run_inputs import digest_of
from operator_runner.core.settings import AnsibleSettings

_PACKAGES = ("ansible-core", "ansible-runner", "jinja2", "kubernetes", "pyyaml")
_VARIABLES = re.compile(r"ANSIBLE_\w+|K8S_AUTH_\w+|LANG|LC_ALL|TZ|PYTHON\w+")
_PLUGIN_PATHS = re.compile(r"ANSIBLE_(LIBRARY|MODULE_UTILS|\w+_PLUGINS)")
_PLUGIN_SETTINGS = re.compile(r"^\s*(library|module_utils|\w+_plugins)\s*=", re.MULTILINE)
_MANIFESTS = ("MANIFEST.json", "galaxy.yml")


def environment_state(
    ansible: AnsibleSettings, collections: Iterable[Path], environ: Mapping[str, str] = os.environ
) -> ContentState:
    """Return the state of the installation: versions, settings, variables, collections.

    `collections` are the directories that have an `ansible_collections`.
    """
    variables = {name: value for name, value in environ.items() if _VARIABLES.fullmatch(name)}
    configs = {str(path): _text(path) for path in _config_files(environ)}
    manifests = {
        str(path): _text(path)
        for base in collections
        for name in _MANIFESTS
        for path in sorted(base.glob(f"ansible_collections/*/*/{name}"))
    }
    digest = digest_of(
        [
            __version__,
            platform.python_version(),
            [version(package) for package in _PACKAGES],
            ansible,
            variables,
            configs,
            manifests,
        ]
    )
    return ContentState(digest, next(_doubts(ansible, variables, configs.values()), ""))


def _doubts(
    ansible: AnsibleSettings, variables: Iterable[str], configs: Iterable[str]
) -> Iterator[str]:
    if ansible.args:
        yield "--ansible-args is set"
    if ansible.inventory is not None:
        yield "ANSIBLE_INVENTORY is set"
    yield from (f"{name} is set" for name in variables if _PLUGIN_PATHS.fullmatch(name))
    if any(map(_PLUGIN_SETTINGS.search, configs)):
        yield "ansible.cfg sets a path of plugins"


def _config_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield where Ansible looks for its configuration."""
    if configured := environ.get("ANSIBLE_CONFIG"):
        yield Path(configured)
    yield Path.cwd() / "ansible.cfg"
    yield Path(environ.get("HOME", "/")) / ".ansible.cfg"
    yield Path("/etc/ansible/ansible.cfg")


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""

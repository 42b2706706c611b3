"""Patches of ansible-core: results without each of them, and versions that they do not fit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from operator_runner.ansible.cold.launcher import ColdLauncher
from operator_runner.ansible.executor import Launcher, open_launcher
from operator_runner.ansible.forkserver import launcher as module
from operator_runner.ansible.forkserver.launcher import WarmLauncher
from operator_runner.ansible.patches.registry import ABSENT, PATCHES, switchable_names
from operator_runner.ansible.patches.replacing import replace as replace_symbol
from operator_runner.ansible.patches.selection import installed_signature, select, signature_of
from operator_runner.ansible.templating import compatibility
from operator_runner.core.errors import ConfigError
from operator_runner.core.settings import AnsibleSettings
from tests.contract.ansible.launchers.projects import Project, library
from tests.contract.ansible.launchers.records import Record, differences

SETTINGS = AnsibleSettings(skip_facts=True)
SWITCHABLE = switchable_names()
SHORT = frozenset([*SWITCHABLE][::4])
"""Patches that `make test` leaves out, one run each; `make slow` leaves out each."""
_CALLED = "ansible.module_utils._internal._traceback._is_module_traceback_enabled"
TASKS = """
- name: Constant facts
  setup: {gather_subset: ['!all', '!min', distribution, platform]}
- name: Values
  set_fact: {sum: '{{ size + 1 }}', list: '{{ [size, "b"] | map("string") | sort }}'}
- name: File
  template: {src: a.j2, dest: '{{ out }}/a', mode: '0640'}
  notify: Tell
- name: Items
  copy: {content: '{{ item }}', dest: '{{ out }}/{{ item }}'}
  loop: [b, c]
- name: Own module
  own: {}
- name: Hidden
  command: echo secret
  no_log: true
- name: Rescued
  block:
    - name: Failing
      command: 'false'
  rescue:
    - name: More
      include_tasks: more.yml
- name: Namespace
  kubernetes.core.k8s_info: {kind: Namespace, name: kube-public}
  register: found
- name: Much
  debug: {msg: "{{ 'long ' * 4000 }}", verbosity: 1}
- name: Undefined
  debug: {msg: '{{ nothing.at_all }}'}
"""
FILES = {
    "roles/tried/templates/a.j2": "{% for each in list %}\\n{{ each | upper }}{% endfor %}\\n",
    "roles/tried/tasks/more.yml": """
- name: Included
  stat: {path: '{{ out }}/a', get_attributes: false}
""",
    "roles/tried/handlers/main.yml": "- name: Tell\n  debug: {var: sum}\n",
    **library(
        own="""
module = AnsibleModule({})
module.warn('take care')
module.exit_json(tmp=module.tmpdir.startswith(os.environ['TMPDIR']), changed=False)
"""
    ),
}


class Place:
    """A directory that each run finds empty under the same path."""

    def __init__(self, folder: Path, kubeconfig: str) -> None:
        self._folder = folder
        self._project = Project(TASKS, FILES, variables={"size": 3}, kubeconfig=kubeconfig)

    async def run(self, *disabled: str, times: int = 1) -> Record:
        """Run the project by a new fork server; return the record of the last run.

        Facts are cached from the second run on, or later: the results are the same.
        """
        settings = replace(SETTINGS, disabled_patches=disabled)
        async with open_launcher("warm", settings) as launcher:
            assert isinstance(launcher, WarmLauncher)
            for _ in range(times):
                record = await self.run_with(launcher)
        return record

    async def run_with(self, launcher: Launcher) -> Record:
        """Run the project once; return its record."""
        record = await self._project.run(launcher, self._folder / "run" / "site")
        self._folder.joinpath("run").rename(self._folder / os.urandom(8).hex())
        return record


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, control_plane: Path) -> Place:
    return Place(tmp_path_factory.mktemp("patches"), control_plane.read_text())


_with_all: dict[Place, Record] = {}


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=() if each in SHORT else pytest.mark.slow) for each in SWITCHABLE],
)
async def test_a_run_without_a_patch_gives_the_same(place: Place, name: str) -> None:
    """Each patch saves time and changes nothing else, alone and for those that require it."""
    if place not in _with_all:
        # The server makes its objects immortal after the third run.
        _with_all[place] = await place.run(times=4)
    record = await place.run(name, times=2 if "facts" in name else 1)
    assert record.tasks()[-1] == "Undefined"
    found = differences(("all patches", f"without {name}"), _with_all[place], record)
    assert not found, found


def _altered(address: str) -> tuple[str, ...]:
    """Return the program of a fork server that expects another signature of a symbol."""
    program = f"""
from dataclasses import replace
from operator_runner.ansible.patches import registry

def altered(symbols):
    return {{
        each: "(self, other)" if each == {address!r} else signature
        for each, signature in symbols.items()
    }}

registry.PATCHES = tuple(
    replace(each, replaces=altered(each.replaces), uses=altered(each.uses))
    for each in registry.PATCHES
)
from operator_runner.ansible.forkserver.server import main
main()
"""
    return sys.executable, "-P", "-c", program


async def test_a_patch_that_does_not_fit_is_left_out(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One warning names it; warm runs have the same results."""
    address = "ansible.module_utils._internal._stack:caller_frame"
    monkeypatch.setattr(module, "_PROGRAM", _altered(address))
    with structlog.testing.capture_logs() as logs:
        record = await place.run()
    (warning,) = (entry for entry in logs if entry["log_level"] == "warning")
    assert warning["patch"] == "caller-frames"
    assert warning["symbol"] == address
    assert warning["version"].startswith("ansible-core 2.")
    assert warning["difference"] == "expected (self, other), found ()"
    assert warning["dependents"] == []
    assert record.tasks()[-1] == "Undefined"


@pytest.mark.parametrize(
    ("patch", "address", "found"),
    [
        ("play-fork", "ansible.cli:init_plugin_loader", "(prefix_collections_path=None)"),
        ("tasks-in-play", "ansible.plugins.strategy:results_thread_main", "(strategy)"),
    ],
)
async def test_plays_run_cold_without_a_patch_that_warm_runs_need(
    monkeypatch: pytest.MonkeyPatch, patch: str, address: str, found: str
) -> None:
    """Results would differ without it, or nothing is gained: the warning says what does not fit."""
    monkeypatch.setattr(module, "_PROGRAM", _altered(address))
    with structlog.testing.capture_logs() as logs:
        async with open_launcher("warm", SETTINGS) as launcher:
            assert isinstance(launcher, ColdLauncher)
    (warning,) = logs
    assert f"patch {patch} does not fit ansible-core 2." in str(warning)
    assert f"{address}: expected (self, other), found {found}" in str(warning)


async def test_plays_run_cold_with_a_newer_core(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One warning has the version and what to do; the results are those of warm runs."""
    _pretend_core("2.99.0rc1", tmp_path, monkeypatch)
    with structlog.testing.capture_logs() as logs:
        async with open_launcher("warm", SETTINGS) as launcher:
            assert isinstance(launcher, ColdLauncher)
            record = await place.run_with(launcher)
    (warning,) = logs
    assert warning["event"] == "Running plays cold, each in new processes"
    assert "ansible-core 2.99.0rc1 is newer than 2.21" in warning["error"]
    assert "install ansible-core 2.21" in warning["error"]
    assert record.tasks()[-1] == "Undefined"


def _pretend_core(version: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have metadata of another version of ansible-core be found before the installed one."""
    metadata = folder / f"ansible_core-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: ansible-core\nVersion: {version}\n")
    monkeypatch.syspath_prepend(folder)


def test_each_patch_fits_the_installed_versions() -> None:
    """All can be applied, and none of their names occurs twice."""
    selection, mismatches = select()
    assert not mismatches
    assert all(patch.name in selection for patch in PATCHES)
    assert len({patch.name for patch in PATCHES}) == len(PATCHES)
    assert all(patch.reason and patch.gain for patch in PATCHES)


def test_a_changed_function_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Private functions that a patch calls count as those that it replaces."""
    changed: Callable[..., Any] = lambda event, host: None  # noqa: E731, ARG005
    monkeypatch.setattr(_CALLED, changed)
    selection, (mismatch,) = select()
    assert mismatch.patch == "module-forks"
    assert mismatch.difference == "expected (event), found (event, host)"
    assert "module-forks" not in selection
    assert "caller-frames" in selection


def test_a_called_function_may_have_more_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """With defaults: the call of the patch is still valid. A replaced one may not."""
    changed: Callable[..., Any] = lambda event, host=None: None  # noqa: E731, ARG005
    monkeypatch.setattr(_CALLED, changed)
    assert not select()[1]
    replaced: Callable[..., Any] = lambda strategy, other=None: None  # noqa: E731, ARG005
    monkeypatch.setattr("ansible.plugins.strategy.results_thread_main", replaced)
    (mismatch,) = select()[1]
    assert (mismatch.patch, mismatch.dependents) == ("tasks-in-play", ["modules-in-play"])
    assert mismatch.difference == "expected (strategy), found (strategy, other=None)"


def test_a_missing_function_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patches that require the one it belongs to are left out with it, at all distances."""
    monkeypatch.delattr("ansible.module_utils._internal.is_controller")
    selection, (mismatch,) = select()
    assert mismatch.difference == "expected bool, found absent"
    expected = {"tasks-in-play", "modules-in-play"}
    assert mismatch.patch == "module-forks"
    assert set(mismatch.dependents) == expected
    assert not any(name in selection for name in (mismatch.patch, *mismatch.dependents))


def test_a_missing_module_is_a_mismatch() -> None:
    """As is one that has been renamed."""
    patch = replace(PATCHES[0], replaces={"ansible.no_such:name": "()"})
    _, (mismatch,) = select(patches=[patch])
    assert "cannot be imported: No module named 'ansible.no_such'" in str(mismatch)


def test_disabled_patches_leave_out_those_that_require_them() -> None:
    """A disabled patch is not reported as a mismatch."""
    selection, mismatches = select({"tasks-in-play"})
    assert not mismatches
    assert "modules-in-play" not in selection


@pytest.mark.parametrize("name", ["no-such", "text-types"])
async def test_a_name_that_switches_nothing_off_is_an_error(name: str) -> None:
    """Unknown names and patches that results depend on; the message has the known names."""
    with pytest.raises(ConfigError, match=f"unknown patch '{name}'.*module-forks"):
        async with open_launcher("cold", replace(SETTINGS, disabled_patches=(name,))):
            pass


def test_only_declared_symbols_are_replaced() -> None:
    """Only symbols of the registry are patched."""
    with pytest.raises(ValueError, match="undeclared patch of ansible"):
        replace_symbol("ansible.cli:CLI.run", None)


def test_signatures_have_no_types() -> None:
    """Their text would depend on the version of Python; defaults stay if they are plain."""

    def function(a: int, /, b: str = "x", *c: Any, d: object = ABSENT, **e: Any) -> None:
        del a, b, c, d, e

    assert signature_of(function) == "(a, /, b='x', *c, d='absent', **e)"
    assert signature_of(os) == "module"
    assert signature_of(True) == "bool"
    assert installed_signature("os:no_such") == ABSENT


def test_text_types_that_do_not_fit_end_the_play(monkeypatch: pytest.MonkeyPatch) -> None:
    """With other types a role would do other things; the message has a hint."""
    changed = "ansible._internal._templating._engine.TemplateEngine._post_render_mutation"
    monkeypatch.setattr(changed, lambda self: None)  # noqa: ARG005
    # Installing sets it otherwise, and later tests in this process would have it.
    monkeypatch.setenv("ANSIBLE_INJECT_FACT_VARS", "true")
    with pytest.raises(SystemExit) as ended:
        compatibility.install()
    assert "patch text-types does not fit ansible-core" in str(ended.value)
    assert "set nativeTypes: true" in str(ended.value)


def test_data_maps_that_do_not_fit_end_the_play() -> None:
    """Whoever writes a resource could run commands otherwise."""
    program = """
import sys
from ansible.module_utils._internal._json import _profiles
_profiles.AnsibleProfileJSONDecoder.object_hook = lambda self, pairs, more: None
from operator_runner.ansible.cold import playbook
sys.argv[1:] = ["--version"]
playbook.main()
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "patch data-maps does not fit ansible-core" in done.stderr
    assert "install a version that it fits" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    ("native", "disabled", "patched"),
    [
        ("true", "template-error-lines", []),
        ("true", "", ["error_locations"]),
        ("false", "other, template-error-lines", ["text_templates"]),
        ("false", "", ["error_locations", "text_templates"]),
    ],
)
def test_cold_runs_have_their_own_patches(native: str, disabled: str, patched: list[str]) -> None:
    """Messages of templates, unless disabled, and types of templates, unless they are native."""
    program = """
import sys
from operator_runner.ansible.cold import playbook
sys.argv[1:] = ["--version"]
try:
    playbook.main()
finally:
    names = ("error_locations", "text_templates")
    folder = "operator_runner.ansible.templating"
    print("patched:", [name for name in names if f"{folder}.{name}" in sys.modules])
    print("forks:", any(".forkserver" in name for name in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={
            **os.environ,
            "ANSIBLE_JINJA2_NATIVE": native,
            "OPERATOR_RUNNER_DISABLE_PATCHES": disabled,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"patched: {patched}\nforks: False" in done.stdout

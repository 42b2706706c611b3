"""Run the module `setup` in the process of the play, if cached facts suffice.

A process costs more than what `setup` then does in it. Arguments and environment are those of the
module. As soon as it would start a program, warn, fail, or need a fact that is not cached, it ends,
and a process of its own runs the module.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NoReturn

from ansible import module_utils
from ansible.module_utils import basic
from ansible.module_utils.common.json import Direction, get_module_encoder
from ansible.module_utils.facts import ansible_collector
from ansible.modules import setup

from operator_runner.ansible.forkserver import facts
from operator_runner.ansible.forkserver.module_calls import ModuleCall
from operator_runner.ansible.forkserver.modules_in_play import working_directory
from operator_runner.ansible.patches.replacing import replace, replaced


def install() -> None:
    """Run `setup` in this process and its forks themselves if facts are cached.

    Collectors of this process write no errors to its streams.
    """
    silent = SimpleNamespace(stderr=SimpleNamespace(write=_refuse))
    replace(f"{ansible_collector.__name__}:sys", silent)
    _Module.is_installed = True


def gather(call: ModuleCall) -> bytes | None:
    """Return what the module prints; None: it needs a process, or is another module."""
    if not _may_gather() or not _is_setup(call):
        return None
    with _as_the_module(call), facts.cached_only() as attempt:
        with contextlib.suppress(Exception, SystemExit, facts.CacheMissError):
            setup.main()
        return None if attempt.failed else _Module.printed
    return None


def _may_gather() -> bool:
    return _Module.is_installed and facts.are_cached()


def _is_setup(call: ModuleCall) -> bool:
    return (
        (call.name, call.path) == (setup.__name__, setup.__file__)
        and call.utils == list(module_utils.__path__)
        and not call.open_files
        and call.environment == dict(os.environ)
        and all(map(os.path.isabs, _searched(call)))
    )


def _searched(call: ModuleCall) -> list[str]:
    """Return the paths that depend on the working directory if they are relative."""
    arguments = json.loads(call.params)["ANSIBLE_MODULE_ARGS"]
    own = arguments.get("fact_path") or "/"
    return [*os.environ.get("PATH", "").split(os.pathsep), str(own)]


def _refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
    facts.refuse()


class _Module(basic.AnsibleModule):  # type: ignore[misc]
    """The module's side, which gives its result to this process and does nothing else to it."""

    is_installed = False
    """Whether this process may run the module."""
    printed: bytes | None = None
    run_command = warn = error_as_warning = deprecate = fail_json = _refuse

    def _record_module_result(self, result: dict[str, Any]) -> None:
        encoder = get_module_encoder(basic._ANSIBLE_PROFILE, Direction.MODULE_TO_CONTROLLER)
        _Module.printed = f"\n{json.dumps(result, cls=encoder)}\n".encode()


@contextlib.contextmanager
def _as_the_module(call: ModuleCall) -> Iterator[None]:
    """Be called as the module meanwhile."""
    _Module.printed = None
    replacements = {
        "ansible.module_utils.basic:_ANSIBLE_ARGS": call.params.encode(),
        "ansible.module_utils.basic:_ANSIBLE_PROFILE": call.profile,
        f"{setup.__name__}:AnsibleModule": _Module,
    }
    with working_directory(call.cwd), replaced(replacements):
        yield

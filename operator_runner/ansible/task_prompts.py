"""Patch ansible-core: what waits for input in a play is an error, because nobody is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ansible.errors import AnsibleError

from operator_runner.ansible.patches.replacing import replace, wrap


def install() -> None:
    """Make questions of this process and its forks errors."""
    display = "ansible.utils.display:Display"
    replace(f"{display}.prompt", staticmethod(_prompt))
    wrap(f"{display}.prompt_until", _prompt_until)
    replace(f"{display}.do_var_prompt", _ask_for_variable)
    replace("ansible.plugins.strategy:Debugger.cmdloop", _debug)


def _prompt(msg: str, private: bool = False) -> str:
    del private
    _refuse(f"ansible-playbook asks {msg.strip()!r}; remove the argument that makes it ask")


def _prompt_until(
    original: Callable[..., Any],
    display: Any,
    msg: str,
    private: bool = False,
    seconds: Any = None,
    **kwargs: Any,
) -> Any:
    if seconds is None:
        _refuse("the task waits for input; set `seconds` or `minutes` of `pause`, or remove it")
    return original(display, msg, private, seconds, **kwargs)


def _ask_for_variable(_display: Any, varname: str, *_: Any) -> Any:
    _refuse(
        f"vars_prompt of the play asks for {varname!r}; move it to `vars`, or set it in the spec or"
        " in `vars` of watches.yaml",
        varname,
    )


def _debug(debugger: Any) -> None:
    task = debugger.scope["task"]
    _refuse(
        f"the debugger waits for commands at task {task.get_name()!r}"
        f" ({task.get_path()}); remove `debugger`, `strategy: debug` or"
        " ANSIBLE_ENABLE_TASK_DEBUGGER"
    )


def _refuse(message: str, named: Any = None) -> NoReturn:
    """Raise the error; ansible-core adds file and line of `named`, a text of the playbook."""
    raise AnsibleError(f"no terminal: {message}", obj=named)

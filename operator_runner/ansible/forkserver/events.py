"""Send events of a play to its supervisor in the output, instead of in a file for each.

ansible-runner's callback plugin writes an event into a file and its name into the output, between
the lines of the event. The output may contain the whole event: ansible-runner uses all fields
there and reads the file only to add more. A large event is still written into a file, because
output goes through a terminal, four kilobytes at a time. So is a line of `Display.verbose`:
ansible-runner would give it another id if its type were already in the output.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable
from typing import Any, TextIO

from operator_runner.ansible.forkserver.plugins import DISPLAY
from operator_runner.ansible.patches.replacing import wrap

_MAX_INLINE_BYTES = 8 * 1024
"""Maximum bytes of an event in the output."""
_MARK = "\x1b[K"
"""Begin and end of an event, for the output filter of ansible-runner."""
_DUMP_BEGIN = "ansible_runner.display_callback.callback.awx_display:EventContext.dump_begin"


def install() -> None:
    """Make the plugin do so, once it is loaded, in this process and its forks."""
    wrap("ansible.plugins.loader:PluginLoader._load_module_source", _load)


def _load(original: Callable[..., Any], loader: Any, *, python_module_name: str, path: str) -> Any:
    module = original(loader, python_module_name=python_module_name, path=path)
    if path == DISPLAY:
        encoder = module.AnsibleJSONEncoderLocal
        wrap(_DUMP_BEGIN, functools.partial(dump_begin, encoder), module.EventContext)
    return module


def dump_begin(
    encoder: type[json.JSONEncoder], original: Callable[..., None], context: Any, output: TextIO
) -> None:
    """Write an event into the output, as `EventContext.dump_begin` does its name."""
    event = context.get_begin_dict()
    data = json.dumps(event, cls=encoder).encode()
    if len(data) > _MAX_INLINE_BYTES or event["event"] == "verbose":
        original(context, output)
        return
    text = base64.b64encode(data).decode()
    with context.display_lock:
        output.write(f"{_MARK}{text}\x1b[{len(text)}D{_MARK}")

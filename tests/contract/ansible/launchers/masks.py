"""Mask expected differences between two runs of a play: ids, times, temporary files. Pure.

Ids are numbered in order of appearance, so that references are compared too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_TIMES = {
    # event_data and events
    "created",
    "duration",
    # results of command, stat, uri, wait_for, find
    "delta",
    "elapsed",
    "atime",
    "ctime",
    "mtime",
    # facts of the moment
    "ansible_date_time",
    "ansible_loadavg",
    "ansible_memfree_mb",
    "ansible_memory_mb",
    "ansible_mounts",
    "ansible_swapfree_mb",
    "ansible_uptime_seconds",
    "PYTEST_CURRENT_TEST",
    # Kubernetes
    "creationTimestamp",
    "time",
}
_COUNTS_OF_THE_MOMENT = {
    # a process or a file of its own for each run
    "pid",
    "child_pid",
    "inode",
    # Kubernetes counts all writes to the cluster together
    "resourceVersion",
}
_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9a-f])")
_PATTERNS = [
    (re.compile(pattern), mask)
    for pattern, mask in (
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?", "<time>"),
        (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", "<time>"),
        (r"(?<=LAST DEPLOYED: )\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4}", "<time>"),
        (r"\b\d:\d\d:\d\d\.\d{6}\b", "<delta>"),
        (r"(?<=\bPaused for )[\d.]+(?= seconds)", "<seconds>"),
        # Made for a module by its action, or by the module for itself where that did not; a cold
        # run has it in the user's remote_tmp, a warm one in its own temporary directory.
        (
            r"(?:~|(?<![\w.-])/)[\w./-]*/ansible-(?:tmp-\d+\.\d+-\d+-\d+|moduletmp-\d+\.\d+-\w+)",
            "<tmp>/ansible-tmp-<id>",
        ),
        # The beginning of such a path, as the excerpt of a warning on ansible-core 2.21.
        (r"(?<=\x1b\[1;35m)/[^\x1b]+(?=\x1b)", "<path>"),
        (r"ansible-tmp-\d+\.\d+-\d+-\d+", "ansible-tmp-<id>"),
        (r"ansible-local-\w+", "ansible-local-<id>"),
        (r"pipe:\[\d+\]", "pipe:[<id>]"),
        # the directory of a run
        (r"(?<=/\.run-)[0-9a-f]{16}\b", "<id>"),
        # Python's tempfile
        (r"\btmp[a-z0-9_]{8}\b", "<temp>"),
        # names that the copy action gives to `content`
        (r'"_original_basename": "\.[a-z0-9_]{8}"', '"_original_basename": "<temp>"'),
        (r"(?<=ansible-local-<id>/)\.[a-z0-9_]{8}\b", "<temp>"),
        # names of plugins' Python modules: ansible-core adds Python's hash of the path
        (r"(?<=ansible\.plugins\.)(\w+\.\w+)_\d{8,}", r"\1_<hash>"),
        (r"kube-api-access-[a-z0-9]{5}\b", "kube-api-access-<id>"),
        (r'"resourceVersion": "\d+"', '"resourceVersion": "<id>"'),
        (r'"child_pid": \d+', '"child_pid": "<id>"'),
        (r" at 0x[0-9a-f]+\b", " at <address>"),
        # ansible_job_id of async tasks: j<random>.<pid>
        (r"\bj\d+\.\d+\b", "<job>"),
    )
]
_END = r"(?:\\+n|\r?\n)"
_QUOTE = r"\\*\""
_FRAME = re.compile(
    rf" *File {_QUOTE}(?P<path>[^\"\\]*){_QUOTE}, (?P<place>line \d+, in [\w<>.]+){_END}"
    rf"(?: {{4}}(?:(?!{_END}).)*{_END})*"
)
_CALLERS = re.compile(
    r"AnsiballZ_\w+\.py$|/_ansiballz/_loader\.py$|/forkserver/\w+\.py$|^<frozen runpy>$"
)
# The basename of the temp file that the copy action made of `content`.
_CONTENT_NAME = re.compile(r"\.[a-z0-9_]{8}")


class Masks:
    """The masks of one run; one object for all that is compared, so that ids keep their numbers."""

    def __init__(self, further: Iterable[tuple[str, str]] = ()) -> None:
        """Take texts that only this run has (such as its namespace) and their replacements."""
        self._further = tuple(further)
        self._ids: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Return a text without ids, times and names of temp files."""
        for own, mask in self._further:
            text = text.replace(own, mask)
        text = _FRAME.sub(_frame, _ID.sub(self._numbered, text))
        for pattern, mask in _PATTERNS:
            text = pattern.sub(mask, text)
        return text

    def value(self, value: Any, key: str = "") -> Any:
        """Return decoded JSON, as `text` does for each text; keys in one order."""
        if key in _COUNTS_OF_THE_MOMENT and value is not None:
            return "<id>"
        if key in _TIMES and value is not None:
            return "<time>"
        if isinstance(value, dict):
            value = {name: each for name, each in value.items() if not _is_of_an_import(name, each)}
            return {self.text(name): self.value(value[name], name) for name in sorted(value)}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if key == "_original_basename" and _CONTENT_NAME.fullmatch(str(value)):
            return "<temp>"
        return self.text(value) if isinstance(value, str) else value

    def _numbered(self, found: re.Match[str]) -> str:
        return self._ids.setdefault(found.group(), f"<id {len(self._ids) + 1}>")


def _is_of_an_import(key: str, value: Any) -> bool:
    """Return whether these are deprecations of a module of Python that the task imported first.

    In a warm run it is loaded already. kubernetes.core 6.2 imports such a module of ansible-core.
    """
    return key == "deprecations" and all(
        "_collections_compat` module is deprecated" in str(each) for each in value
    )


def _frame(found: re.Match[str]) -> str:
    """Return a frame of a traceback without the path where a launcher put the module.

    Frames of those who call the module go; of the others the directory, because the module may be
    in a zip, and the line of the source, which Python cannot read from there.
    """
    if _CALLERS.search(found["path"]):
        return ""
    return f"<frame {found['path'].rpartition('/')[2]} {found['place']}>"

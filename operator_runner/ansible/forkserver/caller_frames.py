"""Look up the caller of a deprecated function without reading the whole stack.

ansible-core attributes a deprecation to the calling plugin. It needs one frame, but
`inspect.stack` describes all of them, and searches files and loaded modules for each. The action
plugin of kubernetes.core.k8s reads deprecated attributes a dozen times for each template. Lines of
source code are left out, because ansible-core does not use them.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import FrameType

from operator_runner.ansible.patches.replacing import replace

_MARK = "_skip_stackwalk"
"""Local variable of functions that are not callers."""


def install() -> None:
    """Describe frames one by one, when they are requested."""
    replace("ansible.module_utils._internal._stack:iter_stack", iter_frames)


def iter_frames() -> Iterator[inspect.FrameInfo]:
    """Yield the frames without the mark, the innermost first, as `iter_stack` of ansible-core."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _MARK not in frame.f_locals:
            yield _described(frame)
        frame = frame.f_back


def _described(frame: FrameType) -> inspect.FrameInfo:
    found = inspect.getframeinfo(frame, context=0)
    return inspect.FrameInfo(frame, *found, positions=found.positions)

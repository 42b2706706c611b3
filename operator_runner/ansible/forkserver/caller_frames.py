"""Look up the caller of a deprecated function without reading the whole stack.

ansible-core attributes a deprecation to the calling plugin. It needs one frame, but
`inspect.stack` describes all of them, and searches files and loaded modules for each. The action
plugin of kubernetes.core.k8s reads deprecated attributes a dozen times for each template. Lines of
source code are left out, because ansible-core does not use them.
"""

from __future__ import annotations

import inspect
import sys
from types import FrameType

from operator_runner.ansible.patches.replacing import replace

_MARK = "_skip_stackwalk"
"""Local variable of functions that are not callers."""


def install() -> None:
    """Describe one frame instead of all."""
    replace("ansible.module_utils._internal._stack:caller_frame", caller_frame)


def caller_frame() -> inspect.FrameInfo | None:
    """Return the innermost frame without the mark, as `caller_frame` of ansible-core."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _MARK in frame.f_locals:
        frame = frame.f_back
    if frame is None:
        return None
    found = inspect.getframeinfo(frame, context=0)
    return inspect.FrameInfo(frame, *found, positions=found.positions)

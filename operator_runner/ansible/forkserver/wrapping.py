"""Have a method of a library do something else, with the original at hand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def wrap(owner: type, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace a method by `wrapper(original, self, ...)`, in this process and its forks."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    setattr(owner, name, method)

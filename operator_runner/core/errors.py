"""The errors that packages raise to each other.

OperatorRunnerError
├── ConfigError          the user's files or flags are wrong; ends the process with exit code 1
├── ExpressionError      an expression of watches.yaml fails for an object
├── ApiError             the Kubernetes API answered with an error, or not at all
│   ├── NotFound         404
│   ├── Conflict         409: another client wrote first; read again and retry
│   ├── Expired          410: the resource version or continue token is too old; list again
│   ├── Invalid          422: the object does not fit its schema
│   ├── Forbidden        401 and 403
│   ├── Fenced           not sent: this process may no longer lead
│   └── Unavailable      no answer, 429 or 5xx: retry later
└── RunError             a run could not even be started
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Sequence

_EXHAUSTED = {
    errno.ENOSPC: "the disk of the work dir is full: free space, or enlarge the volume",
    errno.EDQUOT: "the disk quota of the work dir is used up: free space, or raise the quota",
    errno.EMFILE: "all file descriptors are in use: raise the limit of open files (ulimit -n), or"
    " lower --max-concurrent-reconciles",
    errno.ENFILE: "all file descriptors of the machine are in use: raise fs.file-max",
    errno.ENOMEM: "memory is used up: raise the memory limit of the operator, or lower"
    " --max-concurrent-reconciles",
    errno.EAGAIN: "no more processes or threads can be started: raise the limit of processes"
    " (pids.max, ulimit -u), or lower --max-concurrent-reconciles",
}
_NO_THREAD = "can't start new thread"
"""Of threading, which has no type of its own for it."""


class OperatorRunnerError(Exception):
    """Base of all errors that this package raises on purpose; its text is for users."""


class ConfigError(OperatorRunnerError):
    """One or more errors in files, flags or environment; `problems` has a line for each.

    `warnings` are lines about suspicious parts of the same file, which may be the cause.
    """

    def __init__(self, *problems: str, warnings: Sequence[str] = ()) -> None:
        """Keep each problem apart, so that all of them can be shown at once."""
        super().__init__("\n".join(problems))
        self.problems = problems
        self.warnings = tuple(warnings)


class ExpressionError(OperatorRunnerError):
    """An expression of watches.yaml cannot be evaluated, or gives a value that cannot be used.

    `key` is its name in its map, such as `when`.
    """

    def __init__(self, key: str, expression: str, reason: str) -> None:
        """Take `reason` in the words of JMESPath, or what was expected instead."""
        super().__init__(f"{key}: {expression}: {reason}")
        self.key, self.expression, self.reason = key, expression, reason

    def within(self, place: str) -> ExpressionError:
        """Return the error with the key below another one, such as `triggers[0]`."""
        return ExpressionError(f"{place}.{self.key}", self.expression, self.reason)


class ApiError(OperatorRunnerError):
    """A request to the Kubernetes API failed; `status` is the HTTP status, 0 without an answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        """Keep the API server's own message: it names the field that is wrong."""
        super().__init__(message)
        self.status = status


class NotFound(ApiError):
    """The object, or its kind, does not exist."""


class Conflict(ApiError):
    """The object changed since it was read."""


class Expired(ApiError):
    """A continue token or resourceVersion has expired."""


class Invalid(ApiError):
    """The API server refused the content of the object."""


class Forbidden(ApiError):
    """Credentials or permissions are missing; the message names verb and resource."""


class Fenced(ApiError):
    """A write was not sent, since another replica may lead by now; see core/fencing.py."""


class Unavailable(ApiError):
    """The API server could not be reached or could not serve; worth a retry."""


class RunError(OperatorRunnerError):
    """A run could not be prepared or started, so that no play ran at all."""


def exhausted_in(text: str) -> str | None:
    """Return which limit the text of a traceback names, and the cure; else None."""
    last = text.rstrip().rpartition("\n")[2]
    if _NO_THREAD in last:
        return _EXHAUSTED[errno.EAGAIN]
    if "MemoryError" in last:
        return _EXHAUSTED[errno.ENOMEM]
    return next((cure for code, cure in _EXHAUSTED.items() if f"[Errno {code}]" in last), None)


def exhausted_resource(error: BaseException | None) -> str | None:
    """Return which limit of the machine or container caused an error, and the cure; else None.

    Such an error is not one of the program, and ends by itself once there is room again.
    """
    while error is not None:
        if isinstance(error, MemoryError):
            return _EXHAUSTED[errno.ENOMEM]
        if isinstance(error, RuntimeError) and _NO_THREAD in str(error):
            return _EXHAUSTED[errno.EAGAIN]
        if isinstance(error, OSError) and error.errno in _EXHAUSTED:
            return _EXHAUSTED[error.errno]
        error = error.__cause__ or error.__context__
    return None


INTERRUPTED = 128 + signal.SIGINT

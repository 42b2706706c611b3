"""The output of plays on stdout, as it is: the only text beside the log lines."""

from __future__ import annotations

import sys

import structlog

from operator_runner.core.truncation import truncated
from operator_runner.telemetry import output_thread
from operator_runner.telemetry.printable import printable, without_colours
from operator_runner.telemetry.redaction import redact

_log = structlog.get_logger(__name__)
_LIMIT_BYTES = 256 * 1024
"""Limit of one piece of output; all of it is in the artifacts of the run."""


def write(text: str) -> None:
    """Write text and a line break at once, without escape sequences and possible secrets.

    If stdout is closed, the run continues and the error is logged.
    """
    plain = without_colours(truncated(text, _LIMIT_BYTES)).replace("\r\n", "\n")
    try:
        output_thread.write(sys.stdout, printable(str(redact(plain))) + "\n")
    except OSError as error:
        _log.warning("Cannot write the output of a play", error=str(error))

"""Flags and environment of `operator-runner run`, and the settings that they make.

`options` declares the flags, `types` reads variables, cores and memory of the machine, `values`
combines them.
"""

from __future__ import annotations

from operator_runner.config.flags.options import RunCommand, lookup_options, run_options
from operator_runner.config.flags.values import (
    LogSettings,
    load_watches,
    log_settings_from,
    settings_from,
    warnings_from,
)

__all__ = [
    "LogSettings",
    "RunCommand",
    "load_watches",
    "log_settings_from",
    "lookup_options",
    "run_options",
    "settings_from",
    "warnings_from",
]

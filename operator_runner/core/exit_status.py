"""Exit status of a command that a user has interrupted, as shells return it."""

from __future__ import annotations

import signal

INTERRUPTED = 128 + signal.SIGINT

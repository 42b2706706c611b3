"""Find out whether a role depends on anything but its variables and the objects that it reads."""

from __future__ import annotations

from operator_runner.core.imports import import_lazily

# It imports jinja2, 2.7 MiB, which the operator needs only for watches with `skipUnchanged`.
import_lazily("operator_runner.ansible.purity.templates")

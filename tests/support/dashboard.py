"""Query the panels of the dashboard as Grafana does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.operator import REPOSITORY

FILE = REPOSITORY / "config" / "grafana" / "dashboard.json"


def panels(file: Path = FILE) -> list[dict[str, Any]]:
    """Return the panels, in order."""
    return list(json.loads(file.read_text())["panels"])


def filled(expression: str, rate_interval: str) -> str:
    """Return an expression with all variables at All, as a person finds the dashboard."""
    for variable in ("namespace", "job", "kind", "name"):
        expression = expression.replace(f'"${variable}"', '".*"')
    return expression.replace("$__rate_interval", rate_interval)


def expressions(rate_interval: str, file: Path = FILE) -> Iterator[tuple[str, str]]:
    """Yield title and expression of each line of each panel."""
    for panel in panels(file):
        for target in panel["targets"]:
            yield panel["title"], filled(target["expr"], rate_interval)

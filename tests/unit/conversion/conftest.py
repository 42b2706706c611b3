"""The conversion of the nginx operator, and a way to make others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from operator_runner.config.watches import expressions, load
from operator_runner.conversion.converter import Converter
from operator_runner.core.model import GVK, Conversion
from tests.support.operator import REPOSITORY

Expressions = Mapping[str, str | None]
HUB = GVK("shop.example.com", "v2", "Web")
MakeConverter = Callable[..., Converter]


def conversion(version: str, to_hub: Expressions, from_hub: Expressions) -> Conversion:
    """Return a conversion with paths as they are written in watches.yaml."""
    return Conversion(
        version,
        {expressions.path(path): expression for path, expression in to_hub.items()},
        {expressions.path(path): expression for path, expression in from_hub.items()},
    )


@pytest.fixture(scope="session")
def nginx() -> Converter:
    """Return the watches of the project's watches.yaml."""
    loaded = load(REPOSITORY / "watches.yaml", {}, roles_path=str(REPOSITORY / "roles"))
    (watch,) = loaded.watches
    return Converter(watch.gvk, watch.conversions, expressions.evaluate)


@pytest.fixture(scope="session")
def make() -> MakeConverter:
    """Give a maker of converters for a Web whose hub is v2; it takes (version, to, from)."""

    def make(*others: tuple[str, Expressions, Expressions]) -> Converter:
        return Converter(HUB, [conversion(*other) for other in others], expressions.evaluate)

    return make

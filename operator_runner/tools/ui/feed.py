"""The views of the page as JSON, and waiting for those that change."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

from operator_runner.core.model import Json


@dataclass(frozen=True, slots=True)
class View:
    """A view as it is sent: its name, its content as JSON, and the version of its last change."""

    name: str
    text: str
    version: int


class Feed:
    """The current views. Readers that are slow skip versions; nothing is queued for them."""

    def __init__(self) -> None:
        self._views: dict[str, View] = {}
        self._version = 0
        self._changed = asyncio.Event()

    def publish(self, name: str, content: Json) -> None:
        """Replace a view. Nobody is woken if its content is the same."""
        text = json.dumps(content)
        known = self._views.get(name)
        if known is not None and known.text == text:
            return
        self._version += 1
        self._views[name] = View(name, text, self._version)
        self._changed.set()
        self._changed = asyncio.Event()

    async def newer(self, version: int, seconds: float) -> list[View]:
        """Return the views that changed after `version`, oldest first; wait for the first one.

        The list is empty if none has changed within `seconds`.
        """
        try:
            async with asyncio.timeout(seconds):
                while self._version <= version:
                    await self._changed.wait()
        except TimeoutError:
            return []
        found = [each for each in self._views.values() if each.version > version]
        return sorted(found, key=lambda each: each.version)

"""Which watches the API server has accepted: what readiness is told from. Pure bookkeeping."""

from __future__ import annotations

from collections.abc import Iterable


class Established:
    """Compares the watches that are needed with those that have been answered."""

    def __init__(self, kinds: Iterable[str], converted: Iterable[str] = ()) -> None:
        """Start with kinds whose paths are not known yet, for their CRDs may be missing.

        Of those that are `converted` by this process no watch is waited for: to list objects of
        an older version the API server asks it, and OLM's Service leads to ready replicas only.
        """
        self._needed: dict[str, frozenset[str] | None] = dict.fromkeys(kinds)
        self._converted = frozenset(converted)
        self._answered: set[str] = set()
        self._broken: dict[str, None] = {}

    def need(self, kind: str, paths: Iterable[str]) -> None:
        """Say on which URL paths a kind is watched."""
        self._needed[kind] = frozenset(paths)

    def lost(self, kind: str) -> None:
        """Say that the API server does not know a kind any more."""
        for path in self._needed.get(kind) or ():
            self.ended(path, again=False)
        self._needed[kind] = None

    def answered(self, path: str) -> None:
        """Take note that the API server accepted a watch on this path."""
        self._answered.add(path)
        self._broken.pop(path, None)

    def ended(self, path: str, again: bool) -> None:
        """Take note that a watch on this path has ended, and whether it is begun again at once."""
        if not again:
            self._answered.discard(path)
            self._broken.pop(path, None)
        elif path in self._answered:
            self._broken[path] = None

    def missing(self) -> str | None:
        """Return what is not watched yet, or not any more, for people; None if everything is."""
        for kind, paths in self._needed.items():
            if paths is None:
                return f"{kind} is not known to the API server: install its CRD"
            if kind not in self._converted and not paths <= self._answered:
                return f"{kind} is not watched yet on {', '.join(sorted(paths - self._answered))}"
        of_converted = {path for kind in self._converted for path in self._needed.get(kind) or ()}
        if broken := [path for path in self._broken if path not in of_converted]:
            return f"the watch of {', '.join(broken)} has ended and is begun again"
        return None

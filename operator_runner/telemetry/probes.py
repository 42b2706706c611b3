"""Named checks behind /healthz and /readyz, and their answers. Pure: HTTP is in servers.py."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Check: TypeAlias = Callable[[], str | None]
"""Returns None if all is well, else a sentence that describes the problem. Must not block."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check; `problem` is None if it passed."""

    name: str
    problem: str | None

    def __str__(self) -> str:
        """One line, as Kubernetes' own probes write it."""
        if self.problem is None:
            return f"[+]{self.name} ok"
        return f"[-]{self.name} failed: {self.problem}"


@dataclass(frozen=True, slots=True)
class HealthReport:
    """All results of one probe; `probe` is `healthz` or `readyz`."""

    probe: str
    results: tuple[CheckResult, ...]

    @property
    def passed(self) -> bool:
        """True if no check failed."""
        return all(result.problem is None for result in self.results)

    def text(self, verbose: bool = False) -> str:
        """`ok`, or a line for each check (`verbose` or failed) and one with the verdict."""
        if self.passed and not verbose:
            return "ok"
        verdict = f"{self.probe} check {'passed' if self.passed else 'failed'}"
        return "\n".join([*map(str, self.results), verdict, ""])


class HealthChecks:
    """Checks that the parts of the operator register, called at each probe.

    `ping` always exists and always passes: the response itself is the proof. The server runs in
    the operator's event loop on purpose, so that a loop that hangs cannot answer and the kubelet
    restarts the process.
    """

    def __init__(self) -> None:
        self._live: dict[str, Check] = {"ping": _ping}
        self._ready: dict[str, Check] = {"ping": _ping}

    def live(self, name: str, check: Check) -> None:
        """Add a check to /healthz; one that fails gets the process restarted."""
        self._live[name] = check

    def ready(self, name: str, check: Check) -> None:
        """Add a check to /readyz; one that fails takes the Pod out of Services and rollouts."""
        self._ready[name] = check

    def healthz(self, only: str | None = None, exclude: Collection[str] = ()) -> HealthReport:
        """Run the liveness checks, or one. Raises KeyError if no check is named `only`."""
        return _ask("healthz", self._live, only, exclude)

    def readyz(self, only: str | None = None, exclude: Collection[str] = ()) -> HealthReport:
        """Run the readiness checks, or one. Raises KeyError if no check is named `only`."""
        return _ask("readyz", self._ready, only, exclude)


def _ping() -> None:
    return None


def _ask(
    probe: str, checks: Mapping[str, Check], only: str | None, exclude: Collection[str]
) -> HealthReport:
    chosen = checks if only is None else {only: checks[only]}
    results = (CheckResult(name, _ask_one(chosen[name])) for name in chosen if name not in exclude)
    return HealthReport(probe, tuple(results))


def _ask_one(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:  # noqa: BLE001  a check that breaks is a check that fails
        return f"the check raised an error: {type(error).__name__}: {error}"

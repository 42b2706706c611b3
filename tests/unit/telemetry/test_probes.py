"""Probes and their checks."""

from __future__ import annotations

import pytest

from operator_runner.telemetry.servers import HealthChecks


def test_a_new_process_is_live_and_ready() -> None:
    """Without checks the answer itself is the proof."""
    health = HealthChecks()
    assert health.healthz().text() == "ok"
    assert health.readyz().text() == "ok"


def test_a_failing_check_is_named_with_its_reason() -> None:
    """The response of the probe has the reason."""
    health = HealthChecks()
    health.ready("watches", lambda: "nginxoperators: not listed yet")
    report = health.readyz()
    assert not report.passed
    assert report.text() == (
        "[+]ping ok\n[-]watches failed: nginxoperators: not listed yet\nreadyz check failed\n"
    )


def test_each_failing_check_is_listed() -> None:
    """One failure does not hide the next."""
    health = HealthChecks()
    health.live("queue", lambda: "stuck")
    health.live("forks", lambda: "gone")
    assert [name for name, problem in health.healthz().problems.items() if problem] == [
        *("queue", "forks"),
    ]


def test_readiness_does_not_touch_liveness() -> None:
    """An operator that waits for its watches must not be restarted for it."""
    health = HealthChecks()
    health.ready("watches", lambda: "not yet")
    assert health.healthz().passed


def test_a_check_is_asked_each_time() -> None:
    """The state of now counts, not that of the start."""
    health = HealthChecks()
    problems: list[str] = ["not yet"]
    health.ready("watches", lambda: problems[0] if problems else None)
    before = health.readyz().passed
    problems.clear()
    assert (before, health.readyz().passed) == (False, True)


def test_a_check_that_raises_fails_with_its_error() -> None:
    """A check that raises counts as failed."""

    def broken() -> str | None:
        raise RuntimeError("no such thing")

    health = HealthChecks()
    health.live("odd", broken)
    assert "[-]odd failed: the check raised an error: RuntimeError: no such thing" in (
        health.healthz().text()
    )


def test_verbose_lists_what_passed() -> None:
    """As `?verbose` on a Kubernetes component."""
    assert HealthChecks().healthz().text(verbose=True) == "[+]ping ok\nhealthz check passed\n"


def test_one_check_can_be_asked_alone_and_others_left_out() -> None:
    """`/readyz/<check>` and `?exclude=<check>`."""
    health = HealthChecks()
    health.ready("watches", lambda: "not yet")
    assert health.readyz("ping").passed
    assert not health.readyz("watches").passed
    assert health.readyz(exclude=["watches"]).passed


def test_an_unknown_check_is_an_error() -> None:
    """A typo must not look like health."""
    with pytest.raises(KeyError):
        HealthChecks().readyz("watch")

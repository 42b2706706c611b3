"""Readiness of the watches."""

from __future__ import annotations

from operator_runner.controller.sources.watch_readiness import WatchReadiness


def test_everything_must_be_answered() -> None:
    """A kind counts once its CRD is known and each of its paths was accepted."""
    readiness = WatchReadiness(["Foo", "Bar"])
    assert readiness.not_ready_reason() == "Foo is not served by the API server: install its CRD"
    readiness.require("Foo", ["/a/foos", "/b/foos"])
    readiness.require("Bar", ["/bars"])
    readiness.watch_started("/b/foos")
    assert readiness.not_ready_reason() == "Foo is not watched yet on /a/foos"
    readiness.watch_started("/a/foos")
    assert readiness.not_ready_reason() == "Bar is not watched yet on /bars"
    readiness.watch_started("/bars")
    assert readiness.not_ready_reason() is None


def test_a_converted_kind_is_ready_before_its_watch() -> None:
    """Listing may take a conversion, and conversions come to replicas that are ready."""
    readiness = WatchReadiness(["Foo", "Bar"], converted=["Foo"])
    assert readiness.not_ready_reason() == "Foo is not served by the API server: install its CRD"
    readiness.require("Foo", ["/foos"])
    readiness.require("Bar", ["/bars"])
    assert readiness.not_ready_reason() == "Bar is not watched yet on /bars"
    readiness.watch_started("/bars")
    assert readiness.not_ready_reason() is None

"""What readiness is told from."""

from __future__ import annotations

from operator_runner.controller.sources.watch_readiness import Established


def test_everything_must_be_answered() -> None:
    """A kind counts once its CRD is known and each of its paths was accepted."""
    established = Established(["Foo", "Bar"])
    assert established.missing() == "Foo is not known to the API server: install its CRD"
    established.need("Foo", ["/a/foos", "/b/foos"])
    established.need("Bar", ["/bars"])
    established.answered("/b/foos")
    assert established.missing() == "Foo is not watched yet on /a/foos"
    established.answered("/a/foos")
    assert established.missing() == "Bar is not watched yet on /bars"
    established.answered("/bars")
    assert established.missing() is None


def test_who_converts_a_kind_does_not_wait_for_its_watch() -> None:
    """Listing may take a conversion, and conversions come to replicas that are ready."""
    established = Established(["Foo", "Bar"], converted=["Foo"])
    assert established.missing() == "Foo is not known to the API server: install its CRD"
    established.need("Foo", ["/foos"])
    established.need("Bar", ["/bars"])
    assert established.missing() == "Bar is not watched yet on /bars"
    established.answered("/bars")
    assert established.missing() is None

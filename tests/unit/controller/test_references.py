"""Which changes of objects that resources name wake them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from operator_runner.controller.predicates.wake_on_fields import (
    ExpressionPlace,
    FailedExpression,
    WakeOnFields,
)
from operator_runner.controller.sources import debouncing
from operator_runner.controller.sources.debouncing import Debouncer
from operator_runner.controller.sources.references import References, referenced
from operator_runner.controller.sources.shared_watches import (
    SharedWatches,
    Subscription,
    WatchRequest,
)
from operator_runner.core.errors import ExpressionError
from operator_runner.core.model import (
    GVK,
    Cause,
    Json,
    ObjectRef,
    Reference,
    RunContent,
    WakeOn,
    Watch,
)
from operator_runner.kube.watch import EventType, MetadataEvent
from tests.fakes.states import KnownStates
from tests.support.background import in_background
from tests.unit.controller.test_dependents import Stream

SECRET, ZONE = GVK("", "v1", "Secret"), GVK("example.com", "v1", "Zone")
WATCH = Watch(
    GVK("example.com", "v1", "Foo"),
    RunContent(role=Path("/roles/foo")),
    references=(
        Reference(SECRET, "spec.secrets[].name"),
        Reference(ZONE, "spec.zone"),
        Reference(GVK("", "v1", "ConfigMap"), "spec.map", "'shared'"),
    ),
)


def foo(name: str, **spec: Any) -> Json:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def ref(name: str) -> ObjectRef:
    return ObjectRef(WATCH.gvk, "default", name)


def metadata(name: str, version: int, namespace: str = "default", **more: Any) -> Json:
    return {
        "name": name,
        "namespace": namespace,
        "uid": name,
        "resourceVersion": str(version),
        **more,
    }


def ignore(ref: ObjectRef, cause: Cause) -> None:
    """Enqueue nothing."""


def watches_of(
    subscriptions: Iterable[Subscription], streams: Mapping[GVK, Stream]
) -> SharedWatches:
    """Watch kinds by streams that the test feeds."""

    def stream(request: WatchRequest, namespace: str | None) -> AsyncIterator[MetadataEvent]:
        return streams[request.gvk](request.gvk, namespace, request.extraction)

    return SharedWatches(subscriptions, stream, ())


class Woken(list[tuple[str, str]]):
    def __call__(self, ref: ObjectRef, cause: Cause) -> None:
        self.append((ref.name, str(cause)))


@asynccontextmanager
async def references(
    watch: Watch = WATCH,
) -> AsyncIterator[tuple[References, dict[GVK, Stream], Woken]]:
    streams, woken = {each.gvk: Stream() for each in watch.references}, Woken()

    failed: list[FailedExpression] = []
    subject = References([watch], woken, failed.append, Debouncer(KnownStates(), woken))
    running = asyncio.create_task(watches_of(subject.subscriptions(), streams).run())
    try:
        yield subject, streams, woken
        assert failed == []
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_changed_secret_reconciles_its_referrers() -> None:
    """Created, changed and deleted ones do; one that is no longer referenced does not."""
    async with references() as (subject, streams, woken):
        subject.on_change(ref("a"), foo("a", secrets=[{"name": "s"}, {"name": "t"}]))
        subject.on_change(ref("b"), foo("b", secrets=[{"name": "s"}]))
        secrets = streams[SECRET]
        await secrets.send("ADDED", metadata("s", 1))
        await secrets.send("SYNCED", {})
        assert woken == []
        await secrets.send("MODIFIED", metadata("s", 2))
        assert sorted(woken) == [
            ("a", "reference: Secret default/s changed"),
            ("b", "reference: Secret default/s changed"),
        ]
        woken.clear()
        await secrets.send("ADDED", metadata("t", 3))
        assert woken == [("a", "reference: Secret default/t created")]
        woken.clear()
        subject.on_change(ref("a"), foo("a", secrets=[]))
        subject.on_change(ref("b"), None)
        await secrets.send("DELETED", metadata("s", 4))
        await secrets.send("DELETED", metadata("t", 5))
        assert woken == []


async def test_an_equal_name_elsewhere_is_another_object() -> None:
    """An equal name in another namespace is another object; some kinds are cluster-scoped."""
    async with references() as (subject, streams, woken):
        subject.on_change(ref("a"), foo("a", secrets=[{"name": "s"}], zone="z", map="m"))
        for stream in streams.values():
            await stream.send("SYNCED", {})
        await streams[SECRET].send("ADDED", metadata("s", 1, namespace="other"))
        await streams[GVK("", "v1", "ConfigMap")].send("ADDED", metadata("m", 2))
        assert woken == []
        await streams[ZONE].send("ADDED", metadata("z", 3, namespace=""))
        await streams[GVK("", "v1", "ConfigMap")].send("ADDED", metadata("m", 4, "shared"))
        assert [text for _, text in woken] == [
            "reference: Zone z created",
            "reference: ConfigMap shared/m created",
        ]


SELECTING = Watch(
    GVK("example.com", "v1", "Foo"),
    RunContent(role=Path("/roles/foo")),
    references=(Reference(SECRET, selector="spec.selector", namespace="spec.namespaces"),),
)


async def test_selected_objects_reconcile_their_selectors() -> None:
    """Those that come, change, lose the label or go; and no others."""
    async with references(SELECTING) as (subject, streams, woken):
        secrets, labels = streams[SECRET], {"app": "a"}
        selector = {"matchLabels": labels}
        subject.on_change(ref("a"), foo("a", selector=selector, namespaces=["default"]))
        subject.on_change(ref("b"), foo("b", selector={"matchLabels": {"app": "b"}}))
        subject.on_change(ref("all"), foo("all", selector=selector, namespaces="*"))
        await secrets.send("ADDED", metadata("s", 1, labels=labels))
        await secrets.send("SYNCED", {})
        await secrets.send("ADDED", metadata("other", 2, labels={"app": "c"}))
        assert woken == []
        await secrets.send("ADDED", metadata("t", 3, "elsewhere", labels=labels))
        assert woken == [("all", "reference: Secret elsewhere/t created")]
        for type_, version, now in (
            ("MODIFIED", 4, {"app": "c"}),
            ("MODIFIED", 5, {"app": "c", "more": "x"}),
            ("MODIFIED", 6, labels),
            ("DELETED", 7, {}),
        ):
            woken.clear()
            await secrets.send(type_, metadata("s", version, labels=now))
            assert {name for name, _ in woken} == (set() if version == 5 else {"a", "all"})
        assert {cause for _, cause in woken} == {"reference: Secret default/s deleted"}


async def test_a_changed_selector_selects_others() -> None:
    """The old objects no longer start runs; without a selector none do."""
    async with references(SELECTING) as (subject, streams, woken):
        secrets = streams[SECRET]
        for name in "xy":
            await secrets.send("ADDED", metadata(name, 1, labels={"app": name}))
        await secrets.send("SYNCED", {})
        for number, selected in enumerate("xy"):
            selector = {"matchLabels": {"app": selected}}
            subject.on_change(ref("a"), foo("a", selector=selector, namespaces="default"))
            for name in "xy":
                version = 10 * number + 2 + "xy".index(name)
                await secrets.send("MODIFIED", metadata(name, version, labels={"app": name}))
            assert {cause for _, cause in woken} == {
                f"reference: Secret default/{selected} changed"
            }
            woken.clear()
        subject.on_change(ref("a"), foo("a"))
        await secrets.send("DELETED", metadata("y", 99))
        assert woken == []


def test_an_invalid_selector_selects_nothing() -> None:
    """The expression and its error are reported once."""
    failed: list[FailedExpression] = []
    subject = References([SELECTING], ignore, failed.append, Debouncer(KnownStates(), ignore))
    for _ in range(2):
        subject.on_change(ref("a"), foo("a", selector="app=a"))
    (one,) = failed
    assert (one.ref, one.error.expression) == (ref("a"), "spec.selector")
    assert one.error.key.endswith("].selector")
    assert "not a label selector" in one.error.reason


def test_an_expression_that_fails_again_is_reported_again() -> None:
    """It could be evaluated in between; that is reported too, and so is the deletion."""
    failed: list[FailedExpression] = []
    recovered: list[ExpressionPlace] = []
    subject = References(
        [SELECTING],
        ignore,
        failed.append,
        Debouncer(KnownStates(), ignore),
        recovered=recovered.append,
    )
    selectors: tuple[Any, ...] = ("app=a", {}, "app=a")
    for selector in selectors:
        subject.on_change(ref("a"), foo("a", selector=selector))
    place = ExpressionPlace(SELECTING.gvk, "references[0].selector", ref("a"))
    assert [each.place for each in failed] == [place] * 2
    assert recovered == [place]
    subject.on_change(ref("a"), None)
    assert recovered == [place] * 2


async def test_referrers_of_an_object_are_found() -> None:
    """By name, and by the labels that the object has."""
    async with references() as (subject, _, _), references(SELECTING) as (selecting, streams, _):
        subject.on_change(ref("a"), foo("a", secrets=[{"name": "s"}]))
        secret = ObjectRef(SECRET, "default", "s")
        assert subject.referring(secret) == {ref("a")}
        assert selecting.referring(secret) == set()
        labels = {"app": "a"}
        selecting.on_change(
            ref("b"), foo("b", selector={"matchLabels": labels}, namespaces="default")
        )
        await streams[SECRET].send("ADDED", metadata("s", 1, labels=labels))
        assert selecting.referring(secret) == {ref("b")}


async def test_a_write_of_the_status_starts_no_run() -> None:
    """As for owned objects: only fields that a role can set count."""
    async with references() as (subject, streams, woken):
        subject.on_change(ref("a"), foo("a", zone="z"))
        zone: dict[str, Any] = {"namespace": "", "generation": 1}
        await streams[ZONE].send("ADDED", metadata("z", 1, **zone))
        await streams[ZONE].send("SYNCED", {})
        await streams[ZONE].send("MODIFIED", metadata("z", 2, **zone))
        assert woken == []
        await streams[ZONE].send("MODIFIED", metadata("z", 3, **zone | {"generation": 2}))
        assert len(woken) == 1


def test_references_are_read_from_texts_and_lists() -> None:
    """Names are text or in lists; missing ones refer to nothing, other values are reported."""
    failed: list[ExpressionError] = []
    body = foo("a", zone=3, secrets=[{"name": "s"}, {}])
    found = {str(each) for each in referenced(body, WATCH, failed.append)}
    assert [str(error) for error in failed] == [
        "references[1].name: spec.zone: expected text or a list of text, got a number"
    ]
    assert {text for text in found if "Zone" in text} == set()
    assert any(text.endswith("default/s") for text in found)
    assert not any("ConfigMap" in text for text in found)


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [
        (None, {"default", ""}),
        ("b", {"b", ""}),
        ([], {"default", ""}),
        (["b", "c"], {"b", "c", ""}),
    ],
)
def test_a_reference_without_a_namespace_is_in_that_of_the_resource(
    namespace: Any, expected: set[str]
) -> None:
    """Without the key, and where its expression gives nothing."""
    reference = Reference(SECRET, name="spec.secret", namespace="spec.namespace")
    watch = replace(WATCH, references=(reference,))
    failed: list[ExpressionError] = []
    found = referenced(foo("a", secret="s", namespace=namespace), watch, failed.append)
    assert {each.namespace for each in found} == expected
    assert failed == []


@pytest.mark.parametrize("key", ["name", "namespace"])
def test_a_reference_that_is_no_text_is_reported(key: str) -> None:
    """Such as a map whose key `name` is missing in the expression."""
    reference = Reference(SECRET, **{"name": "'s'", key: "spec.secret"})
    watch = replace(WATCH, references=(reference,))
    failed: list[ExpressionError] = []
    assert not list(referenced(foo("a", secret={"name": "s"}), watch, failed.append))
    (error,) = failed
    assert str(error).endswith(f"{key}: spec.secret: expected text or a list of text, got a map")


@pytest.mark.parametrize("key", ["name", "selector"])
def test_references_to_too_many_objects_fail(key: str) -> None:
    """Lists of names or values and of namespaces: a small resource with a huge product."""
    reference = Reference(SECRET, **{key: "spec.chosen", "namespace": "spec.namespaces"})
    watch = replace(WATCH, references=(reference,))

    def failures(names: int, namespaces: int) -> list[str]:
        failed: list[ExpressionError] = []
        values = [f"a{number}" for number in range(names)]
        selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
        body = foo(
            "a",
            chosen=values if key == "name" else selector,
            namespaces=[f"b{number}" for number in range(namespaces)],
        )
        found = list(referenced(body, watch, failed.append))
        assert bool(found) is not bool(failed)
        return [str(error) for error in failed]

    assert failures(100, 100) == []
    assert failures(10_000, 1) == []
    (error,) = failures(200, 100)
    assert error.startswith(f"references[0].{key}: spec.chosen: 200 values in 100 namespaces are")


def test_requirements_of_a_selector_count_in_each_namespace() -> None:
    """Values of all requirements, and one for each that has none: all are filed by namespace."""
    reference = Reference(SECRET, selector="spec.selector", namespace="spec.namespaces")
    watch = replace(WATCH, references=(reference,))

    def failures(*expressions: Any) -> list[ExpressionError]:
        failed: list[ExpressionError] = []
        namespaces = [f"b{number}" for number in range(1_000)]
        body = foo("a", selector={"matchExpressions": [*expressions]}, namespaces=namespaces)
        assert bool(list(referenced(body, watch, failed.append))) is not bool(failed)
        return failed

    values = [{"key": "app", "operator": "In", "values": [f"a{each}", "b"]} for each in range(6)]
    absent = [{"key": f"a{each}", "operator": "DoesNotExist"} for each in range(11)]
    assert failures(*values[:5]) == failures(*absent[:10]) == []
    assert "12 values in 1000 namespaces" in str(failures(*values)[0])
    assert "11 values in 1000 namespaces" in str(failures(*absent)[0])


async def test_chosen_fields_of_the_status_start_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write of the status is a run only if a field of wakeOn has changed, and many are one."""
    # All changes are within one pause, however long they take.
    monkeypatch.setattr(debouncing, "_PAUSE_SECONDS", 3600)
    watch = replace(WATCH, wake_on=(WakeOn(ZONE, ("status.phase",)),))
    causes: list[str] = []
    stream = Stream()
    failed: list[FailedExpression] = []

    def enqueue(_: ObjectRef, cause: Cause) -> None:
        causes.append(str(cause))

    subject = References(
        [watch],
        enqueue,
        failed.append,
        Debouncer(KnownStates(), enqueue),
        WakeOnFields([watch], failed.append),
    )
    (zones,) = [each for each in subject.subscriptions() if each.gvk == ZONE]
    assert zones.whole
    subject.on_change(ref("a"), foo("a", zone="north"))

    async def send(version: int, **status: Any) -> None:
        named = metadata("north", version, generation=1)
        body = {"apiVersion": ZONE.api_version, "kind": ZONE.kind, "metadata": named}
        event = MetadataEvent(EventType.MODIFIED, body | {"status": status})
        stream.events.put_nowait(event)
        await stream.events.join()

    async with in_background(watches_of([zones], {ZONE: stream}).run()):
        await send(1, phase="New")
        causes.clear()
        await send(2, phase="New", others=1)
        assert causes == []
        await send(3, phase="Ready")
        assert causes == ["reference: Zone default/north status.phase New to Ready"]
        for number in range(100):
            await send(4 + number, phase=f"Phase{number}")
        assert len(causes) == 1
        subject.on_change(ref("a"), None)

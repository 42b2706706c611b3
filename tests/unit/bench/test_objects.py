"""Objects of two namespaces: what counts as a difference."""

from __future__ import annotations

from typing import Any

from bench.objects import comparable, differences


def _service(namespace: str, **spec: Any) -> dict[str, Any]:
    return {
        "kind": "Service",
        "metadata": {"name": "web", "namespace": namespace, "uid": namespace, "generation": 7},
        "spec": {"host": f"web.{namespace}.svc", "clusterIP": f"10.{len(namespace)}", **spec},
        "status": {"loadBalancer": namespace},
    }


def _secret(**data: str) -> dict[str, Any]:
    return {"kind": "Secret", "metadata": {"name": "web"}, "data": data}


def test_what_differs_between_any_two_objects_does_not_count() -> None:
    """Namespaces, uids, addresses, times, status and generated passwords."""
    times = ("2026-01-01T00:00:00Z", "2026-02-02 01:01:01.123456")
    first, second = (
        comparable([_service(name, at=at), _secret(password=at)], name)
        for name, at in zip(("bench-1", "bench-22"), times, strict=True)
    )
    assert differences(first, second) == []


def test_objects_and_fields_that_differ_are_named() -> None:
    """Each object has one line."""
    first = comparable([_service("a", ports=[{"port": 80}], x=1), _secret(user="a")], "bench-1")
    second = comparable([_service("a", ports=[{"port": 81}])], "bench-2")
    assert differences(first, second) == [
        "Secret web: only of operator-runner",
        "Service web: spec.ports[0].port, spec.x",
    ]
    assert differences(second, first)[0] == "Secret web: only of ansible-operator"

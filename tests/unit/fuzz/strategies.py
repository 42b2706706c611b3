"""Generated resources that are valid for an API server, with unusual values."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

PREFIX = "ansible.sdk.operatorframework.io/"
TEXT = st.text(st.characters(exclude_categories=[]), max_size=12)
NUMBERS = (
    st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([10**400, 1e308, -0.0])
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXT
WORDS = st.sampled_from(
    [
        *("Running", "Successful", "Failure", "Ready", "True", "False", "Unknown", "", "{{ x }}"),
        *("Drifted", "Reconciled", "Available"),
        *("__ansible_unsafe", "__ansible_type", "name", "type", "status", "conditions", "a.b"),
    ]
)
KEYS = TEXT | WORDS | st.sampled_from(["size", "sizeLimit", "secrets", "name", "HTTPUrl", "aB1c2"])
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
_DURATIONS = st.sampled_from(
    ["0", "0s", "-5m", "1ns", "10m", "9223372036854775807ns", "1h" * 50, "1.5h", "1d", "+", "."]
) | st.from_regex(r"[-+]?[0-9]{1,30}(\.[0-9]{0,30})?(ns|us|µs|ms|s|m|h|d)", fullmatch=True)
_VALUES = TEXT | _DURATIONS | st.integers().map(str) | st.just("7" * 5_000)
ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        [f"{PREFIX}{name}" for name in ("reconcile-period", "max-runner-artifacts", "verbosity")]
    )
    | TEXT,
    _VALUES,
    max_size=4,
)
CONDITIONS = st.lists(
    JSON
    | st.fixed_dictionaries(
        {},
        optional={
            "type": WORDS | JSON,
            "status": WORDS | JSON,
            "reason": WORDS | JSON,
            "message": JSON,
            "lastTransitionTime": JSON,
            "observedGeneration": JSON,
        },
    ),
    max_size=5,
)
_COUNTS = st.dictionaries(
    st.sampled_from(
        [
            *("replicas", "updatedReplicas", "availableReplicas", "readyReplicas", "phase"),
            *("observedGeneration", "desiredNumberScheduled", "loadBalancer", "succeeded", "type"),
            *("containerStatuses", "currentRevision", "numberReady", "updateStrategy", "selector"),
        ]
    ),
    JSON,
    max_size=4,
)
STATUSES = JSON | _COUNTS | st.fixed_dictionaries({"conditions": CONDITIONS | JSON})
_FIELDS: st.SearchStrategy[Json] = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(
        st.sampled_from(["f:spec", "f:status", "f:metadata", "f:a", ".", 'k:{"name":"x"}', "v:1"]),
        inner,
        max_size=3,
    ),
    max_leaves=8,
)
MANAGED = st.lists(
    st.fixed_dictionaries(
        {"manager": TEXT, "operation": st.sampled_from(["Update", "Apply"])},
        optional={
            "apiVersion": st.sampled_from(["example.com/v1", "example.com/v2", "v1"]),
            "time": st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"]),
            "subresource": st.sampled_from(["status", "scale"]),
            "fieldsV1": _FIELDS,
        },
    ),
    max_size=3,
)
METADATA = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["a", "b"]),
        "namespace": st.sampled_from(["default", "other"]),
        "uid": st.sampled_from(["u1", "u2"]),
        "resourceVersion": st.integers(1, 2**64).map(str),
        "creationTimestamp": st.just("2026-01-01T00:00:00Z"),
    },
    optional={
        "generation": st.integers(0, 3),
        "deletionTimestamp": st.just("2026-01-01T00:00:00Z"),
        "annotations": st.none() | ANNOTATIONS,
        "labels": st.none() | st.dictionaries(KEYS, TEXT | WORDS, max_size=3),
        "finalizers": st.lists(st.sampled_from(["example.com/f", "other/f"]), max_size=2),
        "managedFields": MANAGED,
        "ownerReferences": st.lists(
            st.fixed_dictionaries({"uid": TEXT, "name": TEXT, "kind": TEXT, "apiVersion": TEXT}),
            max_size=2,
        ),
    },
)
RESOURCES: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {"apiVersion": st.just("example.com/v1"), "kind": st.just("Foo"), "metadata": METADATA},
    optional={"spec": JSON | _COUNTS, "status": STATUSES, "data": JSON},
)

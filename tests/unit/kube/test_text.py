"""Truncation of notes and splitting of streams, for any text and any pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from operator_runner.core.model import GVK, EventSpec
from operator_runner.kube.cluster import note_of
from operator_runner.kube.discovery import ApiResource
from operator_runner.kube.session import split_lines


@given(st.text(max_size=40), st.text(), st.integers(0, 300))
def test_the_note_of_an_event_fits_and_keeps_its_cure_and_its_cause(
    text: str, cause: str, times: int
) -> None:
    """It is whole if it can be; a longer one is cut in its middle."""
    spec = EventSpec("Failed", f"no: {text * times}; do this", cause=f"spec{cause * times}")
    note, whole = note_of(spec), f"{spec.note} (why: {spec.cause})".encode(errors="replace")

    assert len(note.encode()) <= 1024
    assert note.startswith("no: ")
    assert "; do this (why: spec" in note
    assert note.endswith(")")
    if len(whole) <= 1024 and len(spec.cause.encode(errors="replace")) <= 500:
        assert note == whole.decode()


@given(st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line)), st.data())
async def test_lines_are_the_same_however_the_stream_is_cut(
    lines: list[bytes], data: st.DataObject
) -> None:
    """Chunks may end anywhere; an unfinished last line is dropped."""
    whole = b"".join(line + b"\n" for line in lines) + b"unfinished"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)))))
    edges = [0, *cuts, len(whole)]

    async def chunks() -> AsyncIterator[bytes]:
        for start, end in pairwise(edges):
            yield whole[start:end]

    assert [line async for line in split_lines(chunks())] == lines


def test_a_name_cannot_leave_its_place_in_a_path() -> None:
    """Names are also read from annotations, which may have any value."""
    secret = ApiResource(GVK("", "v1", "Secret"), "secrets", namespaced=True)

    path = secret.path("a", "../../b/secrets/c")

    assert path == "/api/v1/namespaces/a/secrets/..%2F..%2Fb%2Fsecrets%2Fc"


def test_a_namespace_is_omitted_for_cluster_scoped_kinds() -> None:
    """Collections of all namespaces and cluster-scoped kinds have no namespace in their path."""
    crd = ApiResource(GVK("apiextensions.k8s.io", "v1", "CRD"), "crds", namespaced=False)
    pod = ApiResource(GVK("", "v1", "Pod"), "pods", namespaced=True)

    assert crd.path("ignored", "a") == "/apis/apiextensions.k8s.io/v1/crds/a"
    assert pod.path() == "/api/v1/pods"

"""Which resources select an object by its labels."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.config.watches.selector import requirements_of
from operator_runner.core import labels as module
from operator_runner.core.labels import SelectionIndex, match_labels, selector_text
from operator_runner.core.model import (
    ALL_NAMESPACES,
    GVK,
    Json,
    LabelSelector,
    LabelSelectorRequirement,
    ObjectRef,
    Selection,
)

POD = GVK("", "v1", "Pod")
SELECTORS: Mapping[str, Json] = {
    "all": {},
    "front": {"matchLabels": {"tier": "front"}},
    "front of a": {"matchLabels": {"tier": "front", "zone": "a"}},
    "any tier": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    "no tier": {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
    "a or b": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
    "not a": {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]},
}


def ref(name: str) -> ObjectRef:
    return ObjectRef(GVK("example.com", "v1", "Foo"), "default", name)


def selection(selector: Json, namespace: str = "default") -> Selection:
    return Selection(POD, namespace, requirements_of(selector))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, {"all", "no tier", "not a"}),
        ({"tier": "front"}, {"all", "front", "any tier", "not a"}),
        ({"tier": "front", "zone": "a"}, {"all", "front", "front of a", "any tier", "a or b"}),
        ({"tier": "back", "zone": "b"}, {"all", "any tier", "a or b", "not a"}),
    ],
)
def test_an_object_is_selected_by_its_labels(labels: Json, expected: set[str]) -> None:
    """As the API server would list it; removed selections select nothing."""
    index = SelectionIndex()
    for name, selector in SELECTORS.items():
        index.add(selection(selector), ref(name))
    assert {each.name for each in index.selecting(POD, "default", labels)} == expected
    for name, selector in SELECTORS.items():
        index.discard(selection(selector), ref(name))
    assert index.selecting(POD, "default", labels) == set()


def test_namespaces_and_kinds_are_kept_apart() -> None:
    """A selection is of one kind in one namespace, or in all."""
    index = SelectionIndex()
    index.add(selection({}), ref("own"))
    index.add(selection({}, ALL_NAMESPACES), ref("all"))
    assert {each.name for each in index.selecting(POD, "default", {})} == {"own", "all"}
    assert {each.name for each in index.selecting(POD, "other", {})} == {"all"}
    assert index.selecting(GVK("", "v1", "Secret"), "default", {}) == set()


def test_only_selectors_of_a_label_of_the_object_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a thousand resources that select by a label of their own, one is compared."""
    index, compared = SelectionIndex(), []
    for number in range(1000):
        index.add(selection({"matchLabels": {"app": str(number)}}), ref(str(number)))

    def compare(key: str, *_: object) -> bool:
        compared.append(key)
        return True

    monkeypatch.setattr(module, "_fits", compare)
    found = index.selecting(POD, "default", {"app": "7", "zone": "a"})
    assert ({each.name for each in found}, len(compared)) == ({"7"}, 1)


def test_a_selector_of_many_values_is_not_compared_for_each_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its hash, for which each value is read, is not needed once for each value."""
    hashed: list[Selection] = []
    plain = Selection.__hash__

    def hash_of(selection: Selection) -> int:
        hashed.append(selection)
        return plain(selection)

    values = [str(number) for number in range(1000)]
    many = selection({"matchExpressions": [{"key": "app", "operator": "In", "values": values}]})
    index = SelectionIndex()
    monkeypatch.setattr(Selection, "__hash__", hash_of)
    index.add(many, ref("many"))
    index.add(many, ref("more"))
    found = index.selecting(POD, "default", {"app": "7"})
    for name in ("many", "more"):
        index.discard(many, ref(name))
    assert {each.name for each in found} == {"many", "more"}
    assert index.selecting(POD, "default", {"app": "7"}) == set()
    assert len(hashed) < 10


@given(
    requirements=st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
            st.lists(st.sampled_from("xyz"), min_size=1, max_size=3),
        ),
        max_size=5,
    ),
    labels=st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xyz")),
)
def test_the_index_selects_as_each_requirement_does(
    requirements: list[tuple[str, str, list[str]]], labels: dict[str, str]
) -> None:
    """Also with several requirements for one key."""
    all_of = tuple(
        LabelSelectorRequirement(key, operator, tuple(values) if "In" in operator else ())
        for key, operator, values in requirements
    )
    index = SelectionIndex()
    index.add(Selection(POD, "default", all_of), ref("web"))
    matches = match_labels(LabelSelector({}, all_of), labels)
    assert index.selecting(POD, "default", labels) == ({ref("web")} if matches else set())


@pytest.mark.parametrize("operator", ["DoesNotExist", "NotIn"])
def test_only_requirements_of_the_labels_of_the_object_are_compared(
    monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    """However many a selector has: each event of the kind compares the selectors of all."""
    index, compared = SelectionIndex(), []
    values = ["a"] if operator == "NotIn" else []
    for number in range(100):
        keys = [f"{number}-{each}" for each in range(49)] + ["app"]
        absent = [{"key": key, "operator": operator, "values": values} for key in keys] * 2
        index.add(selection({"matchExpressions": absent}), ref(str(number)))

    def compare(key: str, *_: object) -> bool:
        compared.append(key)
        return False

    monkeypatch.setattr(module, "_fits", compare)
    assert index.selecting(POD, "default", {"app": "a", "zone": "b"}) == set()
    assert len(index.selecting(POD, "default", {"zone": "b"})) == 100
    assert compared == ["app"] * 100


@pytest.mark.parametrize(
    "selector",
    [
        "app=a",
        [],
        {"app": "a"},
        {"matchLabels": ["app"]},
        {"matchLabels": {"app": 3}},
        {"matchExpressions": {"key": "app"}},
        {"matchExpressions": ["app"]},
        {"matchExpressions": [{"key": "app"}]},
        {"matchExpressions": [{"key": "app", "operator": "Is"}]},
        {"matchExpressions": [{"key": "app", "operator": ["In"]}]},
        {"matchExpressions": [{"key": "app", "operator": "In"}]},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": "a"}]},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": [1]}]},
        {"matchExpressions": [{"key": "app", "operator": "Exists", "values": ["a"]}]},
        {"matchExpressions": [{"operator": "Exists"}]},
    ],
)
def test_invalid_label_selectors_are_rejected(selector: Json) -> None:
    """It is the value of a resource, so it may have any type."""
    with pytest.raises(ValueError, match=r"\w"):
        requirements_of(selector)


def test_a_selector_of_too_many_requirements_is_rejected() -> None:
    """All of them would be compared with each object of the kind that changes."""
    absent = [{"key": f"a{number}", "operator": "DoesNotExist"} for number in range(50)]
    labels = {f"b{number}": "" for number in range(50)}
    assert len(requirements_of({"matchLabels": labels, "matchExpressions": absent})) == 100
    with pytest.raises(ValueError, match="at most 100 requirements"):
        requirements_of({"matchLabels": labels | {"c": ""}, "matchExpressions": absent})


def test_a_selector_is_written_as_kubectl_does() -> None:
    """As kubectl writes it; the API server accepts `in` with spaces."""
    requirements = (
        LabelSelectorRequirement("zone", "In", ("a", "b")),
        LabelSelectorRequirement("zone", "NotIn", ("c",)),
        LabelSelectorRequirement("size", "Exists"),
        LabelSelectorRequirement("old", "DoesNotExist"),
    )
    selector = LabelSelector({"tier": "front"}, requirements)
    assert selector_text(selector) == "tier=front,zone in (a,b),zone notin (c),size,!old"
    assert not selector_text(LabelSelector())

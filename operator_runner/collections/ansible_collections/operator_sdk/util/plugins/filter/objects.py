"""Ansible filters: label selectors for requests, and the objects of an owner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

_FIELDS = ("matchLabels", "matchExpressions")


def label_selectors(selector: Mapping[str, Any]) -> list[str]:
    """Return the requirements of a LabelSelector as `label_selectors` of k8s_info takes them.

    Raises AnsibleFilterError for an invalid LabelSelector.
    """
    if not isinstance(selector, Mapping):
        raise AnsibleFilterError(
            f"label_selectors: expected a LabelSelector, a map with {' and '.join(_FIELDS)};"
            f" found {type(selector).__name__}"
        )
    if unknown := [str(key) for key in selector if key not in _FIELDS]:
        raise AnsibleFilterError(
            f"label_selectors: {', '.join(unknown)}: a LabelSelector has {' and '.join(_FIELDS)}."
            " Variables of a resource are in snake case, including labels: set snakeCaseParameters:"
            " false in watches.yaml, or use the selector of the whole resource (_GROUP_KIND.spec)"
        )
    labels = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    return [*labels, *map(_requirement, selector.get("matchExpressions") or [])]


def _requirement(expression: Mapping[str, Any]) -> str:
    key, operator = expression["key"], expression["operator"]
    match operator:
        case "Exists":
            return str(key)
        case "DoesNotExist":
            return f"!{key}"
        case "In" | "NotIn":
            return f"{key} {operator.lower()} ({','.join(map(str, expression['values']))})"
    raise AnsibleFilterError(
        f"label_selectors: {key}: the operator {operator} is not In, NotIn, Exists or DoesNotExist"
    )


def owned_by(objects: Iterable[Mapping[str, Any]], owner: Mapping[str, Any]) -> list[Any]:
    """Return the objects of which `owner` is an owner, by its uid.

    Raises AnsibleFilterError for an owner without a uid.
    """
    try:
        uid = owner["metadata"]["uid"]
    except (KeyError, TypeError) as error:
        raise AnsibleFilterError(
            "owned_by: the owner has no metadata.uid; pass the whole resource, _GROUP_KIND"
        ) from error
    return [each for each in objects if uid in _owners(each)]


def _owners(body: Mapping[str, Any]) -> set[str]:
    return {owner["uid"] for owner in body["metadata"].get("ownerReferences") or []}


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"label_selectors": label_selectors, "owned_by": owned_by}

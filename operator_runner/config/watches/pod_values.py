"""Check values of Pods that Kubernetes would refuse at the start of each run: images, quantities.

Sources: https://github.com/distribution/reference (grammar of images) and
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

from operator_runner.config.watches.diagnostics import Diagnostics
from operator_runner.config.watches.document import YamlValue

_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_REGISTRY = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_TAG = r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = r"@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_IMAGE = re.compile(rf"(?:{_REGISTRY}/)?{_COMPONENT}(?:/{_COMPONENT})*(?:{_TAG})?(?:{_DIGEST})?")
_QUANTITY = re.compile(r"([+-]?)([0-9]*\.?[0-9]*)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?")
"""Sign, number and suffix. The API server reads a missing number as 0."""
_FACTORS = {
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{letter: Decimal(1000) ** -power for power, letter in enumerate("mun", 1)},
}
_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_FIELDS = ("requests", "limits", "claims")
_SHOWN = 60


def check_image(image: YamlValue, report: Diagnostics) -> None:
    """Report an image that no node can pull."""
    if isinstance(image.value, str) and image.value and not _IMAGE.fullmatch(image.value):
        report.problem(
            image.location,
            f"invalid image {image.value[:_SHOWN]!r}; write [REGISTRY/]NAME[:TAG] with a name in"
            " lower case, such as quay.io/example/ee:1.0",
        )


def check_resources(resources: YamlValue, report: Diagnostics) -> None:
    """Report quantities of a container, and names of resources, that the API server refuses."""
    fields = resources.value if isinstance(resources.value, Mapping) else {}
    for name in fields.keys() - _FIELDS:
        report.warning(fields[name].location, "unknown field, ignored; write requests or limits")
    requests, limits = (dict(_amounts(fields.get(name), report)) for name in _FIELDS[:2])
    for name, (amount, value) in requests.items():
        if name in limits and amount > limits[name][0]:
            problem = f"the request of {name} is more than its limit; raise the limit"
            report.problem(value.location, problem)


def _amounts(
    listed: YamlValue | None, report: Diagnostics
) -> Iterator[tuple[str, tuple[Decimal, YamlValue]]]:
    """Yield the names and quantities of resources; invalid ones are reported."""
    if listed is None or listed.value is None:
        return
    if not isinstance(listed.value, Mapping):
        report.problem(listed.location, "expected a map; write names and quantities of resources")
        return
    for name, value in listed.value.items():
        if problem := _name_problem(name):
            report.problem(value.location, problem)
            continue
        try:
            yield name, (quantity(value.value), value)
        except ValueError as error:
            report.problem(value.location, f"{error}; write a quantity such as 500m, 2 or 512Mi")


def _name_problem(name: str) -> str:
    if name in _RESOURCES or "/" in name or name.startswith("hugepages-"):
        return ""
    hint = f"write {', '.join(_RESOURCES)}, or a name with a domain"
    return f"unknown resource {name[:_SHOWN]!r}; {hint}"


def quantity(value: object) -> Decimal:
    """Return the number that a quantity of a resource stands for. Raises ValueError."""
    text = str(value)
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or not text.strip() or isinstance(value, bool):
        raise ValueError(f"invalid quantity {text[:_SHOWN]!r}")
    sign, digits, suffix = match.groups(default="")
    number = Decimal(f"0{digits}")
    if sign == "-" and number:
        raise ValueError(f"negative quantity {text[:_SHOWN]!r}")
    if suffix in _FACTORS:
        return number * _FACTORS[suffix]
    return number.scaleb(int(suffix[1:])) if suffix else number

"""The names of the nginx operator's ports, over the lists of ports that its CRD allows."""

from __future__ import annotations

import json
import re
from typing import Any

import jinja2
import yaml
from ansible.plugins.filter.core import regex_replace
from hypothesis import given
from hypothesis import strategies as st

from tests.support.operator import REPOSITORY

CRD = REPOSITORY / "crds" / "operator.example.com_nginxoperators.yaml"
TEMPLATE = REPOSITORY / "roles" / "nginx" / "templates" / "operand.yaml.j2"

(SCHEMA,) = (
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["ports"]
    for version in yaml.safe_load(CRD.read_text())["spec"]["versions"]
    if version["name"] == "v1alpha2"
)
FIELDS = SCHEMA["items"]["properties"]
PATTERN = FIELDS["name"]["pattern"]
# Names that the role might choose itself come up as often as others.
NAMES = st.sampled_from(["", "nginx", "tcp-80", "tcp-80-2", "udp-80"]) | st.text(
    "az09-", max_size=FIELDS["name"]["maxLength"]
).filter(re.compile(PATTERN).fullmatch)


_JINJA = jinja2.Environment(autoescape=False, trim_blocks=True)
_JINJA.filters |= {"to_json": json.dumps, "regex_replace": regex_replace}
_MACRO, _, _ = TEMPLATE.read_text().partition("apiVersion:")
MACROS: Any = _JINJA.from_string(_MACRO).module


def _as_role_sees(ports: list[Any]) -> list[Any]:
    # The API server takes one port of a number and protocol, and refuses Pods with a name twice.
    keys = {(port["container_port"], port["protocol"]): port for port in ports}
    named: set[str] = set()
    for port in keys.values():
        if port.get("name") in named:
            del port["name"]
        named.add(port.get("name", ""))
    return list(keys.values())


PORTS = st.lists(
    st.fixed_dictionaries(
        {
            "container_port": st.sampled_from([80, 81])
            | st.integers(FIELDS["containerPort"]["minimum"], FIELDS["containerPort"]["maximum"]),
            "protocol": st.sampled_from(FIELDS["protocol"]["enum"]),
        },
        optional={"name": NAMES},
    ),
    min_size=1,
    max_size=8,
).map(_as_role_sees)


@given(PORTS)
def test_the_names_of_legal_ports_are_legal_and_differ(ports: list[Any]) -> None:
    """Each name is one that Kubernetes takes, none occurs twice, and those of the resource stay."""
    names = [json.loads(MACROS.name_of(port, ports)) for port in ports]
    assert len(set(names)) == len(names)
    for name, port in zip(names, ports, strict=True):
        assert len(name) <= FIELDS["name"]["maxLength"]
        assert re.fullmatch(PATTERN, name)
        assert name == (port.get("name") or name) != ""


def test_the_list_of_ports_is_bounded() -> None:
    """Names are compared with each other: the CRD allows 250 ports, and no more."""
    assert SCHEMA["maxItems"] == 250

"""Names of variables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.reconcile.variables import snake_keys, to_snake

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("size", "size"),
        ("snake_case", "snake_case"),
        ("camelCase", "camel_case"),
        ("kebab-case", "kebab_case"),
        ("JSONData", "_json_data"),
        ("a.b/c", "a.b/c"),
        ("1x", "1x"),
        ("sizeK8sBuckets", "size_k8s_buckets"),
        ("ThisShouldHaveUnderscores", "_this_should_have_underscores"),
        ("egressIPsegress", "egress_ips_egress"),
        ("IPsegress", "_ips_egress"),
        ("URLegressIPEgressHTTP", "url_egress_ip_egress_http"),
        ("URLsegressIPsEgressHTTPs", "_urls_egress_ips_egress_https"),
        ("URL", "__url"),
        ("URLs", "__urls"),
        ("HTTPSPort", "http_s_port"),
        ("VIPAddress", "_v_ip_address"),
        ("IPv4", "ip_v4"),
        ("a1b2c3", "a_1_b2c3"),
        ("aB", "ab"),
        ("iSCSI", "iscsi"),
        ("HTTPURL", "http__url"),
        (" padded ", "padded"),
        ("", ""),
        ("  ", ""),
        ("größeNeu", "größe_neu"),
    ],
)
def test_names_become_snake_case(name: str, expected: str) -> None:
    """Every oddity of ansible-operator is kept."""
    assert to_snake(name) == expected


@given(st.text() | st.text(alphabet="aBcHTPURLIs12_- "))
def test_every_text_has_a_name(name: str) -> None:
    """Any name in a spec is converted without an error, and without capital letters."""
    snake = to_snake(name)

    assert not any("A" <= char <= "Z" for char in snake)
    assert (snake == "") == (name.strip(" ") == "")


def test_maps_in_lists_are_converted_too() -> None:
    """All names change, values do not."""
    value = {"podSpec": [{"hostIP": "keepMe"}, ["x", {"aKey": None}], 3]}

    assert snake_keys(value) == {"pod_spec": [{"host_ip": "keepMe"}, ["x", {"a_key": None}], 3]}


@pytest.mark.parametrize(
    ("spec", "winner"),
    [
        ({"fooBar": 1, "foo_bar": 2, "foo-bar": 3}, 2),
        ({"foo_bar": 2, "fooBar": 1}, 2),
        ({"fooBar": 1, "foo-bar": 3}, 1),
        ({"foo-bar": 3, "fooBar": 1}, 1),
    ],
)
def test_of_names_that_become_one_the_same_always_wins(spec: dict[str, int], winner: int) -> None:
    """The name that needs no conversion, else the alphabetically last, in whatever order."""
    assert snake_keys(spec) == {"foo_bar": winner}


@given(JSON, st.randoms())
def test_the_order_of_keys_does_not_matter(value: Any, random: Any) -> None:
    """Two copies of a resource with keys in another order give the same variables."""
    assert snake_keys(value) == snake_keys(shuffle(value, random))


def shuffle(value: Any, random: Any) -> Any:
    if isinstance(value, dict):
        pairs = [(key, shuffle(item, random)) for key, item in value.items()]
        random.shuffle(pairs)
        return dict(pairs)
    if isinstance(value, list):
        return [shuffle(item, random) for item in value]
    return value

"""Results of any content are handled as in ansible-core."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from ansible._internal._datatag._tags import Origin
from ansible._internal._templating._engine import TemplateEngine
from ansible.errors import AnsibleError
from ansible.module_utils._internal._messages import Event, WarningSummary
from ansible.parsing.vault import EncryptedString
from ansible.utils.vars import transform_to_native_types
from hypothesis import given
from hypothesis import strategies as st

from operator_runner.ansible.forkserver import results

ORIGIN = Origin(path="/role/tasks/main.yml", line_num=1)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
STRANGE = (
    st.dates()
    | st.datetimes(timezones=st.just(dt.UTC))
    | st.just((1, "a"))
    | st.builds(EncryptedString, ciphertext=st.just("$ANSIBLE_VAULT;1.1;AES256\n61"))
    | st.builds(WarningSummary, event=st.builds(Event, msg=st.text()))
)
KEYS = st.text(max_size=4) | st.sampled_from(["_ansible_no_log", "_ansible_x", "_ansible_"])


def tagged(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Generate values with and without their origin in a file."""
    return values | values.map(ORIGIN.try_tag)


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Give lists and maps of these, with tags here and there."""
    return st.recursive(
        leaves,
        lambda inner: (
            tagged(st.lists(inner, max_size=4))
            | tagged(st.dictionaries(tagged(KEYS), inner, max_size=4))
        ),
    )


RESULTS = st.dictionaries(KEYS, trees(tagged(PLAIN) | STRANGE), max_size=5)


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the result of a function, or its error: the vault's password is missing."""
    try:
        return shape(function(*args, **kwargs))
    except AnsibleError as error:
        return type(error), str(error)


def shape(value: Any) -> Any:
    """Return a value with the types of all that is in it; keys and their order included."""
    if isinstance(value, dict):
        return type(value), [(shape(key), shape(each)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [shape(each) for each in value]
    return type(value), None if isinstance(value, EncryptedString) else repr(value)


@given(RESULTS)
def test_callbacks_get_native_copies_without_tags(result: dict[str, Any]) -> None:
    """The same copy for callbacks, without tags, and of encrypted texts nothing."""
    ours = outcome(results.to_native_types, transform_to_native_types, result)
    assert ours == outcome(transform_to_native_types, result)


@given(RESULTS)
def test_results_are_converted_as_ansible_core_does(result: dict[str, Any]) -> None:
    """Errors and warnings show as they do in a playbook, plain data as it is."""
    ours = outcome(results.transform, TemplateEngine.transform, TemplateEngine(), result)
    assert ours == outcome(TemplateEngine().transform, result)

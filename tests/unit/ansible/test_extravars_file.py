"""The text of env/extravars."""

from __future__ import annotations

import json

import pytest
import yaml

from operator_runner.ansible.rundir import serialize_extravars
from operator_runner.core.model import PlainMap


def test_ordinary_variables_are_json() -> None:
    """Text that is not a template is marked as Ansible's own JSON marks it."""
    variables = {"size": 3, "text": {"__ansible_unsafe": "{{ x }}"}, "deep": [{"a": None}]}

    assert json.loads(serialize_extravars(variables)) == variables


def test_json_cannot_be_read_as_yaml() -> None:
    """Ansible reads as YAML what its JSON decoder refuses; there all text would be a template."""
    for loader in (yaml.SafeLoader, yaml.CSafeLoader):
        with pytest.raises(yaml.YAMLError):
            yaml.load(serialize_extravars({"text": {"__ansible_unsafe": "{{ x }}"}}), Loader=loader)


def test_a_map_with_a_type_tag_as_key_is_a_map() -> None:
    """As YAML, where only tags of YAML have a meaning."""
    text = serialize_extravars(
        {"a": PlainMap({"__ansible_unsafe": {"__ansible_unsafe": "{{ x }}"}})}
    )

    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(text)
    assert '!unsafe "__ansible_unsafe": !unsafe "{{ x }}"' in text


def test_values_of_the_author_are_equal_in_both_formats() -> None:
    """Templates, vault values and unsafe text of watches.yaml."""
    author = {
        "greeting": "{{ word }}",
        "secret": {"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256\n61\n"},
        "plain": {"__ansible_unsafe": "{{ x }}"},
    }
    text = serialize_extravars({"a": PlainMap({"__ansible_type": "x"}), **author})

    assert '"greeting": "{{ word }}"' in text
    assert r'!vault "$ANSIBLE_VAULT;1.1;AES256\n61\n"' in text
    assert '!unsafe "{{ x }}"' in text

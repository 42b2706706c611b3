"""Give template results the types of ansible-core 2.18, for which existing roles are written.

There a template returned text, unless it was only the name of a variable with a boolean, a number
or None: `'{{ size + 1 }}'` was "3", as the data of a ConfigMap or a label requires, and None was
"". Text that looks like a list, a map or a boolean was converted (`text_templates`). Since 2.19 a
template returns the type of its expression, and fails if variables cannot have it (timedelta,
range). ansible-core now ignores its setting `jinja2_native`, which selects the types here: true in
ansible.cfg or ANSIBLE_JINJA2_NATIVE leaves ansible-core unchanged.

`tests/contract/ansible/test_types_of_templates.py` compares this with ansible-core 2.18 itself.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from ansible import constants

from operator_runner.ansible.patches.registry import PATCHES
from operator_runner.ansible.patches.selection import PatchSelection, select

_PATCH = "text-types"
_SETTING = "DEFAULT_JINJA2_NATIVE"
_TEXT_FILTERS = "STRING_TYPE_FILTERS"
_DEFINITIONS = {
    _SETTING: {
        "type": "bool",
        "default": False,
        "env": [{"name": "ANSIBLE_JINJA2_NATIVE"}],
        "ini": [{"section": "defaults", "key": "jinja2_native"}],
    },
    _TEXT_FILTERS: {
        "type": "list",
        "default": [
            *("string", "to_json", "to_nice_json", "to_yaml", "to_nice_yaml", "ppretty", "json")
        ],
        "env": [{"name": "ANSIBLE_STRING_TYPE_FILTERS"}],
        "ini": [{"section": "jinja2", "key": "dont_type_filters"}],
    },
}
"""Settings that ansible-core ignores since 2.19, and removes in 2.23: defined as in 2.18."""
_FACTS = "INJECT_FACTS_AS_VARS"
_FACTS_VARIABLE = "ANSIBLE_INJECT_FACT_VARS"


def install(patches: PatchSelection | None = None) -> None:
    """Patch templating in this process and its forks, unless native types are selected.

    `patches` are those that a fork server has checked; None: check here, and exit with a message
    if the patch does not fit the installed ansible-core.
    """
    keep_injected_facts()
    text_filters, is_native = _setting(_TEXT_FILTERS), uses_native_types()
    # ansible-core would warn that these settings have no effect.
    deprecated = constants.config.DEPRECATED
    deprecated[:] = [entry for entry in deprecated if entry[0] not in {_SETTING, _TEXT_FILTERS}]
    if not is_native:
        (_checked() if patches is None else patches).install(_PATCH, text_filters)


def keep_injected_facts() -> None:
    """Make facts variables, as in ansible-core 2.18, unless ansible.cfg or the environment decides.

    ansible-core 2.20 and later do so too, but warn at each use unless a setting asks for it. They
    read the setting when `ansible.vars.manager` is imported.
    """
    known = constants.config.get_configuration_definitions()
    if _FACTS in known:
        _, origin = constants.config.get_config_value_and_origin(_FACTS)
        if origin == "default":
            os.environ[_FACTS_VARIABLE] = "true"


def _setting(name: str) -> Any:
    """Return the value of a setting of ansible-core 2.18, from the environment or ansible.cfg."""
    owner = {"plugin_type": "operator_runner", "plugin_name": "templates"}
    constants.config.initialize_plugin_configuration_definitions(*owner.values(), _DEFINITIONS)
    return constants.config.get_config_value(name, **owner)


def _checked() -> PatchSelection:
    selected, mismatches = select(patches=[each for each in PATCHES if each.name == _PATCH])
    if mismatches:
        hint = "set nativeTypes: true in watches.yaml, or install a version that it fits"
        sys.exit(f"cannot give templates the types of ansible-core 2.18: {mismatches[0]}; {hint}")
    return selected


def uses_native_types() -> bool:
    """Return whether ansible.cfg or the environment selects native types."""
    return bool(_setting(_SETTING))

"""Types of what templates give, as ansible-core had them before 2.19, for which roles are written.

There a template gave text, unless it was nothing but the name of a boolean, a number or nothing:
`'{{ size + 1 }}'` was "3", which is what the data of a ConfigMap or a label wants, and nothing was
"". Text that looks like a list, a map or a boolean became one (`old_types`). From 2.19 on each
template gives the type of its expression, and fails where no variable can have that (timedelta,
range). `jinja2_native`, which chose that before and which ansible-core no longer looks at, chooses
it here: true in ansible.cfg or ANSIBLE_JINJA2_NATIVE leaves ansible-core as it is.

`tests/contract/ansible/test_types_of_templates.py` compares this with ansible-core 2.18 itself.
"""

from __future__ import annotations

import sys

from ansible import constants

from operator_runner.ansible.patches.registry import PATCHES
from operator_runner.ansible.patches.selection import Selection, select

_PATCH = "text-types"
_SETTING = "DEFAULT_JINJA2_NATIVE"
_TEXT_FILTERS = "STRING_TYPE_FILTERS"


def install(patches: Selection | None = None) -> None:
    """Have templates of this process and its forks give what they gave, unless types are native.

    `patches` are those that a fork server has checked; None: check here, and exit with a message
    if ansible-core is not what the patch expects.
    """
    text_filters = constants.config.get_config_value(_TEXT_FILTERS)
    is_native = asks_for_native_types()
    # ansible-core says that they have no effect, as soon as it is loaded so far that it can.
    told = constants.config.DEPRECATED
    told[:] = [entry for entry in told if entry[0] not in {_SETTING, _TEXT_FILTERS}]
    if not is_native:
        (_checked() if patches is None else patches).install(_PATCH, text_filters)


def _checked() -> Selection:
    selected, mismatches = select(patches=[each for each in PATCHES if each.name == _PATCH])
    if mismatches:
        cure = "set nativeTypes: true in watches.yaml, or install a version that it fits"
        sys.exit(f"cannot give templates the types of ansible-core 2.18: {mismatches[0]}; {cure}")
    return selected


def asks_for_native_types() -> bool:
    """Whether ansible.cfg or the environment asks for the types that expressions have."""
    native, origin = constants.config.get_config_value_and_origin(_SETTING)
    return bool(native) and origin != "default"

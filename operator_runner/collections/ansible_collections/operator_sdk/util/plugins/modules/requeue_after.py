#!/usr/bin/python
# ruff: noqa: EXE001 (Ansible reads the first line, nobody executes the file)
"""Ansible module: have the operator reconcile the resource again after some time."""

from __future__ import annotations

import re

from ansible.module_utils.basic import AnsibleModule

_TERMS = re.compile(r"(\d+(h|ms|m|s))+|0")


def complaint(time: str) -> str | None:
    """Return what is wrong with the period, and what to write instead; None if it is valid."""
    if _TERMS.fullmatch(time):
        return None
    hint = "write hours, minutes and seconds, such as 90s, 30m or 1h30m"
    if time.isdecimal():
        hint = f"it has no unit; write {time}s, {time}m or {time}h"
    return f"invalid time input: time is {time!r}: {hint}"


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"time": {"type": "str", "required": True}}, supports_check_mode=True
    )
    time = module.params["time"]
    problem = complaint(time)
    if problem:
        module.fail_json(msg=problem)
    module.exit_json(period=time)


if __name__ == "__main__":
    main()

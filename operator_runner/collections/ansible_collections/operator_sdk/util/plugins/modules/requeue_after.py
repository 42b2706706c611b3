#!/usr/bin/python
# ruff: noqa: EXE001 (Ansible reads the first line, nobody executes the file)
"""Ansible module: have the operator reconcile the resource again after some time."""

from __future__ import annotations

DOCUMENTATION = """
module: requeue_after
short_description: Reconcile the resource again after some time
description:
  - Asks the operator that runs the role to run it again for the same resource, after a period.
  - The play continues. The period starts when the play has ended and the status is written.
  - Of several such tasks in a play, the first one counts. If the play fails, the operator
    retries after a backoff instead.
  - Outside of an operator the module has no effect.
author:
  - operator-runner authors
options:
  time:
    description:
      - The period, in hours, minutes and seconds.
      - With V(0s) the next run starts after the reconcile period.
    type: str
    required: true
attributes:
  check_mode:
    description: The period is returned in check mode, too.
    support: full
"""

EXAMPLES = """
- name: Run again soon while the database does not exist
  operator_sdk.util.requeue_after:
    time: 30s
  when: not database.resources

- name: Renew the certificate in time
  operator_sdk.util.requeue_after:
    time: 1h30m
"""

RETURN = """
period:
  description: The period, as it was given; the operator reads it from here.
  returned: success
  type: str
  sample: 1h30m
"""

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

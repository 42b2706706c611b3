#!/usr/bin/python
# ruff: noqa: EXE001 (Ansible reads the first line, nobody executes the file)
"""Ansible module: make or change a metric that the operator exports with its own."""

from __future__ import annotations

DOCUMENTATION = """
module: osdk_metric
short_description: Make or change a metric of the operator
description:
  - Creates a Prometheus metric, or changes an existing one. The operator that runs the role keeps
    it in memory and exports it with its own metrics.
  - Exactly one of C(counter), C(gauge), C(histogram) and C(summary) must be given. An empty one
    only makes the metric.
author:
  - operator-runner authors
options:
  name:
    description: Name of the metric, of letters, digits and underscores.
    type: str
    required: true
  description:
    description: Help text of the metric.
    type: str
    required: true
  labels:
    description:
      - Labels of the series, the same names in each task with this metric.
      - The series ends when the resource is deleted that its labels V(namespace) and V(name) name.
    type: dict
  address:
    description:
      - Where the operator listens (its flag C(--user-metrics-bind-address)).
      - E(OSDK_METRIC_ADDRESS) is taken where it is not given. The operator sets it for its runs
        where it listens elsewhere, and to V(0), which sends nothing, where it takes no metrics.
    type: str
    default: http://localhost:5050/metrics
  counter:
    description: A number that only grows.
    type: dict
    suboptions:
      increment:
        description: Add 1.
        type: bool
      add:
        description: Add this number, which must not be negative.
        type: float
  gauge:
    description:
      - A number that goes up and down. Of several operations the first one of this order is
        done, C(increment), C(decrement), C(add), C(subtract), C(set), C(set_to_current_time).
    type: dict
    suboptions:
      set:
        description: Set it to this number.
        type: float
      increment:
        description: Add 1.
        type: bool
      decrement:
        description: Subtract 1.
        type: bool
      add:
        description: Add this number.
        type: float
      subtract:
        description: Subtract this number.
        type: float
      set_to_current_time:
        description: Set it to the time, in seconds since 1970.
        type: bool
  histogram:
    description: Observations, counted in buckets from 0.005 to 10.
    type: dict
    suboptions:
      observe:
        description: One observation.
        type: float
  summary:
    description: Observations, with their number and sum.
    type: dict
    suboptions:
      observe:
        description: One observation.
        type: float
attributes:
  check_mode:
    description: Nothing is sent in check mode.
    support: full
"""

EXAMPLES = """
- name: Count the backups
  operator_sdk.util.osdk_metric:
    name: database_backups_total
    description: Backups that were made
    counter:
      increment: true

- name: Set the number of databases
  operator_sdk.util.osdk_metric:
    name: databases
    description: Databases that are served
    gauge:
      set: "{{ databases | length }}"

- name: Export the version of a database
  operator_sdk.util.osdk_metric:
    name: database_info
    description: Version of the database
    labels:
      namespace: "{{ ansible_operator_meta.namespace }}"
      name: "{{ ansible_operator_meta.name }}"
      version: "{{ version }}"
    gauge:
      set: 1

- name: Observe the duration of the backup
  operator_sdk.util.osdk_metric:
    name: database_backup_seconds
    description: Time that a backup takes
    histogram:
      observe: "{{ backup.delta_seconds }}"
"""

RETURN = """
msg:
  description: Error message of the operator.
  returned: failure
  type: str
status_code:
  description: HTTP status of the answer.
  returned: if the operator refuses the request
  type: int
"""

import json
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from ansible.module_utils.basic import AnsibleModule, env_fallback
from ansible.module_utils.urls import open_url

NUMBER = {"type": "float"}
FLAG = {"type": "bool"}
OPERATIONS = {
    "counter": {"increment": FLAG, "add": NUMBER},
    "gauge": {
        "set": NUMBER,
        "increment": FLAG,
        "decrement": FLAG,
        "add": NUMBER,
        "subtract": NUMBER,
        "set_to_current_time": FLAG,
    },
    "histogram": {"observe": NUMBER},
    "summary": {"observe": NUMBER},
}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def request_of(params: dict[str, Any]) -> dict[str, Any]:
    """Return the body of the request; operations that are not given are left out."""
    body = {"name": params["name"], "description": params["description"]}
    if params["labels"]:
        body["labels"] = {name: str(value) for name, value in params["labels"].items()}
    for kind in OPERATIONS:
        if params[kind] is not None:
            given = {key: value for key, value in params[kind].items() if value is not None}
            body[kind] = given
    return body


def send(module: AnsibleModule, address: str) -> None:
    """Send the metric; fails the task in the operator's words if it is refused."""
    try:
        open_url(
            address,
            method="POST",
            data=json.dumps(request_of(module.params)),
            headers={"Content-Type": "application/json"},
            # The proxy in HTTP_PROXY cannot reach this machine's loopback address.
            use_proxy=urlsplit(address).hostname not in _LOOPBACK,
        )
    except HTTPError as refusal:
        with refusal:
            text = refusal.read().decode(errors="replace").strip()
        module.fail_json(msg=text or str(refusal), status_code=refusal.code)
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        module.fail_json(
            msg=f"No operator takes metrics at {address}: {reason}; give the address of its"
            " --user-metrics-bind-address as `address`, such as http://localhost:5050/metrics"
        )


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "description": {"type": "str", "required": True},
            "labels": {"type": "dict"},
            "address": {
                "type": "str",
                "default": "http://localhost:5050/metrics",
                "fallback": (env_fallback, ["OSDK_METRIC_ADDRESS"]),
            },
            **{kind: {"type": "dict", "options": spec} for kind, spec in OPERATIONS.items()},
        },
        supports_check_mode=True,
    )
    address = module.params["address"]
    if address == "0":
        module.exit_json(changed=False, msg="The operator takes no metrics of roles")
    if not module.check_mode:
        send(module, address)
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()

#!/usr/bin/python
# ruff: noqa: EXE001 (Ansible reads the first line, nobody executes the file)
"""Ansible module: make or change a metric that the operator exports with its own."""

from __future__ import annotations

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

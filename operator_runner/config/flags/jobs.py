"""The flags of runs as Kubernetes Jobs: name, help and further arguments of click."""

from __future__ import annotations

from typing import Any

import click

from operator_runner.config.flags.types import service

JOB_FLAGS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "--jobs-port",
        "Port for runs that are Kubernetes Jobs, if watches.yaml has any; 0: any free port.",
        {"default": 8444, "type": click.IntRange(0, 65535), "metavar": "PORT"},
    ),
    (
        "--jobs-service",
        "Service through which the Pods of Jobs connect to that port.",
        {"default": None, "type": service, "metavar": "[NAMESPACE/]NAME[:PORT]"},
    ),
    (
        "--jobs-host",
        "Address of an operator outside the cluster, as seen by the Pods of Jobs.",
        {"default": ""},
    ),
)

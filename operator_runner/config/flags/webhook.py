"""The flags of the conversion webhook: name, help and what click needs besides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from operator_runner.config.flags.types import service
from operator_runner.core.settings import WebhookSettings

WEBHOOK_FLAGS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "--webhook-port",
        "Port of the conversion webhook, if watches.yaml has conversions; 0: any free port.",
        {"default": 9443, "type": click.IntRange(0, 65535), "metavar": "PORT"},
    ),
    (
        "--webhook-cert-dir",
        "Directory of tls.crt and tls.key of the webhook; else the operator creates its own.",
        {
            "default": None,
            "type": click.Path(path_type=Path, file_okay=False),
            "show_default": str(WebhookSettings().cert_dir),
        },
    ),
    (
        "--webhook-service",
        "Service of the webhook; the operator writes it and the CA into the CRD.",
        {"default": None, "type": service, "metavar": "[NAMESPACE/]NAME[:PORT]"},
    ),
    (
        "--webhook-host",
        "Address of an operator outside the cluster, as seen by the API server.",
        {"default": ""},
    ),
)

"""The directory of a resource below another one, such as the work dir. Pure.

The layout is that of ansible-operator, `<group>/<version>/<kind>/<namespace>/<name>`. Names of RBAC
objects have no limit, and may have characters that a path in a variable such as KUBECONFIG cannot
have. They are encoded with %, which no name contains: no other resource has the same directory.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from operator_runner.core.model import ObjectRef

_SEPARATOR, _ENCODED_SEPARATOR = ":", "%3A"
"""Of lists of paths."""
_MAX_BYTES = 255
"""Of a file's name, on Linux."""
_KEPT_BYTES = 180


def resource_dir(base: Path, ref: ObjectRef) -> Path:
    """Return the directory of a resource below `base`."""
    gvk = ref.gvk
    return base / gvk.group / gvk.version / gvk.kind / ref.namespace / _encoded(ref.name)


def decoded_name(encoded: str) -> str:
    """Return the name of the resource that a directory belongs to; of a long one, the beginning."""
    return encoded.replace(_ENCODED_SEPARATOR, _SEPARATOR)


def _encoded(name: str) -> str:
    name = name.replace(_SEPARATOR, _ENCODED_SEPARATOR)
    raw = os.fsencode(name)
    if len(raw) <= _MAX_BYTES:
        return name
    digest = hashlib.sha256(raw).hexdigest()[:32]
    return f"{raw[:_KEPT_BYTES].decode(errors='ignore')}%{digest}"

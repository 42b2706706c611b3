"""The directory of a resource below another one, such as the work dir. Pure.

The layout is that of ansible-operator, `<group>/<version>/<kind>/<namespace>/<name>`. Names of RBAC
objects have no limit, and any characters but / and %, also those that mean something in a path:
KUBECONFIG is a list of paths with colons, and Ansible expands $HOME. They are encoded with %, so
that no other resource has the same directory.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import quote

from operator_runner.core.model import ObjectRef

_MAX_CHARACTERS = 255
"""Of a file's name, on Linux; an encoded name is ASCII."""
_KEPT_CHARACTERS = 180


def resource_dir(base: Path, ref: ObjectRef) -> Path:
    """Return the directory of a resource below `base`."""
    gvk = ref.gvk
    return base / gvk.group / gvk.version / gvk.kind / ref.namespace / encoded_name(ref.name)


def encoded_name(name: str) -> str:
    """Return the name of the directory of a resource with this name."""
    encoded = quote(name, safe="", errors="replace")
    if len(encoded) <= _MAX_CHARACTERS:
        return encoded
    digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:32]
    return f"{encoded[:_KEPT_CHARACTERS]}%_{digest}"

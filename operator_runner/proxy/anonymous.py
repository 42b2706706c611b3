"""Requests without a token, which ansible-operator accepts from programs beside the runs.

Its kubeconfigs name the owner in the user part of the server's URL, so the owner is the user name
of Basic authentication: an owner reference as JSON, with the owner's namespace, in base64.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

from operator_runner.core.model import GVK, ObjectRef, Watch
from operator_runner.proxy.ownership import Owner
from operator_runner.proxy.run_tokens import Grant
from operator_runner.proxy.status_errors import StatusError

_FIELDS = ("apiVersion", "kind", "name", "uid")


def grant_for_basic_auth(authorization: str, watches: Sequence[Watch]) -> Grant | None:
    """Return a grant for the owner in an Authorization header; None without Basic auth.

    The password and every other authentication scheme are ignored. Raises StatusError
    (400) if the owner cannot be read, or if its kind is not among `watches`.
    """
    if not authorization.lower().startswith("basic "):
        return None
    try:
        user, _, _ = _base64(authorization.partition(" ")[2]).partition(b":")
        owner = _owner(json.loads(_base64(user.decode())))
    except (ValueError, KeyError, TypeError) as error:
        raise StatusError(
            400,
            "invalid owner in the user of http://USER@...: expected base64 of JSON with "
            f"{', '.join(_FIELDS)} and namespace; fix it, or leave it out",
        ) from error
    watch = next((each for each in watches if _serves(each, owner.ref.gvk)), None)
    if watch is None:
        raise StatusError(400, f"watches.yaml does not name the owner's kind: {owner.ref.gvk}")
    return Grant(owner, watch, run_id="")


def _base64(text: str) -> bytes:
    plain = text.strip().rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def _owner(named: Mapping[str, Any]) -> Owner:
    api_version, kind, name, uid = (named[field] for field in _FIELDS)
    namespace = named.get("namespace") or ""
    texts = (api_version, kind, name, uid, namespace)
    if not all(isinstance(text, str) for text in texts) or not all(texts[:4]):
        raise ValueError("each field must be a non-empty string")
    return Owner(ObjectRef(GVK.of(api_version, kind), namespace, name), uid)


def _serves(watch: Watch, gvk: GVK) -> bool:
    return (watch.gvk.group, watch.gvk.kind) == (gvk.group, gvk.kind)

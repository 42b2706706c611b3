"""Names of objects by the rules of Kubernetes, as regular expressions without groups.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/names
"""

from __future__ import annotations

LABEL_PATTERN = "[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
"""A label of RFC 1123: the name of a namespace or a Service."""
_PART = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
SUBDOMAIN_PATTERN = rf"{_PART}(?:\.{_PART})*"
"""A subdomain of RFC 1123, of any length: the name of most objects, and an API group."""
MAX_SUBDOMAIN = 253
"""Its length."""

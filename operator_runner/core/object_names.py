"""Names of objects by the rules of Kubernetes, as regular expressions without groups; plurals.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/names
"""

from __future__ import annotations

import re

LABEL_PATTERN = "[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
"""A label of RFC 1123: the name of a namespace or a Service."""
_PART = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
SUBDOMAIN_PATTERN = rf"{_PART}(?:\.{_PART})*"
"""A subdomain of RFC 1123, of any length: the name of most objects, and an API group."""
MAX_SUBDOMAIN = 253
"""Its length."""


def plural_of(kind: str) -> str:
    """Return the plural of a kind that is built into Kubernetes, or is named as these are."""
    return "endpoints" if kind == "Endpoints" else pluralize(kind.lower())


def pluralize(word: str) -> str:
    """Return the plural of a kind in lower case, by the rules of English spelling.

    They are those of other scaffolding tools, so that both give a kind the same CRD. Words that
    have a plural of their own (`--plural=indices`) are the user's to name.
    """
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    if re.search(r"(s|x|z|ch|sh)$", word):
        return word + "es"
    return word + "s"

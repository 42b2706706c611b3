"""Inputs of runs that changed nothing: resource, role, environment, and reads. Pure."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from operator_runner.core.model import Json

ABSENT = ""
"""Version of an object that does not exist."""
MAX_READS = 256
"""Maximum reads of a run whose inputs are kept."""
_MAX_VALUE_BYTES = 16 * 1024
_MAX_DOCUMENT_BYTES = 256 * 1024
_FORMAT = 1


@dataclass(frozen=True, slots=True, order=True)
class Read:
    """A read of an object or a list; `collection` is the path of the collection.

    `name` is empty for a list, `query` has its selectors as in the URL.
    """

    collection: str
    name: str = ""
    query: str = ""


@dataclass(frozen=True, slots=True)
class RunInputs:
    """`digest` is of the resource, the role and the environment; `reads` has versions of objects.

    Versions are those of `object_version` and `list_version`.
    """

    digest: str
    reads: Mapping[Read, str] = field(default_factory=dict)


def object_version(metadata: Mapping[str, Any]) -> str:
    """Return the version of an object: its uid and resourceVersion."""
    return f"{metadata.get('uid')}/{metadata.get('resourceVersion')}"


def list_version(items: Iterable[Mapping[str, Any]]) -> str:
    """Return the version of a list of objects, given the metadata of each."""
    return digest_of(sorted(object_version(metadata) for metadata in items))


def digest_of(value: Any) -> str:
    """Return a digest of a value that is the same in each process.

    Dataclasses, mappings, sequences, sets and enums are followed, all else is taken as text.
    """
    text = json.dumps(_plain(value), sort_keys=True)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        value = {each.name: getattr(value, each.name) for each in fields}
    match value:
        case None | bool() | int() | float() | str():
            return value
        case enum.Enum():
            return _plain(value.value)
        case Mapping():
            return [[_plain(key), _plain(item)] for key, item in sorted(value.items(), key=str)]
        case set() | frozenset() | list() | tuple():
            items = [_plain(item) for item in value]
            return items if isinstance(value, list | tuple) else sorted(items, key=json.dumps)
    return str(value)


def encode(inputs: RunInputs) -> bytes | None:
    """Return the inputs as compressed JSON, None if they are too large."""
    reads = [[*dataclasses.astuple(read), inputs.reads[read]] for read in sorted(inputs.reads)]
    document = {"format": _FORMAT, "digest": inputs.digest, "reads": reads}
    value = zlib.compress(json.dumps(document).encode())
    return value if len(value) <= _MAX_VALUE_BYTES else None


def decode(value: bytes) -> RunInputs | None:
    """Return what `encode` has written, None for anything else."""
    try:
        document: Json = json.loads(zlib.decompressobj().decompress(value, _MAX_DOCUMENT_BYTES))
        if document["format"] != _FORMAT or not isinstance(document["digest"], str):
            return None
        reads = {}
        for collection, name, query, version in document["reads"]:
            if not all(isinstance(each, str) for each in (collection, name, query, version)):
                return None
            reads[Read(collection, name, query)] = version
    except (ValueError, KeyError, TypeError, RecursionError, zlib.error):
        return None
    return RunInputs(document["digest"], reads) if len(reads) <= MAX_READS else None

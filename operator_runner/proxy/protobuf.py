r"""Kubernetes' protobuf encoding, as far as owners and previews require. Pure.

kubectl and helm create built-in kinds in this encoding. A body is the magic `k8s\0` and an
envelope (runtime.Unknown) around the object, whose field 1 is its metadata whatever the
kind. Field numbers: the `generated.proto` files of k8s.io/apimachinery, which never change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from operator_runner.core.model import Json
from operator_runner.proxy.ownership import MetadataPatch

_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SEVEN_BITS = 0x7F
_MORE = 0x80
_LONGEST_VARINT = 64
_64_BITS, _32_BITS = (1 << 64) - 1, (1 << 32) - 1
_MOST_FIELDS = 200_000
"""Fields of one message, decoded in 0.25 s; a ConfigMap of 1 MB has a tenth."""

# runtime.Unknown, runtime.TypeMeta
_TYPE_META, _RAW = 1, 2
_API_VERSION, _KIND = 1, 2
# Every kind; metav1.ObjectMeta
_METADATA = 1
_NAME, _NAMESPACE, _UID, _RESOURCE_VERSION = 1, 3, 5, 6
_LABELS, _ANNOTATIONS, _OWNER_REFERENCES = 11, 12, 13
# metav1.OwnerReference
_OWNER = {"kind": 1, "name": 3, "uid": 4, "apiVersion": 5}
_TEXTS = {_NAME: "name", _UID: "uid", _RESOURCE_VERSION: "resourceVersion"}
_OWNER_FLAGS = {"controller": 6, "blockOwnerDeletion": 7}
# autoscaling.v1.Scale, its spec
_SCALE_SPEC, _REPLICAS = 2, 1
# metav1.DeleteOptions, metav1.Preconditions
_PRECONDITIONS, _DRY_RUN = 2, 5
_PRECONDITION_UID = 1


class _Field(NamedTuple):
    number: int
    value: bytes
    """Content of a length-delimited field, or the bytes of a number."""
    raw: bytes
    """The whole field, with tag and length."""


def view(body: bytes) -> Json:
    """Return apiVersion, kind and the metadata that ownership needs.

    Raises ValueError if `body` is not such a message, or has one of these fields twice: Go's
    decoder merges some of them and uses the last of others.
    """
    envelope = _first(_open(body), once={_TYPE_META, _RAW})
    kind = _first(envelope.get(_TYPE_META, b""), once={_API_VERSION, _KIND})
    raw = _first(envelope.get(_RAW, b""), once={_METADATA})
    fields = list(_fields(raw.get(_METADATA, b"")))
    texts = {field.number: field.value.decode() for field in fields if field.number in _TEXTS}
    maps = {
        number: dict(_entry(field.value) for field in fields if field.number == number)
        for number in (_LABELS, _ANNOTATIONS)
    }
    owners = [_first(field.value) for field in fields if field.number == _OWNER_REFERENCES]
    return {
        "apiVersion": kind.get(_API_VERSION, b"").decode(),
        "kind": kind.get(_KIND, b"").decode(),
        "metadata": {
            **{_TEXTS[number]: text for number, text in texts.items() if text},
            "labels": maps[_LABELS],
            "annotations": maps[_ANNOTATIONS],
            # An empty list is not sent: as in JSON without the field, the object keeps its owners.
            **({"ownerReferences": [_reference(one) for one in owners]} if owners else {}),
        },
    }


def add(body: bytes, patch: MetadataPatch) -> bytes:
    """Return the body with its metadata patched; all other bytes are kept."""
    # Of entries with the same key the last one counts, so a label is removed by an empty one.
    entries = [
        _field(number, _text(1, key) + _text(2, value or ""))
        for number, values in ((_ANNOTATIONS, patch.annotations), (_LABELS, patch.labels))
        for key, value in values.items()
    ]
    if patch.references is not None:
        entries += [_field(_OWNER_REFERENCES, _encoded_owner(one)) for one in patch.references]
    given = view(body)["metadata"]
    if patch.uid and "uid" not in given:
        entries.append(_text(_UID, patch.uid))
    if patch.resource_version and given.get("resourceVersion", "0") == "0":
        entries.append(_text(_RESOURCE_VERSION, patch.resource_version))
    dropped = {_OWNER_REFERENCES} if patch.references is not None else set[int]()
    return _MAGIC + _extend(_open(body), (_RAW, _METADATA), b"".join(entries), dropped)


def copy(body: bytes, name: str, namespace: str) -> bytes:
    """Return the body for the creation of a copy under another name; `namespace` may be empty.

    Raises ValueError if `body` is not such a message.
    """
    extra = _text(_NAME, name) + (_text(_NAMESPACE, namespace) if namespace else b"")
    dropped = {_NAME, _NAMESPACE, _UID, _RESOURCE_VERSION}
    return _MAGIC + _extend(_open(body), (_RAW, _METADATA), extra, dropped)


def with_resource_version(body: bytes, version: str) -> bytes:
    """Return the body with this resourceVersion. Raises ValueError if it is not such a message."""
    extra = _text(_RESOURCE_VERSION, version)
    return _MAGIC + _extend(_open(body), (_RAW, _METADATA), extra, {_RESOURCE_VERSION})


def add_precondition(body: bytes, uid: str) -> bytes:
    """Return DeleteOptions with this uid as a precondition, unless they have one.

    Raises ValueError if `body` is not such a message.
    """
    options = _first(_first(_open(body)).get(_RAW, b""))
    if _PRECONDITION_UID in _first(options.get(_PRECONDITIONS, b"")):
        return body
    return _MAGIC + _extend(_open(body), (_RAW, _PRECONDITIONS), _text(_PRECONDITION_UID, uid), ())


def is_dry_run(body: bytes) -> bool:
    """Return whether DeleteOptions request a dry run. Raises ValueError if invalid."""
    return _DRY_RUN in _first(_first(_open(body)).get(_RAW, b""))


def replicas_of_scale(body: bytes) -> int:
    """Return the wanted replicas of a Scale. Raises ValueError if `body` is not such a message."""
    scale = _first(_first(_open(body), once={_RAW}).get(_RAW, b""), once={_SCALE_SPEC})
    replicas = _first(scale.get(_SCALE_SPEC, b""), once={_REPLICAS}).get(_REPLICAS)
    return 0 if replicas is None else _varint(replicas, 0)[0]


def _open(body: bytes) -> bytes:
    if not body.startswith(_MAGIC):
        raise ValueError("not a protobuf body of Kubernetes")
    return body[len(_MAGIC) :]


def _extend(message: bytes, path: tuple[int, ...], extra: bytes, dropped: Collection[int]) -> bytes:
    """Append fields to the message at the field numbers of `path`; drop the fields `dropped`."""
    if not path:
        kept = (field.raw for field in _fields(message) if field.number not in dropped)
        return (b"".join(kept) if dropped else message) + extra
    number, *rest = path
    done, parts = False, []
    for field in _fields(message):
        if field.number == number and not done:
            parts.append(_field(number, _extend(field.value, tuple(rest), extra, dropped)))
            done = True
        else:
            parts.append(field.raw)
    if not done:
        parts.append(_field(number, _extend(b"", tuple(rest), extra, dropped)))
    return b"".join(parts)


def _entry(message: bytes) -> tuple[str, str]:
    """Return key and value of an entry of a map of texts."""
    fields = _first(message)
    return fields.get(1, b"").decode(), fields.get(2, b"").decode()


def _reference(fields: Mapping[int, bytes]) -> Json:
    """Return an owner reference as in JSON."""
    texts = {key: fields[number].decode() for key, number in _OWNER.items() if number in fields}
    flags = {key: any(fields[n]) for key, n in _OWNER_FLAGS.items() if n in fields}
    return {**texts, **flags}


def _encoded_owner(reference: Mapping[str, Any]) -> bytes:
    texts = [_text(n, str(reference[key])) for key, n in _OWNER.items() if key in reference]
    flags = [
        _encoded(number << 3 | _VARINT) + bytes([bool(reference[key])])
        for key, number in _OWNER_FLAGS.items()
        if reference.get(key) is not None
    ]
    return b"".join([*texts, *flags])


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _first(message: bytes, once: Collection[int] = ()) -> dict[int, bytes]:
    """Return the first value of each field; raises ValueError if one of `once` is repeated."""
    found: dict[int, bytes] = {}
    for field in _fields(message):
        if field.number in once and field.number in found:
            raise ValueError(f"protobuf field {field.number} is repeated")
        found.setdefault(field.number, field.value)
    return found


def _fields(message: bytes) -> Iterator[_Field]:
    position = count = 0
    while position < len(message):
        count += 1
        if count > _MOST_FIELDS:
            raise ValueError(f"a protobuf message has more than {_MOST_FIELDS} fields")
        start = position
        tag, position = _varint(message, position)
        value = b""
        match tag & 7:
            case 0:  # _VARINT
                start_of_value = position
                _, position = _varint(message, position)
                value = message[start_of_value:position]
            case 1:  # _FIXED64
                position += 8
            case 2:  # _BYTES
                length, position = _varint(message, position)
                value = message[position : position + length]
                position += length
            case 5:  # _FIXED32
                position += 4
            case other:
                raise ValueError(f"unknown protobuf wire type {other}")
        if position > len(message):
            raise ValueError("truncated protobuf message")
        # Go's decoder truncates the number to 32 bits.
        yield _Field(tag >> 3 & _32_BITS, value, message[start:position])


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return a number and the position after it."""
    value = 0
    for shift in range(0, _LONGEST_VARINT, 7):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        value |= (byte & _SEVEN_BITS) << shift
        if byte < _MORE:
            return value & _64_BITS, position
    raise ValueError("truncated protobuf number")


def _field(number: int, value: bytes) -> bytes:
    return _encoded(number << 3 | _BYTES) + _encoded(len(value)) + value


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value >= _MORE:
        out.append(value & _SEVEN_BITS | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)

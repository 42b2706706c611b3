"""Files of the demo, and its state between `make demo` and `demo-down`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".demo"
LOG = FOLDER / "operator.log"
WORK_DIR = FOLDER / "work"
KUBECTL = ROOT / "bin" / "kubectl"
_FILE = FOLDER / "record.json"


def cluster_name() -> str:
    """Name the local cluster after this checkout: two checkouts have a demo each."""
    return "demo-" + hashlib.sha256(os.fsencode(ROOT)).hexdigest()[:6]


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the demo. The start time distinguishes it from a later one of the same id."""

    pid: int
    started: float


@dataclass(frozen=True, slots=True)
class Record:
    """Objects that the demo created, to be removed by `demo-down`."""

    local: bool
    """Whether the cluster is the demo's own."""
    crd_is_ours: bool = False
    """Whether the demo created the CRD, on a cluster that is not its own."""
    sample_is_ours: bool = False
    """Whether the demo made the sample resource; else it must not delete it."""
    operator: Process | None = None


def load() -> Record | None:
    """Return the record of an earlier `make demo`; None without one."""
    try:
        data = json.loads(_FILE.read_text())
    except FileNotFoundError:
        return None
    operator = Process(**data["operator"]) if data["operator"] else None
    return Record(**{**data, "operator": operator})


def save(record: Record) -> Record:
    """Write the record, whole or not at all, and return it."""
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    draft = _FILE.with_suffix(".new")
    draft.write_text(json.dumps(dataclasses.asdict(record)))
    draft.rename(_FILE)
    return record

"""Write the records of runs beside their artifacts, for reports without the operator."""

from __future__ import annotations

import asyncio

from operator_runner.ansible.executor import AnsibleExecutor
from operator_runner.core.model import GVK, Json, ObjectRef


class RunFiles:
    """Writes records in the background."""

    def __init__(self, executor: AnsibleExecutor) -> None:
        """Write with `executor`."""
        self._executor = executor
        self._writes: set[asyncio.Task[None]] = set()

    def write(self, document: Json) -> None:
        """Write the record of a run that has ended; see `RunStore.on_record`."""
        about = document["resource"]
        ref = ObjectRef(
            GVK.of(about["apiVersion"], about["kind"]), about.get("namespace", ""), about["name"]
        )
        task = asyncio.create_task(self._executor.add_details(ref, document), name="record")
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def finish(self) -> None:
        """Wait until all records are written."""
        await asyncio.gather(*self._writes)

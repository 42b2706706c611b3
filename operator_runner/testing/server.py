"""The operator under test, as a process: `python -m operator_runner.testing.server FLAGS`.

It reads calls from standard input and writes answers to standard output, see `process`. Its log
and the output of plays are written to standard error.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import click

from operator_runner.app import operator as app
from operator_runner.config.flags.options import RunCommand, run_options
from operator_runner.config.flags.values import load_watches, log_settings_from, settings_from
from operator_runner.core.errors import ConfigError, OperatorRunnerError
from operator_runner.core.model import GVK, TEST_ANNOTATION, Json, ObjectRef, Watch, uid_of
from operator_runner.core.settings import Settings
from operator_runner.kube.session import connect
from operator_runner.reconcile.results import (
    Aborted,
    Failed,
    Gone,
    NoRun,
    ReconcileResult,
    Succeeded,
    Superseded,
)
from operator_runner.telemetry import logs
from operator_runner.testing.cluster_objects import ClusterObjects
from operator_runner.tools.yaml_io import read_objects

_USER_AGENT = "operator-runner-testing"
_UNUSUAL: Mapping[type[ReconcileResult], str] = {
    Superseded: "the run was ended: the resource has changed meanwhile",
    Aborted: "the run was aborted",
}
"""Messages for results that one reconcile after the other does not have."""


@click.command(cls=RunCommand)
@run_options
def main(**options: Any) -> None:
    """Reconcile on request."""
    answers = _take_standard_output()
    try:
        asyncio.run(_serve(options, answers))
    except OperatorRunnerError as error:
        sys.exit(f"Error: {error}")


def _take_standard_output() -> TextIO:
    """Return the stream for answers; all other output is written to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


async def _serve(options: Mapping[str, Any], answers: TextIO) -> None:
    log = log_settings_from(options)
    logs.configure(log.encoder, log.level, time_encoding=log.time_encoding)
    loaded = load_watches(options, os.environ).watches
    watches = [replace(watch, for_tests=True) for watch in loaded]
    settings = settings_from(dict(options), os.environ, watches, terminal=False)
    connection = await connect(settings.kubeconfig, user_agent=_USER_AGENT)
    server = _Server(settings, watches, ClusterObjects(connection))
    try:
        # A thread reads, because reconciles need the event loop meanwhile.
        while line := await asyncio.to_thread(sys.stdin.readline):
            answers.write(json.dumps(await server.answer(json.loads(line))) + "\n")
            answers.flush()
    finally:
        await server.close()
        await connection.close()


class _Server:
    """The methods of the process."""

    def __init__(
        self, settings: Settings, watches: Sequence[Watch], objects: ClusterObjects
    ) -> None:
        """Start nothing: the operator is started by the first reconcile."""
        self._settings = settings
        self._watches = watches
        self._objects = objects
        self._stack = AsyncExitStack()
        self._operator: app.Operator | None = None
        self._installed: list[str] = []
        self._changing: list[ObjectRef] = []
        """The writes of the last run."""
        self._methods: Mapping[str, Callable[..., Awaitable[Any]]] = {
            "install": self.install,
            "create_namespace": self._objects.create_namespace,
            "delete_namespace": self._objects.delete_namespace,
            "reconcile": self.reconcile,
            "delete": self.delete,
            "remove": self.remove,
            "uninstall": self.uninstall,
        }

    async def answer(self, call: Json) -> Json:
        """Return the answer to a call."""
        try:
            return {"result": await self._methods[call["method"]](**call["arguments"])}
        except OperatorRunnerError as error:
            return {"error": str(error)}

    async def install(self, files: Sequence[str]) -> None:
        """Install the CRDs in these files and wait until they are served."""
        for file in files:
            for crd in read_objects([Path(file)]):
                is_crd = crd["kind"] == "CustomResourceDefinition"
                if is_crd and await self._objects.install_crd(crd, file):
                    self._installed.append(crd["metadata"]["name"])

    async def uninstall(self) -> None:
        """Delete the CRDs that `install` has created."""
        for name in self._installed:
            await self._objects.delete_crd(name)

    async def reconcile(self, resource: Json, objects: Sequence[Json], namespace: str) -> Json:
        """Apply objects and resource, reconcile the resource, and return what has happened."""
        watch = self._watch_of(resource)
        await self._objects.settle(self._changing)
        for each in objects:
            await self._objects.apply(each, namespace)
        metadata = resource["metadata"]
        metadata["annotations"] = {**(metadata.get("annotations") or {}), TEST_ANNOTATION: "true"}
        return await self._reconcile(watch, await self._objects.apply(resource, namespace))

    async def delete(self, resource: Json, namespace: str) -> Json:
        """Delete the resource, reconcile it, and return what has happened."""
        watch = self._watch_of(resource)
        await self._objects.settle(self._changing)
        body = await self._objects.delete(resource, namespace)
        return await self._reconcile(watch, body)

    async def remove(self, objects: Sequence[Json], namespace: str) -> None:
        """Delete objects without waiting for their finalizers."""
        for each in objects:
            await self._objects.remove(each, namespace)

    async def close(self) -> None:
        """Stop the operator."""
        await self._stack.aclose()

    async def _reconcile(self, watch: Watch, body: Json) -> Json:
        ref = ObjectRef.of_kind(watch.gvk, body)
        operator = await self._started()
        known = {each["metadata"]["uid"]: each for each in await self._objects.events(body)}
        result, record = await operator.reconcile(ref, uid_of(body))
        events = await self._objects.events(body)
        return {
            **_result(result),
            "record": record or {},
            "resource": await self._objects.get(ref),
            "objects": await self._written((record or {}).get("writes", ())),
            "events": [each for each in events if known.get(each["metadata"]["uid"]) != each],
        }

    async def _written(self, writes: Iterable[Json]) -> list[Json]:
        """Return each written object once, with the verbs of its writes and what it is now."""
        found: dict[ObjectRef, Json] = {}
        for write in writes:
            about = write["object"]
            gvk = GVK.of(about["apiVersion"], about["kind"])
            ref = ObjectRef(gvk, about.get("namespace", ""), about["name"])
            entry = found.setdefault(ref, {"object": about, "verbs": []})
            entry["verbs"].append(write["verb"])
        for ref, entry in found.items():
            entry["body"] = await self._objects.get(ref)
        self._changing = list(found)
        return list(found.values())

    async def _started(self) -> app.Operator:
        if self._operator is None:
            opening = app.open_operator(self._settings, self._watches)
            self._operator = await self._stack.enter_async_context(opening)
        return self._operator

    def _watch_of(self, resource: Json) -> Watch:
        """Return the watch of a kind, of the same version if there are several."""
        gvk = GVK.of(str(resource.get("apiVersion")), str(resource.get("kind")))
        same = [w for w in self._watches if (w.gvk.group, w.gvk.kind) == (gvk.group, gvk.kind)]
        if not same:
            kinds = ", ".join(dict.fromkeys(str(watch.gvk) for watch in self._watches))
            raise ConfigError(f"no watch for kind {gvk}; the watches file has {kinds}")
        return next((watch for watch in same if watch.gvk == gvk), same[0])


def _result(result: ReconcileResult) -> Json:
    """Return whether a reconcile has succeeded, why not, and when it is to be repeated."""
    match result:
        case Succeeded(after=after, trigger=trigger):
            seconds = None if after is None else after.total_seconds()
            return {"successful": True, "again": trigger.value, "seconds": seconds}
        case NoRun(reason="") | Gone():
            # A deletion without a finalizer needs no run.
            return {"successful": True}
        case NoRun(reason=message):
            message = f"nothing was run: {message}"
        case Failed(message=message):
            pass
        case _:
            message = _UNUSUAL[type(result)]
    return {"successful": False, "message": message}


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()

"""`operator-runner migrate-storage` against a real API server, judged by the bytes in etcd."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from operator_runner.tools.storage_migration import (
    CURRENT,
    SUPERSEDED,
    Migration,
    MigrationTarget,
)
from tests.contract.tools.storage_migration.webhook import Webhook
from tests.contract.tools.storage_migration.widgets import Widgets

_PROGRAM = Path(sys.executable).parent / "operator-runner"


class Command:
    """The command for one CRD, as a process."""

    def __init__(self, kubeconfig: Path, widgets: Widgets) -> None:
        self._arguments = ("migrate-storage", widgets.crd_name, f"--kubeconfig={kubeconfig}")

    async def start(self) -> asyncio.subprocess.Process:
        """Start it."""
        return await start(*self._arguments)

    async def __call__(self, *flags: str) -> tuple[int, str]:
        """Run it to its end; return its exit status and output."""
        return await call(*self._arguments, *flags)


async def start(*arguments: str, cwd: Path | None = None) -> asyncio.subprocess.Process:
    """Start operator-runner."""
    pipe, out = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    return await asyncio.create_subprocess_exec(
        str(_PROGRAM), *arguments, stdout=pipe, stderr=out, cwd=cwd
    )


async def call(*arguments: str, cwd: Path | None = None) -> tuple[int, str]:
    """Run operator-runner to its end; return its exit status and output."""
    return await finished(await start(*arguments, cwd=cwd))


async def finished(process: asyncio.subprocess.Process) -> tuple[int, str]:
    """Wait for the end; return the exit status and output."""
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


@pytest.fixture
def command(control_plane: Path, widgets: Widgets) -> Command:
    """Give the command for the test's CRD."""
    return Command(control_plane, widgets)


def versions(widgets: Widgets) -> set[str]:
    return set(widgets.etcd.versions(widgets.group, "widgets").values())


async def test_every_object_is_stored_in_the_storage_version(
    widgets: Widgets, command: Command
) -> None:
    """All bytes in etcd are of the new version, no content is lost, the old version may go."""
    await widgets.create_many(120)
    await widgets.store_in("v2")
    await widgets.edit("w-007", {"spec": {"size": 70}})
    before = widgets.etcd.objects(widgets.group, "widgets")
    assert sorted({body["apiVersion"] for body in before.values()}) == [
        f"{widgets.group}/v1",
        f"{widgets.group}/v2",
    ]

    status, printed = await command()
    assert (status, "119 rewritten" in printed and "1 already current" in printed) == (0, True), (
        printed
    )
    after = widgets.etcd.objects(widgets.group, "widgets")
    assert versions(widgets) == {"v2"}
    assert {k: b["spec"] for k, b in after.items()} == {k: b["spec"] for k, b in before.items()}
    assert await widgets.stored_versions() == ["v2"]

    status, printed = await command()
    assert (status, "all objects are stored in v2 already" in printed) == (0, True), printed


async def test_the_kinds_of_watches_yaml_are_migrated(
    widgets: Widgets, control_plane: Path, tmp_path: Path
) -> None:
    """Without an argument the CRDs of the watched kinds are meant; two versions are one CRD."""
    (tmp_path / "roles" / "widget" / "tasks").mkdir(parents=True)
    (tmp_path / "roles" / "widget" / "tasks" / "main.yml").write_text("[]\n")
    watch = {"group": widgets.group, "kind": "Widget", "role": "widget"}
    watches = [watch | {"version": version} for version in ("v1", "v2")]
    (tmp_path / "watches.yaml").write_text(json.dumps(watches))
    await widgets.create_many(2)
    await widgets.store_in("v2")

    status, printed = await call("migrate-storage", f"--kubeconfig={control_plane}", cwd=tmp_path)

    assert (status, printed.count("2 objects: 2 rewritten")) == (0, 1), printed
    assert versions(widgets) == {"v2"}


async def test_an_interrupted_migration_is_run_again(
    widgets: Widgets, command: Command, webhook: Webhook
) -> None:
    """After SIGKILL, SIGINT and an edit of the CRD the next start migrates the rest."""
    await widgets.create_many(120)
    await widgets.store_in("v2")
    await widgets.admit_by(webhook)

    webhook.hold("w-050")
    process = await command.start()
    await webhook.held.wait()
    process.kill()
    await process.wait()
    webhook.hold("w-100")
    process = await command.start()
    await webhook.held.wait()
    process.send_signal(signal.SIGINT)
    status, printed = await finished(process)
    assert (status, "interrupted; run again" in printed) == (130, True), printed
    assert await widgets.stored_versions() == ["v1", "v2"]

    webhook.hold("w-119")
    process = await command.start()
    await webhook.held.wait()
    await widgets.edit_crd({"spec": {"names": {"shortNames": ["wdg"]}}})
    webhook.release.set()
    status, printed = await finished(process)
    assert (status, "the CRD was edited meanwhile" in printed) == (1, True), printed
    assert await widgets.stored_versions() == ["v1", "v2"]

    webhook.hold("x")
    status, printed = await command()
    assert (status, "120 already current" in printed) == (0, True), printed
    assert versions(widgets) == {"v2"}
    assert await widgets.stored_versions() == ["v2"]


async def test_an_object_that_cannot_be_converted_is_named(
    widgets: Widgets, command: Command, webhook: Webhook
) -> None:
    """The others are rewritten, the old version stays; once it converts, all is done."""
    await widgets.create_many(20)
    webhook.unconvertible = {"w-013"}
    await widgets.store_in("v2", webhook)

    status, printed = await command()
    assert status == 1, printed
    assert f"widgets {widgets.namespace}/w-013: " in printed
    assert "w-013: spec.size is not a number" in printed
    assert "status.storedVersions stays v1, v2" in printed
    stored = widgets.etcd.versions(widgets.group, "widgets")
    assert [name for name, version in stored.items() if version == "v1"] == ["w-013"]
    assert await widgets.stored_versions() == ["v1", "v2"]

    webhook.unconvertible = set()
    status, printed = await command()
    assert (status, "1 rewritten" in printed and "19 already current" in printed) == (0, True), (
        printed
    )
    assert versions(widgets) == {"v2"}
    assert await widgets.stored_versions() == ["v2"]


async def test_objects_that_others_write_or_delete_are_skipped(widgets: Widgets) -> None:
    """An object that has changed since it was listed is not written, and is not a failure."""
    await widgets.create_many(3)
    migration = Migration(widgets.api, MigrationTarget.of(await widgets.crd()))
    listed = await widgets.api.request("GET", widgets.path())
    await widgets.edit("w-000", {"spec": {"size": 70}})
    await widgets.api.request("DELETE", widgets.path("w-001"))

    found = [await migration.rewrite(item["metadata"]) for item in listed["items"]]

    assert found == [SUPERSEDED, SUPERSEDED, CURRENT]


async def test_a_crd_that_is_not_there_is_named(control_plane: Path) -> None:
    """The error names it, and has the format of CRD names."""
    status, printed = await call("migrate-storage", "widgets", f"--kubeconfig={control_plane}")
    expected = "widgets: CRD not found; write PLURAL.GROUP, as listed by `kubectl get crd`"
    assert (status, printed.strip()) == (1, f"Error: {expected}")

"""The operator at a limit of its machine: one clear condition, and it recovers by itself."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.functional.test_operator import KIND, echo, wait_for_text
from tests.support.kubectl import Kubectl
from tests.support.operator import Operator
from tests.support.waiting import eventually

MESSAGE = '--output=jsonpath={.status.conditions[?(@.type=="Failure")].message}'


def test_a_full_disk_is_reported_and_passes_by(
    kubectl: Kubectl, control_plane: Path, project: Path, tmp_path: Path
) -> None:
    """Condition and log name the work dir, once; the edit is applied when there is room again."""
    work = tmp_path / "work"
    work.mkdir()
    program = tmp_path / "operator-on-small-disk"
    program.write_text(
        "#!/bin/sh\nset -e\n"
        'if [ "$1" = --inside ]; then shift\n'
        f"  mount -t tmpfs -o size=8m tmpfs {work}\n"
        f'  exec {Path(sys.executable).parent}/operator-runner "$@"\n'
        'fi\nexec unshare --user --map-root-user --mount "$0" --inside "$@"\n'
    )
    program.chmod(0o755)
    operator = Operator(project, control_plane, kubectl.namespace, tmp_path, {}, program=program)
    try:
        operator.start()
        kubectl.apply(echo("a", sayThis="before"))
        wait_for_text(kubectl, operator, "hello before")
        filler = Path(f"/proc/{operator.pid}/root{work}/filler")
        _fill(filler)
        kubectl.apply(echo("a", sayThis="after"))
        message = eventually(lambda: kubectl("get", KIND, "a", MESSAGE), bool, details=operator.log)
        # The task follows, if one had begun.
        assert "the disk of the work dir is full: free space, or enlarge the volume" in message
        assert operator.probe("healthz") == 200
        filler.unlink()
        wait_for_text(kubectl, operator, "hello after")
    finally:
        operator.kill()


def _fill(path: Path) -> None:
    """Write until there is no room left."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass

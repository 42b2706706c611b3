"""`operator-runner` in a process that is forked from one which has imported its commands.

The imports of a command take longer than most of what tests ask it for. How they are installed and
started is tested where users do so: by shells that follow the pages of the documentation.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from operator_runner.cli import main

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "operator_runner.tools.diff.command",
        "operator_runner.tools.operator_api.discovery",
        "operator_runner.tools.resources.cluster",
        "operator_runner.tools.resources.get",
        "operator_runner.tools.resources.listing",
        "operator_runner.tools.resources.reconcile",
        "operator_runner.tools.runs.commands",
        "operator_runner.tools.runs.tree",
        "operator_runner.tools.runs.why",
        "operator_runner.tools.scaffold.commands",
    ]
)


def run_command(
    arguments: Sequence[str | Path], directory: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `operator-runner` with the environment of this process; return its end and output."""
    words = [str(argument) for argument in arguments]
    with TemporaryDirectory() as folder:
        streams = [Path(folder) / name for name in ("stdout", "stderr")]
        place = str(directory or Path.cwd())
        process = _FORKS.Process(target=_run, args=(words, place, dict(os.environ), streams))
        process.start()
        process.join()
        assert process.exitcode is not None
        output = [stream.read_text() for stream in streams]
    return subprocess.CompletedProcess(words, process.exitcode, *output)


def _run(
    words: list[str], directory: str, environment: dict[str, str], streams: Sequence[Path]
) -> None:
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    for stream, path in zip((sys.stdout, sys.stderr), streams, strict=True):
        with path.open("w") as file:
            os.dup2(file.fileno(), stream.fileno())
    main(words, prog_name="operator-runner")

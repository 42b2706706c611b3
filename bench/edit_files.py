"""Count the files and functions of the package that one edit runs, in the operator's process.

What the operator runs in a minute without an edit is left out.

python -m bench.edit_files: a list of the functions of each file, and the figures.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

import operator_runner
from bench.api import THREE, is_successful
from bench.environment import PROGRAM, BenchEnvironment, Setup, open_environment, wait_until
from operator_runner.core.model import Json

PACKAGE = Path(operator_runner.__file__).parent
_RUNS = 3
"""Runs before the counted edit: caches are filled then."""
_TARGET = 60
_IDLE_SECONDS = 60.0
"""Time without an edit, in which the operator runs what it runs anyway."""
_REST_SECONDS = 3.0
"""Time for what follows the report of a run."""


class _Recording:
    """The functions that are called between two signals, written to a file at the second one."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._seen: set[tuple[str, str]] = set()
        self._is_on = False
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        signal.signal(signal.SIGUSR2, self._toggle)

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if self._is_on and event == "call" and code.co_filename.startswith(f"{PACKAGE}/"):
            self._seen.add((os.path.relpath(code.co_filename, PACKAGE), code.co_qualname))

    def _toggle(self, *_: object) -> None:
        self._is_on = not self._is_on
        if self._is_on:
            self._seen.clear()
        else:
            written = self._target.with_suffix(".new")
            written.write_text(json.dumps(sorted(self._seen)))
            written.rename(self._target)


def files_of_an_edit(
    environment: BenchEnvironment, idle_seconds: float = _IDLE_SECONDS
) -> Mapping[str, list[str]]:
    """Return the functions of each file that an edit runs; the watch has no optional key.

    What the operator runs in `idle_seconds` without an edit is left out.
    """
    found = environment.scratch / "functions.json"
    program = environment.scratch / "operator"
    program.write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"sys.path.insert(0, {str(PACKAGE.parent)!r})\n"
        f"from bench.edit_files import run_recorded\nrun_recorded({str(found)!r})\n"
    )
    program.chmod(0o755)
    with environment.site(Setup(THREE, program=program)) as site:

        def recorded(act: Callable[[], None]) -> set[tuple[str, str]]:
            found.unlink(missing_ok=True)
            os.kill(site.operator.pid, signal.SIGUSR2)
            act()
            os.kill(site.operator.pid, signal.SIGUSR2)
            wait_until(found.exists, "the functions are written", 60)
            return {(file, name) for file, name in json.loads(found.read_text())}

        def edit(size: int) -> None:
            site.api.merge(THREE, site.namespace, "a", {"spec": {"size": size}})

        def edit_and_wait() -> None:
            edit(_RUNS)
            # No metrics are requested meanwhile: they are not part of the edit.
            site.api.until(THREE, site.namespace, {"a"}, _is_current, 60)
            time.sleep(_REST_SECONDS)

        environment.api.create(THREE, site.namespace, "a", {"size": 0})
        for runs in range(1, _RUNS):
            site.wait_for_end(runs)
            site.wait_for_quiet()
            edit(runs)
        site.wait_for_end(_RUNS)
        site.wait_for_quiet()
        idle = recorded(lambda: time.sleep(idle_seconds))
        of_edit = recorded(edit_and_wait) - idle
    functions: defaultdict[str, list[str]] = defaultdict(list)
    for file, name in sorted(of_edit):
        functions[file].append(name)
    return functions


def _is_current(body: Json) -> bool:
    generation = body["metadata"]["generation"]
    conditions = body.get("status", {}).get("conditions", ())
    return is_successful(body) and all(c["observedGeneration"] == generation for c in conditions)


def run_recorded(target: str) -> None:
    """Run operator-runner with the arguments of this process, and record as asked by signals."""
    from operator_runner.cli import main  # noqa: PLC0415 (only in the operator)

    _Recording(Path(target))
    sys.argv[0] = str(PROGRAM)
    main()


def _print() -> None:
    with open_environment() as environment:
        functions = files_of_an_edit(environment)
    for file, names in sorted(functions.items()):
        print(f"{file}: {', '.join(names)}")  # noqa: T201 (a command)
    packages = {Path(file).parts[0] for file in functions}
    count = sum(map(len, functions.values()))
    figures = f"{count} functions in {len(functions)} files of {len(packages)} packages"
    print(f"{figures}; target: {_TARGET} files")  # noqa: T201 (a command)


if __name__ == "__main__":
    _print()

"""Run the targets for long, guided by coverage: `make fuzz ARGS='--executions 1000000 yaml_body'`.

A finding ends the run of its target and is kept in build/fuzz/, which also keeps the inputs that
reached new code for the next time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import structlog

MODULES = ("tests.fuzz.servers",)
"""Modules with TARGETS (functions of bytes by name) and SEEDS (examples for each)."""
FOLDER = Path("build/fuzz")
_SECONDS_FOR_ONE = 10
"""More for a single input is a hang."""
_LONGEST = 4096
"""Bytes of an input."""


def main() -> int:
    """Run all targets or those that are named, each in a process of its own."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all by default")
    parser.add_argument("--executions", type=int, default=100_000, help="for each (%(default)s)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        _fuzz(arguments.targets[0], arguments.executions)
    known = {name: module for module in MODULES for name in import_module(module).TARGETS}
    if unknown := set(arguments.targets) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; targets are {', '.join(known)}")
    failed = [
        name for name in arguments.targets or known if not _passes(name, arguments.executions)
    ]
    sys.stdout.write(f"Failed: {', '.join(failed)}; see {FOLDER}\n" if failed else "All passed\n")
    return 1 if failed else 0


def _passes(name: str, executions: int) -> bool:
    sys.stdout.write(f"== {name}\n")
    sys.stdout.flush()
    command = [sys.executable, "-m", "tests.fuzz", "--here", f"--executions={executions}", name]
    return subprocess.run(command, check=False).returncode == 0


def _fuzz(name: str, executions: int) -> None:
    """Fuzz one target in this process, which ends with it."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=["operator_runner", "yaml", "json"]):
        modules = [import_module(module) for module in MODULES]
    module = next(each for each in modules if name in each.TARGETS)
    corpus = FOLDER / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(module.SEEDS.get(name, ())):
        (corpus / f"seed-{number}").write_bytes(seed)
    flags = (f"-atheris_runs={executions}", f"-timeout={_SECONDS_FOR_ONE}", f"-max_len={_LONGEST}")
    atheris.Setup(
        [name, str(corpus), *flags, "-print_final_stats=1", f"-artifact_prefix={corpus}-"],
        module.TARGETS[name],
    )
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())

"""Fork the preloaded process again and again: nothing crashes, memory stays as it is.

python -m bench.forks [--forks 100000] [--mortal]
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import jinja2
import yaml

from operator_runner.ansible.forkserver.preload import preload, prepare_for_many_forks
from operator_runner.ansible.run_spec import common_environment
from operator_runner.ansible.runner import run_environment
from operator_runner.core.settings import AnsibleSettings

_PATCH = "immortal-objects"
_WARM_UP = 50
_MAX_GROWTH_KB = 1024
"""Accepted increase of the memory of the process that forks; 10,000 leaks of 100 bytes."""


def main() -> None:
    """Fork, print the figures, and exit with 1 if a fork failed or memory has grown."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--forks", type=int, default=100_000)
    options.add_argument("--mortal", action="store_true", help=f"without the patch {_PATCH}")
    given = options.parse_args()
    sys.argv[1:] = []
    with tempfile.TemporaryDirectory() as scratch:
        environment = run_environment(common_environment(AnsibleSettings()), scratch)
        patches, _ = preload(environment, scratch, [_PATCH] if given.mortal else [])
    prepare_for_many_forks(patches)
    for _ in range(_WARM_UP):
        _fork()
    before, faults, began = _private_kb(), _faults(), time.monotonic()
    failed = sum(_fork() != 0 for _ in range(given.forks))
    growth = _private_kb() - before
    print(  # noqa: T201 (a command)
        f"{given.forks} forks, {failed} failed; "
        f"{(_faults() - faults) / given.forks:.0f} pages each, "
        f"{(time.monotonic() - began) / given.forks * 1000:.2f} ms each; "
        f"memory {before} KiB, grown by {growth} KiB"
    )
    sys.exit(failed > 0 or growth > _MAX_GROWTH_KB)


def _fork() -> int:
    pid = os.fork()
    if not pid:
        try:
            _work()
        except BaseException:  # noqa: BLE001 (the last line of a process)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _work() -> None:
    """Use what is loaded as a play does: templates, YAML, classes, garbage collection."""
    data = yaml.safe_load("a: [1, 2, {b: text}]")
    text = jinja2.Environment(autoescape=True).from_string("{{ a[2].b | upper }}").render(data)
    assert json.loads(json.dumps({text: data}))["TEXT"] == data
    task = importlib.import_module("ansible.playbook.task").Task  # after the preload
    assert task.load({"debug": {"msg": text}}).action == "debug"
    gc.collect(0)


def _private_kb() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


if __name__ == "__main__":
    main()

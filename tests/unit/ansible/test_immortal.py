"""Loaded objects are immortal where the interpreter supports it: forks do not copy them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

IS_SUPPORTED = sys.version_info[:2] in {(3, 12), (3, 13)}
FORKS = 200
MAX_GROWTH_KB = 1024
"""A leak of a page in each fork is more."""
TEXT_PAGES = 100_000 * 64 // 4096
"""Pages of the texts of the program."""
PROGRAM = """
import argparse, ctypes, gc, json, os, resource, sys, tempfile, weakref
from operator_runner.ansible.forkserver import immortal

PR_SET_THP_DISABLE = 41
# The kernel may put a huge page in the place of smaller ones at any time: memory would grow by it.
assert ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0

class Plain:
    def method(self):
        return "text of a method"

class Ending:
    def __del__(self, write=os.write):
        write(2, b"freed ")

def child(use):
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        use()
        after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        os.write(writer, str(after - before).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        pages = int(answer.read())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return pages

def is_immortal(value):
    return sys.getrefcount(value) >= sys.getrefcount(None)

def memory():
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))

def work():
    assert plain.method() == "text of a method"
    assert json.loads(json.dumps({"a": texts[:100]}))["a"][99] == "text 99"
    gc.collect()

namespace, plain = argparse.Namespace(name="plain"), Plain()
ending, observed, file = Ending(), Plain(), tempfile.TemporaryFile()
weakref.finalize(observed, os.write, 2, b"finalized ")
texts = [f"text {number}" for number in range(100_000)]
immortal.install()
for _ in range(20):
    child(work)
before = memory()
for _ in range(forks):
    child(work)
growth = memory() - before
loaded = {
    "function": Plain.method, "code": Plain.method.__code__, "class": Plain,
    "instance": namespace, "text": texts[7], "list": texts,
}
others = {
    "new object": Plain(), "with __del__": ending, "observed": observed, "file": file,
    "stream": sys.stdout,
}
print(json.dumps({
    "supported": immortal.is_supported(),
    "loaded": {name: is_immortal(each) for name, each in loaded.items()},
    "others": {name: is_immortal(each) for name, each in others.items()},
    "pages": child(texts.copy),
    "growth_kb": growth,
}), flush=True)
del ending, others
"""


@dataclass(frozen=True)
class Done:
    result: dict[str, Any]
    errors: str


@pytest.fixture(scope="module")
def done() -> Done:
    program = PROGRAM.replace("range(forks)", f"range({FORKS})")
    process = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True
    )
    return Done(json.loads(process.stdout), process.stderr)


def test_loaded_objects_are_immortal_on_known_versions_of_python(done: Done) -> None:
    """On others, nothing changes."""
    assert done.result["supported"] is IS_SUPPORTED
    assert set(done.result["loaded"].values()) == {IS_SUPPORTED}, done.result["loaded"]


def test_objects_whose_end_has_an_effect_are_freed(done: Done) -> None:
    """Files, instances with `__del__` or a finalizer; and all objects that are created later."""
    assert set(done.result["others"].values()) == {False}, done.result["others"]
    assert "freed" in done.errors


def test_forks_do_not_copy_immortal_objects(done: Done) -> None:
    """A new list of all texts writes to each of them if references are counted."""
    assert (done.result["pages"] < TEXT_PAGES / 2) is IS_SUPPORTED, done.result["pages"]


def test_forks_leave_no_memory(done: Done) -> None:
    """After hundreds of forks; `python -m bench.forks` has 100,000 with all that runs need."""
    assert done.result["growth_kb"] < MAX_GROWTH_KB

"""The demo ends what it started, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import psutil

from demo import background
from demo.record import Process
from tests.support.processes import is_running

_SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
_START_SLEEPER = f"import subprocess; print(subprocess.Popen({_SLEEPER!r}).pid, flush=True)"
_WITH_CHILD = [sys.executable, "-c", f"{_START_SLEEPER}; import time; time.sleep(600)"]


def test_the_operator_is_ended_with_its_children() -> None:
    """A play that outlives its operator would continue to write to the cluster."""
    with subprocess.Popen(_WITH_CHILD, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        started = psutil.Process(parent.pid).create_time()
        background.stop(Process(parent.pid, started))
    assert parent.returncode is not None
    assert not is_running(child)


def test_another_process_with_the_same_id_is_kept() -> None:
    """After a reboot the id of the operator may belong to anything."""
    with subprocess.Popen(_SLEEPER) as stranger:
        started = psutil.Process(stranger.pid).create_time()
        background.stop(Process(stranger.pid, started - 100))
        survived = stranger.poll() is None
        stranger.kill()
    assert survived


def test_metrics_and_probes_get_different_ports() -> None:
    """Metrics and probes do not get in each other's way."""
    ports = background.Ports.free()
    assert ports.metrics != ports.probes

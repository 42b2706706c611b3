"""Edit a resource of an operator, and measure what follows."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from bench.api import DEPLOYMENT, LONG, NGINX, Json, Kind, is_successful
from bench.environment import Site, wait_until
from bench.errors import TimedOut
from bench.figures import Cost
from bench.steady import tick

_NAME = "a"
_TIMEOUT_SECONDS = 900.0
"""A run of 200 tasks takes ansible-operator a minute, and minutes on a busy machine."""
_SETTLED_SECONDS = 1.0
"""Time without a run after which an edit is settled."""
_SETTLE_TIMEOUT_SECONDS = 900.0
_DEPLOYMENTS = {NGINX: 1, LONG: 7}
"""Deployments that an edit changes."""


class Subject:
    """A resource of an operator that is edited."""

    def __init__(self, site: Site, kind: Kind) -> None:
        """Prepare; nothing is created. The kind is the nginx operator's or that of 200 tasks."""
        self.site, self.kind = site, kind
        self._edits = 0
        self.runs: list[int] = []
        """Runs of the role that each edit has caused."""

    def create(self) -> None:
        """Create the resource, and wait until it is Successful."""
        self.site.api.create(self.kind, self.site.namespace, _NAME, self._spec())
        self._wait_for_success()
        self._settle()

    def edit(self) -> Cost:
        """Edit the spec; return the time until all Deployments have it, and the CPU time.

        The CPU time is that of all processes of the operator until none runs. Raises BenchError.
        """
        site = self.site
        settle(site)
        self._edits += 1
        ended, cpu = site.ended(), site.cpu_seconds()
        with site.log_in_timeouts():
            wall = self._edit_and_wait()
        used = self._settle()
        self.runs.append(site.ended() - ended)
        return Cost(wall, used - cpu)

    def resync(self) -> Cost:
        """Request a run that changes nothing; return the time until its end, and the CPU time."""
        site = self.site
        settle(site)
        ended, cpu, begin = site.ended(), site.cpu_seconds(), time.monotonic()
        tick(site, self.kind, ended)
        site.wait_for_end(ended + 1, _TIMEOUT_SECONDS)
        wall = time.monotonic() - begin
        return Cost(wall, self._settle() - cpu)

    def _settle(self) -> float:
        """Settle until the resource is Successful; return the seconds of CPU time until then."""
        used = settle(self.site)
        self._wait_for_success()
        return used

    def _wait_for_success(self) -> None:
        api, namespace = self.site.api, self.site.namespace
        with self.site.log_in_timeouts():
            api.until(self.kind, namespace, {_NAME}, is_successful, _TIMEOUT_SECONDS)

    def _spec(self) -> Json:
        if self.kind == NGINX:
            return {"replicas": 1 + self._edits % 2}
        return {"componentTag": f"1.{self._edits}"}

    def _has_edit(self, deployment: Json) -> bool:
        (wanted,) = self._spec().values()
        name, spec = deployment["metadata"]["name"], deployment["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        return bool(
            name == _NAME and spec["replicas"] == wanted
            if self.kind == NGINX
            else name != _NAME and container["image"].endswith(f":{wanted}")
        )

    def _edit_and_wait(self) -> float:
        """Edit; return the seconds until a watch has received all changed Deployments."""
        seen: queue.SimpleQueue[float] = queue.SimpleQueue()
        follow = threading.Thread(
            target=_follow, args=(self.site, self._has_edit, _DEPLOYMENTS[self.kind], seen)
        )
        follow.daemon = True
        follow.start()
        try:
            seen.get(timeout=_TIMEOUT_SECONDS)  # the watch is open
            begin = time.monotonic()
            patch = {"spec": self._spec()}
            self.site.api.merge(self.kind, self.site.namespace, _NAME, patch)
            return seen.get(timeout=_TIMEOUT_SECONDS) - begin
        except queue.Empty:
            raise TimedOut(
                f"the Deployments lack the edit {self._spec()} after {_TIMEOUT_SECONDS:g} s"
            ) from None


def _follow(
    site: Site, has_edit: Callable[[Json], bool], count: int, seen: queue.SimpleQueue[float]
) -> None:
    """Report the time of the first Deployment, and that at which `count` of them have the edit."""
    changed: set[str] = set()
    opened = False
    for body in site.api.watch(DEPLOYMENT, site.namespace, 2 * _TIMEOUT_SECONDS):
        if not opened:
            seen.put(time.monotonic())
            opened = True
        if has_edit(body):
            changed.add(body["metadata"]["name"])
        if len(changed) == count:
            seen.put(time.monotonic())
            return


def settle(site: Site) -> float:
    """Wait until the reconciles of an earlier edit have ended; return the seconds of CPU time.

    Reads the log and, at the end, the metrics, which cost the operator CPU time that is not
    counted: a hundredth of a second. Raises BenchError.
    """
    used = 0.0

    def is_settled() -> bool:
        nonlocal used
        ended = site.ended()
        time.sleep(_SETTLED_SECONDS)
        used = site.cpu_seconds()
        return site.ended() == ended and not site.is_busy()

    wait_until(is_settled, "no reconcile for a second", _SETTLE_TIMEOUT_SECONDS)
    return used

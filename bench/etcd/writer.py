"""Continuous writes and reads whose acknowledgements are recorded."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from bench.etcd.client import EtcdClient, NotAcknowledged

_PAUSE_SECONDS = 0.02
_GAP_SECONDS = 1.0
"""A longer time without an acknowledgement counts as unavailability."""
_READ_SECONDS = 60.0
"""Time in which a read is tried again, as clients of etcd do with another member."""


class Writer:
    """Writes new keys and reads each of them back, in a thread."""

    def __init__(self, client: EtcdClient, prefix: str = "/writes/") -> None:
        """Prepare; `writing` starts."""
        self.acknowledged: dict[str, str] = {}
        self.failed_reads: list[str] = []
        """Reads without a response in time, or with a value older than the last write."""
        self._client, self._prefix = client, prefix
        self._times = [time.monotonic()]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """Write for as long as the context lasts."""
        self._times = [time.monotonic()]
        self._thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            self._thread.join()
            self._times.append(time.monotonic())

    def lost(self) -> dict[str, str]:
        """Return the acknowledged writes that the cluster does not have. Raises NotAcknowledged."""
        found = self._stored()
        return {key: value for key, value in self.acknowledged.items() if found.get(key) != value}

    def silences(self) -> list[tuple[float, float]]:
        """Return begin and end of each time of more than a second without an acknowledgement.

        Times are seconds of the monotonic clock.
        """
        return [gap for gap in pairwise([*self._times]) if gap[1] - gap[0] > _GAP_SECONDS]

    def _stored(self) -> dict[str, str]:
        """Return all keys with their values; tried again as long as other reads are."""
        deadline = time.monotonic() + _READ_SECONDS
        while True:
            try:
                return self._client.values(self._prefix)
            except NotAcknowledged:
                if time.monotonic() > deadline:
                    raise

    def _write(self) -> None:
        number = 0
        while not self._ended.wait(_PAUSE_SECONDS):
            number += 1
            key, value = f"{self._prefix}{number:08}", f"value {number}"
            try:
                self._client.put(key, value)
            except NotAcknowledged:
                continue
            self.acknowledged[key] = value
            self._times.append(time.monotonic())
            self._read(key, value)

    def _read(self, key: str, value: str) -> None:
        deadline = time.monotonic() + _READ_SECONDS
        while True:
            try:
                found = self._client.get(key)
            except NotAcknowledged as error:
                if time.monotonic() < deadline:
                    continue
                found = str(error)
            if found != value:
                self.failed_reads.append(f"{key}: {found!r} instead of {value!r}")
            return

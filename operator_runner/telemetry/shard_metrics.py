"""Metrics of a replica that is a member of shards."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class ShardMetrics:
    """The slots of this replica; without shards there are no series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Prepare; the families are made by `enable`."""
        self._registry = registry

    def enable(self) -> None:
        """Make the families, with series of value 0."""
        self._slots = Gauge(
            "operator_runner_shard_slots",
            "Slots of this replica: active ones, and ones that it drains before they move",
            ("state",),
            registry=self._registry,
        )
        self._epoch = Gauge(
            "operator_runner_shard_epoch",
            "Epoch of the assignment of slots that this replica follows",
            registry=self._registry,
        )
        self._moved = Counter(
            "operator_runner_shard_moves_total",
            "Slots that this replica has gained and released",
            ("direction",),
            registry=self._registry,
        )
        self.count(0, 0, 0)
        for direction in ("gained", "released"):
            self._moved.labels(direction)

    def count(self, active: int, draining: int, epoch: int) -> None:
        """Set the numbers of slots, and the epoch."""
        self._slots.labels("active").set(active)
        self._slots.labels("draining").set(draining)
        self._epoch.set(epoch)

    def gained(self, slots: int) -> None:
        """Count slots that this replica begins to work on."""
        self._moved.labels("gained").inc(slots)

    def released(self, slots: int) -> None:
        """Count slots that another replica may work on."""
        self._moved.labels("released").inc(slots)

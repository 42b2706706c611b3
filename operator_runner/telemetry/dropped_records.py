"""The family `operator_runner_log_records_dropped_total`, read from the process's output."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from operator_runner.telemetry.output_thread import dropped_records

_NAME = "operator_runner_log_records_dropped"
_HELP = "Log lines and pieces of output that were not written, because they were not read in time"


class DroppedRecords(Collector):
    """Reads the number at each scrape, as `ProcessCollector` does for the process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register it."""
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return the family with its one sample."""
        family = CounterMetricFamily(_NAME, _HELP)
        family.add_metric([], dropped_records())
        yield family

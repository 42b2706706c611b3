"""Metrics of the conversion webhook."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

_RESULTS = ("success", "failure")


class ConversionMetrics:
    """The families of the webhook; their series exist from the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Make the families."""
        self._reviews = Counter(
            "operator_runner_conversion_reviews_total",
            "Requests of the API server to the conversion webhook, by result",
            ("result",),
            registry=registry,
        )
        self._objects = Counter(
            "operator_runner_converted_objects_total",
            "Objects that the conversion webhook has given to the API server",
            registry=registry,
        )
        for result in _RESULTS:
            self._reviews.labels(result)

    def count(self, result: str, objects: int) -> None:
        """Count a request; `result` is success or failure, `objects` those that were given."""
        self._reviews.labels(result).inc()
        self._objects.inc(objects)

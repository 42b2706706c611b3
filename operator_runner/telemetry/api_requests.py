"""Requests to the API server, counted as client-go does: those of plays through the proxy too."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class ApiRequests:
    """The family `rest_client_requests_total`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Make the family; its series come with the first request of each kind."""
        self._total = Counter(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ("code", "method", "host"),
            registry=registry,
        )

    def count(self, status: int | None, method: str, host: str) -> None:
        """Count a request; `status` is None if there was no response."""
        code = "<error>" if status is None else str(status)
        # Plays choose the method: a label must not take whatever they make up.
        self._total.labels(code, method if method in _METHODS else "OTHER", host).inc()

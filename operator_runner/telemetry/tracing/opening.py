"""Open the traces that the environment asks for; import OpenTelemetry only for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from operator_runner.core.errors import ConfigError
from operator_runner.telemetry.tracing.run_spans import Attributes, PathParser, Traces

if TYPE_CHECKING:
    from operator_runner.telemetry.tracing.provider import OpenTelemetryTraces


_EXPORTERS = ("otlp", "console")
_PROTOCOL = "http/protobuf"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def exporters_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the exporters, none if traces are off, which is the default.

    An endpoint of OTLP selects `otlp`. An empty variable counts as unset. Raises ConfigError for an
    exporter or a protocol that is not supported.
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    names = environ.get("OTEL_TRACES_EXPORTER", "")
    if not names and any(environ.get(variable) for variable in _ENDPOINTS):
        names = "otlp"
    chosen = [name.strip() for name in names.split(",")]
    found = tuple(dict.fromkeys(name for name in chosen if name not in {"", "none"}))
    for name in found:
        if name not in _EXPORTERS:
            known = ", ".join((*_EXPORTERS, "none"))
            raise ConfigError(f"OTEL_TRACES_EXPORTER={names}: unknown exporter; set {known}")
    if "otlp" in found:
        _check_protocol(environ)
    return found


def _check_protocol(environ: Mapping[str, str]) -> None:
    variable = next((name for name in _PROTOCOLS if environ.get(name)), None)
    if variable is not None and environ[variable] != _PROTOCOL:
        raise ConfigError(
            f"{variable}={environ[variable]}: unsupported protocol; set {_PROTOCOL}, "
            "and an endpoint for it (usually port 4318)"
        )


_log = structlog.get_logger(__name__)
_DISABLED = "Traces are disabled"


@asynccontextmanager
async def open_traces(
    environ: Mapping[str, str], defaults: Mapping[str, str], parse: PathParser, server: Attributes
) -> AsyncIterator[Traces | None]:
    """Export traces as long as the block lasts; at its end, send what is left for some seconds.

    Yields None if the environment asks for none, or for what cannot be used.
    `defaults` are attributes of the resource that the environment may replace, `parse` parses paths
    of requests, and `server` are attributes of requests. Settings that cannot be used are a
    warning: variables may have been injected for all Pods of a cluster.
    """
    try:
        names = exporters_of(environ)
    except ConfigError as error:
        _log.warning(_DISABLED, error=str(error))
        names = ()
    traces = await asyncio.to_thread(_open, names, defaults, parse, server) if names else None
    if traces is None:
        yield None
        return
    _log.info("Exporting traces", exporters=list(names))
    try:
        yield traces
    finally:
        await traces.close()


def _open(
    exporters: Sequence[str], defaults: Mapping[str, str], parse: PathParser, server: Attributes
) -> OpenTelemetryTraces | None:
    """Return open traces; None, after a warning, if they cannot be opened."""
    try:
        # Imported here because few operators export traces.
        from operator_runner.telemetry.tracing import provider  # noqa: PLC0415

        return provider.OpenTelemetryTraces(
            provider.open_provider(exporters, defaults), parse, server
        )
    except ImportError as error:
        hint = (
            "run pip install '.[otel]' in the repository of operator-runner, or set"
            " OTEL_SDK_DISABLED=true"
        )
        _log.warning(_DISABLED, error=str(error), hint=hint)
    except Exception as error:  # noqa: BLE001 (the SDK checks variables with errors of all kinds)
        _log.warning(_DISABLED, error=f"{type(error).__name__}: {error}")
    return None

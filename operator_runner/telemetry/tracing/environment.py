"""Read which exporters the standard OTEL_ variables select. Pure.

The SDK itself reads all other variables: endpoint, headers, timeout, sampler, resource, sizes.
"""

from __future__ import annotations

from collections.abc import Mapping

from operator_runner.core.errors import ConfigError

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

"""Traces of reconciles, exported by OpenTelemetry where its variables ask for it; see ADR 43."""

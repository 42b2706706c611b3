"""Read the HTTP API of running operators; see docs/adr/0039-operator-api.md."""

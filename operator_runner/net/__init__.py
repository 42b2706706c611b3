"""Ports and TLS: listening sockets, connection limits, serving certificates."""

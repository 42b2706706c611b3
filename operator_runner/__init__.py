"""Kubernetes operators written as Ansible roles."""

from __future__ import annotations

__version__ = "0.1.0"

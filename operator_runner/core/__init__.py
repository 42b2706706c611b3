"""Shared types and functions of all packages: model, settings, errors, durations, limits."""

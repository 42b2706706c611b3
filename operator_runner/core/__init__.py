"""What every other package speaks in: model, settings, errors, durations, limits."""

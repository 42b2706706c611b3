"""What an administrator sees of the operator: metrics, probes, logs. Knows only the model."""

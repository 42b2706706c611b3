"""The composition root: constructs the operator from its parts, and runs it."""

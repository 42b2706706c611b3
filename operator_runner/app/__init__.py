"""The composition root: builds the real parts, runs them, and ends them in order."""

"""Records of runs, and the read-only HTTP API that serves them; see docs/adr/0039."""

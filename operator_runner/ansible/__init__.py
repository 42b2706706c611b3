"""How a play is run: its private data dir, the launcher that starts it, and what came of it."""

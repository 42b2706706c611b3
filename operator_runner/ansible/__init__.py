"""Run plays: private data dir, launchers, events and outcome."""

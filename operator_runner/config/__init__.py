"""Configuration by users: watches.yaml, flags and environment variables."""

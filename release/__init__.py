"""Checks and notes of `make release`: versions agree, and the changelog has a section for them."""

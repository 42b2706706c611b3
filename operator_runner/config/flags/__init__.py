"""Flags and environment of `operator-runner run`, and the settings that they make.

`options` declares the flags, `types` reads variables, cores and memory of the machine, `values`
combines them.
"""

"""Patches of ansible-core and other libraries.

`registry` lists every patch with its reason. `selection` compares the symbols of each patch with
the installed ones and skips patches that do not match. `replacing` is the only way to replace a
symbol.
"""

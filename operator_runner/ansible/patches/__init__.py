"""Patches of ansible-core and other libraries: what is replaced, why, and how it is checked.

`registry` lists every patch; `selection` compares the symbols of each with what is installed and
leaves out those that do not match; `replacing` is the only way to replace a symbol.
"""

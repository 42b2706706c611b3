"""Rewrites stored objects in the storage version of their CRD, so that an old version can go.

`target` is what a CRD says and the place where an interrupted migration goes on (pure),
`objects` lists and rewrites, `migrate` does a whole CRD, `display` tells how far it is.
"""

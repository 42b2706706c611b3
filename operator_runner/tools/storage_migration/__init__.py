"""Rewrite stored objects in the storage version of their CRD, so that old versions can be removed.

`target` reads a CRD and the checkpoint of an interrupted migration (pure), `objects` lists and
rewrites objects, `migrate` migrates a whole CRD, `display` shows the progress.
"""

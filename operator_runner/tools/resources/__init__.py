"""Commands for resources of operators: suspend, resume, reconcile, retry."""

"""One reconcile of one resource: read, decide, run, report. Pure parts around one thin shell."""

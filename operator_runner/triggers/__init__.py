"""What wakes a reconcile: events of primaries and of what they own, and edits of the project."""

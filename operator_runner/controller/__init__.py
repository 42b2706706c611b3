"""The controller: event sources, predicates, the work queue, and the dispatcher."""

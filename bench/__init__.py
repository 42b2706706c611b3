"""`make bench` measures the cost of a reconcile; `make soak` injects faults for half an hour.

The bench runs an operator process on its own control plane, and `ansible-runner run` of the same
role for comparison. `docs/performance.md` has the results.
"""

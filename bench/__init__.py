"""`make bench`: what a reconcile costs, side by side with what it costs elsewhere; `make soak`.

It uses the project as a user does: an operator process on a control plane of its own, and
`ansible-runner run` of the same role beside it. `docs/performance.md` keeps what it found.
"""

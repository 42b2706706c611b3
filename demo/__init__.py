"""`make demo`: the nginx operator on a real cluster, from nothing to HTTP 200.

It uses the project as a user does: the `operator-runner` commands and kubectl.
"""

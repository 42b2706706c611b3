"""The tests of the role use the fixture `reconcile` of operator-runner."""

pytest_plugins = ["operator_runner.testing"]

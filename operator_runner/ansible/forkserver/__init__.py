"""Warm runs: a fork server that has everything loaded, and plays and modules that are its forks.

`launcher` lives in the operator and speaks to `server`, a process of its own with one thread.
For each run the server forks a supervisor (`supervisor`: ansible-runner as ever), which forks
the play (`play`: ansible-playbook as ever), whose workers fork the modules (`modules`).
Whatever one of them does not recognise goes the ordinary way.
"""

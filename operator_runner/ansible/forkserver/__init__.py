"""Warm runs: a fork server that has Ansible loaded; plays and modules are its forks.

`launcher` runs in the operator and sends runs to `server`, a process with one thread. For each
run the server forks a supervisor (`supervisor`: ansible-runner), which forks the play (`play`:
ansible-playbook) and the modules that the play requests (`modules`). Modules that cannot be forked
run as in ansible-core.
"""

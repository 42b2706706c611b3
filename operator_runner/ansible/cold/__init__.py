"""Cold runs: each in a new ansible-playbook process."""

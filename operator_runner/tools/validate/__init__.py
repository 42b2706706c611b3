"""The check of roles, playbooks and templates that `operator-runner validate` makes.

It runs nothing and needs no cluster. `check` is the entry; `sources` reads files, `task_reader`
their tasks, `plugins` asks Ansible's plugin loader. `expressions`, `spec_fields` and `findings` are
pure.
"""

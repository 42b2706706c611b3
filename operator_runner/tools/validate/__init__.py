"""The check of roles, playbooks and templates that `operator-runner validate` makes.

It runs nothing and needs no cluster. `check` is the entry; `expressions`, `names`, `argument_specs`
and `findings` are pure; `reader` reads tasks, `plugins` asks Ansible's plugin loader.
"""

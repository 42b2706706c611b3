"""`python -m bench.etcd`: the example etcd under random faults, while a client writes."""

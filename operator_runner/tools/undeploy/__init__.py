"""`operator-runner undeploy`: delete an operator and keep custom resources and their objects.

`plan` sorts the manifests, `inventory` reads the cluster, `deletion_summary` formats what is
deleted and kept, `removal` deletes.
"""

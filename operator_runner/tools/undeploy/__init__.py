"""`operator-runner undeploy`: takes an operator away and leaves what it has made.

`plan` sorts the manifests, `inventory` looks at the cluster, `loss` tells in words what there is
to lose, `removal` deletes.
"""

"""`operator-runner undeploy`: delete an operator and keep custom resources and their objects."""

"""List the last runs of a resource with their causes."""

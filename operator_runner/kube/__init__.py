"""The Kubernetes API: connection, requests, discovery, watches, Events and the Lease."""

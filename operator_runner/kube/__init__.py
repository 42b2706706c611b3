"""The Kubernetes API: connection, requests, discovery, watches, Events, Lease and the proxy."""

"""What others reach over HTTP: the extender verbs (loopback) and the service port (metrics, API, dump)."""

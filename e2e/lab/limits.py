"""What schedulers may ask of the API: the same for all, since a comparison compares schedulers, not client limits."""

CLIENT_QPS, CLIENT_BURST = 1000, 2000
"""As the chart's kube-scheduler has them."""

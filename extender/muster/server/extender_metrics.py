"""What is measured of the verbs' answers."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

VERBS = ("filter", "prioritize", "preempt")


class ExtenderMetrics:
    """Requests, their latency in the server, and verdicts, by verb."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "muster_extender_requests_total",
            "Calls by verb and HTTP status.",
            ["verb", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "muster_extender_seconds",
            "Time from a call's last byte to its answer.",
            ["verb"],
            buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0),
            registry=registry,
        )
        self.verdicts = Counter(
            "muster_extender_verdicts_total",
            "Answers by verb and verdict.",
            ["verb", "verdict"],
            registry=registry,
        )
        self.starts = Counter(
            "muster_extender_starts",
            "Times that the process that answers the verbs was started; more than once: it had ended.",
            registry=registry,
        )
        for verb in VERBS:
            self.seconds.labels(verb)

    def note(self, verb: str, status: int, verdict: str, seconds: float) -> None:
        """One call that was answered."""
        self.requests.labels(verb, str(status)).inc()
        if verdict:
            self.seconds.labels(verb).observe(seconds)
            self.verdicts.labels(verb, verdict).inc()

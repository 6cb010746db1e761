"""Property tests draw the same examples in every run, and no deadline times them."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "muster",
    max_examples=40,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("muster")

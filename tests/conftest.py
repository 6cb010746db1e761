"""Property tests draw the same examples in every run, and no deadline times them."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command sets it

settings.register_profile(
    "muster",
    max_examples=40,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("muster")


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of real data (TRACES, default ../shared/data). Missing: skipped, in CI a failure."""
    folder = Path(os.environ.get("TRACES", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "README.md").exists():
        words = "no folder of traces: set TRACES to one (see README, Traces)"
        if os.environ.get("CI") == "true":
            pytest.fail(words)
        pytest.skip(words)
    return folder

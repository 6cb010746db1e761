"""Property tests draw the same examples in every run; those of DRAWN other ones in CI, by a seed that is printed. No
deadline times them."""

import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command sets it

for name, same in (("muster", True), ("seeded", False)):
    settings.register_profile(
        name,
        max_examples=40,
        derandomize=same,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
SEED = "--hypothesis-seed"
DRAWN = frozenset({"test_properties.py", "test_ends.py", "test_interleavings.py"})
"""Files whose rules hold exactly, whatever is drawn: the others compare floats, or have an oracle that is a model."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before hypothesis reads its options; the workers of a run get the seed with the others."""
    if config.getoption(SEED) is None and os.environ.get("CI") == "true":
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(1 << 32))


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Just before a module is imported, which is when its tests take their settings."""
    if isinstance(collector, pytest.Module):
        drawn = collector.path.name in DRAWN and collector.config.getoption(SEED) is not None
        settings.load_profile("seeded" if drawn else "muster")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    seed = config.getoption(SEED)
    if seed is not None:
        terminalreporter.write_line(
            f"examples of property tests by seed {seed}: pytest {SEED}={seed} draws them again"
        )


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of real data (TRACES, default ../shared/data). Missing: skipped."""
    folder = Path(os.environ.get("TRACES", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "README.md").exists():
        pytest.skip("no folder of traces: set TRACES to one (see e2e/README.md, Traces)")
    return folder

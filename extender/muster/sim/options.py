"""What a run of the simulator is told beside workload, cluster and profile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

Progress = Callable[[int, int, float], None]
"""Called now and then with jobs completed, jobs in all, and the simulated time (s); may raise Interrupted."""


UNKNOWN_RESTART = 30.0
"""Seconds of a restart where nothing is known of the jobs: what the Pollux artifact's simulator takes (OSDI'21)."""


MOST = {"release_spread": 1.0}
"""The most of an option, where it has one: in the options of a trace as on the command line."""


class Interrupted(Exception):  # noqa: N818 - the end of a run, no error
    """Ctrl-C: the engine ends, and its Result says at which simulated time it was cut."""


@dataclass(frozen=True, slots=True)
class Options:
    """seed: of everything random. restart: seconds without progress when a job's configuration changes (or it is
    started again). migrate: the same where only its nodes change (None: as restart). release: seconds from when a
    replica is told to leave, or its job is done, until its GPUs are free for others; release_spread: each replica's
    own is drawn evenly from this part of it less to as much more, from 0 to 1, with release_seed (None: seed, which
    policies draw with, too); release_rest: seconds by which the other replicas of a job that is done leave later than
    its first, all at once (0: each on its own). checkpoint: seconds between checkpoints; work since the last is lost
    at a restart (0: nothing is lost). round: plan only at whole multiples of
    it (s). failures: mean seconds between failures of one node (0: none); repair: seconds until it is back. record:
    keep segments and queue. whole_seconds: arrivals and completions rounded up to whole seconds, as the AFS authors'
    simulator has them. ranges: under a profile without shares jobs grow within their min and max where GPUs are free,
    as they do on a live cluster (else they have what they asked for). silent: jobs report nothing: what they have
    done is what their owners' curves say of the time that their replicas ran, pauses included, as a live cluster
    takes it. measure: seconds that a job trains as it does until its speed there is known (0: the next
    cycle knows it); a cycle is run then. A cluster takes about 15, see `core.progress.measure`. measure_beside: the
    same beside another job on its GPUs, where that is longer: a cluster takes about 40.
    """

    seed: int = 0
    restart: float = 0.0
    migrate: float | None = None
    release: float = 0.0
    release_spread: float = 0.0
    release_seed: int | None = None
    release_rest: float = 0.0
    checkpoint: float = 0.0
    round: float = 0.0
    failures: float = 0.0
    repair: float = 3600.0
    record: bool = False
    whole_seconds: bool = False
    ranges: bool = False
    silent: bool = False
    measure: float = 0.0
    measure_beside: float = 0.0

    def terms(self) -> Iterator[str]:
        """Sentences for the reader of a table: when GPUs are free that replicas leave, and what is known of jobs."""
        if self.release:
            spread = f", each {100 * self.release_spread:g} % less to more" if self.release_spread else ""
            rest = (
                f", the others of a job that is done {self.release_rest:g} s more"
                if self.release_rest
                else ""
            )
            yield f"GPUs that replicas leave are free {self.release:g} s later{spread}{rest} (--release S)"
        if self.measure:
            yield f"speeds are known once a job has trained for {self.measure:g} s as it does (--measure S)"
        if self.silent:
            yield "jobs report nothing: what they have done is what they declare, pauses included (--silent)"

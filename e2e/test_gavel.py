"""Gavel on two GPU products: time is split as the allocation says, and each linear programme has its own idea."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from e2e.cluster import Cluster, Refused
from e2e.elastic import ROUND, holding, in_rounds, jobs_of, replayed, snapshot_of
from e2e.lab import Lab
from e2e.reports import AsPods
from e2e.scenario import (
    comes_to_hold,
    configured,
    delete_job,
    looking,
    planned_after,
    seen_at_once,
    wait_until,
)
from e2e.test_families import all_gated, whole
from e2e.test_families_more import A100, PRODUCTS, SLOW, T4, product_by_job
from muster.core import snapshot_codec
from muster.profiles import NAMED

pytestmark = [pytest.mark.lab, pytest.mark.referee(again=10)]

SHORT = 6.0
"""s of a round, of which many are to be seen."""
BEGINS = 2.0
"""s from when a job's pods are bound until it trains."""
TRIES = 12
"""Rounds by which three jobs have been on two products: five, where chance has no part in it."""


def test_gavel_splits_the_time_of_each_product_between_jobs(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(PRODUCTS)
    cluster = Cluster(lab.kubeconfig)
    with configured(lab, **quick("gavel-isolation")):
        with seen_at_once(lab):
            cluster.submit(*(whole(name, 2) for name in ("one", "two")))
            all_gated(cluster, "default", one=2, two=2)
        wait_until(
            lambda: (
                sorted(
                    sum(one.values()) >= 8.0 for one in rounds_on(lab, cluster, "gavel-isolation").values()
                )
                == [True, True]
            ),
            within=SLOW,
            what="each has had eight rounds' time",
            also=lambda: rounds_on(lab, cluster, "gavel-isolation"),
        )
        had = rounds_on(lab, cluster, "gavel-isolation")
        for name in ("job-one", "job-two"):
            share = allocated(lab, cluster, "gavel-isolation", name)
            assert share == {A100: 0.5, T4: 0.5}, "a half of everything"
            for product, part in share.items():
                owed = part * sum(had[name].values())
                assert abs(had[name].get(product, 0.0) - owed) <= 1.5, (
                    had,
                    "a round and what of one is under way",
                )
        replayed(lab, cluster)


def quick(profile: str, every: float = ROUND, **arguments: object) -> dict[str, Any]:
    """Settings of a profile by name, but for its rounds: of so many s."""
    recipe = NAMED[profile]
    (share,) = recipe.shares
    given = {**recipe.arguments.get(share, {}), "round": float(every), "interval": 8.0, **arguments}
    return in_rounds(share, every, **given)


def run_on(
    cluster: Cluster, wanted: Mapping[str, str], *, rounds: float, also: Callable[[], object] = str
) -> None:
    """Jobs come to run on these products, each with two replicas, and stay there while so many rounds begin."""
    comes_to_hold(
        lambda: product_by_job(cluster) == {name: (product, 2) for name, product in wanted.items()},
        seconds=rounds * ROUND,
        what=f"{dict(wanted)}",
        also=lambda: f"{product_by_job(cluster)} {also()}\n{cluster.gangs('default')}",
    )


def rounds_on(lab: Lab, cluster: Cluster, policy: str) -> dict[str, dict[str, float]]:
    """By job and GPU product: the time that Muster has counted for it there, in rounds of ROUND s, since its policy's
    allocation for all jobs; nothing before that is made. One that is seen a moment after the others waits for it."""
    snapshot, _ = snapshot_codec.load(snapshot_of(lab, cluster))
    kept = {key: job.memory.get(policy) for key, job in snapshot.jobs.items()}
    found: dict[str, dict[str, float]] = {}
    for key, job in snapshot.jobs.items():
        made = kept[key]
        since = made["had"] if isinstance(made, dict) and made["jobs"] == len(kept) else None
        found[key.name] = {
            product: (meter.at(snapshot.now) - float(since.get(product, 0.0))) / ROUND
            for product, meter in job.facts.by_product.items()
            if product and since is not None
        }
    return found


def allocated(lab: Lab, cluster: Cluster, policy: str, name: str) -> dict[str, float]:
    """Shares of time by product in a gavel policy's last allocation, in hundredths; {} before there is one."""
    kept = jobs_of(lab, cluster, "default")[name].memory.get(policy)
    shares = kept.get("share", {}) if isinstance(kept, dict) else {}
    return {product: round(float(part), 2) for product, part in shares.items() if round(float(part), 2)}


class Training:
    """A look for `looking`: each job trains as fast as it does on the product where it is, and reports its steps and
    how many there will be. As every training it takes a while to begin: steps that are told when its pods were just
    bound count where a Muster that is behind still sees them."""

    def __init__(
        self, lab: Lab, cluster: Cluster, speeds: Mapping[str, Mapping[str, float]], **left: float
    ) -> None:
        self._own, self._speeds, self._left = Cluster(cluster.kubeconfig), speeds, left
        self._pods = AsPods(lab, self._own)
        self._steps, self._at = dict.fromkeys(speeds, 0.0), time.monotonic()
        self._since: dict[tuple[str, str], float] = {}

    def __call__(self) -> None:
        now = time.monotonic()
        passed, self._at = now - self._at, now
        there = holding(self._own, "default")
        on = {name: product for name, (product, _) in product_by_job(self._own).items() if name in there}
        self._since = {place: self._since.get(place, now) for place in on.items()}
        for name, product in on.items():
            if name in self._speeds and now - self._since[name, product] >= BEGINS:
                step = self._steps[name] = self._steps[name] + passed * self._speeds[name][product]
                self._pods.tell(there[name][0], {"step": step, "total": step + self._left[name]})


def gone(error: Exception) -> bool:
    """Whether a pod ended between two looks, so that no token of its own can be had."""
    return isinstance(error, Refused) and error.status in (404, 409)


class Seats:
    """A look for `looking`: for how long (s) the pods of each job have been bound on each product since `begin`."""

    def __init__(self, cluster: Cluster) -> None:
        self._own, self._at = Cluster(cluster.kubeconfig), time.monotonic()
        self.had: Counter[tuple[str, str]] = Counter()

    def __call__(self) -> None:
        now, there = time.monotonic(), product_by_job(self._own)
        for name, (product, _) in there.items():
            self.had[name, product] += now - self._at
        self._at = now

    def begin(self) -> None:
        self.had = Counter()

    def part(self, name: str, product: str) -> float:
        """Of all the time that anybody was there."""
        return self.had[name, product] / sum(s for (_, where), s in self.had.items() if where == product)


def test_gavel_s_max_min_keeps_two_of_three_jobs_on_the_product_that_each_is_best_on_where_isolation_mixes_all(
    new_lab: Callable[..., Lab],
) -> None:
    """Isolation's are thirds of everything. The worst off is best off where who is ten times as fast on an A100 has
    0.46 of it and no T4, who is as fast on either 0.83 of a T4 and no A100, and the third what they leave."""
    lab = new_lab(PRODUCTS)
    cluster = Cluster(lab.kubeconfig)
    speeds = {
        "choosy": {A100: 10.0, T4: 1.0},
        "between": {A100: 8.0, T4: 4.0},
        "either": {A100: 5.0, T4: 5.0},
    }
    pairs = ({"choosy": A100, "either": T4}, {"choosy": A100, "between": T4}, {"between": A100, "either": T4})

    def known() -> dict[str, set[str]]:
        jobs = jobs_of(lab, cluster, "default")
        return {name: {config.product for config in jobs[f"job-{name}"].samples} for name in speeds}

    def there_known() -> bool:
        """Of the jobs of this round, all of which are there. While one changes places with another, a plan may have
        no shares at all: nobody's size can be decided then."""
        granted = {key[1] for key, count in snapshot_of(lab, cluster)["plan"].get("shares", ()) if count}
        now, before = product_by_job(cluster), known()
        settled = bool(granted) and {f"job-{name}" for name in now} == granted
        return settled and all(product in before[name] for name, (product, _) in now.items())

    def as_meant() -> bool:
        now = product_by_job(cluster)
        return any(now == {name: (product, 2) for name, product in pair.items()} for pair in pairs)

    seats = Seats(cluster)
    training = Training(lab, cluster, speeds, **dict.fromkeys(speeds, 1e6))
    with looking(training, 0.9, unless=gone), looking(seats, 0.25):
        with seen_at_once(lab):
            cluster.submit(*(whole(name, 2) for name in speeds))
            all_gated(cluster, "default", **dict.fromkeys(speeds, 2))
        for number in range(TRIES):  # with thirds of everything each comes to be on both
            with configured(lab, **quick("gavel-isolation", 60.0 + number)):
                planned_after(cluster)
                wait_until(
                    there_known,
                    within=SLOW,
                    what="the speeds of those that run are known",
                    also=lambda: f"{known()} {product_by_job(cluster)}",
                )
            if all(products == {A100, T4} for products in known().values()):
                break
        assert all(products == {A100, T4} for products in known().values()), (number, known())
        with configured(lab, **quick("gavel-max-min-perf", SHORT)):
            wait_until(
                as_meant, what="a round by max-min", also=lambda: f"{known()} {product_by_job(cluster)}"
            )
            seats.begin()
            wait_until(
                lambda: sum(seats.had.values()) >= 2 * 12 * SHORT,
                within=2 * SLOW,
                what="twelve rounds on two products",
                also=lambda: seats.had,
            )
            had = dict(seats.had)
            given = {name: allocated(lab, cluster, "gavel-max-min", f"job-{name}") for name in speeds}
            replayed(lab, cluster)
    assert set(had) == {("choosy", A100), ("between", A100), ("between", T4), ("either", T4)}, (had, given)
    for name, product, meant in (("choosy", A100, 0.46), ("either", T4, 0.83)):
        share = given[name].get(product, 0.0)
        assert abs(share - meant) <= 0.15, ("of speeds as they were measured", had, given)
        assert abs(seats.part(name, product) - share) <= 0.2, ("a round more or less", had, given)


def test_gavel_s_programmes_give_the_faster_product_to_whom_each_of_them_means(
    new_lab: Callable[..., Lab],
) -> None:
    """One job is ten times as fast on an A100 and nearly done, the other two fifths faster and far from its end."""
    lab = new_lab(PRODUCTS)
    cluster = Cluster(lab.kubeconfig)
    speeds = {"choosy": {A100: 10.0, T4: 1.0}, "steady": {A100: 7.0, T4: 5.0}}

    def known() -> dict[str, set[str]]:
        jobs = jobs_of(lab, cluster, "default")
        return {name: {config.product for config in jobs[f"job-{name}"].samples} for name in speeds}

    def now_on(**wanted: str) -> None:
        run_on(cluster, wanted, rounds=1.5, also=known)

    with looking(Training(lab, cluster, speeds, choosy=200.0, steady=1e6), 0.9, unless=gone):
        with seen_at_once(lab):
            cluster.submit(*(whole(name, 2) for name in speeds))
            all_gated(cluster, "default", choosy=2, steady=2)
        for number, every in enumerate((60.0, 61.0), start=1):  # a changed configuration begins another round
            with configured(lab, **quick("gavel-isolation", every)):
                wait_until(
                    lambda number=number: all(len(products) >= number for products in known().values()),
                    within=SLOW,
                    what=f"their speeds are known on {number} products",
                    also=lambda: f"{known()} {product_by_job(cluster)}",
                )
        with configured(lab, **quick("gavel-ftf-perf")):
            now_on(choosy=A100, steady=T4)  # it is nearly done, and would be latest by far
            assert allocated(lab, cluster, "gavel-ftf", "job-choosy") == {A100: 1.0}
            replayed(lab, cluster)
        with configured(lab, **quick("gavel-min-total-duration-perf")):
            now_on(choosy=T4, steady=A100)  # all is done soonest where the longest is fastest
            assert allocated(lab, cluster, "gavel-min-total-duration", "job-steady") == {A100: 1.0}
            replayed(lab, cluster)


def test_gavel_s_fifo_gives_who_comes_first_a_product_for_good_and_the_next_the_one_that_is_left(
    new_lab: Callable[..., Lab],
) -> None:
    lab = new_lab(PRODUCTS)
    cluster = Cluster(lab.kubeconfig)

    def have(**products: str) -> None:
        run_on(cluster, products, rounds=2.5)

    with configured(lab, **quick("gavel-fifo")):
        cluster.submit(whole("one", 2))
        have(one=T4)  # as published: the last product by name with GPUs left
        cluster.submit(whole("two", 2))
        have(one=T4, two=A100)
        cluster.submit(whole("late", 2))
        all_gated(cluster, "default", late=2)
        have(one=T4, two=A100)
        delete_job(cluster, "default", "one")
        have(late=T4, two=A100)
        replayed(lab, cluster)

"""Two jobs on a GPU in `python -m e2e.bench papers`: each as fast as its pair was measured, live and simulated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from e2e.bench.by_physics import WORKER
from e2e.bench.paper import Releases, foretold
from e2e.bench.paper_in_place import MEMORY, Packed
from e2e.bench.paper_profiles import PAPERS
from e2e.bench.papers_in_place import OnDevices, manifest
from e2e.bench.papers_live import trained
from e2e.bench.trainings import Seen
from muster.sim.workload import Workload
from muster.types import Config

PACKED = [one for one in PAPERS.values() if isinstance(one, Packed)]


@pytest.fixture
def pairs(traces: Path, monkeypatch: pytest.MonkeyPatch) -> Packed:
    monkeypatch.setenv("TRACES", str(traces))
    return PACKED[0]


@pytest.fixture
def sharing(pairs: Packed) -> OnDevices:
    workload = pairs.workload()
    products = {"n0": "v100", "n1": "k80"}
    made = OnDevices(workload, pairs.speed, pairs.round, products, lambda _: WORKER)
    for name in ones(workload)[:3]:
        made.submitted(next(job for job in trained(workload, pairs.speed) if job.name == name), 0.0)
    return made


def ones(workload: Workload) -> list[str]:
    """Jobs of one GPU that may share it."""
    return [one.name for one in workload.submissions if one.request == 1 and one.gpu_memory < MEMORY]


def test_jobs_for_pairs_have_one_size_that_each_product_takes_and_none_is_too_large_for_another(
    pairs: Packed,
) -> None:
    workload = pairs.workload()
    assert workload.cluster is not None
    products = [group.product for group in workload.cluster.groups]
    least = min(group.gpus for group in workload.cluster.groups)
    beside = {one.model for one in workload.submissions if one.gpu_memory < MEMORY}
    assert len(workload.submissions) >= 15
    for one in workload.submissions:
        assert (one.min, one.max, one.known) == (one.request, one.request, False)
        assert one.request <= least
        model, gpus = workload.models[one.model], (("worker", one.request),)
        for product in products:
            assert model.speed(Config(gpus, (one.request,), product)) > 0.0
            if one.model in beside:
                assert all(
                    model.speed(Config((("worker", 1),), (1,), product, beside=n)) > 0.0 for n in beside
                )


def test_a_job_that_may_share_says_what_it_needs_of_a_gpu_and_which_model_it_is(pairs: Packed) -> None:
    submission = next(one for one in pairs.workload().submissions if one.name == ones(pairs.workload())[0])
    made = next(one for one in trained(pairs.workload(), pairs.speed) if one.name == submission.name)
    notes = manifest(made, submission)["spec"]["template"]["metadata"]["annotations"]
    said = {key: value for key, value in notes.items() if key.startswith("muster.dev/")}
    model = submission.model
    assert said == {
        "muster.dev/gpus": "1",
        "muster.dev/model": model,
        "muster.dev/gpu-memory": f"{MEMORY // 2}Mi",
    }


def test_two_jobs_on_a_device_train_as_their_pair_was_measured_and_alone_when_one_leaves(
    sharing: OnDevices,
) -> None:
    a, b, c = sharing.paced
    alone = Config((("worker", 1),), (1,), "v100")
    model = {name: one.job.model for name, one in sharing.paced.items()}

    def rates(**beside: str) -> None:
        for name, other in beside.items():
            speed = sharing.workload.models[model[name]].speed(replace(alone, beside=model.get(other, "")))
            assert sharing.paced[name].rate == pytest.approx(speed), (name, other)

    looks(sharing, 1.0, a, "d0")
    looks(sharing, 1.0, c, "d1")
    rates(**{a: "", c: ""})
    looks(sharing, 5.0, b, "d0")
    rates(**{a: b, b: a, c: ""})
    assert sharing.paced[a].changes == 0, "it goes on"
    looks(sharing, 9.0, a, "d0", over=True)
    rates(**{b: "", c: ""})
    assert sharing.paced[a].rate == 0.0


def test_what_a_start_takes_counts_from_the_round_that_it_is_of(sharing: OnDevices) -> None:
    round_s = sharing.round
    a, b, _ = sharing.paced
    sharing.began = 1.8e9 // round_s * round_s
    looks(sharing, 3.0, a, "d0")
    looks(sharing, round_s + 1.0, a, "d0", over=True)
    looks(sharing, round_s + 4.0, b, "d0")
    looks(sharing, 3.0 * round_s + 5.0, b, "d0", over=True)
    looks(sharing, 3.0 * round_s + 6.0, a, "d0")
    assert sharing.took == pytest.approx([3.0, 3.0, 1.0]), "given in the round, and not before it"
    assert sharing.starts() == pytest.approx(3.0)


def test_in_what_is_foretold_jobs_change_places_and_each_start_takes_its_time(pairs: Packed) -> None:
    at_once = foretold(pairs, Releases(starts=0.1), 0.0, 0.0)
    late = foretold(pairs, Releases(starts=40.0), 0.0, 0.0)
    assert at_once.changes > 10
    assert late.jct > at_once.jct


def looks(counting: OnDevices, now: float, job: str, device: str, over: bool = False) -> None:
    counting.saw(Seen(job, f"{job}/{device}", "n0", over), now)

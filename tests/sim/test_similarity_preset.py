"""The model-similarity presets: the paper's jobs and cluster, on the law and on Gavel's measured table."""

from pathlib import Path

import numpy as np
import pytest

from muster.policylib.references import BATCHES, CNNS, PAPER
from muster.profiles import build
from muster.sim.engine import simulate
from muster.sim.physics import Standard
from muster.sim.presets import similarity, similarity_gavel
from muster.sim.result import Result
from muster.sim.submission import Submission
from muster.sim.workload import Workload
from muster.types import Config


def run(workload: Workload, **parameters: object) -> Result:
    assert workload.cluster is not None
    return simulate(
        workload, workload.cluster, build("similarity", {"similarity": parameters}), similarity.OPTIONS
    )


def config(product: str, gpus: int, batch: int = 0, beside: str = "") -> Config:
    return Config((("worker", gpus),), (gpus,), product, batch, beside)


def test_the_cluster_and_the_tuples_are_those_of_table_2() -> None:
    workload = similarity.workload(0, jobs=200, span=420.0)
    assert workload.cluster is not None
    assert workload.cluster.gpus == 16
    assert len(workload.submissions) == 200
    assert {s.model.split("@")[0] for s in workload.submissions} == set(CNNS)
    assert {s.batch for s in workload.submissions} == set(BATCHES)
    assert {s.request for s in workload.submissions} == {1, 2, 3, 4}
    assert [s.submitted for s in workload.submissions][:2] == [0.0, pytest.approx(420.0 / 199)]
    assert workload.submissions[-1].submitted == 420.0


def test_another_batch_makes_a_job_shorter_only_where_its_length_is_counted_in_steps() -> None:
    """50 epochs at 256 samples, and the same with 32: as many samples, or as many steps of fewer samples."""
    for counts, shorter in (("samples", False), ("steps", True)):
        steps = counts == "steps"
        model = similarity.Training("ResNet50@256", steps)
        own, small = (model.speed(config("A100", 1, b)) for b in (256, 32))
        assert (small > own) == shorter


def test_a_neighbour_is_read_with_the_batch_it_runs_at() -> None:
    model = similarity.Training("VGG16@32")
    alone = model.speed(config("A100", 1))
    beside = {n: model.speed(config("A100", 1, beside=n)) for n in ("VGG16@512", "VGG16@512@32")}
    assert beside["VGG16@512"] < beside["VGG16@512@32"] < alone
    assert beside["VGG16@512@32"] == PAPER.speed("VGG16", "A100", 1, 32, ("VGG16", 32))


def test_decisions_change_only_at_rounds_and_only_with_cd() -> None:
    workload = similarity.workload(0)
    fixed, changed = run(workload, cd=False), run(workload, cd=True)
    assert not fixed.moves.any()
    assert changed.moves.any()
    for result in (fixed, changed):
        assert np.isfinite(result.ended).all()
        assert (np.mod(result.started, 180.0) == 0.0).all(), "starts are at multiples of three minutes"


def test_packing_shortens_the_wait_of_many_jobs() -> None:
    workload = similarity.workload(1, jobs=50)
    alone, packed = (run(workload, jp=jp) for jp in (False, True))
    assert np.isfinite(packed.ended).all()
    assert packed.started.mean() < alone.started.mean()


def test_two_jobs_on_a_gpu_slow_each_other_until_one_of_them_ends() -> None:
    """To the second, by hand: both from 0 beside each other, then the longer one alone."""
    names = ("VGG16@32", "ResNet50@64")
    law = {
        n: (PAPER.speed(m, "A100", 1, b), PAPER.speed(m, "A100", 1, b, other))
        for n, (m, b), other in zip(
            names, (("VGG16", 32), ("ResNet50", 64)), (("ResNet50", 64), ("VGG16", 32)), strict=True
        )
    }
    short, long = 1000.0 * law[names[0]][1], 3000.0 * law[names[1]][1]
    jobs = [
        Submission(n, 0.0, n, work, max=4, batch=int(n.split("@")[1]))
        for n, work in zip(names, (short, long), strict=True)
    ]
    workload = Workload(
        jobs,
        {n: similarity.Training(n) for n in names},
        cluster=similarity.cluster({"A100": 1}),
        physics=Standard(similarity.CHANGES),
    )
    result = run(workload, jp=True, cd=False)
    assert result.started.tolist() == [0.0, 0.0]
    alone = 2000.0 * law[names[1]][1] / law[names[1]][0]
    assert result.ended.tolist() == pytest.approx([1000.0, 1000.0 + alone])
    assert not result.restarts.any()


def test_every_mode_ends_all_jobs_and_says_the_same_twice() -> None:
    workload = similarity.workload(2)
    for mode in ("gpu", "gpu_ngpu", "gpu_ngpu_bs"):
        for cd in (False, True):
            ends = [run(workload, mode=mode, cd=cd, jp=True).ended.tolist() for _ in range(2)]
            assert ends[0] == ends[1]
            assert np.isfinite(ends[0]).all()


def test_lengths_are_counted_in_samples_or_steps() -> None:
    with pytest.raises(ValueError, match="counts: must be samples or steps; found 'epochs'"):
        similarity.workload(0, counts="epochs")


# ---- on Gavel's table ----


def test_gavel_s_table_as_references(traces: Path) -> None:
    references = similarity_gavel.references(str(traces / "gavel" / "simulation_throughputs.json.gz"))
    assert len(references.models) == 26
    assert set(references.characteristics) == {
        n.split("@")[0] for n in map(similarity_gavel.short, references.models)
    }
    assert similarity_gavel.long(*similarity.parts("LM@20")) == "LM (batch size 20)"
    alone = references.speed("ResNet-18", "v100", 1, 64)
    assert alone == pytest.approx(64 * 24.09, rel=1e-3)
    assert 0.0 < references.speed("ResNet-18", "v100", 1, 64, ("ResNet-50", 64)) < alone
    assert references.speed("ResNet-18", "v100", 1, 512) == 0.0, "never measured"


def test_the_policy_on_gavel_s_table(traces: Path) -> None:
    table = str(traces / "gavel" / "simulation_throughputs.json.gz")
    references = similarity_gavel.references(table)
    workload = similarity_gavel.workload(0, table=table)
    fixed, changed = (run(workload, cd=cd, references=references) for cd in (False, True))
    packed = run(workload, mode="gpu_ngpu_bs", jp=True, references=references)
    assert all(np.isfinite(r.ended).all() for r in (fixed, changed, packed))
    assert changed.ended.max() < fixed.ended.max()

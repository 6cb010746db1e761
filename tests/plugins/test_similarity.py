# Over 300 lines: its scenarios follow the paper's algorithms and its law of speeds.
"""The model-similarity policy: Algorithms 1 to 3, and the law that stands for the paper's measurements."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.sharing.job_table import table_of
from muster.policylib.references import BATCHES, CNNS, GPUS, PAPER, Law
from muster.policylib.similar import cosine, known, nearest
from muster.types import PRODUCT, Config, Grant, Job, SharingSnapshot
from muster_plugins.similarity import Similarity
from tests.scenario import job, key, node, snapshot

ALL = {"A100": 2, "A40": 2, "GTX1080Ti": 2, "K40M": 2, "RTX2080Ti": 4, "T4": 4}


def before(jobs: Sequence[Job], products: Mapping[str, int]) -> SharingSnapshot:
    """One node for each product."""
    nodes = [node(p.lower(), n, labels={PRODUCT: p}) for p, n in products.items()]
    view = snapshot(nodes, jobs=jobs)
    table = table_of(view.jobs.values(), view.now, sum(products.values()), products=products)
    return view.with_table(table)


def granted(
    jobs: Sequence[Job], products: Mapping[str, int] = ALL, **parameters: object
) -> dict[str, tuple[object, ...]]:
    """By job: product and GPUs, then the batch size if it is overridden, and beside whom."""
    view = before(jobs, products)
    plugin = Similarity(**parameters)  # type: ignore[arg-type]
    shares = plugin.share(view)
    result: dict[str, tuple[object, ...]] = {}
    for each, row in view.table.row.items():
        grant = shares.details.get(row)
        if grant is not None:
            beside = (grant.beside.name,) if grant.beside else ()
            batch = (grant.batch,) if grant.batch else ()
            result[each.name] = (grant.product, int(shares.replicas[row]), *batch, *beside)
    return result


def cnn(name: str, model: str, batch: int = 128, gpus: int = 1, most: int = 4, **words: Any) -> Job:
    return job(
        name, worker=most, least=1, gpus=1, model=f"{model}@{batch}", batch=batch, request=gpus, **words
    )


def speed(model: str, product: str, gpus: int, batch: int, beside: tuple[str, int] | None = None) -> float:
    return PAPER.speed(model, product, gpus, batch, beside)


# ---- similarity ----


def test_equation_3() -> None:
    assert cosine((3.0, 4.0), (4.0, 3.0)) == pytest.approx(24 / 25)
    assert cosine((0.0, 0.0), (1.0, 2.0)) == 0.0


def test_with_raw_counts_of_parameters_all_references_are_equal_and_in_millions_they_are_not() -> None:
    raw = {n: (float(m.layers), m.parameters * 1e6) for n, m in CNNS.items()}
    assert all(cosine(a, b) > 0.999999 for a in raw.values() for b in raw.values())
    assert min(cosine(a, b) for a in vectors.values() for b in vectors.values()) < 0.2


vectors = PAPER.characteristics


@pytest.mark.parametrize("name", CNNS)
def test_every_reference_is_nearest_to_itself_and_left_out_to_another(name: str) -> None:
    assert nearest(vectors[name], vectors) == name
    other = nearest(vectors[name], vectors, leave_out=name)
    assert other != name


def test_the_neighbour_of_a_model_that_is_left_out_is_of_its_kind_where_there_is_one() -> None:
    found = {n: nearest(vectors[n], vectors, leave_out=n) for n in ("VGG16", "ResNet50", "ResNet152V2")}
    assert found == {"VGG16": "VGG19", "ResNet50": "ResNet50V2", "ResNet152V2": "ResNet152"}


# ---- the law, against what the paper says of its measurements ----


def test_several_2080ti_slow_vgg16_down_but_for_the_largest_batch() -> None:
    """Fig. 3."""
    for batch in BATCHES:
        one, *more = (speed("VGG16", "RTX2080Ti", n, batch) for n in (1, 2, 3, 4))
        if batch < 512:
            assert all(s < one for s in more)
        else:
            assert one < max(more) < 1.1 * one


def test_beside_another_a_vgg16_is_slower_than_alone_and_slowest_beside_its_like() -> None:
    """Fig. 4: an A100, batches of 32."""
    alone = speed("VGG16", "A100", 1, 32)
    beside = {other: speed("VGG16", "A100", 1, 32, (other, 32)) for other in CNNS}
    assert all(s < alone for s in beside.values())
    assert beside["VGG16"] < beside["ResNet101"]


def test_small_batches_have_more_iterations_and_large_ones_more_samples_a_second() -> None:
    """Section 3.3."""
    for model in CNNS:
        for product in GPUS:
            samples = [speed(model, product, 1, b) for b in BATCHES]
            assert samples == sorted(samples)
            steps = [s / b for s, b in zip(samples, BATCHES, strict=True)]
            assert steps == sorted(steps, reverse=True)


@given(st.sampled_from(sorted(CNNS)), st.sampled_from(sorted(CNNS)), st.sampled_from(sorted(GPUS)))
def test_two_jobs_on_a_gpu_do_more_than_one_at_a_time_and_less_than_both_alone(
    a: str, b: str, p: str
) -> None:
    share = [speed(x, p, 1, 64, (y, 64)) / speed(x, p, 1, 64) for x, y in ((a, b), (b, a))]
    assert 1.0 <= math.fsum(share) <= 2.0


def test_what_cannot_run_has_no_speed() -> None:
    assert (
        speed("VGG16", "H100", 1, 32) == speed("GPT", "A100", 1, 32) == speed("VGG16", "A100", 0, 32) == 0.0
    )


# ---- Algorithm 2 ----


def test_jobs_choose_in_the_order_of_arrival_the_best_that_is_free() -> None:
    jobs = [cnn(f"j{i}", "VGG16", most=1) for i in range(4)]
    assert granted(jobs, {"A40": 1, "A100": 1, "K40M": 2}) == {
        "j0": ("A40", 1), "j1": ("A100", 1), "j2": ("K40M", 1), "j3": ("K40M", 1),
    }  # fmt: skip


def test_a_job_of_higher_priority_chooses_first() -> None:
    jobs = [cnn("first", "VGG16"), cnn("urgent", "VGG16", priority=1)]
    assert granted(jobs, {"A40": 1, "K40M": 1})["urgent"] == ("A40", 1)


def test_mode_gpu_keeps_the_number_of_gpus_that_was_asked_for() -> None:
    assert granted([cnn("j", "VGG16", gpus=3)], mode="gpu")["j"] == ("RTX2080Ti", 3)
    assert granted([cnn("j", "VGG16", gpus=3)], mode="gpu_ngpu")["j"] == ("A40", 1)


def test_a_job_that_finds_nothing_is_passed_by_others() -> None:
    jobs = [cnn("wide", "VGG16", gpus=4), cnn("narrow", "VGG16")]
    assert granted(jobs, {"A100": 2, "K80": 2}, mode="gpu") == {"narrow": ("A100", 1)}


def test_by_samples_a_large_batch_is_chosen_and_by_iterations_the_smallest() -> None:
    job_of_64 = [cnn("j", "ResNet50", batch=64, batch_sizes=BATCHES)]
    assert granted(job_of_64, mode="gpu_ngpu_bs")["j"][2] == 512
    assert granted(job_of_64, mode="gpu_ngpu_bs", unit="iterations")["j"][2] == 32
    assert granted(job_of_64, mode="gpu_ngpu")["j"] == ("A40", 1), "the user's own batch"


def test_only_batch_sizes_that_the_job_declares_are_chosen() -> None:
    fixed, told = cnn("j", "ResNet50", batch=64), cnn("j", "ResNet50", batch=64, batch_sizes=(64, 128))
    assert granted([fixed], mode="gpu_ngpu_bs")["j"] == ("A40", 1), "its own"
    assert granted([told], mode="gpu_ngpu_bs")["j"][2] == 128
    assert granted([replace(told, batch=128)], mode="gpu_ngpu_bs")["j"][2:] == (), "it has the best one"
    assert granted([replace(told, batch=0)], mode="gpu_ngpu_bs")["j"][2] == 128, "it has not reported yet"
    assert granted([replace(told, batch=0)], mode="gpu_ngpu")["j"] == granted([replace(told, batch=128)])["j"]


def test_left_out_of_the_references_a_job_runs_where_its_neighbour_was_fastest() -> None:
    """MobileNetV2's best GPU is not that of DenseNet121, which is nearest to it."""
    assert nearest(vectors["MobileNetV2"], vectors, leave_out="MobileNetV2") == "DenseNet121"
    alone = [cnn("j", "MobileNetV2")]
    theirs = granted([cnn("j", "DenseNet121")])["j"]
    assert granted(alone, leave_out=True)["j"] == theirs != granted(alone)["j"]


def test_a_model_that_nobody_measured_may_be_described_by_its_owner() -> None:
    described = job("j", worker=1, model="ours (layers=17, parameters=140)", batch=128)
    assert granted([described])["j"] == granted([cnn("j", "VGG16")])["j"] == ("A40", 1)


def test_what_nothing_is_known_of_runs_as_requested_where_most_is_free() -> None:
    jobs = [job("j", worker=2, model="secret", request=2), cnn("k", "VGG16")]
    assert granted(jobs, {"A40": 2, "T4": 4}) == {"j": ("T4", 2), "k": ("A40", 1)}
    assert granted([cnn("k", "VGG16")], {"H200": 2}) == {"k": ("H200", 1)}


def test_a_model_like_no_reference_runs_where_it_was_measured_to_be_fastest_and_never_where_it_cannot() -> (
    None
):
    samples = {Config((("worker", 1),), (1,), p): s for p, s in (("A40", 0.0), ("T4", 3.0), ("K40M", 2.0))}
    jobs = [job(n, worker=1, model="secret", samples=samples) for n in "abc"]
    assert granted(jobs, {"A40": 2, "T4": 1, "K40M": 1}) == {"a": ("T4", 1), "b": ("K40M", 1)}


def test_speeds_of_another_batch_size_than_it_has_rank_nothing() -> None:
    samples = {Config((("worker", 1),), (1,), p, b): s for p, b, s in (("A40", 64, 9.0), ("T4", 128, 3.0))}
    secret = job("j", worker=1, model="secret", samples=samples, batch=128)
    assert granted([secret], {"A40": 1, "T4": 1}) == {"j": ("T4", 1)}
    assert granted([replace(secret, batch=64)], {"A40": 1, "T4": 1}) == {"j": ("A40", 1)}


def test_only_counts_that_the_owner_allows_are_chosen() -> None:
    rigid = job("j", worker=2, model="VGG16", batch=64, gpus=1)
    assert granted([rigid]) == {"j": ("A40", 2)}
    sizes = job("j", worker=4, least=2, sizes=(2, 4), model="VGG16", batch=64)
    assert granted([sizes])["j"][1] in (2, 4)


def running(name: str, product: str, grant: Grant, **words: Any) -> Job:
    return cnn(name, "VGG16", on=[product.lower()], present=1, grant=grant, **words)


def test_without_cd_a_job_keeps_what_it_has_and_with_cd_it_moves_to_what_is_better() -> None:
    there = running("j", "K40M", Grant(product="K40M"))
    assert granted([there], cd=False) == {"j": ("K40M", 1)}
    assert granted([there], cd=True) == {"j": ("A40", 1)}


def test_without_cd_what_is_kept_is_not_given_to_others() -> None:
    jobs = [running("j", "A40", Grant(product="A40")), cnn("new", "VGG16")]
    assert granted(jobs, {"A40": 1, "T4": 1}, cd=False) == {"j": ("A40", 1), "new": ("T4", 1)}


# ---- Algorithm 3 ----


def test_jobs_are_packed_only_while_some_wait() -> None:
    assert all(
        len(g) == 2 for g in granted([cnn("a", "VGG16"), cnn("b", "VGG16")], {"A100": 2}, jp=True).values()
    )
    packed = granted([cnn("a", "VGG16"), cnn("b", "VGG16")], {"A100": 1}, jp=True)
    assert packed == {"a": ("A100", 1), "b": ("A100", 1, "a")}


def test_the_job_that_costs_the_first_one_least_is_packed_with_it() -> None:
    jobs = [cnn("a", "VGG16"), cnn("b", "VGG19"), cnn("c", "MobileNetV2"), cnn("d", "ResNet101")]
    speeds = {
        n: speed("VGG16", "A100", 1, 128, (m, 128))
        for n, m in zip("bcd", ("VGG19", "MobileNetV2", "ResNet101"), strict=True)
    }
    best = max(speeds, key=lambda n: speeds[n])
    assert granted(jobs, {"A100": 1}, jp=True) == {"a": ("A100", 1), best: ("A100", 1, "a")}


def test_at_most_two_share_a_gpu_and_jobs_on_several_gpus_share_none() -> None:
    many = [cnn(f"j{i}", "ResNet50") for i in range(5)]
    assert len(granted(many, {"A100": 1}, jp=True)) == 2
    wide = job("w", worker=2, model="VGG16", batch=128)
    assert granted([wide, cnn("b", "VGG16")], {"A100": 2}, jp=True) == {"w": ("A100", 2)}


def test_the_batch_of_the_second_is_overridden_to_fit_the_memory_of_the_gpu() -> None:
    jobs = [cnn(name, "EfficientNetB7", batch=512, batch_sizes=BATCHES) for name in "ab"]
    packed = granted(jobs, {"GTX1080Ti": 1}, jp=True)["b"]
    fits = [
        b
        for b in BATCHES
        if PAPER.memory("EfficientNetB7", b) + PAPER.memory("EfficientNetB7", 512) <= GPUS["GTX1080Ti"].memory
    ]
    assert packed == ("GTX1080Ti", 1, max(fits), "a")
    assert 0 < max(fits) < 512
    assert granted(jobs, {"A100": 1}, jp=True)["b"] == ("A100", 1, "a"), "there both fit as they are"


def test_two_that_never_fit_together_are_not_packed() -> None:
    huge = [cnn("a", "VGG16", gpu_memory=9000), cnn("b", "VGG16", batch=32)]
    assert granted(huge, {"GTX1080Ti": 1}, jp=True) == {"a": ("GTX1080Ti", 1)}


def test_in_mode_gpu_only_a_job_that_asked_for_one_gpu_is_packed() -> None:
    jobs = [cnn("a", "VGG16"), cnn("b", "VGG16", gpus=2), cnn("c", "VGG16"), cnn("d", "VGG16")]
    packed = granted(jobs, {"A100": 1, "K80": 1}, jp=True, mode="gpu")
    assert {name for name, given in packed.items() if len(given) > 2} == {"d"}
    assert set(packed) == {"a", "c", "d"}


def test_without_cd_a_pair_stays_and_when_one_ends_the_other_owns_the_gpu() -> None:
    pair = [
        running("a", "A100", Grant(product="A100")),
        running("b", "A100", Grant(product="A100", beside=key("a"))),
    ]
    assert granted(pair, {"A100": 1}, cd=False, jp=True)["b"] == ("A100", 1, "a")
    left = [pair[1], cnn("c", "ResNet50")]
    assert granted(left, {"A100": 1}, cd=False, jp=True) == {"b": ("A100", 1), "c": ("A100", 1, "b")}


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(CNNS)), st.sampled_from(BATCHES), st.integers(1, 4)), max_size=30
    ),
    st.sampled_from(("gpu", "gpu_ngpu", "gpu_ngpu_bs")),
    st.booleans(),
)
def test_no_product_is_granted_twice_over_whatever_waits(
    drawn: list[tuple[str, int, int]], mode: str, jp: bool
) -> None:
    jobs = [cnn(f"j{i:02d}", m, b, n) for i, (m, b, n) in enumerate(drawn)]
    grants = granted(jobs, mode=mode, jp=jp)
    owners = {name: g for name, g in grants.items() if not isinstance(g[-1], str) or len(g) == 2}
    for product, count in ALL.items():
        assert sum(int(str(g[1])) for g in owners.values() if g[0] == product) <= count
    guests = [g[-1] for name, g in grants.items() if name not in owners]
    assert len(guests) == len(set(guests)), "at most two jobs on a GPU"
    assert all(grants[str(host)][1] == 1 for host in guests)


# ---- names ----


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("NVIDIA-A100-PCIE-40GB", ("A100",)),
        ("NVIDIA-GeForce-RTX-2080-Ti", ("RTX2080Ti",)),
        ("Tesla-T4", ("T4",)),
        ("NVIDIA-H200", ()),
    ],
)
def test_products_are_recognised_as_nodes_are_labelled(label: str, name: tuple[str, ...]) -> None:
    assert known(label, PAPER) == name


def test_references_are_given_in_code_only() -> None:
    with pytest.raises(ValueError, match="references: measured jobs, given in code only; found 'gavel'"):
        Similarity(references="gavel")  # type: ignore[arg-type]


@pytest.mark.parametrize(("field", "value"), [("mode", "all"), ("unit", "epochs")])
def test_a_parameter_that_means_nothing_is_refused(field: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{field}: must be one of"):
        Similarity(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("launch", [5e-5, PAPER.launch, 6e-4])
def test_pairs_keep_on_average_what_gavels_measured_pairs_do(launch: float) -> None:
    law = Law(launch)
    kinds = [(model, batch) for model in CNNS for batch in BATCHES]
    for product, gpu in GPUS.items():
        alone = {kind: law.speed(kind[0], product, 1, kind[1]) for kind in kinds}
        kept = [
            law.speed(*one[:1], product, 1, one[1], other) / alone[one]
            for one in kinds[::7]
            for other in kinds
        ]
        assert 2.0 * sum(kept) / len(kept) == pytest.approx(gpu.pair, rel=0.03)


def test_a_job_whose_batch_size_nobody_knows_keeps_it() -> None:
    """So it is of every job on a cluster: no report says it, and none is told another."""
    silent = replace(cnn("a", "ResNet50"), batch=0)
    assert granted([silent], {"A100": 1}, mode="gpu_ngpu_bs")["a"] == ("A100", 1)

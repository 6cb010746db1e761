# Over 300 lines: what a job teaches those after it is one story, from its track to what is written.
"""What is learned of a job for those with the same image and model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from muster.core.progress import learned, report_filter
from muster.core.progress.learned import (
    ENDS,
    MOST,
    NAMES,
    OF_ONE,
    Lesson,
    Lessons,
    lesson,
    lesson_of,
    merged,
    plain_lesson,
)
from muster.core.progress.measure import changed
from muster.core.progress.report_filter import EMPTY, Track
from muster.types import Config, Job, LearnedSeen, Phase, Report, Reported, WriteLearned
from tests.cluster_fake import FakeCluster, Muster
from tests.scenario import job as job_of

VGG = {"image": "registry/train:7", "model": "VGG16"}


def on(workers: int, nodes: tuple[int, ...] = (), product: str = "A100") -> Config:
    return Config((("worker", workers),), nodes or (workers,), product)


def trained(
    speeds: Mapping[Config, float] | Sequence[tuple[Config, float]], *, samples: float = 0.0
) -> Track:
    """A track with these medians, measured one after another, that ended at step 1000."""
    track = EMPTY
    at, step = 0.0, 0.0
    for config, speed in speeds.items() if isinstance(speeds, Mapping) else speeds:
        track = changed(track, config, at, "resize")
        for _ in range(8):
            at, step = at + 10.0, step + 10.0 * speed
            track = report_filter.follow(track, Report(at=at, step=step, samples=samples * step), config, at)
    return track


def job(name: str = "train", **fields: str) -> Job:
    return job_of(name, worker=8, least=1, **{**VGG, **fields})


def elsewhere(**fields: str) -> Job:
    """A job of another namespace."""
    one = job("theirs", **fields)
    return replace(one, key=one.key._replace(namespace="elsewhere"))


def test_a_lesson_is_the_speed_by_replicas_of_the_best_placement_and_the_length_of_a_job_that_ended_well() -> (
    None
):
    track = trained({on(1): 10.0, on(2, (1, 1)): 15.0, on(2): 19.0})
    found = lesson(track, ended_well=True)
    assert found.speeds == (("worker", 1, 10.0), ("worker", 2, 19.0))
    assert found.ends == (3520.0,)
    assert not found.counts_samples
    assert lesson(track, ended_well=False).ends == ()
    assert found.curve("worker") == (0.0, 10.0, 19.0)


def test_a_lesson_is_of_the_batch_size_that_the_job_had_last() -> None:
    track = trained({replace(on(2), batch=64): 19.0, replace(on(2), batch=128): 12.0})
    assert lesson(replace(track, told_batch=128), ended_well=False).points("worker") == ((2, 12.0),)


def test_a_lesson_is_of_the_product_where_most_numbers_of_replicas_were_measured() -> None:
    """Two on a slow one after one on a fast one are no slow-down."""
    track = trained({on(1): 100.0, on(2, product="V100"): 57.0, on(4, product="V100"): 108.0})
    found = lesson(track, ended_well=True)
    assert (found.product, found.speeds) == ("V100", (("worker", 2, 57.0), ("worker", 4, 108.0)))
    known = None
    for config, speed in ((on(1), 100.0), (on(2, product="V100"), 57.0), (on(4, product="V100"), 108.0)):
        known = merged(known, lesson(trained({config: speed}), ended_well=True, known=known))
    assert known is not None
    assert (known.product, known.points("worker")) == ("V100", ((2, 57.0), (4, 108.0)))


def test_samples_a_second_at_two_batch_sizes_are_not_mixed() -> None:
    at = {size: Lesson((("worker", 1, 10.0 * size),), product="A100", batch=size) for size in (64, 512)}
    more = replace(at[64], speeds=(("worker", 1, 640.0), ("worker", 2, 1200.0)))
    assert merged(at[64], at[512]) == at[512], "the new one of as many"
    apart = merged(more, at[512])
    assert (apart.batch, apart.speeds) == (64, more.speeds)
    assert merged(merged(apart, at[512]), at[512]).batch == 512, "the third in a row"
    assert merged(apart, more).apart == 0


def test_a_job_seen_before_starts_with_what_was_learned() -> None:
    lessons = Lessons()
    lessons.learn(job("first"), trained({on(1): 10.0}), ended_well=True)
    assert lessons.changed
    assert lessons.of(job("second")) == Lesson((("worker", 1, 10.0),), ends=(800.0,), product="A100")
    assert lessons.of(job("other", model="ResNet50")) is None
    assert lessons.of(job("newer", image="registry/train:8")) is None


def test_nothing_is_learned_of_a_job_without_a_model_or_one_that_was_never_measured() -> None:
    lessons = Lessons()
    lessons.learn(job(model=""), trained({on(1): 10.0}), ended_well=True)
    lessons.learn(job(), EMPTY, ended_well=True)
    assert len(lessons) == 0
    assert not lessons.changed


def test_a_later_job_counts_more_than_the_earlier_ones_and_adds_what_it_tried() -> None:
    old = Lesson((("worker", 1, 10.0), ("worker", 2, 18.0)), 20.0, (900.0, 1000.0, 1100.0))
    new = Lesson((("worker", 2, 22.0), ("worker", 4, 30.0)), 0.0, (2000.0,))
    assert merged(old, new) == Lesson(
        (("worker", 1, 10.0), ("worker", 2, 21.0), ("worker", 4, 30.0)), 20.0, (1000.0, 1100.0, 2000.0)
    )
    assert merged(old, new).work == 1100.0
    assert merged(None, new) == new


def test_a_job_that_counts_in_samples_forgets_what_was_learned_in_iterations() -> None:
    old = Lesson((("worker", 1, 10.0),), 20.0, (900.0,))
    new = lesson(trained({on(2): 5.0}, samples=32.0), ended_well=True)
    assert new.counts_samples
    assert merged(old, new) == new
    only_a_cost = Lesson(cost=7.0)
    assert merged(old, only_a_cost) == Lesson(old.speeds, 7.0, old.ends)


def test_the_lesson_that_was_used_longest_ago_is_forgotten_first() -> None:
    lessons, track = Lessons(), trained({on(1): 10.0})
    for n in range(OF_ONE):
        lessons.learn(job(model=f"m{n}"), track, ended_well=True)
    assert lessons.of(job(model="m0")) is not None
    lessons.learn(job(model="one-more"), track, ended_well=True)
    assert len(lessons) == OF_ONE
    assert lessons.of(job(model="m0")) is not None
    assert lessons.of(job(model="m1")) is None


def test_no_namespace_learns_from_another_or_makes_it_forget() -> None:
    lessons, track = Lessons(), trained({on(1): 10.0})
    lessons.learn(job("mine"), track, ended_well=True)
    for n in range(2 * OF_ONE):
        lessons.learn(elsewhere(model=f"m{n}"), track, ended_well=True)
    assert len(lessons) == 1 + OF_ONE
    assert lessons.of(job("mine")) is not None
    assert lessons.of(elsewhere()) is None


def test_where_the_configuration_says_so_all_namespaces_learn_from_each_other() -> None:
    lessons, track = Lessons(shared=True), trained({on(1): 10.0})
    for n in range(MOST + 1):
        lessons.learn(job(model=f"m{n}"), track, ended_well=True)
    assert len(lessons) == MOST
    assert lessons.of(elsewhere(model="m7")) == lessons.of(job(model="m7")) is not None
    lessons.shared = False
    assert lessons.of(elsewhere(model="m7")) is None


def test_nothing_is_learned_under_names_that_nobody_gives() -> None:
    lessons = Lessons()
    lessons.learn(job(model="m" * (NAMES + 1)), trained({on(1): 10.0}), ended_well=True)
    lessons.learn(job(image="i" * (NAMES + 1)), trained({on(1): 10.0}), ended_well=True)
    assert len(lessons) == 0


def test_lessons_are_read_again_as_they_were_written_and_newer_ones_win() -> None:
    lessons = Lessons()
    for n in range(3):
        lessons.learn(job(model=f"m{n}"), trained({on(n + 1): 10.0}), ended_well=True)
    plain = json.loads(json.dumps(lessons.plain()))
    assert not lessons.changed
    again = Lessons()
    again.learn(job(model="m1"), trained({on(1): 99.0}), ended_well=True)
    again.read(plain)
    assert [again.of(job(model=f"m{n}")) for n in (0, 2)] == [lessons.of(job(model=f"m{n}")) for n in (0, 2)]
    assert again.of(job(model="m1")).points("worker") == ((1, 99.0),)  # type: ignore[union-attr]


def test_five_hundred_lessons_of_many_sizes_fit_a_config_map() -> None:
    lessons = Lessons()
    many = Lesson(
        tuple(("worker", n, 123.456 * n) for n in range(1, learned.COUNTS + 1)), 12.3, (1e6,) * ENDS
    )
    image = "registry.example/team/train:2026.11"
    rows = [[f"team-{n % 20}", image, f"model-{n}", plain_lesson(many)] for n in range(MOST)]
    lessons.read({"form": learned.FORM, "lessons": rows})
    assert len(lessons) == MOST
    written = lessons.plain()
    assert written["lessons"] == rows
    assert len(json.dumps(written)) < 2**19 + 100
    rows = [[f"team-{n % 20}", image, f"{n}".zfill(NAMES), plain_lesson(many)] for n in range(MOST)]
    lessons.read({"form": learned.FORM, "lessons": rows})
    written = lessons.plain()
    assert len(json.dumps(written)) < 2**19 + 100, "the newest ones"


def test_lessons_of_an_older_form_do_not_say_whose_they_are_and_are_not_read() -> None:
    lessons = Lessons()
    lessons.read({"form": 1, "lessons": [["image", "VGG16", plain_lesson(Lesson(cost=3.0))]]})
    assert len(lessons) == 0


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["form", "lessons", "speeds", "cost", "ends", "samples"]), inner
            )
        ),
        max_leaves=10,
    )
)
def test_nothing_that_stands_in_the_config_map_is_an_error(value: object) -> None:
    lessons = Lessons()
    lessons.read(value)
    lessons.read({"form": 1, "lessons": value})
    lessons.read({"form": 1, "lessons": [["image", "model", value]]})
    read = lesson_of(value)
    assert read is None or lesson_of(plain_lesson(read)) == read


# ---- the way round: a job ends, the next one of its kind begins ----


def report(muster: Muster, cluster: FakeCluster, name: str, speed: float, seconds: int = 60) -> None:
    """Every replica of a job reports every ten seconds for a while."""
    for _ in range(seconds // 10):
        cluster.now += 10.0
        for pod in [p for p in cluster.pods.values() if p.name.startswith(name) and p.phase is Phase.BOUND]:
            told = Report(at=cluster.now, step=speed * cluster.now % 1e6)
            muster.ledger.apply(Reported(pod.uid, told), cluster.now)
    muster.settle()


def submit(cluster: FakeCluster, name: str, **annotations: str) -> None:
    """A job of two workers that all run one image."""
    for pod in cluster.job(name, 2, **annotations):
        cluster.update(pod, image="registry/train:1")


def run(muster: Muster, cluster: FakeCluster, name: str, speed: float, **annotations: str) -> None:
    """A job of two workers starts, trains and ends well."""
    submit(cluster, name, **annotations)
    muster.settle()
    cluster.bind()
    muster.settle()
    report(muster, cluster, name, speed)
    for pod in [p for p in cluster.pods.values() if p.name.startswith(name)]:
        cluster.end(pod.uid)
    muster.settle()


def writes(cluster: FakeCluster) -> list[WriteLearned]:
    return [a for a in cluster.sent if isinstance(a, WriteLearned)]


def test_what_a_job_taught_is_written_and_the_next_one_of_its_model_begins_with_it() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    run(muster, cluster, "first", 10.0, model="VGG16")
    assert len(writes(cluster)) == 1
    lessons = Lessons()
    lessons.read(writes(cluster)[0].lessons)
    taught = lessons.of(job(image="registry/train:1", model="VGG16"))
    assert taught is not None
    assert taught.points("worker") == ((2, 10.0),)
    submit(cluster, "second", model="VGG16")
    submit(cluster, "stranger", model="ResNet50")
    muster.settle()
    memory = {k.name: j.memory for k, j in muster.ledger.snapshot(cluster.now).jobs.items()}
    assert memory["job-second"] == {learned.MEMORY: plain_lesson(taught)}
    assert memory["job-stranger"] == {}


def test_lessons_are_written_at_most_once_a_minute() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    run(muster, cluster, "first", 10.0, model="a")
    before = cluster.now
    submit(cluster, "second", model="b")
    muster.settle()
    cluster.bind()
    muster.settle()
    report(muster, cluster, "second", 20.0, seconds=50)
    for pod in [p for p in cluster.pods.values() if p.name.startswith("second")]:
        cluster.end(pod.uid)
    muster.settle()
    assert cluster.now - before < 60.0
    assert len(writes(cluster)) == 1
    cluster.now = before + 61.0
    muster.settle()
    assert len(writes(cluster)) == 2
    assert len(writes(cluster)[1].lessons["lessons"]) == 2  # type: ignore[arg-type]


def test_the_next_leader_begins_with_what_was_kept_and_a_restart_forgets_no_lesson() -> None:
    cluster = FakeCluster(nodes=1)
    run(Muster(cluster), cluster, "first", 10.0, model="VGG16")
    submit(cluster, "second", model="VGG16")
    after = Muster(cluster)
    after.ledger.apply(LearnedSeen(json.loads(json.dumps(writes(cluster)[0].lessons))), cluster.now)
    after.ledger.take_over()
    after.settle()
    cluster.bind()
    after.settle()
    cluster.now += 100.0
    after.settle()  # its Gang is written
    third = Muster(cluster)  # and read by one that was told no lessons
    third.settle()
    [found] = [j for k, j in third.ledger.snapshot(cluster.now).jobs.items() if k.name == "job-second"]
    read = lesson_of(found.memory[learned.MEMORY])
    assert read is not None
    assert read.points("worker") == ((2, 10.0),)

"""What a lesson keeps of jobs that trained beside others on a GPU."""

import json
from dataclasses import replace

from muster.core.progress.learned import NEIGHBOURS, Lesson, lesson, lesson_of, merged, plain_lesson
from muster.core.progress.pairs import part_kept
from muster.core.progress.report_filter import from_plain, to_plain
from tests.core.progress.test_learned import on, trained
from tests.scenario import job


def test_a_lesson_has_what_is_kept_beside_others_of_what_is_known_alone() -> None:
    beside = replace(on(1), beside="ResNet50")
    track = trained({on(1): 10.0, beside: 6.0})
    found = lesson(track, ended_well=False)
    assert (found.speeds, found.beside) == ((("worker", 1, 10.0),), (("A100", "ResNet50", 0.6),))
    assert lesson_of(json.loads(json.dumps(plain_lesson(found)))) == found
    never_alone = trained({beside: 4.0})
    assert lesson(never_alone, ended_well=False).beside == ()
    assert lesson(never_alone, ended_well=False, known=found).beside == (("A100", "ResNet50", 0.4),)
    other = Lesson(beside=(("A100", "VGG16", 0.5), ("A100", "ResNet50", 0.9)))
    assert merged(other, found).beside == (("A100", "VGG16", 0.5), ("A100", "ResNet50", 0.6))


def test_of_several_configurations_beside_the_same_one_the_one_counts_that_was_measured_last() -> None:
    """First on one GPU, then on two, and on one again, where it is what it was."""
    one, two = (replace(on(count), beside="VGG16") for count in (1, 2))
    other = replace(on(1), beside="other")
    track = trained([(on(1), 10.0), (on(2), 20.0), (one, 6.0), (other, 9.0), (two, 8.0), (one, 6.0)])
    assert [config for config in track.medians if config.beside] == [other, two, one]
    again = from_plain(json.loads(json.dumps(to_plain(track))))
    for found in (track, again):
        trains = job("a", worker=1, samples=found.medians)
        trains = replace(trains, roles=(replace(trains.roles[0], devices=True),))
        assert part_kept(trains, job("b", worker=1, model="VGG16"), "A100") == 0.6
    assert lesson(track, ended_well=False).beside == (("A100", "other", 0.9), ("A100", "VGG16", 0.6))
    twice = trained([(on(1), 10.0), (on(2), 20.0), (one, 6.0), (other, 9.0), (two, 8.0)])
    assert lesson(twice, ended_well=False).beside == (("A100", "other", 0.9), ("A100", "VGG16", 0.4))


def test_a_lesson_knows_no_more_neighbours_than_a_few_and_forgets_who_was_met_longest_ago() -> None:
    met = tuple(("A100", f"m{number}", 0.5) for number in range(NEIGHBOURS + 2))
    known = merged(Lesson(beside=met[:NEIGHBOURS]), Lesson(beside=met[NEIGHBOURS:]))
    assert known.beside == met[2:]
    again = merged(known, Lesson(beside=(("A100", "m2", 0.7),)))
    assert again.beside == (*met[3:], ("A100", "m2", 0.7))
    alone = [(on(1), 10.0)]
    others = [(replace(on(1), beside=name), 5.0) for _, name, _ in met]
    assert lesson(trained([*alone, *others]), ended_well=False).beside == met[2:]
    assert lesson_of({**plain_lesson(Lesson()), "beside": [list(row) for row in met]}) == Lesson(
        beside=met[2:]
    )

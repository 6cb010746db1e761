"""What a lesson keeps of jobs that trained beside others on a GPU."""

import json
from dataclasses import replace

from muster.core.progress.learned import Lesson, lesson, lesson_of, merged, plain_lesson
from tests.core.progress.test_learned import on, trained


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

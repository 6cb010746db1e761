"""What jobs taught, on the API: one ConfigMap, and no reason not to schedule where it can't be had."""

import json

import pytest

from muster.cluster.learned_store import KEY, Shelf, learned_by
from muster.errors import ClusterError
from muster.types import JobKey, LearnedSeen, WriteLearned


class OneConfigMap:
    """An API that has this and nothing else; data None: it is not there."""

    def __init__(self, data: dict[str, str] | None, answer: int = 200) -> None:
        self.data, self.answer, self.asked = data, answer, ""

    def get(self, path: str) -> bytes:
        self.asked = path
        if self.data is None:
            raise ClusterError("configmaps not found", 404)
        return json.dumps({"data": self.data} if self.data else {}).encode()

    def request(
        self, method: str, path: str, body: dict[str, dict[str, str]], kind: str
    ) -> tuple[int, bytes]:
        self.asked = f"{method} {path} {kind}"
        if self.answer == 200:
            self.data = body["data"]
        return self.answer, b'{"message": "configmaps \\"muster-learned\\" is forbidden"}'


def shelf(api: OneConfigMap) -> Shelf:
    return Shelf(api, "muster-system", "muster-learned")  # type: ignore[arg-type]


LESSONS = {
    "form": 3,
    "lessons": [["team", "image", "VGG16", {"speeds": [], "cost": 3.0, "ends": [], "samples": False}]],
}


def test_what_was_written_is_read_at_the_start_of_the_next_term() -> None:
    api = OneConfigMap({})
    assert shelf(api).read() == []
    assert shelf(api).write(WriteLearned(JobKey("team", "train"), LESSONS, "jobs have ended")) == (200, "")
    assert api.asked == (
        "PATCH /api/v1/namespaces/muster-system/configmaps/muster-learned application/merge-patch+json"
    )
    assert shelf(api).read() == [LearnedSeen(LESSONS)]


@pytest.mark.parametrize("data", [None, {KEY: "no json"}, {KEY: ""}, {"other": "1"}])
def test_a_config_map_that_is_missing_or_broken_teaches_nothing(data: dict[str, str] | None) -> None:
    assert shelf(OneConfigMap(data)).read() == []


def test_a_refusal_says_why() -> None:
    status, why = shelf(OneConfigMap({}, 403)).write(WriteLearned(JobKey("team", "train"), LESSONS, ""))
    assert (status, why) == (403, 'configmaps "muster-learned" is forbidden')


def test_its_name_is_the_releases_as_the_lease_has_it() -> None:
    assert learned_by("team-a-scheduler") == "team-a-learned"


def test_without_a_name_nothing_is_asked_of_the_api() -> None:
    api = OneConfigMap(None)
    nowhere = Shelf(api)  # type: ignore[arg-type]
    assert nowhere.read() == []
    assert nowhere.write(WriteLearned(JobKey("team", "train"), LESSONS, "")) == (200, "")
    assert api.asked == ""

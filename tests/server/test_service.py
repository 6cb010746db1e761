# Over 300 lines: every path of the service port is tried for who may read it.
"""The service port: probes, metrics, /v1/jobs and /debug/snapshot, and who may read them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from muster.core.cycle import cycle
from muster.core.snapshot_codec import load
from muster.core.views.view import Board, View, empty_view
from muster.errors import ClusterError
from muster.points import Profile
from muster.server.access import FloodError, ReviewedAccess, Verdict, claimed
from muster.server.metrics import ViewCollector
from muster.server.service import make_service_app
from muster.types import JobKey
from tests.scenario import FIFO, job, snapshot
from tests.server.reading import viewed


@dataclass
class Rights:
    """Tokens and the namespaces that they may list; None is all."""

    of: dict[str, set[str | None]] = field(
        default_factory=lambda: {"admin": {None}, "team": {"team"}, "nothing": set()}
    )
    fails: Exception | None = None

    def may_list(self, token: str, namespace: str | None) -> Verdict:
        if self.fails:
            raise self.fails
        if token not in self.of:
            return Verdict.UNKNOWN
        return Verdict.ALLOWED if namespace in self.of[token] else Verdict.DENIED


@pytest.fixture
def board() -> Board:
    before = snapshot(
        nodes=2, jobs=[job("runs", worker=1, gpus=8, on=["n0"]), job("waits", worker=2, gpus=8)]
    )
    jobs = dict(before.jobs)
    jobs[JobKey("secret", "spy")] = replace(jobs.pop(JobKey("team", "runs")), key=JobKey("secret", "spy"))
    return Board(viewed(replace(before, jobs=jobs)))


@pytest.fixture
def rights() -> Rights:
    return Rights()


@pytest.fixture
def client(board: Board, rights: Rights) -> Iterator[TestClient]:
    with TestClient(make_service_app(board, rights, missing=lambda: ["pods", "nodes"], fresh=0.0)) as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_readiness_names_what_is_missing_until_everything_was_listed(
    client: TestClient, board: Board
) -> None:
    assert client.get("/readyz").json() == {"status": "ready", "missing": []}
    board.view = empty_view(FIFO)
    got = client.get("/readyz")
    assert (got.status_code, got.json()) == (503, {"status": "not ready", "missing": ["pods", "nodes"]})
    assert client.get("/healthz").status_code == 200
    assert client.get("/v1/jobs", headers=bearer("admin")).status_code == 503


def test_health_fails_and_says_what_does_not_go_on(board: Board, rights: Rights) -> None:
    named: list[str] = []
    with TestClient(make_service_app(board, rights, ailing=lambda: named, fresh=0.0)) as client:
        assert (client.get("/healthz").status_code, client.get("/healthz").json()) == (200, {"status": "ok"})
        named.append("thread lease is dead")
        got = client.get("/healthz")
        assert (got.status_code, got.json()) == (
            500,
            {"status": "failing", "failing": ["thread lease is dead"]},
        )
        assert client.get("/readyz").status_code == 200, "it still answers the verbs"


def test_a_replica_is_ready_only_when_the_ports_that_kubernetes_calls_are_open(
    board: Board, rights: Rights
) -> None:
    closed = ["the port of the extender"]
    app = make_service_app(board, rights, missing=lambda: ["pods"], closed=lambda: closed)
    with TestClient(app) as client:
        got = client.get("/readyz")
        assert (got.status_code, got.json()["missing"]) == (503, ["the port of the extender"])
        assert client.get("/v1/jobs", headers=bearer("admin")).status_code == 200, "readers need none of them"
        closed.clear()
        assert client.get("/readyz").status_code == 200


def test_jobs_of_all_namespaces_for_who_may_list_them_all(client: TestClient) -> None:
    items = client.get("/v1/jobs", headers=bearer("admin")).json()["items"]
    assert [(i["namespace"], i["name"], i["position"]) for i in items] == [
        ("secret", "spy", None),
        ("team", "waits", 1),
    ]
    assert "held by secret/spy" in items[1]["message"]


def test_a_tenant_reads_his_own_namespace_and_counts_of_others(client: TestClient) -> None:
    got = client.get("/v1/jobs?namespace=team", headers=bearer("team"))
    (item,) = got.json()["items"]
    assert item["name"] == "waits"
    assert item["message"].endswith("held by 1 job of other namespaces")
    assert "secret" not in got.text


@pytest.mark.parametrize(
    ("path", "token", "status", "says"),
    [
        ("/v1/jobs", "", 401, "a bearer token is needed"),
        ("/v1/jobs", "forged", 401, "does not know this token for the audience muster.dev"),
        ("/v1/jobs", "team", 403, "/v1/jobs?namespace=NAME"),
        ("/v1/jobs?namespace=secret", "team", 403, "in namespace secret"),
        ("/v1/jobs?namespace=team", "nothing", 403, "in namespace team"),
        ("/v1/jobs?namespace=../x", "admin", 400, "must be the name of a namespace"),
        ("/debug/snapshot", "", 401, "a bearer token is needed"),
        ("/debug/snapshot", "team", 403, "in all namespaces"),
    ],
)
def test_who_may_not_read_is_told_so(
    client: TestClient, path: str, token: str, status: int, says: str
) -> None:
    got = client.get(path, headers=bearer(token) if token else {})
    assert got.status_code == status
    assert says in got.json()["error"]
    assert ("www-authenticate" in got.headers) == (status == 401)


def test_half_a_character_in_a_token_is_refused_as_any_other(board: Board) -> None:
    parts = (b'{"alg": "RS256"}', b'{"aud": ["\\ud800"]}')
    token = ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), "x"])

    def asked(*_: Any) -> Any:
        raise AssertionError("the API server is not asked about it")

    with TestClient(make_service_app(board, ReviewedAccess(asked))) as client:
        got = client.get("/v1/jobs", headers=bearer(token))
    assert got.status_code == 401
    assert "found one for \ud800" in got.json()["error"]


@pytest.mark.parametrize(
    ("error", "status"), [(FloodError("too many"), 429), (ClusterError("no answer", 0), 503)]
)
def test_rights_that_cannot_be_asked_for_are_no_rights(
    client: TestClient, rights: Rights, error: Exception, status: int
) -> None:
    rights.fails = error
    got = client.get("/v1/jobs", headers=bearer("admin"))
    assert got.status_code == status
    assert "error" in got.json()


def test_unknown_paths_and_methods_are_errors_in_the_same_form(client: TestClient) -> None:
    assert client.get("/nothing").json() == {"error": "Not Found"}
    assert client.post("/v1/jobs").status_code == 405


def test_a_snapshot_that_was_sent_replays_to_the_same_plan(client: TestClient, board: Board) -> None:
    got = client.get("/debug/snapshot", headers=bearer("admin"))
    read, profile = load(got.json())
    assert profile == "fifo"
    assert cycle(read, FIFO) == board.view.plan


def test_metrics_tell_of_the_newest_view(client: TestClient) -> None:
    families = text_string_to_metric_families(client.get("/metrics").text)
    values = {(s.name, *s.labels.values()): s.value for f in families for s in f.samples}
    assert values["muster_jobs", "Waiting"] == 1
    assert values["muster_jobs", "Running"] == 1
    assert values["muster_gpus",] == 16
    assert values["muster_gpus_free",] == 8
    assert values["muster_leading",] == 1
    assert values["muster_jobs_waiting", "Resources"] == 1


def test_the_same_question_is_rendered_once_for_a_crowd(board: Board, rights: Rights) -> None:
    with TestClient(make_service_app(board, rights, fresh=60.0)) as client:
        first = client.get("/v1/jobs", headers=bearer("admin")).content
        board.view = replace(board.view)
        assert client.get("/v1/jobs", headers=bearer("admin")).content == first
        other = client.get("/v1/jobs?namespace=team", headers=bearer("admin"))
        assert [i["name"] for i in other.json()["items"]] == ["waits"]


# ---- TokenReview and SubjectAccessReview ----


def jwt(audience: object) -> str:
    """A token as service accounts have them: "good" is what the API server knows it by."""
    claims = {"aud": audience} if audience else {}
    return f"h.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.good"


API_SERVER = "https://kubernetes.default.svc"
GOOD = jwt(["muster.dev"])


@dataclass
class Reviews:
    """The API server as far as reviews go. Opaque tokens are for its own audience, as those of a token file are."""

    asked: list[tuple[str, Any]] = field(default_factory=list)
    status: int = 201
    namespaces: tuple[str | None, ...] = ("team",)

    def __call__(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        spec = json.loads(body)["spec"]
        kind = path.rsplit("/", 1)[-1]
        self.asked.append((kind, spec))
        assert method == "POST"
        if kind == "tokenreviews":
            _, audiences = claimed(spec["token"])
            wanted = spec.get("audiences", [API_SERVER])
            common = [one for one in wanted if one in (audiences or (API_SERVER,))]
            known = spec["token"].endswith("good") and bool(common)
            user = {"username": "jane", "uid": "7", "groups": ["team"], "extra": {"scopes": ["x"]}}
            status = {"authenticated": known, "user": user if known else {}, "audiences": common}
        else:
            status = {"allowed": spec["resourceAttributes"].get("namespace") in self.namespaces}
        return self.status, json.dumps({"status": status}).encode()


class Clock:
    """Stands still unless told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def access(
    reviews: Callable[..., tuple[int, bytes]], clock: Clock, for_api_server: bool = False
) -> ReviewedAccess:
    return ReviewedAccess(reviews, clock=clock, kept=5.0, reviews=10.0, for_api_server=for_api_server)


def test_a_right_is_asked_for_as_the_token_s_owner_and_kept_for_seconds(clock: Clock) -> None:
    reviews = Reviews()
    asked = access(reviews, clock)
    assert asked.may_list(GOOD, "team") is Verdict.ALLOWED
    assert asked.may_list(GOOD, "other") is Verdict.DENIED
    assert asked.may_list(GOOD, None) is Verdict.DENIED
    assert [kind for kind, _ in reviews.asked] == ["tokenreviews", *["subjectaccessreviews"] * 3]
    assert reviews.asked[1][1] == {
        "user": "jane",
        "uid": "7",
        "groups": ["team"],
        "extra": {"scopes": ["x"]},
        "resourceAttributes": {
            "verb": "list",
            "group": "muster.dev",
            "resource": "gangs",
            "namespace": "team",
        },
    }
    assert "namespace" not in reviews.asked[3][1]["resourceAttributes"]
    for _ in range(100):
        assert asked.may_list(GOOD, "team") is Verdict.ALLOWED
    assert len(reviews.asked) == 4
    reviews.namespaces = ()
    clock.now = 5.1
    assert asked.may_list(GOOD, "team") is Verdict.DENIED


@pytest.mark.parametrize("found", [API_SERVER, [API_SERVER, "vault"], [], None, {"x": 1}])
def test_a_token_for_another_audience_is_refused_before_anybody_is_asked(found: object, clock: Clock) -> None:
    reviews = Reviews()
    assert access(reviews, clock).may_list(jwt(found), "team") is Verdict.ELSEWHERE
    assert reviews.asked == []


def test_a_token_for_muster_among_others_is_reviewed_for_muster(clock: Clock) -> None:
    reviews = Reviews()
    token = jwt([API_SERVER, "muster.dev"])
    assert access(reviews, clock).may_list(token, "team") is Verdict.ALLOWED
    assert reviews.asked[0] == ("tokenreviews", {"token": token, "audiences": ["muster.dev"]})


def test_an_opaque_token_is_one_for_muster_only_by_the_api_server_s_word(clock: Clock) -> None:
    reviews = Reviews()
    assert access(reviews, clock).may_list("good", "team") is Verdict.UNKNOWN
    assert [spec for _, spec in reviews.asked] == [{"token": "good", "audiences": ["muster.dev"]}]


@pytest.mark.parametrize("token", [jwt(API_SERVER), jwt(""), "good", GOOD])
def test_where_the_team_says_so_the_api_server_s_own_tokens_are_taken_too(token: str, clock: Clock) -> None:
    asked = access(Reviews(), clock, for_api_server=True)
    assert asked.may_list(token, "team") is Verdict.ALLOWED
    assert asked.may_list("bad", "team") is Verdict.UNKNOWN


def test_who_brings_a_token_for_another_audience_is_told_how_to_make_one(board: Board, clock: Clock) -> None:
    with TestClient(make_service_app(board, access(Reviews(), clock), fresh=0.0)) as client:
        for path in ("/v1/jobs", "/v1/cluster", "/v1/jobs/team/waits", "/debug/snapshot"):
            got = client.get(path, headers=bearer(jwt([API_SERVER])))
            assert (got.status_code, got.json()) == (
                401,
                {
                    "error": "expected a token for the audience muster.dev, found one for "
                    f"{API_SERVER}; make one: kubectl create token NAME -n NAMESPACE --audience=muster.dev"
                },
            )


def test_a_token_that_nobody_knows_is_not_asked_rights_for(clock: Clock) -> None:
    reviews = Reviews()
    asked = access(reviews, clock)
    assert asked.may_list("bad", "team") is Verdict.UNKNOWN
    assert asked.may_list("", "team") is Verdict.UNKNOWN
    assert asked.may_list("x" * 100_000, "team") is Verdict.UNKNOWN
    assert [kind for kind, _ in reviews.asked] == ["tokenreviews"]


def test_a_flood_of_tokens_costs_a_bounded_number_of_reviews(clock: Clock) -> None:
    reviews = Reviews()
    asked = access(reviews, clock)
    refused = 0
    for i in range(1000):
        try:
            asked.may_list(f"guess-{i}", "team")
        except FloodError:
            refused += 1
    assert (len(reviews.asked), refused) == (10, 990)
    clock.now = 0.5
    assert asked.may_list(GOOD, "team") is Verdict.ALLOWED


def test_an_api_server_that_fails_gives_no_right_and_keeps_none(clock: Clock) -> None:
    reviews = Reviews(status=500)
    asked = access(reviews, clock)
    with pytest.raises(ClusterError, match="tokenreviews with 500"):
        asked.may_list(GOOD, "team")
    reviews.status = 201
    assert asked.may_list(GOOD, "team") is Verdict.ALLOWED


def test_a_crowd_that_scrapes_costs_as_much_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[View] = []
    count = ViewCollector._count
    monkeypatch.setattr(
        ViewCollector, "_count", lambda self, view: (counted.append(view), count(self, view))[1]
    )
    now = 0.0
    collector = ViewCollector(Board(empty_view(Profile())), fresh=1.0, clock=lambda: now)
    first = [list(collector.collect()) for _ in range(50)]
    assert len(counted) == 1
    assert all(one == first[0] for one in first)
    now = 1.0
    list(collector.collect())
    assert len(counted) == 2

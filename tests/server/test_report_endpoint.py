# Over 300 lines: each field of a report has the values that are refused.
"""POST /v1/report: whose it is, how often it may come, and which values can be."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.testclient import TestClient

from muster.core.views.view import Board
from muster.errors import ClusterError
from muster.server.access import PODS_KEPT, FloodError, ReviewedPods
from muster.server.report_endpoint import MOST, ReportEndpoint, Unfit, read_report, report_route
from muster.types import Event, Grant, Report, Reported
from tests.scenario import job, snapshot
from tests.server.reading import viewed

NOW = 1_800_000_000.0


def token(pod: str, audience: object = "muster.dev", signature: str = "good") -> str:
    """As a service account's: what it claims, and a signature that the API server below looks at."""
    claims = {"aud": audience, "kubernetes.io": {"pod": {"uid": pod}}}
    plain = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{plain}.{signature}"


@dataclass
class Pods:
    """The API server's word: tokens signed `good` are their pods'."""

    fails: Exception | None = None
    asked: int = 0
    known: dict[str, str] = field(default_factory=dict)

    def kept(self, token: str) -> str | None:
        return self.known.get(token)

    def ask(self, token: str) -> str:
        self.asked += 1
        if self.fails:
            raise self.fails
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        self.known[token] = claims["kubernetes.io"]["pod"]["uid"] if token.endswith(".good") else ""
        return self.known[token]


@dataclass
class Service:
    """The route with a clock that stands still."""

    board: Board
    pods: Pods
    heard: list[Event] = field(default_factory=list)
    clock: float = 100.0
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        desk = ReportEndpoint(
            self.board, self.pods, self.heard.extend, self.registry, lambda: self.clock, lambda: NOW
        )
        self.client = TestClient(Starlette(routes=[report_route(desk)]))

    def post(self, bearer: str, body: Any = None) -> Any:
        content = (
            body if isinstance(body, bytes) else json.dumps({"step": 1} if body is None else body).encode()
        )
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        return self.client.post("/v1/report", content=content, headers=headers)

    def count(self, result: str) -> float:
        return self.registry.get_sample_value("muster_reports_total", {"result": result}) or 0.0


@pytest.fixture
def service() -> Iterator[Service]:
    before = snapshot(
        nodes=2,
        jobs=[job("train", worker=2, gpus=1, on=["n0", "n1"]), job("other", worker=1, gpus=1, on=["n0"])],
    )
    made = Service(Board(viewed(before)), Pods())
    with made.client:
        yield made


def uid(service: Service, name: str, index: int = 0) -> str:
    (found,) = [j for j in service.board.view.snapshot.jobs.values() if j.key.name == name]
    return found.roles[0].members[index].uid


# ---- who ----


def test_a_pod_reports_and_hears_what_its_job_is_granted(service: Service) -> None:
    pod = uid(service, "train")
    got = service.post(
        token(pod),
        {"step": 3, "total": 100, "loss": 0.5, "epoch": 1, "boundary": True, "workers": 2, "noise": 8},
    )
    assert (got.status_code, got.json()) == (200, {"accepted": True, "replicas": {"worker": 2}, "every": 2.0})
    report = Report(at=NOW, step=3.0, total=100.0, loss=0.5, epoch=1, boundary=True, workers=2, noise=8.0)
    assert service.heard == [Reported(pod, report)]
    assert service.count("accepted") == 1


def test_a_job_that_declares_batch_sizes_is_told_which_one_to_train_with(service: Service) -> None:
    pod, before = uid(service, "train"), service.board.view.snapshot
    (train,) = (j for j in before.jobs.values() if j.key.name == "train")

    def answer(**changes: Any) -> Any:
        found = replace(train, **changes)
        service.board.view = viewed(replace(before, jobs={**before.jobs, train.key: found}))
        service.clock += 60.0
        return service.post(token(pod), {"step": 3, "batch": 64}).json().get("batch")

    assert answer(grant=Grant(batch=128)) is None, "it declares none"
    assert answer(grant=Grant(batch=128), batch_sizes=(64, 128)) == 128
    assert answer(grant=Grant(batch=96), batch_sizes=(64, 128), batch=64) is None, "it can't train with that"
    assert answer(grant=Grant(), batch_sizes=(64, 128), batch=64) == 64, "granted none, it keeps its own"
    assert answer(batch_sizes=(64, 128)) is None
    assert service.heard[-1] == Reported(pod, Report(at=NOW, step=3.0, batch=64))


def test_a_report_counts_for_the_pod_that_the_api_server_names_and_no_other(service: Service) -> None:
    """What a token claims is unproven until the API server has said whose it is."""
    bearer, other = token(uid(service, "train")), uid(service, "other")
    service.pods.ask = lambda _: other  # type: ignore[method-assign]
    assert service.post(bearer).status_code == 401
    assert service.heard == []
    service.pods.known[bearer] = other  # and once it has been asked, its word counts, whatever the token says
    assert service.post(bearer).status_code == 200
    assert [event.uid for event in service.heard if isinstance(event, Reported)] == [other]


def test_a_pod_that_is_in_another_job_now_reports_for_that_one(service: Service) -> None:
    pod = uid(service, "train")
    assert service.post(token(pod)).json()["replicas"] == {"worker": 2}
    before = service.board.view.snapshot
    train, other = (
        next(j for j in before.jobs.values() if j.key.name == name) for name in ("train", "other")
    )
    (role,) = train.roles
    left = replace(train, roles=(replace(role, members=role.members[1:]),))
    (theirs,) = other.roles
    joined = replace(other, roles=(replace(theirs, members=(*theirs.members, role.members[0])),))
    service.board.view = viewed(replace(before, jobs={train.key: left, other.key: joined}))
    service.clock += 60.0
    assert service.post(token(pod)).json()["replicas"]["worker"] == 2, "one of its own, and this one"
    service.board.view = viewed(replace(before, jobs={train.key: left}))
    service.clock += 60.0
    assert service.post(token(pod)).status_code == 404


def test_the_api_server_is_asked_once_for_a_token(service: Service) -> None:
    bearer = token(uid(service, "train"))
    assert [service.post(bearer).status_code for _ in range(4)] == [200] * 4
    assert service.pods.asked == 1


@pytest.mark.parametrize(
    ("bearer", "status", "says"),
    [
        ("", 401, "expected the pod's token"),
        ("nonsense", 401, "bound to a pod"),
        ("a.b.c", 401, "bound to a pod"),
        ("e30.W10.x", 401, "bound to a pod"),  # []
        ("x" * 20000, 401, "does not know this token"),
        (token("uid-of-nobody"), 404, "in no job of Muster's"),
    ],
)
def test_who_is_no_pod_of_ours_costs_the_api_server_nothing(
    service: Service, bearer: str, status: int, says: str
) -> None:
    got = service.post(bearer)
    assert got.status_code == status
    assert says in got.json()["error"]
    assert ("www-authenticate" in got.headers) == (status == 401)
    assert (service.pods.asked, service.heard) == (0, [])


def test_a_token_for_something_else_is_refused_by_name(service: Service) -> None:
    got = service.post(token(uid(service, "train"), ["https://kubernetes.default.svc"]))
    assert got.status_code == 401
    says = "expected a token for the audience muster.dev, found one for https://kubernetes.default.svc"
    assert got.json() == {"error": says}
    assert service.pods.asked == 0


def test_a_forged_token_is_nobody_s_and_cannot_flood_the_api_server_or_silence_the_pod(
    service: Service,
) -> None:
    pod = uid(service, "train")
    good = token(pod)
    assert service.post(good).status_code == 200
    codes = [service.post(token(pod, signature=f"forged{n}")).status_code for n in range(20)]
    assert sorted(set(codes)) == [401, 429]
    assert service.pods.asked == 1 + codes.count(401) <= 6
    assert service.post(good).status_code == 200
    assert service.post(token(uid(service, "other"))).status_code == 200


@pytest.mark.parametrize(
    ("error", "status"), [(FloodError("too many"), 429), (ClusterError("no answer"), 503)]
)
def test_a_token_that_cannot_be_checked_now_may_come_again(
    service: Service, error: Exception, status: int
) -> None:
    service.pods.fails = error
    got = service.post(token(uid(service, "train")))
    assert (got.status_code, got.headers["retry-after"]) == (status, "1")
    assert service.heard == []


def test_a_replica_that_does_not_lead_sends_the_caller_on(service: Service) -> None:
    bearer = token(uid(service, "train"))
    service.board.view = replace(service.board.view, leading=False)
    got = service.post(bearer)
    assert got.status_code == 421
    assert "does not lead" in got.json()["error"]
    assert service.count("elsewhere") == 1


def test_a_job_that_is_over_has_nothing_to_report_and_a_new_one_has(service: Service) -> None:
    view = service.board.view
    bearer = token(uid(service, "train"))
    assert service.post(bearer).status_code == 200
    service.board.view = replace(view, snapshot=replace(view.snapshot, jobs={}))
    service.clock += 10.0
    assert service.post(bearer).status_code == 404
    service.board.view = view
    service.clock += 10.0
    assert service.post(bearer).status_code == 200


def test_a_pod_that_was_not_looked_for_yet_may_ask_again_at_once(service: Service) -> None:
    view = service.board.view
    bearer = token(uid(service, "train"))
    service.board.view = replace(view, snapshot=replace(view.snapshot, jobs={}))
    assert service.post(bearer).headers["retry-after"] == "30"
    service.board.view = view  # a moment later: too soon for another search through all jobs
    answer = service.post(bearer)
    assert (answer.status_code, answer.headers["retry-after"]) == (404, "1")
    service.clock += 1.0
    assert service.post(bearer).status_code == 200


# ---- how often ----


def test_a_pod_that_reports_too_often_is_told_when_to_come_again(service: Service) -> None:
    bearer = token(uid(service, "train"))
    assert [service.post(bearer).status_code for _ in range(7)] == [200] * 5 + [429] * 2
    got = service.post(bearer)
    assert got.headers["retry-after"] == "1"
    assert got.json() == {"error": "this pod reports more than 1 times a second"}
    assert service.post(token(uid(service, "train", 1))).status_code == 200  # others may
    service.clock += 1.0
    assert [service.post(bearer).status_code for _ in range(2)] == [200, 429]
    assert service.count("flood-pod") == 4


def test_the_pods_of_one_job_share_what_it_may_send() -> None:
    many = snapshot(nodes=8, jobs=[job("crowd", worker=64, gpus=1, on=[f"n{i % 8}" for i in range(64)])])
    service = Service(Board(viewed(many)), Pods())
    with service.client:
        codes = [service.post(token(uid(service, "crowd", i))).status_code for i in range(64)]
        assert (codes.count(200), codes.count(429)) == (50, 14)
        service.clock += 10.0
        got = service.post(token(uid(service, "crowd")))
    assert got.json()["every"] == 12.8  # together they stay below what the job may send


def test_a_job_whose_speed_is_known_is_asked_less_often(service: Service) -> None:
    view = service.board.view
    jobs = {
        key: replace(one, report=Report(step=5.0, speed=2.0)) if key.name == "train" else one
        for key, one in view.snapshot.jobs.items()
    }
    service.board.view = replace(view, snapshot=replace(view.snapshot, jobs=jobs))
    assert service.post(token(uid(service, "train"))).json()["every"] == 10.0
    assert service.post(token(uid(service, "other"))).json()["every"] == 2.0


# ---- what ----


@pytest.mark.parametrize(
    ("body", "field", "expected", "found"),
    [
        (b'{"loss": NaN}', "loss", "a finite number from -1e+15 to 1e+15", "NaN"),
        (b'{"step": -Infinity}', "step", "a finite number from 0 to 1e+15", "-Infinity"),
        (b'{"step": -1}', "step", "a finite number from 0 to 1e+15", "-1"),
        (b'{"step": 1e16}', "step", "a finite number from 0 to 1e+15", "1e+16"),
        (b'{"step": ' + b"9" * 300 + b"}", "step", "a finite number from 0 to 1e+15", "9" * 77 + "..."),
        (b'{"epoch": 2.5}', "epoch", "a whole number from 0 to 1e+09", "2.5"),
        (b'{"noise": -1}', "noise", "a finite number above 0, at most 1e+15", "-1"),
        (b'{"noise": 0}', "noise", "a finite number above 0, at most 1e+15", "0"),
        (b'{"workers": 0}', "workers", "a whole number from 1 to 100000", "0"),
        (b'{"step": "3"}', "step", "a finite number from 0 to 1e+15", "'3'"),
        (b'{"step": true}', "step", "a finite number from 0 to 1e+15", "true"),
        (b'{"step": [1]}', "step", "a finite number from 0 to 1e+15", "[1]"),
        (b'{"boundary": "yes"}', "boundary", "true or false", "'yes'"),
        (
            b'{"at": 1800000061, "step": 1}',
            "at",
            "a time at most 60 s ahead of 1800000000 (Unix s)",
            "1800000061",
        ),
        (b"[]", "body", "a JSON object", "[]"),
        (b"step=3", "body", "a JSON object", "'step=3'"),
        (b"\xff", "body", "a JSON object", "'\ufffd'"),
        (b"[" * 4000, "body", "a JSON object", "'" + "[" * 76 + "..."),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_what_was_expected(
    service: Service, body: bytes, field: str, expected: str, found: str
) -> None:
    got = service.post(token(uid(service, "train")), body)
    assert got.status_code == 400
    assert got.json() == {
        "error": f"{field}: expected {expected}, found {found}",
        "field": field,
        "expected": expected,
        "found": found,
    }
    assert (service.heard, service.count("malformed")) == ([], 1)


def test_a_field_that_is_not_known_is_refused_by_its_name() -> None:
    with pytest.raises(
        Unfit, match=r"speed: expected one of the fields step, samples, loss, .*, found this one"
    ):
        read_report(b'{"step": 1, "speed": 12}', NOW)


@pytest.mark.parametrize("body", [b"{}", b'{"at": 1800000000}', b'{"step": null}'])
def test_a_report_of_nothing_is_none(body: bytes) -> None:
    with pytest.raises(Unfit, match="body: expected at least one of step, "):
        read_report(body, NOW)


def test_a_report_has_the_server_s_time_whatever_the_reporter_s_clock_says() -> None:
    assert read_report(b'{"step": 1, "at": 1799990000}', NOW) == Report(at=NOW, step=1.0)
    assert read_report(b'{"step": 1, "at": 1800000059}', NOW) == Report(at=NOW, step=1.0)


def test_a_body_that_never_ends_is_not_read(service: Service) -> None:
    got = service.post(token(uid(service, "train")), b" " * (MOST + 1))
    assert (got.status_code, service.count("too-large")) == (413, 1)


# ---- what the API server is asked ----


def reviewing(status: Mapping[str, Any], asked: list[Any]) -> Callable[[str, str, bytes], tuple[int, bytes]]:
    def request(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        asked.append((method, path, json.loads(body)["spec"]))
        return 201, json.dumps({"status": status}).encode()

    return request


BOUND = {
    "authenticated": True,
    "audiences": ["muster.dev"],
    "user": {
        "username": "system:serviceaccount:team:default",
        "extra": {"authentication.kubernetes.io/pod-uid": ["u1"]},
    },
}


def test_a_pods_token_is_reviewed_for_our_audience_and_kept_by_its_digest() -> None:
    asked: list[Any] = []
    clock = [0.0]
    pods = ReviewedPods(reviewing(BOUND, asked), lambda: clock[0])
    assert pods.kept("t") is None
    assert pods.ask("t") == "u1"
    assert asked == [
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"token": "t", "audiences": ["muster.dev"]})
    ]
    clock[0] = PODS_KEPT / 2 - 1.0
    assert pods.kept("t") == "u1"
    clock[0] = PODS_KEPT + 1.0
    assert pods.kept("t") is None


def test_the_tokens_of_pods_that_started_together_are_not_all_reviewed_again_at_once() -> None:
    clock = [0.0]
    pods = ReviewedPods(reviewing(BOUND, []), lambda: clock[0], reviews=1000.0)
    tokens = [f"t-{number}" for number in range(200)]
    for token in tokens:
        pods.ask(token)
    clock[0] = 0.75 * PODS_KEPT
    left = sum(pods.kept(token) is None for token in tokens)
    assert 50 < left < 150


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False},
        BOUND | {"audiences": []},
        BOUND | {"audiences": ["https://kubernetes.default.svc"]},
        BOUND | {"user": {"username": "someone"}},
    ],
)
def test_a_token_without_our_audience_or_without_a_pod_is_nobody_s(status: Mapping[str, Any]) -> None:
    clock = [0.0]
    pods = ReviewedPods(reviewing(status, []), lambda: clock[0])
    assert pods.ask("t") == ""
    assert pods.kept("t") == ""
    clock[0] = 11.0
    assert pods.kept("t") is None  # a mistake is not kept for long


def test_reviews_are_limited() -> None:
    pods = ReviewedPods(reviewing(BOUND, []), lambda: 0.0, reviews=3.0)
    for name in "abc":
        pods.ask(name)
    with pytest.raises(FloodError):
        pods.ask("d")

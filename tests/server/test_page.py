"""The page and the JSON behind it: who may read what, what is sent again, and what the browser is told to forbid."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from muster.core.views.view import Board, empty_view
from muster.server.cluster_pages import PAGES
from muster.server.service import make_service_app
from muster.types import JobKey
from tests.scenario import FIFO, job, snapshot
from tests.server.reading import viewed
from tests.server.test_service import Rights, bearer


@pytest.fixture
def board() -> Board:
    jobs = [job("runs", worker=1, gpus=8, on=["n0"]), job("waits", worker=2, gpus=8), job("mine", worker=1)]
    before = snapshot(nodes=2, jobs=jobs)
    moved = dict(before.jobs)
    moved[JobKey("secret", "spy", "u9")] = replace(
        moved.pop(JobKey("team", "runs")), key=JobKey("secret", "spy", "u9")
    )
    return Board(viewed(replace(before, jobs=moved)))


@pytest.fixture
def client(board: Board) -> Iterator[TestClient]:
    with TestClient(make_service_app(board, Rights(), fresh=0.0)) as client:
        yield client


def test_the_cluster_of_who_may_list_everything_and_of_a_tenant(client: TestClient) -> None:
    everything = client.get("/v1/cluster", headers=bearer("admin"))
    assert [j["name"] for j in everything.json()["jobs"]] == ["spy", "mine", "waits"]
    tenants = client.get("/v1/cluster?namespace=team", headers=bearer("team"))
    assert [j["name"] for j in tenants.json()["jobs"]] == ["mine", "waits"]
    assert tenants.json()["nodes"][0]["cells"] == [[-2, "bound", 8]]
    assert tenants.json()["gpus"] == everything.json()["gpus"]
    for word in ("spy", "secret", "u9"):
        assert word not in tenants.text


def test_one_job_is_read_by_who_may_list_its_namespace(client: TestClient) -> None:
    assert client.get("/v1/jobs/team/mine", headers=bearer("team")).json()["name"] == "mine"
    assert client.get("/v1/jobs/secret/spy", headers=bearer("admin")).json()["uid"] == "u9"
    assert client.get("/v1/jobs/secret/spy?uid=u9", headers=bearer("admin")).status_code == 200


@pytest.mark.parametrize(
    ("path", "token", "status", "says"),
    [
        ("/v1/cluster", "", 401, "a bearer token is needed"),
        ("/v1/cluster", "forged", 401, "does not know this token"),
        ("/v1/cluster", "team", 403, "/v1/cluster?namespace=NAME"),
        ("/v1/cluster?namespace=secret", "team", 403, "in namespace secret"),
        ("/v1/cluster?namespace=A_B", "admin", 400, "must be the name of a namespace"),
        ("/v1/jobs/secret/spy", "", 401, "a bearer token is needed"),
        ("/v1/jobs/secret/spy", "team", 403, "in namespace secret"),
        ("/v1/jobs/secret/nobody", "team", 403, "in namespace secret"),
        ("/v1/jobs/team/spy", "team", 404, "no job 'spy' in namespace team"),
        ("/v1/jobs/team/mine?uid=other", "team", 404, "no job 'mine'"),
        ("/v1/jobs/A_B/x", "admin", 400, "must be the name of a namespace"),
    ],
)
def test_what_may_not_be_read_is_refused_and_does_not_tell_what_exists(
    client: TestClient, path: str, token: str, status: int, says: str
) -> None:
    got = client.get(path, headers=bearer(token) if token else {})
    assert got.status_code == status
    assert says in got.json()["error"]


def test_nothing_is_told_before_everything_was_listed(client: TestClient, board: Board) -> None:
    board.view = empty_view(FIFO)
    assert client.get("/v1/cluster", headers=bearer("admin")).status_code == 503
    assert client.get("/v1/jobs/team/mine", headers=bearer("admin")).status_code == 503


def test_what_did_not_change_is_not_sent_again_and_nobody_keeps_it_on_disk(
    client: TestClient, board: Board
) -> None:
    first = client.get("/v1/cluster", headers=bearer("admin"))
    assert "no-store" in first.headers["cache-control"]
    again = client.get("/v1/cluster", headers=bearer("admin") | {"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    board.view = viewed(snapshot(nodes=3))
    changed = client.get("/v1/cluster", headers=bearer("admin") | {"If-None-Match": first.headers["etag"]})
    assert changed.status_code == 200
    assert len(changed.json()["nodes"]) == 3


def test_a_large_answer_is_sent_compressed_to_who_takes_it_so(client: TestClient, board: Board) -> None:
    board.view = viewed(snapshot(nodes=200))
    packed = client.get("/v1/cluster", headers=bearer("admin"))
    plain = client.get("/v1/cluster", headers=bearer("admin") | {"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.json() == plain.json()


# ---- the page itself ----


def test_the_page_needs_no_token_and_holds_no_data(client: TestClient) -> None:
    got = client.get("/")
    assert got.status_code == 200
    assert got.headers["content-type"].startswith("text/html")
    for word in ("spy", "secret", "n0"):
        assert f">{word}<" not in got.text


def test_the_browser_is_told_to_load_from_here_only_and_to_run_nothing_inline(client: TestClient) -> None:
    for path in ("/", *(f"/pages/{file.name}" for file in PAGES.iterdir())):
        got = client.get(path)
        policy = dict(
            part.strip().split(" ", 1) for part in got.headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == "'none'", path
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'", path
        assert policy["frame-ancestors"] == "'none'", path
        assert "unsafe" not in got.headers["content-security-policy"], path
        assert got.headers["x-content-type-options"] == "nosniff", path
        assert got.headers["referrer-policy"] == "no-referrer", path


class _References(HTMLParser):
    """What a document loads, and what stands in it that the policy would refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        self.loaded += [names[a] or "" for a in ("src", "href") if a in names and tag != "a"]
        self.inline += [a for a in names if a.startswith("on") or a == "style"]
        if tag == "style" or (tag == "script" and "src" not in names):
            self.inline.append(tag)


def test_every_part_of_the_page_is_served_from_beside_it(client: TestClient) -> None:
    found = _References()
    found.feed((PAGES / "index.html").read_text())
    assert found.inline == []
    imports = {
        f"/pages/{name}"
        for file in PAGES.glob("*.js")
        for name in re.findall(r'from "\./([a-z]+\.js)"', file.read_text())
    }
    assert all(path.startswith("pages/") for path in found.loaded)  # beside the page, behind a prefix, too
    for path in {*(f"/{path}" for path in found.loaded), *imports}:
        got = client.get(path)
        assert got.status_code == 200, path
        kind = {"js": "javascript", "css": "text/css", "svg": "image/svg"}[path.rsplit(".", 1)[1]]
        assert kind in got.headers["content-type"], path
    assert {f"/pages/{file.name}" for file in PAGES.glob("*.js")} == imports | {"/pages/page.js"}


def test_the_scripts_turn_no_text_into_markup_and_name_no_other_address() -> None:
    for file in PAGES.iterdir():
        text = file.read_text()
        names = {"http://www.w3.org/2000/svg"}  # a namespace, nothing is loaded from there
        assert set(re.findall(r"\b(?:https?|wss?)://[^\s\"'`<>)]+", text)) <= names, file.name
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "localStorage",
        ):
            assert word not in text, f"{word} in {file.name}"


@pytest.mark.parametrize(
    "path", ["/pages/../service.py", "/pages/%2e%2e/service.py", "/pages/none.js", "/pages/"]
)
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    got = client.get(path)
    assert got.status_code == 404
    assert got.json() == {"error": "Not Found"}


def test_the_page_is_read_and_not_written_to(client: TestClient) -> None:
    assert client.post("/").status_code == 405
    assert client.head("/").status_code == 200

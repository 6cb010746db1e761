# Over 300 lines: one server that answers by script plays every way a watch can break.
"""List and watch against an API server that answers as a script says: late, broken, expired, set back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec
import pytest

from muster.cluster import watch
from muster.cluster.api import Api
from muster.cluster.resources import watched
from muster.cluster.watch import AWAY, STORM, ExpiredError, PastError, Reflector, Resource
from muster.errors import ClusterError
from muster.types import Event, GroupSeen, NodeGone, NodeSeen, Phase, PodGone, PodRecord, Unreadable

NODES = next(r for r in watched("muster") if r.name == "nodes")
GROUPS = next(r for r in watched("muster") if r.optional)


def node(name: str, version: int, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)},
        "status": {"allocatable": {"pods": "110"}},
        **more,
    }


def line(kind: str, found: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": found}).encode()


def bookmark(version: int) -> bytes:
    return line("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


EXPIRED = line("ERROR", {"code": 410, "message": "too old resource version"})


@dataclass
class Server:
    """What it has, at which version, and what the next watches say: lines, or an error that ends one."""

    version: int = 10
    objects: list[dict[str, Any]] = field(default_factory=list)
    watches: list[list[bytes | Exception]] = field(default_factory=list)
    lists: list[Exception | None] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def get(self, path: str) -> bytes:
        _, _, query = path.partition("?")
        wanted = "look" if query == "limit=1" else "list"
        self.asked.append(wanted)
        if wanted == "list" and self.lists and (error := self.lists.pop(0)) is not None:
            raise error
        items = self.objects[:1] if wanted == "look" else self.objects
        return json.dumps({"metadata": {"resourceVersion": str(self.version)}, "items": items}).encode()

    def lines(self, path: str) -> Iterator[bytes]:
        self.asked.append("watch " + path.rpartition("=")[2])
        for each in self.watches.pop(0) if self.watches else ():
            if isinstance(each, Exception):
                raise each
            yield each


@pytest.fixture
def server() -> Server:
    return Server(objects=[node("a", 3), node("b", 5)])


class Reflecting:
    """A reflector whose rounds are turned by hand, and what it said."""

    def __init__(self, server: Server, resource: Resource = NODES) -> None:
        self.heard: list[Event] = []
        self.set_back = 0
        self.reflector = Reflector(cast(Api, server), resource, self.heard.extend, self.past)

    def past(self) -> None:
        self.set_back += 1

    def round(self) -> type[BaseException] | None:
        """What ended it."""
        try:
            self.reflector.round()
        except ClusterError as error:
            return type(error)
        return None

    def told(self) -> list[str]:
        """+name for what is seen, ?name for what can't be read, -name for what is gone, since the last call."""
        said = [
            f"+{e.node.name}"
            if isinstance(e, NodeSeen)
            else f"?{cast(NodeGone, e.gone).name}"
            if isinstance(e, Unreadable)
            else f"-{cast(NodeGone, e).name}"
            for e in self.heard
        ]
        self.heard.clear()
        return said


def test_the_first_list_is_told_and_the_watch_begins_there(server: Server) -> None:
    server.watches = [[line("ADDED", node("c", 11)), line("DELETED", node("a", 12)), bookmark(20)]]
    nodes = Reflecting(server)
    nodes.round()
    assert nodes.told() == ["+a", "+b", "+c", "-a"]
    assert nodes.reflector.synced.is_set()
    server.version = 20
    nodes.round()
    assert server.asked == ["list", "watch 10", "look", "watch 20"], "a bookmark moves it on"


@pytest.mark.parametrize("expired", [EXPIRED, ClusterError("410 gone", 410)], ids=["event", "status"])
def test_an_expired_watch_lists_again_and_what_vanished_meanwhile_is_told(
    server: Server, expired: bytes | Exception
) -> None:
    server.watches = [[line("ADDED", node("c", 11)), expired]]
    nodes = Reflecting(server)
    assert nodes.round() is ExpiredError
    assert nodes.told() == ["+a", "+b", "+c"]
    server.objects, server.version = [node("b", 5), node("d", 30)], 30
    nodes.round()
    assert server.asked == ["list", "watch 10", "list", "watch 30"]
    assert sorted(nodes.told()) == ["+b", "+d", "-a", "-c"]


def test_a_list_that_expires_between_two_pages_is_begun_again(server: Server) -> None:
    server.lists = [ClusterError("the token has expired", 410), None]
    nodes = Reflecting(server)
    assert nodes.round() is ExpiredError
    nodes.round()
    assert nodes.told() == ["+a", "+b"]


@pytest.mark.parametrize(
    "broken", [b'{"type": "ADD', b"null", b"<html>502</html>"], ids=["half", "null", "html"]
)
def test_what_cannot_be_read_as_an_event_ends_in_a_new_list(server: Server, broken: bytes) -> None:
    server.watches = [[line("ADDED", node("c", 11)), broken]]
    nodes = Reflecting(server)
    assert nodes.round() is ExpiredError
    server.objects.append(node("c", 11))
    nodes.round()
    assert server.asked == ["list", "watch 10", "list", "watch 10"]


@pytest.mark.parametrize(
    "error", [ClusterError("reset by peer"), ClusterError("503", 503), ClusterError("429", 429)]
)
def test_a_watch_that_breaks_goes_on_where_it_was(server: Server, error: ClusterError) -> None:
    server.watches = [[line("MODIFIED", node("a", 12)), error], [line("MODIFIED", node("a", 14))]]
    nodes = Reflecting(server)
    assert nodes.round() is ClusterError
    server.version = 14
    nodes.round()
    assert server.asked == ["list", "watch 10", "look", "watch 12"]
    assert nodes.told() == ["+a", "+b", "+a", "+a"]


def test_an_object_that_cannot_be_read_is_told_as_such_with_the_others_and_is_not_gone(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = "3"

    def decode(raw: msgspec.Raw) -> tuple[str, Event]:
        name, event = NODES.decode(raw)
        if name == "a" and f'"resourceVersion": "{good}"'.encode() not in bytes(raw):
            raise OverflowError("Python int too large to convert to C long")
        return name, event

    monkeypatch.setattr(watch, "AT_ONCE", 0.0)
    server.watches = [
        [line("MODIFIED", node("a", 12)), line("MODIFIED", node("b", 13)), EXPIRED],
        [line("DELETED", node("a", 15))],
    ]
    nodes = Reflecting(server, replace(NODES, decode=decode))
    assert nodes.round() is ExpiredError
    assert nodes.told() == ["+a", "+b", "?a", "+b"]
    server.objects, server.version = [node("a", 12), node("b", 13)], 14
    assert nodes.round() is None
    assert nodes.told() == ["?a", "+b", "-a"], (
        "the list has it, and its end is told although it can't be read"
    )


def test_what_has_no_name_that_can_be_read_is_told_too(server: Server) -> None:
    server.objects = [{"metadata": {"name": 7}}, node("b", 5)]
    nodes = Reflecting(server)
    nodes.round()
    unreadable, seen = nodes.heard
    assert (cast(Unreadable, unreadable).what, cast(NodeSeen, seen).node.name) == ("nodes", "b")


def test_of_a_pod_that_cannot_be_read_its_name_and_its_place_are() -> None:
    server = Server()
    server.objects = [
        {
            "metadata": {
                "name": "llm-0",
                "namespace": "team",
                "uid": "u0",
                "labels": {"muster.dev/job": "llm"},
            },
            "spec": {"schedulerName": "muster", "nodeName": "n0", "containers": "none"},
        }
    ]
    pods = Reflecting(server, next(r for r in watched("muster") if r.name == "pods"))
    pods.round()
    (told,) = cast(list[Unreadable], pods.heard)
    assert (told.what, told.namespace, told.gone) == ("pods team/llm-0", "team", PodGone("u0"))
    assert told.pod == PodRecord(
        uid="u0",
        namespace="team",
        name="llm-0",
        version="",
        phase=Phase.BOUND,
        node="n0",
        labels={"muster.dev/job": "llm"},
    )


def test_a_server_that_was_set_back_is_listed_again_and_said(server: Server) -> None:
    """etcd was restored from a backup: a watch from the future would be silent for hours."""
    server.watches = [[line("ADDED", node("c", 50)), ClusterError("connection refused")]]
    nodes = Reflecting(server)
    assert nodes.round() is ClusterError
    server.objects, server.version = [node("a", 3)], 20
    assert nodes.round() is PastError
    assert nodes.set_back == 1
    nodes.told()
    nodes.round()
    assert server.asked == ["list", "watch 10", "look", "list", "watch 20"]
    assert sorted(nodes.told()) == ["+a", "-b", "-c"]


def test_a_server_that_was_set_back_and_goes_on_with_higher_versions_is_known_by_what_is_older_now(
    server: Server,
) -> None:
    """`etcdutl snapshot restore --bump-revision --mark-compacted`: all watches have expired, no version is lower."""
    server.watches = [[line("MODIFIED", node("a", 12)), line("ADDED", node("c", 13)), EXPIRED]]
    nodes = Reflecting(server)
    assert nodes.round() is ExpiredError
    nodes.told()
    server.objects, server.version = [node("a", 3), node("b", 5)], 5000
    assert nodes.round() is PastError
    assert nodes.set_back == 1
    nodes.told()
    nodes.round()
    assert nodes.set_back == 1, "it is told once"
    assert server.asked == ["list", "watch 10", "list", "list", "watch 5000"]
    assert sorted(nodes.told()) == ["+a", "+b", "-c"]


@pytest.mark.parametrize("late", [line("MODIFIED", node("a", 9)), bookmark(9)], ids=["event", "bookmark"])
def test_a_version_that_goes_back_is_doubted_and_the_server_is_asked(server: Server, late: bytes) -> None:
    server.watches = [[late], []]
    nodes = Reflecting(server)
    assert nodes.round() is ClusterError
    assert nodes.told() == ["+a", "+b"]
    assert nodes.round() is ClusterError, "it ended at once"
    assert server.asked == ["list", "watch 10", "look", "watch 10"]
    assert nodes.set_back == 0


def test_a_successor_knows_what_was_known_and_the_old_one_is_silent(server: Server) -> None:
    nodes = Reflecting(server)
    nodes.round()
    heir = nodes.reflector.successor()
    nodes.told()
    server.objects = [node("b", 5)]
    nodes.round()
    assert nodes.told() == []
    with pytest.raises(ClusterError, match="at once"):
        heir.round()
    assert nodes.told() == ["+b", "-a"]


def test_a_kind_that_is_not_served_any_more_is_gone_with_its_objects(server: Server) -> None:
    server.objects = [
        {"metadata": {"namespace": "team", "name": "g", "resourceVersion": "3"}, "spec": {"minMember": 4}}
    ]
    server.watches = [[ClusterError("404 not found", 404)]]
    server.lists = [None, ClusterError("404 not found", 404)]
    groups = Reflecting(server, GROUPS)
    assert groups.round() is ClusterError
    assert groups.heard == [GroupSeen("team", "g", 4)]
    with pytest.raises(watch.NotServedError):
        groups.round()
    assert groups.heard[1:] == [GroupSeen("team", "g", 0)]


def test_lists_that_expire_again_and_again_are_further_and_further_apart(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = pauses(server, monkeypatch, lambda: [EXPIRED], rounds=14)
    assert all(later >= sooner for sooner, later in zip(slept[1:8], slept[3:8], strict=False))
    assert sum(slept) > 60
    assert STORM / 2 < max(slept) <= STORM + 0.5
    assert server.asked.count("list") == 15, "and the one that finds itself stopped"


@pytest.mark.parametrize("ending", [[], [ClusterError("connection refused")]], ids=["at once", "refused"])
def test_watches_that_end_at_once_are_begun_again_within_seconds(
    server: Server, monkeypatch: pytest.MonkeyPatch, ending: list[bytes | Exception]
) -> None:
    slept = pauses(server, monkeypatch, lambda: ending, rounds=12)
    assert AWAY / 2 < max(slept) <= AWAY + 0.5
    assert server.asked.count("list") == 1


def pauses(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    ending: Callable[[], list[bytes | Exception]],
    rounds: int,
) -> list[float]:
    """Seconds between so many watches that end that way."""
    server.watches = [ending() for _ in range(rounds)]
    slept: list[float] = []
    nodes = Reflecting(server)

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if not server.watches:
            nodes.reflector.stop()

    monkeypatch.setattr(nodes.reflector.attempts, "sleep", sleep)
    nodes.reflector._run()
    return slept


def test_a_watch_that_lasted_begins_recreated_at_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: clock[0])
    nodes = Reflecting(server)

    def lasts() -> Iterator[bytes]:
        clock[0] += 100.0
        yield EXPIRED

    monkeypatch.setattr(server, "lines", lambda _: lasts())
    assert nodes.round() is None
    assert nodes.round() is None
    assert server.asked == ["list", "list"]


def test_what_a_list_told_before_a_page_of_it_failed_is_told_as_gone_by_the_next(server: Server) -> None:
    pages: list[tuple[list[dict[str, Any]], str] | Exception] = [
        ([node("a", 3)], "more"),
        ClusterError("500 (too busy)", 500),
        ([node("b", 5)], ""),
    ]

    def get(_: str) -> bytes:
        page = pages.pop(0)
        if isinstance(page, Exception):
            raise page
        return json.dumps(
            {"metadata": {"resourceVersion": "10", "continue": page[1]}, "items": page[0]}
        ).encode()

    server.get = get  # type: ignore[method-assign]
    reflecting = Reflecting(server)
    assert reflecting.round() is ClusterError
    assert reflecting.told() == ["+a"]
    reflecting.round()
    assert reflecting.told() == ["+b", "-a"]

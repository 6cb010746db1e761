"""Custom owners as an API server delivers them: watched where that may be, read by name else."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from muster.cluster.api import Api
from muster.cluster.owner_watches import AGAIN, Owners
from muster.cluster.watch import NotServedError, Reflector
from muster.errors import ClusterError
from muster.types import DeclaredRole, Event, Owner, OwnerGone, OwnerRecord, OwnerSeen

VERSION = "jobset.x-k8s.io/v1alpha2"
SETS = f"/apis/{VERSION}/jobsets"


def jobset(name: str, pods: int, version: int = 5) -> dict[str, Any]:
    job = {"name": "w", "template": {"spec": {"parallelism": pods}}}
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"u-{name}", "resourceVersion": str(version)},
        "spec": {"replicatedJobs": [job]},
    }


def owner(name: str, version: str = VERSION, kind: str = "JobSet") -> Owner:
    return Owner(version, kind, name, f"u-{name}")


def seen(name: str, pods: int) -> OwnerSeen:
    return OwnerSeen(OwnerRecord(owner(name), "team", roles=(DeclaredRole("w", pods),)))


def unknown(one: Owner) -> OwnerSeen:
    return OwnerSeen(OwnerRecord(one, "team"))


class Server:
    """JobSets by name, and what was asked. listed: whether we may list them; lines: what its next watch says."""

    def __init__(self, *sets: dict[str, Any], listed: bool = True) -> None:
        self.sets = {one["metadata"]["name"]: one for one in sets}
        self.listed = listed
        self.asked: list[str] = []
        self.says: list[tuple[str, dict[str, Any]]] = []

    def get(self, path: str) -> bytes:
        if not self.listed:
            raise ClusterError("no", 403)
        assert path.partition("?")[0] == SETS
        metadata = {"resourceVersion": "9"}
        return json.dumps({"metadata": metadata, "items": list(self.sets.values())}).encode()

    def lines(self, path: str) -> Any:
        assert path.startswith(SETS)
        for kind, found in self.says:
            yield json.dumps({"type": kind, "object": found}).encode()

    def request(self, method: str, path: str) -> tuple[int, bytes]:
        assert method == "GET"
        self.asked.append(path)
        if path == f"/apis/{VERSION}":
            return 200, json.dumps({"resources": [{"name": "jobsets", "kind": "JobSet"}]}).encode()
        name = path.rpartition("/")[2]
        if path == f"/apis/{VERSION}/namespaces/team/jobsets/{name}" and name in self.sets:
            return 200, json.dumps(self.sets[name]).encode()
        return 404, b"{}"


class Reading:
    """Owners whose threads are turned by hand, and what they said."""

    def __init__(self, server: Server) -> None:
        self.heard: list[Event] = []
        self.owners = Owners(cast(Api, server), "muster", self.heard.extend)
        self.wanted: dict[str, tuple[str, Owner]] = {}

    def want(self, *owners: Owner, grown: bool = False) -> None:
        self.wanted = {one.uid: ("team", one) for one in owners}
        self.owners.want(self.wanted, [one.uid for one in owners] if grown else [])

    def watch(self) -> None:
        """Each watch lists, if it has not, and hears what there is."""
        for watch in self.owners.watches.values():
            try:
                watch.round()
            except ClusterError:  # the server ends this one at once
                continue
            except NotServedError:
                continue
        self.owners.want(self.wanted)

    def read(self, now: float = 100.0) -> None:
        self.owners.reader.look(now)


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reflector, "start", lambda _: None)


def test_a_kind_is_watched_from_when_one_of_it_is_wanted_and_nothing_is_read_by_name() -> None:
    server = Server(jobset("llm", 4), jobset("other", 2))
    it = Reading(server)
    it.want()
    assert it.owners.watches == {}
    it.want(owner("llm"))
    it.read()
    it.watch()
    it.read()
    assert (it.heard, server.asked) == ([seen("llm", 4)], []), "and the other one is kept"
    it.want(owner("llm"), owner("other"))
    assert it.heard == [seen("llm", 4), seen("other", 2)]
    server.says = [("MODIFIED", jobset("llm", 8, 10)), ("DELETED", jobset("other", 2, 11))]
    it.watch()
    assert it.heard[2:] == [seen("llm", 8), OwnerGone("u-other")]


def test_an_owner_that_is_wanted_again_is_told_again() -> None:
    it = Reading(Server(jobset("llm", 4)))
    it.want(owner("llm"))
    it.watch()
    it.want(owner("llm"), grown=True)
    assert it.heard == [seen("llm", 4), seen("llm", 4)]


def test_what_may_not_be_watched_is_read_by_name_and_again() -> None:
    server = Server(jobset("llm", 4), listed=False)
    it = Reading(server)
    it.want(owner("llm"))
    it.watch()
    it.read(100.0)
    server.sets["llm"] = jobset("llm", 8)
    it.read(100.0 + AGAIN - 1)
    it.read(100.0 + AGAIN)
    assert it.heard == [seen("llm", 4), seen("llm", 8)]


@pytest.mark.parametrize(
    "one",
    [
        owner("gone"),
        owner("../../../../../healthz"),
        owner("llm", "../healthz"),
        Owner("jobset.x-k8s.io/v1alpha2/../../healthz", "JobSet", "llm", "another uid"),
        Owner("jobset.x-k8s.io/v9", "JobSet", "llm", "another uid"),
        owner("llm", VERSION, "Training"),
        Owner("", "", "", "u-llm"),
        Owner(VERSION, "JobSet", "llm", "another uid"),
    ],
)
def test_an_owner_that_is_not_there_or_can_not_be_declares_nothing_and_reaches_no_other_path(
    one: Owner,
) -> None:
    server = Server(jobset("llm", 4))
    it = Reading(server)
    it.want(one)
    it.watch()
    it.read()
    assert it.heard == [unknown(one)]
    assert [path for path in server.asked if ".." in path or "healthz" in path] == []


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(
    ("said", "tolerates"),
    [
        ([], [("muster.dev/scheduler", "Exists", "", "")]),
        ([{"key": "a"}], [("a", "Equal", "", ""), ("muster.dev/scheduler", "Exists", "", "")]),
        ([{"operator": "Exists"}], [("", "Exists", "", "")]),
        (
            [{"key": "muster.dev/scheduler", "value": "other"}],
            [("muster.dev/scheduler", "Equal", "other", "")],
        ),
    ],
)
def test_a_role_without_pods_is_taken_to_tolerate_what_admission_will_have_its_pods_tolerate(
    said: list[dict[str, str]], tolerates: list[tuple[str, str, str, str]], *, listed: bool
) -> None:
    made = jobset("a", 2)
    container = {"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
    pod = {"schedulerName": "muster", "tolerations": said, "containers": [container]}
    made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"] = {"spec": pod}
    for lets_on in (True, False):
        reading = Reading(Server(made, listed=listed))
        reading.owners = Owners(
            cast(Api, Server(made, listed=listed)), "muster", reading.heard.extend, lets_on=lets_on
        )
        reading.want(owner("a"))
        reading.watch()
        reading.read()
        (role,) = next(
            one.owner.roles for one in reading.heard if isinstance(one, OwnerSeen) and one.owner.roles
        )
        wanted = tolerates if lets_on else tolerates[: len(said)]
        assert [tuple(one) for one in role.shape.tolerations] == wanted

# Over 300 lines: the driver is tried against each thing that can stop it.
"""When the live driver acts, and what becomes of it when it can't."""

from __future__ import annotations

import json
import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster import live, points, profiles
from muster.cluster import lease
from muster.cluster.action_executor import ActionExecutor
from muster.cluster.api import NOT_SENT, Api, Errand, TermOverError
from muster.cluster.reader import Reader
from muster.core.ledger import Ledger
from muster.core.views.view import Board, empty_view
from muster.device_driver import DeviceDriver
from muster.errors import ClusterError
from muster.live import Driver, Settled
from muster.points import Profile
from muster.server.agent_orders import AgentHeard
from muster.types import PRODUCT, Event, NodeSeen, Outcome, Plan, PodGone, Snapshot, Ungate
from muster.types.devices import AgentReport, AgentState
from tests.cluster_fake import FakeCluster
from tests.scenario import node

HOST = socket.gethostname()
SETTLED = Settled(scheduler="muster", observe=False, lease_namespace="n", lease_name="l")
OURS = lease.Record(f"{HOST}_1", "a", 1, lasts=15.0)
ANOTHERS = lease.Record("another_1", "b", 2, lasts=15.0)


class Silent:
    """An API server that keeps what was asked of it, and says 404."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.sent: list[str] = []
        self._errand: Errand | None = None

    def during(self, errand: Errand) -> Silent:
        own = Silent()
        own.sent, own.answers, own._errand = self.sent, self.answers, errand
        return own

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,  # noqa: ARG002
        content_type: str = "",  # noqa: ARG002
        *,
        patient: bool = True,  # noqa: ARG002
    ) -> tuple[int, bytes]:
        self.answers.wait(30)
        if self._errand is not None and not self._errand.may():
            raise TermOverError
        self.sent.append(f"{method} {path.rpartition('/')[2]}")
        return 404, b"{}"


@pytest.fixture
def api() -> Silent:
    return Silent()


@pytest.fixture
def driver(api: Silent) -> Iterator[Driver]:
    """Its lists are in, and two pods of a gang wait."""
    made = Driver(cast(Api, api), Board(empty_view(Profile())), SETTLED, Profile())
    for reflector in made._reflectors:
        reflector.synced.set()
    cluster = FakeCluster()
    cluster.job("train", 2, gpus=8)
    made.take(cluster.events())
    yield made
    made.stop()
    made._hands.close()


def leads(driver: Driver, record: lease.Record = OURS) -> None:
    """The Lease is read as it says there, as just renewed."""
    driver._following.look(lambda: replace(record, renewed=time.time()))


def turned(driver: Driver, true: Callable[[], bool]) -> None:
    """The circle goes round in a thread until something is so; it must come to be."""
    circle = threading.Thread(target=driver.run, daemon=True)
    circle.start()
    until(true)
    driver.stop()
    circle.join(10)
    assert not circle.is_alive()


def test_it_does_not_lead_before_its_verbs_can_be_called(driver: Driver) -> None:
    """kube-scheduler would refuse each pod whose gate came off until then, and try it again a second later."""
    leads(driver)
    driver.opened = lambda: False
    assert driver._now() is None
    driver.opened = lambda: True
    assert driver._now() is driver._following.term is not None
    leads(driver, ANOTHERS)
    assert driver._now() is None


def test_a_configuration_that_is_told_while_another_is_being_taken_up_is_taken_up_next(
    driver: Driver,
) -> None:
    """Two reloads a moment apart: the second was said to be in force, and was not."""
    first, second = Profile(name="first"), Profile(name="second")
    use = driver._ledger.use

    def is_slow(profile: Profile) -> None:
        use(profile)
        if profile is first:
            driver.use(second)

    driver._ledger.use = is_slow  # type: ignore[method-assign]
    driver.use(first)
    turned(driver, lambda: driver._ledger.profile.name == "second")


def test_who_begins_to_lead_rests_no_longer(driver: Driver) -> None:
    """After the first cycle of a large cluster it would: nothing starts meanwhile."""
    driver.take([])
    gathering = threading.Thread(target=driver._gather, args=(math.inf, 0.0), daemon=True)
    gathering.start()
    until(lambda: driver._inbox.empty())
    assert gathering.is_alive()
    leads(driver)
    gathering.join(10)
    assert not gathering.is_alive()


def test_while_many_starts_wait_to_be_sent_the_rest_after_a_cycle_is_longer(driver: Driver) -> None:
    crowd = SimpleNamespace(crowded=True, close=driver._hands.close)
    driver._hands = cast(ActionExecutor, crowd)
    driver.take([])
    gathering = threading.Thread(target=driver._gather, args=(0.0, math.inf), daemon=True)
    gathering.start()
    until(lambda: driver._inbox.empty())
    assert gathering.is_alive()
    crowd.crowded = False
    gathering.join(10)
    assert not gathering.is_alive()


def test_a_replica_that_follows_plans_and_sends_nothing(driver: Driver, api: Silent) -> None:
    leads(driver, ANOTHERS)
    turned(driver, lambda: driver.cycles > 0)
    assert api.sent == []
    assert len(driver._board.view.plan.reservations) == 1
    assert not driver._board.view.leading


def test_a_leader_sends_what_it_planned(driver: Driver, api: Silent) -> None:
    leads(driver)
    turned(driver, lambda: bool(api.sent))
    assert driver._board.view.leading
    assert api.sent[0].startswith("PATCH train-0")


def test_what_nodes_use_is_read_by_the_leader_alone_and_only_where_a_plugin_asks_for_it(
    driver: Driver,
) -> None:
    policy = points.load("specon")
    asks = Profile(rebalance=(policy,), named=(("specon", policy),))
    wanted: list[frozenset[tuple[str]]] = []
    driver._use = cast(Reader[tuple[str]], SimpleNamespace(want=wanted.append, stop=lambda: None))
    driver._turn(None)
    leads(driver)
    driver._turn(driver._now())
    driver.use(asks)
    driver._turn(driver._now())
    driver._turn(None)
    assert wanted == [frozenset(), frozenset(), live.USE, frozenset()]
    assert len(live.USE) == 1, "one look at all nodes and pods, however many there are"


def test_a_product_that_the_configuration_names_and_no_node_has_is_said_once_by_the_leader(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    driver.use(profiles.build("gavel-max-min-perf", {"gavel-max-min": {"products": ["a100"]}}))
    caplog.set_level(logging.INFO, "muster.live")

    def said() -> list[str]:
        driver._turn(driver._now())
        found = [one.message for one in caplog.records if "product" in one.message]
        caplog.clear()
        return found

    assert said() == [], "another one leads"
    leads(driver)
    names = "pluginArgs.gavel-max-min.products"
    missing = f"{names} names a100: of no effect while no node has the label {PRODUCT}"
    assert (said(), said()) == ([missing], [])
    driver.take([NodeSeen(node("new", 8, labels={PRODUCT: "A100"}))])
    driver._gather(0.0, 0.0)
    assert (said(), said()) == ([f"nodes have all products that {names} names"], [])


def test_nothing_is_sent_before_the_verbs_are_answered_by_the_view_that_has_its_places(
    driver: Driver, api: Silent
) -> None:
    leads(driver)
    told: list[tuple[int, list[str]]] = []
    driver.shown = lambda view: told.append((len(view.reservations), list(api.sent)))
    turned(driver, lambda: bool(api.sent))
    assert told[0] == (2, [])


def test_a_term_that_ends_while_the_plan_is_made_sends_nothing(
    driver: Driver, api: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = Ledger.plan
    ended = 0

    def plan(ledger: Ledger, snapshot: Snapshot) -> Plan:
        nonlocal ended
        found = planned(ledger, snapshot)
        if driver._following.term is not None and driver._following.term.open():
            ended += len(found.reservations)
            leads(driver, ANOTHERS)
        return found

    monkeypatch.setattr(Ledger, "plan", plan)
    leads(driver)
    turned(driver, lambda: driver.cycles > 1)
    assert ended == 1, "the plan had places to give"
    assert api.sent == []
    assert not driver._board.view.leading


def test_a_cycle_that_fails_is_tried_again_until_it_is_good(
    driver: Driver, api: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "FAILED_PAUSE", 0.001)
    left = [RuntimeError("of a plugin"), OverflowError("10P")]
    seen: list[list[str]] = []

    def fails() -> None:
        seen.append(driver.ailing(time.monotonic() + 61, 60))
        if left:
            raise left.pop(0)

    driver.injected = fails
    leads(driver)
    turned(driver, lambda: bool(api.sent))
    assert [found[0].partition(": ")[2] for found in seen[1:3]] == [
        "RuntimeError: of a plugin",
        "OverflowError: 10P",
    ]
    assert driver.ailing(time.monotonic(), 60) == []


def test_a_plan_that_failed_is_made_again_although_nothing_new_happens(
    driver: Driver, api: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot had taken note of all events when the plan failed."""
    monkeypatch.setattr(live, "FAILED_PAUSE", 0.001)
    planned, left = Ledger.plan, [KeyError("of the core")]

    def plan(ledger: Ledger, snapshot: Snapshot) -> Plan:
        if left:
            raise left.pop()
        return planned(ledger, snapshot)

    monkeypatch.setattr(Ledger, "plan", plan)
    driver._drain(0.0)
    leads(driver)
    turned(driver, lambda: bool(api.sent))
    assert left == []


def test_a_cycle_that_hangs_is_named_and_the_verbs_keep_the_last_plan(driver: Driver) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def hang() -> None:
        if driver.cycles:
            hangs.set()
            goes_on.wait(30)

    driver.injected = hang
    leads(driver)
    planned = threading.Thread(target=driver.run, daemon=True)
    planned.start()
    assert hangs.wait(30)
    before = driver._board.view
    driver.take([NodeSeen(node) for node in FakeCluster(nodes=1).nodes.values()])
    (named,) = driver.ailing(time.monotonic() + 61, 60)
    assert named.startswith("no good cycle for 6")
    assert driver.ailing(time.monotonic(), 60) == []
    assert driver._board.view is before
    assert len(before.reservations) == 2
    driver.stop()
    goes_on.set()
    planned.join(10)


def test_who_steps_down_drops_what_is_queued_and_tells_the_ledger(driver: Driver, api: Silent) -> None:
    """Another replica leads meanwhile: what was decided is of the old term, also once this one leads again."""
    leads(driver)
    driver._drain(0.0)
    term = driver._now()
    assert term is not None
    driver._term, driver._before = term, driver._following.record
    (key,) = driver._ledger.entries
    api.answers.clear()
    actions = tuple(Ungate(key, f"u{n}", f"p{n}", "1", "n0", pin=True, cause="start") for n in range(40))
    driver._hands.carry_out(actions, term)
    leads(driver, ANOTHERS)
    leads(driver, replace(OURS, transitions=3))
    again = driver._now()
    assert again is not None
    assert again is not term
    driver._step_down()
    assert driver._hands._starts.waiting == 0
    assert driver._ledger.listens == math.inf
    api.answers.set()
    driver._hands.close(all_of_it=True)
    assert api.sent == []
    told = [driver._inbox.get_nowait() for _ in range(driver._inbox.qsize())]
    outcomes = [event for events in told for event in events if isinstance(event, Outcome)]
    assert sorted(outcome.action.uid for outcome in outcomes if isinstance(outcome.action, Ungate)) == sorted(
        action.uid for action in actions
    )
    assert {outcome.status for outcome in outcomes} == {NOT_SENT}


def test_a_new_term_of_the_same_replica_begins_when_what_the_last_one_sent_is_answered(
    driver: Driver, api: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else such an answer, or that a request was not sent, would end a request of the new term."""
    leads(driver)
    driver._drain(0.0)
    term, first = driver._now(), driver._following.record
    (key,) = driver._ledger.entries
    api.answers.clear()
    actions = tuple(Ungate(key, f"u{n}", f"p{n}", "1", "n0", pin=True, cause="start") for n in range(40))
    driver._hands.carry_out(actions, term)
    driver._term, driver._before = term, first
    driver._step_down()
    heard: list[str] = []
    monkeypatch.setattr(driver._ledger, "apply", lambda event, _now: heard.append(type(event).__name__))
    monkeypatch.setattr(driver._ledger, "take_over", lambda _now: heard.append("take_over"))
    threading.Timer(0.3, api.answers.set).start()
    driver._take_over(first)
    assert driver._hands.idle
    assert heard.count("Outcome") == 40
    assert heard[-1] == "take_over"


class Devices:
    """Who hears words, of pods that the watch has told of."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.known: set[str] = set()
        self.turns = 0

    def knows(self, word: AgentHeard) -> bool:
        return word.pod in self.known

    def hear(self, word: AgentHeard) -> None:
        self.heard.append((word.pod, self.knows(word)))

    def learn(self, event: Event) -> None:
        if isinstance(event, PodGone):
            self.known.add(event.uid)

    def turn(self, *_: object) -> None:
        self.turns += 1


def test_words_of_agents_are_heard_between_the_stages_of_a_cycle_but_not_before_their_pods_are_known(
    driver: Driver,
) -> None:
    devices = Devices()
    devices.known.add("known")
    driver._devices = cast(DeviceDriver, devices)
    word = AgentReport("run", AgentState.READY)
    driver.hear(AgentHeard(1, "known", word))
    driver.take([PodGone("new")])
    driver.hear(AgentHeard(2, "new", word))
    driver.hear(AgentHeard(3, "known", word))
    driver._between()
    # the third waits with the second: once it is answered, whoever spoke before counts as heard
    assert (devices.heard, devices.turns) == ([("known", True)], 1)
    driver._drain(0.0)
    assert sorted(devices.heard) == [("known", True), ("known", True), ("new", True)]
    assert driver._unheard == []
    driver._between()
    assert devices.turns == 2  # nobody has said anything since


def test_what_was_said_before_the_watch_told_the_same_is_heard_before_it(driver: Driver) -> None:
    """Of who has a device now an answer says that it was another's; the watch tells of the new one alone."""
    devices = Devices()
    devices.known.add("known")
    driver._devices = cast(DeviceDriver, devices)
    told: list[str] = []
    devices.hear = lambda word: told.append(word.pod)  # type: ignore[method-assign]
    devices.learn = lambda event: told.append("the watch")  # type: ignore[method-assign] # noqa: ARG005
    driver.hear(AgentHeard(1, "known", AgentReport("run", AgentState.RUNNING)))
    driver.take([PodGone("any")])
    driver._drain(0.0)
    assert told[:2] == ["known", "the watch"]


def test_a_word_that_comes_while_others_are_heard_waits_for_nobody(driver: Driver) -> None:
    devices = Devices()
    driver._devices = cast(DeviceDriver, devices)
    word = AgentReport("run", AgentState.READY)

    def hear(said: AgentHeard) -> None:
        devices.heard.append(said.pod)
        if said.pod == "first":
            driver.hear(AgentHeard(2, "second", word))
            driver._inbox.get_nowait()  # as if what wakes the circle had been taken with the events before it

    devices.hear = hear  # type: ignore[method-assign]
    driver.hear(AgentHeard(1, "first", word))
    driver._drain(0.0)
    assert devices.heard == ["first", "second"]


def test_a_circle_that_goes_round_well_is_good_with_nothing_to_do(driver: Driver) -> None:
    leads(driver, ANOTHERS)
    began = time.monotonic()
    rounds: list[None] = []
    driver.injected = lambda: rounds.append(None)
    turned(driver, lambda: len(rounds) > 2)
    assert driver.ailing(began + 60.0, 60.0) == []
    assert driver.ailing(began + 600.0, 60.0)


class Restored:
    """An API server whose etcd is set back to an earlier state; watches stand until they are broken."""

    def __init__(self) -> None:
        self.version = 500
        self.nodes = {"n0": 100, "n1": 400}
        self.broken = threading.Event()

    def request(self, method: str, path: str, *_: Any, **__: Any) -> tuple[int, bytes]:
        if method != "GET":
            return 404, b"{}"
        nodes = [
            {
                "metadata": {"name": name, "resourceVersion": str(version)},
                "status": {"allocatable": {"pods": "9"}},
            }
            for name, version in self.nodes.items()
        ]
        items = nodes if path.startswith("/api/v1/nodes") else []
        found = {"metadata": {"resourceVersion": str(self.version)}, "items": items}
        return 200, json.dumps(found).encode()

    def get(self, path: str) -> bytes:
        if "/leases/" in path:
            raise ClusterError("none", 404)
        return self.request("GET", path)[1]

    def lines(self, _: str) -> Iterator[bytes]:
        self.broken.wait(30)
        raise ClusterError("connection reset")
        yield b""


def test_after_etcd_was_restored_from_an_older_backup_only_what_is_there_is_known() -> None:
    server = Restored()
    board = Board(empty_view(Profile()))
    driver = Driver(cast(Api, server), board, SETTLED, Profile())
    driver.start()
    circle = threading.Thread(target=driver.run, daemon=True)
    circle.start()
    until(lambda: set(board.view.snapshot.nodes.names) == {"n0", "n1"})
    server.version, server.nodes = 200, {"n0": 150, "n2": 160}
    server.broken.set()  # as its API server was started again
    until(lambda: set(board.view.snapshot.nodes.names) == {"n0", "n2"})
    assert board.view.synced
    driver.stop()
    circle.join(30)  # it may be starting over once more, with other reflectors
    assert not circle.is_alive()
    until(lambda: not watching())


def watching() -> list[str]:
    """Threads that watch."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("watch-")]


def until(true: Callable[[], bool]) -> None:
    """It must come to be."""
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.005)

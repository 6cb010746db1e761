"""filter and prioritize with 5,000 node names, over HTTP, of the process that answers them as it is shipped: p50 and
p99 while Muster rests, while it plans without a pause, and while 60 clients pull /metrics.

The planner is a process of its own with a large cluster; it starts the process of the verbs and sends it each View.
The three take turns, so that what else this machine does meets all of them. Without a pause: one job arrives, all is
planned, told and shown, and again; the real driver rests eight times as long. Clients are on this machine too, and
niced: they stand for others."""

from __future__ import annotations

import gc
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

from prometheus_client import CollectorRegistry

from e2e.bench import synthetic
from e2e.bench.figures import median, percentile
from e2e.bench.planning import profile
from e2e.bench.report import Progress, Result
from muster import live, threads
from muster.core.cycle import cycle
from muster.core.ledger import Ledger
from muster.core.views.view import Board, View
from muster.core.views.view_changes import NOTHING, changes
from muster.server.access import Verdict
from muster.server.answering import Answering, pack
from muster.server.extender_metrics import ExtenderMetrics
from muster.server.service import make_service_app
from muster.server.web import web_server

AIM, RATIO = 0.005, 1.5
ROUNDS, CLIENTS = 5, 60
WHENS = {
    "idle": "idle",
    "plans": "while planning without a pause",
    "pulled": f"while {CLIENTS} clients pull /metrics",
}


def measure(
    progress: Progress, *, nodes: int = 5000, running: int = 2000, waiting: int = 10_000, calls: int = 1000
) -> Result:
    """Calls one after the other, as kube-scheduler's one scheduling thread makes them."""
    result = Result("verbs", f"extender verbs with {nodes} names, {calls} calls one after the other")
    result.data["arguments"] = {"nodes": nodes, "running": running, "waiting": waiting, "calls": calls}
    progress.say("verbs: starting the planner")
    times: dict[tuple[str, str, str], list[float]] = {}
    with _process("plan", nodes, running, waiting) as (asks, tells):
        told = json.loads(tells.readline())
        verbs = [("filter", "pinned"), ("filter", "scored"), ("prioritize", "scored")]
        for number in range(ROUNDS):
            progress.say(f"verbs: round {number + 1} of {ROUNDS}")
            for when in WHENS:
                _say(asks, "plans" if when == "plans" else "rests")
                tells.readline()
                with _pulling(told["service"]) if when == "pulled" else _nothing():
                    for verb, mode in verbs:
                        found = _call(told["port"], verb, told[mode], told["names"], calls // ROUNDS)
                        times.setdefault((verb, mode, when), []).extend(found)
    for verb, mode in verbs:
        idle = percentile(times[verb, mode, "idle"], 0.99)
        for when, words in WHENS.items():
            found = times[verb, mode, when]
            p50, p99 = median(found), percentile(found, 0.99)
            result.data[f"{verb}_{mode}_{when}_ms"] = [p50 * 1000, p99 * 1000, p99 / idle]
            is_idle = when == "idle"
            result.row(
                f"{verb}, {mode} pod, {words}: p50, p99" + ("" if is_idle else ", times idle"),
                f"{p50 * 1000:.2f} ms, {p99 * 1000:.2f} ms" + ("" if is_idle else f", {p99 / idle:.2f}"),
                "p99 < 5 ms" if is_idle else f"p99 <= {RATIO} times idle",
                p99 < AIM if is_idle else p99 <= RATIO * idle,
            )
    for what, found in told["costs"].items():
        result.row(what, found)
    return result


def _call(port: int, verb: str, uid: str, names: list[str], calls: int) -> list[float]:
    """Seconds of each call, from the first byte sent to the last received."""
    pod = {"metadata": {"name": uid, "namespace": "team-0", "uid": uid}, "spec": {}}
    body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()
    times = []
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        for number in range(calls + 10):
            began = time.perf_counter()
            connection.request("POST", f"/{verb}", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            if number >= 10:
                times.append(time.perf_counter() - began)
            assert answer.status == 200, answer.status
    return times


@contextmanager
def _process(*arguments: object) -> Iterator[tuple[IO[str], IO[str]]]:
    """One of ours, by what is told it and what it tells."""
    command = [sys.executable, "-m", "e2e.bench.verbs", *map(str, arguments)]
    folder = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdin, process.stdout
        finally:
            process.kill()


@contextmanager
def _pulling(port: int) -> Iterator[None]:
    """60 clients that ask for /metrics as soon as they have it."""
    with _process("pull", port) as (_, tells):
        tells.readline()
        yield


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _say(asks: IO[str], word: str) -> None:
    asks.write(f"{word}\n")
    asks.flush()


# ---- the planner's process ----


class Planner:
    """A Ledger that is planned again and again, or rests."""

    def __init__(self, nodes: int, running: int, waiting: int) -> None:
        self.profile = profile()
        self.ledger: Ledger = synthetic.ledger_of(self.profile, nodes, running, waiting)
        self.chance = random.Random(3)
        self.number = 0
        self.plans = threading.Event()
        self.turned = threading.Event()
        self.scored = ""

    def turn(self) -> View:
        """One job arrives; what is decided is taken by the server."""
        now = synthetic.NOW + self.number
        for event in synthetic.arrival(f"new-{self.number:05d}", self.chance):
            self.ledger.apply(event, now)
        self.number += 1
        snapshot = self.ledger.snapshot(now)
        plan = cycle(snapshot, self.profile)
        for event in synthetic.written(self.ledger.adopt(snapshot, plan)):
            self.ledger.apply(event, now)
        plain = self.ledger.view(snapshot, plan, leading=True, synced=True)
        view, self.scored = synthetic.scored_view(plain, "scored", 16)
        return view

    def run(self, board: Board, verbs: Answering) -> None:
        while True:
            self.plans.wait()
            board.view = self.turn()
            verbs.show(board.view)
            self.turned.set()


class Nobody:
    """May read nothing."""

    def may_list(self, token: str, namespace: str | None) -> Verdict:  # noqa: ARG002
        return Verdict.UNKNOWN


def _plan(nodes: int, running: int, waiting: int) -> None:
    """Prints where it listens and what to ask, then plans or rests as it is told, until it is killed."""
    sys.setswitchinterval(live.SWITCH)  # as the driver does
    gc.set_threshold(*threads.YOUNG)
    planner = Planner(nodes, running, waiting)
    for _ in range(3):  # the first ones tell every job
        first = planner.turn()
    second = planner.turn()
    registry, board = CollectorRegistry(), Board(second)
    extender, service = _free_port(), _free_port()
    verbs = Answering(extender, "muster", ExtenderMetrics(registry))
    verbs.start()
    verbs.show(second)
    server = web_server(make_service_app(board, Nobody(), registry), "127.0.0.1", service)
    threading.Thread(target=server.run, daemon=True).start()
    while not (verbs.open and server.started):
        time.sleep(0.01)
    pinned = next(iter(second.snapshot.jobs.values())).roles[0].members[0].uid
    costs = {
        "a whole View: made of what changed, bytes": _cost(NOTHING, second),
        "after one arrival: the same": _cost(first, second),
    }
    names = list(second.snapshot.nodes.names)
    told = {"port": extender, "service": service, "pinned": pinned, "scored": planner.scored}
    print(json.dumps({**told, "names": names, "costs": costs}), flush=True)
    threading.Thread(target=planner.run, args=(board, verbs), daemon=True).start()
    for line in sys.stdin:
        planner.plans.clear()
        time.sleep(1.0)  # what is being planned is done
        if line.strip() == "plans":
            planner.turned.clear()
            planner.plans.set()
            planner.turned.wait()
        print("so be it", flush=True)


def _free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _cost(before: View, after: View) -> str:
    began = time.perf_counter()
    size = sum(len(pack(part)) for part in changes(before, after))
    return f"{(time.perf_counter() - began) * 1000:.1f} ms, {size:,} bytes"


# ---- the clients' process ----


def _pull(port: int) -> None:
    os.nice(10)
    ready = threading.Barrier(CLIENTS + 1)

    def pulls() -> None:
        ready.wait()
        while True:
            with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
                for _ in range(50):
                    connection.request("GET", "/metrics")
                    connection.getresponse().read()

    for _ in range(CLIENTS):
        threading.Thread(target=pulls, daemon=True).start()
    ready.wait()
    print("pulling", flush=True)
    time.sleep(3600.0)


if __name__ == "__main__":
    if sys.argv[1] == "plan":
        _plan(*map(int, sys.argv[2:]))
    else:
        _pull(int(sys.argv[2]))

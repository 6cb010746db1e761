"""filter and prioritize with 5,000 node names, over HTTP in the server as it is shipped: p50 and p99.

The server is a process of its own with a View of a large cluster. "While planning": a thread there plans the
same cluster over and over, which holds Python's lock as the driver's thread does; the true figure lies
between that and an idle server."""

from __future__ import annotations

import gc
import http.client
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import uvicorn

from e2e.bench import synthetic
from e2e.bench.figures import median, percentile
from e2e.bench.planning import profile
from e2e.bench.report import Progress, Result
from muster import live
from muster.core.cycle import cycle
from muster.core.view import Board
from muster.server.extender import make_extender_app

AIM = 0.005


def measure(
    progress: Progress, *, nodes: int = 5000, running: int = 2000, waiting: int = 10_000, calls: int = 1000
) -> Result:
    """Calls one after the other, as kube-scheduler's one scheduling thread makes them."""
    result = Result("verbs", f"extender verbs with {nodes} names, {calls} calls one after the other")
    result.data["arguments"] = {"nodes": nodes, "running": running, "waiting": waiting, "calls": calls}
    for busy in (False, True):
        when = "while planning without pause" if busy else "idle"
        progress.say(f"verbs: starting the server ({when})")
        command = [sys.executable, "-m", "e2e.bench.verbs", *map(str, (nodes, running, waiting, int(busy)))]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).resolve().parents[2]
        ) as server:
            try:
                assert server.stdout is not None
                told = json.loads(server.stdout.readline())
                for verb, uid in (
                    ("filter", told["pinned"]), ("filter", told["scored"]), ("prioritize", told["scored"])
                ):  # fmt: skip
                    mode = "pinned" if uid == told["pinned"] else "scored"
                    times = _call(told["port"], verb, uid, told["names"], calls if not busy else calls // 4)
                    p50, p99 = median(times), percentile(times, 0.99)
                    result.data[f"{verb}_{mode}_{'busy' if busy else 'idle'}_ms"] = [p50 * 1000, p99 * 1000]
                    result.row(
                        f"{verb}, {mode} pod, {when}: p50, p99",
                        f"{p50 * 1000:.2f} ms, {p99 * 1000:.2f} ms",
                        "" if busy else "p99 < 5 ms", None if busy else p99 < AIM,
                    )  # fmt: skip
            finally:
                server.kill()
    return result


def _call(port: int, verb: str, uid: str, names: list[str], calls: int) -> list[float]:
    """Seconds of each call, from the first byte sent to the last received."""
    pod = {"metadata": {"name": uid, "namespace": "team-0", "uid": uid}, "spec": {}}
    body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    times = []
    for number in range(calls + 10):
        began = time.perf_counter()
        connection.request("POST", f"/{verb}", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if number >= 10:
            times.append(time.perf_counter() - began)
        assert answer.status == 200, answer.status
    connection.close()
    return times


def _serve(nodes: int, running: int, waiting: int, busy: bool) -> None:
    """The server's process: prints where it listens and what to ask, then serves until it is killed."""
    sys.setswitchinterval(live.SWITCH)  # as the driver does
    gc.set_threshold(*live.YOUNG)
    chosen = profile()
    ledger = synthetic.ledger_of(chosen, nodes, running, waiting)
    snapshot = ledger.snapshot(synthetic.NOW)
    plan = cycle(snapshot, chosen)
    plain = ledger.view(snapshot, plan, leading=True, synced=True)
    view, scored = synthetic.scored_view(plain, "scored", 16)
    pinned = next(iter(snapshot.jobs.values())).roles[0].members[0].uid
    server = uvicorn.Server(
        uvicorn.Config(
            make_extender_app(Board(view)), host="127.0.0.1", port=0, log_level="warning", access_log=False,
            http="httptools",
        )
    )  # fmt: skip

    def told() -> None:
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        names = list(snapshot.nodes.names)
        print(json.dumps({"port": port, "pinned": pinned, "scored": scored, "names": names}), flush=True)

    def plans() -> None:
        while True:
            cycle(snapshot, chosen)

    threading.Thread(target=told, daemon=True).start()
    if busy:
        threading.Thread(target=plans, daemon=True).start()
    server.run()


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), busy=sys.argv[4] == "1")

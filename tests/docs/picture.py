"""The picture of the front page: `python -m tests.docs.picture FILE`.

Muster's page in Chromium. The jobs are invented, what the page says of them is planned by the core under `afs-l`.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from socket import create_server
from tempfile import TemporaryDirectory

import uvicorn
from PIL import Image

from e2e import browser
from e2e.browser import Page
from muster import profiles
from muster.core.views.view import Board, View
from muster.server.access import Verdict
from muster.server.service import make_service_app
from muster.types import Config, Facts, Job, Report
from tests.scenario import job, node, snapshot
from tests.server.reading import viewed

RACK = "topology.kubernetes.io/rack"
NODES = [f"gpu-{i:02d}" for i in range(16)]
CURVES = {
    "bert": (1.0, 1.9, 2.7, 3.4, 4.0, 4.5, 4.9, 5.2),
    "gpt": (1.0, 1.95, 2.9, 3.8, 4.7, 5.5, 6.3, 7.0),
    "resnet": (1.0, 1.8, 2.4, 2.8, 3.1, 3.3, 3.4, 3.5),
}
STEPS = 600_000


def elastic(name: str, now: float, on: list[str], gpus: int, done: float, minutes: float) -> Job:
    """A job of 1 to 8 replicas that reports, and runs on these nodes for so many minutes."""
    curve = CURVES[name.partition("-")[0]]
    speeds = tuple((k + 1, s) for k, s in enumerate(curve))
    began, half = now - 60 * minutes, now - 30 * minutes
    before = max(1, len(on) - 2)
    return job(
        f"job-{name}",
        worker=len(on),
        least=1,
        most=8,
        present=8,
        gpus=gpus,
        on=on,
        submitted=began - 40,
        started_at=began,
        speed=speeds,
        remaining_work=9000.0,
        facts=Facts(resizes=2, last_resize=half, last_cost=24.0, shares=((began, before), (half, len(on)))),
        report=Report(at=now, step=done * STEPS, total=STEPS, loss=2.1 - done, speed=40 * curve[len(on) - 1]),
        samples={
            Config((("worker", k),), (1,) * k): 40 * curve[k - 1]
            for k in sorted({before, before + 1, len(on)})
        },
    )


def cluster(now: float) -> View:
    """16 nodes of 8 GPUs in four racks; six jobs run, three wait."""
    nodes = [node(name, 8, labels={RACK: f"rack-{i // 4}"}) for i, name in enumerate(NODES)]
    jobs = [
        elastic("bert-large", now, NODES[0:4], 8, 0.43, 50),
        elastic("resnet-a", now, [NODES[4]] * 4, 2, 0.71, 34),
        elastic("gpt-small", now, NODES[5:10], 8, 0.18, 21),
        elastic("resnet-b", now, [NODES[10]] * 3, 2, 0.35, 12),
        job("job-eval", worker=2, gpus=8, on=NODES[11:13], submitted=now - 700, started_at=now - 650),
        elastic("gpt-tune", now, NODES[13:16], 8, 0.08, 6),
        job("job-pretrain", worker=15, gpus=8, submitted=now - 300),
        job("job-sweep", worker=2, gpus=1, submitted=now - 9),
    ]
    name = "afs-l"
    live = profiles.on_a_cluster(profiles.NAMED[name], True, "reported")
    return viewed(snapshot(nodes, jobs=jobs, now=now), profiles.build(name, own={name: live}))


class Everybody:
    """Whoever asks may read."""

    def may_list(self, token: str, namespace: str | None) -> Verdict:  # noqa: ARG002
        return Verdict.ALLOWED


def main(file: Path) -> None:
    """Take the picture."""
    listening = create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    app = make_service_app(Board(cluster(time.time())), Everybody())
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    with TemporaryDirectory() as folder:
        chrome = browser.start(Path(folder))
        try:
            chrome.set_window_size(1500, 1250)
            page = Page(chrome, address)
            page.open("any", "job=team/job-bert-large")
            page.until(lambda: len(page.all("#job svg")) == 2, "the job's charts")
            page.picture(file)
        finally:
            chrome.quit()
            server.should_exit = True
            thread.join(timeout=60)
    Image.open(file).convert("RGB").quantize(128).save(file, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""`muster agent --devices` as the first process of real containers, on devices that a real kubelet has allocated.

Muster is played by `tests/muster_played.py`: what is tried is the agent in a container, not who orders it about."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import muster_report
from e2e.cluster import Cluster, Json
from e2e.lab import Lab, Shape
from e2e.lab.places import CHECKOUT
from e2e.lab.realnode import PYTHON, RealNode, why_not
from e2e.labs import own_lab
from e2e.scenario import pod, wait_until
from e2e.test_device_plugin import allocated, said, wants_a_device
from tests.muster_played import PlayedMuster

RUNS_ON_KIND = True
pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(1200),  # the first start builds kubelet and containerd
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
]
FOLDERS = {
    "/muster": Path(muster_report.__file__).parents[1],
    "/samples": CHECKOUT / "config" / "samples" / "in-place",
}


@pytest.fixture(scope="module")
def real() -> Iterator[Lab]:
    with own_lab("agents", Shape(groups=(), chart=False, real=1, real_gpus=2)) as lab:
        yield lab


@pytest.fixture
def played() -> Iterator[PlayedMuster]:
    running = PlayedMuster()
    yield running
    running.close()


def trains(cluster: Cluster, played: PlayedMuster, name: str, state: Path, *command: str) -> None:
    """A pod without a GPU resource, whose container runs this."""
    (state / "token").write_text("t")
    made: Json = pod(name, scheduler=None, gpus=0, cpu="10m", memory="128Mi")
    environment = {
        "PYTHONPATH": "/muster",
        "MUSTER_URL": played.url,
        "MUSTER_TOKEN_FILE": "/state/token",
        "CHECKPOINT": f"/state/{name}.json",
        "SECONDS": "0.05",
        "STEPS": "100000",
    }
    folders = {**FOLDERS, "/state": state}
    made["spec"] |= {
        "hostNetwork": True,
        "restartPolicy": "Never",
        "volumes": [
            {"name": f"v{at}", "hostPath": {"path": str(path)}} for at, path in enumerate(folders.values())
        ],
    }
    made["spec"]["containers"][0] |= {
        "image": PYTHON,
        "command": list(command),
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "volumeMounts": [{"name": f"v{at}", "mountPath": where} for at, where in enumerate(folders)],
    }
    cluster.submit(made)


def asks(played: PlayedMuster, cluster: Cluster, node: RealNode, name: str, count: int) -> str:
    """The incarnation of a pod's agent, the last of so many, once it has asked for orders."""

    def shown() -> str:
        one = cluster.pod("default", name)
        status = one.raw["status"] if one is not None else None
        return f"{said(node, name)}\n{status}"

    def known() -> list[str]:
        return list(dict.fromkeys(one["incarnation"] for one in played.reports))

    wait_until(lambda: len(known()) >= count, what=f"the agent of {name} has asked", also=shown)
    return known()[count - 1]


def test_a_device_goes_from_one_running_pod_to_another_and_no_pod_starts_or_ends(
    real: Lab, played: PlayedMuster, tmp_path: Path
) -> None:
    cluster, node = Cluster(real.kubeconfig), real.real_nodes[0]
    for holder in ("holder-0", "holder-1"):
        wants_a_device(cluster, holder)
    first, second = (
        wait_until(lambda name=name: list(allocated(cluster, name)), what=f"{name} has a device")[0]
        for name in ("holder-0", "holder-1")
    )
    agent = ("python", "-m", "muster_report.agent", "--devices", "--lock-dir", "/state")
    trains(cluster, played, "a", tmp_path, *agent, "--", "python", "-u", "/samples/train.py")
    a = asks(played, cluster, node, "a", 1)
    trains(
        cluster,
        played,
        "b",
        tmp_path,
        *agent,
        "--preload",
        "random",
        "--",
        "python",
        "-u",
        "/samples/train.py",
    )
    b = asks(played, cluster, node, "b", 2)
    both = sorted((first, second))
    order = played.order(a, (first, 1), (second, 1))
    played.has(a, order, *both)
    wait_until(lambda: f"from step 0 on {','.join(both)}" in said(node, "a"), what="A trains on both")
    order = played.order(a, (first, 1))
    played.has(a, order, first)  # RELEASED
    order = played.order(b, (second, 2))
    played.has(b, order, second)
    wait_until(lambda: f"from step 0 on {second}" in said(node, "b"), what="B trains on what A gave up")
    wait_until(lambda: f" on {first}\n" in said(node, "a"), what="A goes on with the other one")
    for name in ("a", "b"):
        one = cluster.pod("default", name)
        assert one is not None
        assert one.phase == "Running"
        assert one.raw["status"]["containerStatuses"][0]["restartCount"] == 0
    # a pod that is asked to end saves, and says that its device is free
    one = cluster.pod("default", "a")
    assert one is not None
    cluster.delete_pod(one, grace=30)
    played.wait(lambda r: (r["incarnation"], r["state"], r["devices"]) == (a, "ended", []))
    wait_until(lambda: cluster.pod("default", "a") is None, what="A is gone")
    assert (tmp_path / "a.json").exists()


def test_an_agent_below_a_shell_says_what_is_wrong_and_starts_nothing(
    real: Lab, played: PlayedMuster, tmp_path: Path
) -> None:
    cluster, node = Cluster(real.kubeconfig), real.real_nodes[0]
    below = "python -m muster_report.agent --devices -- echo ran; exit $?"
    trains(cluster, played, "below", tmp_path, "sh", "-c", below)

    def ended() -> bool:
        one = cluster.pod("default", "below")
        return one is not None and one.terminal

    wait_until(ended, what="it has ended", also=lambda: said(node, "below"))
    one = cluster.pod("default", "below")
    assert one is not None
    assert one.exit_code == 2
    assert "--devices: expected to be the container's first process (PID 1), found" in said(node, "below")
    assert played.reports == []

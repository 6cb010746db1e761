"""The kind cluster `muster`: one real node, fake GPU nodes by kwok, and the chart."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from e2e.kind import images
from e2e.kind.engine import docker, environment
from e2e.lab import build, daemon, versions
from e2e.lab import nodes as fake_nodes
from e2e.lab.chart import CHART, NAMESPACE, RELEASE
from e2e.lab.errors import LabError
from e2e.lab.places import CHECKOUT, labs
from e2e.lab.programs import output
from e2e.lab.say import say
from e2e.lab.shape import NodeGroup, Shape

NAME = "muster"
NODE = f"{NAME}-control-plane"
REAL = "muster.dev/real"
"""Its taint: pods of scenarios belong on the fake nodes."""
FAKE = "muster.dev/fake"
CONFIGURATION = Path(__file__).with_name("cluster.yaml")
SMALL = ("resources.requests.cpu=50m", "scheduler.resources.requests.cpu=50m")
"""Two replicas of Muster beside a control plane on two cores: requests as for a cluster of 16 nodes."""


CLIENT_LIMITS = ("--kube-api-qps=500", "--kube-api-burst=1000")


def folder() -> Path:
    """What is known of the cluster: its kubeconfig, kwok's log."""
    return labs().parent / "kind"


def kubeconfig() -> Path:
    return folder() / "kubeconfig"


def image() -> str:
    """Muster's image, as the chart's appVersion has it."""
    return f"{RELEASE}:{_app_version()}"


def shape(kubernetes: str, count: int = 16, gpus: int = 8) -> Shape:
    return Shape(groups=(NodeGroup(count, gpus=gpus),), racks=4, kubernetes=kubernetes, replicas=2)


def exists() -> bool:
    return NAME in kind("get", "clusters").split()


def up(kubernetes: str, count: int, gpus: int, node_image: str = "", more: Sequence[str] = ()) -> None:
    """Cluster, image, fake nodes, chart; a cluster that is there stays, with nodes as they are asked for now, and
    Muster of this checkout."""
    folder().mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    environment()  # Docker first: without it nothing is worth building
    if not exists():
        chosen = images.node_image(kubernetes, node_image)
        say(f"kind cluster {NAME} of {chosen}")
        kind(
            "create",
            "cluster",
            "--config",
            str(CONFIGURATION),
            "--kubeconfig",
            str(kubeconfig()),
            "--image",
            chosen,
        )
    # DNS before the taint: CoreDNS would be put on a fake node, where nothing runs.
    kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=180s")
    _controllers_in_a_hurry()
    kubectl("taint", "nodes", NODE, f"{REAL}=:NoSchedule", "--overwrite")
    images.muster_image(image())
    for wanted in (image(), images.sleeper()):
        load(wanted)
    (folder() / "shape.json").write_text(shape(kubernetes, count, gpus).to_json())
    _fake_nodes(shape(kubernetes, count, gpus))
    install(*more)
    say(f"kind cluster {NAME} has Muster after {time.monotonic() - began:.0f} s")


def down() -> bool:
    """Delete the cluster; its images stay with Docker. False where there was none."""
    daemon.end(list(daemon.recorded(folder()).values()))
    there = exists()
    if there:
        kind("delete", "cluster", "--name", NAME, "--kubeconfig", str(kubeconfig()))
    (folder() / "shape.json").unlink(missing_ok=True)
    return there


def install(*more: str, racks: bool = True) -> None:
    """`helm upgrade --install` of the chart on the real node, ready when this returns. Also over what scenarios have
    written of its objects, a configuration for one: Helm 4 applies, and would leave that to them. racks: whether the
    fake nodes have a label for theirs."""
    values = [
        *("image.repository=" + RELEASE, "image.pullPolicy=Never"),
        "nodeSelector.kubernetes\\.io/hostname=" + NODE,
        f"tolerations[0].key={REAL},tolerations[0].operator=Exists",
        "tolerations[1].key=node-role.kubernetes.io/control-plane,tolerations[1].operator=Exists",
        *(("topologyLevels={topology.kubernetes.io/rack,topology.kubernetes.io/zone}",) if racks else ()),
        "sharedNodes=true",
        *SMALL,
    ]
    arguments = [part for value in values for part in ("--set", value)]
    say(helm("upgrade", "--install", RELEASE, str(CHART), "-n", NAMESPACE, "--create-namespace", "--wait",
             "--force-conflicts", "--timeout", "5m", *arguments, *more).splitlines()[0])  # fmt: skip


def load(image: str) -> None:
    """The image into the node's containerd, unless this very one is there."""
    known = docker("image", "inspect", "--format", "{{.Id}}", image).strip()
    there = docker("exec", NODE, "crictl", "images", "--no-trunc", "--output", "json")
    if not any(known == found["id"] for found in json.loads(there)["images"]):
        kind("load", "docker-image", "--name", NAME, image)


def kind(*arguments: str) -> str:
    program = build.find(versions.kind_itself())
    return output([str(program), "--quiet", *arguments], f"kind {arguments[0]}", env=environment())


def kubectl(*arguments: str) -> str:
    return output(
        [str(program("kubectl")), "--kubeconfig", str(kubeconfig()), *arguments], f"kubectl {arguments[0]}"
    )


def helm(*arguments: str) -> str:
    homes = {
        f"HELM_{kind}_HOME": str(folder() / "helm" / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")
    }
    command = [str(program("helm")), "--kubeconfig", str(kubeconfig()), *arguments]
    return output(command, f"helm {arguments[0]}", env=os.environ | homes)


def program(name: str) -> Path:
    """One of the lab's programs: kubectl, helm, kwok."""
    return build.find(versions.binaries()[name])


def _controllers_in_a_hurry() -> None:
    """kube-controller-manager with the lab's client limits: by its own (20 a second) a thousand pods take minutes."""
    file = "/etc/kubernetes/manifests/kube-controller-manager.yaml"
    flags = "".join(f"\\n    - {flag}" for flag in CLIENT_LIMITS)
    script = f"grep -q kube-api-qps {file} || sed -i 's/^    - kube-controller-manager$/&{flags}/' {file}"
    docker("exec", NODE, "sh", "-c", script)


def _fake_nodes(shape: Shape) -> None:
    """The lab's own nodes, and its stages: pods end as a kubelet ends them. With Leases: here a node controller
    watches. Those of another shape, which an earlier `make kind` made, go."""
    fake_nodes.restore(kubeconfig(), shape, keep={NODE}, made=manifest)
    kwok = daemon.recorded(folder()).get("kwok")
    if kwok is None or not kwok.alive:
        command = [
            program("kwok"),
            f"--kubeconfig={kubeconfig()}",
            f"--config={CHECKOUT / 'e2e/kwok/stages.yaml'}",
        ]
        command += ["--cidr=10.128.0.0/9", "--manage-all-nodes=false", "--node-lease-duration-seconds=40"]
        command += [f"--manage-nodes-with-label-selector={FAKE}=true"]
        daemon.start(folder(), "kwok", command, {"KWOK_WORKDIR": str(folder() / "kwok")})
    kubectl("wait", "node", "-l", f"{FAKE}=true", "--for=condition=Ready", "--timeout=120s")


def manifest(node: dict[str, object]) -> dict[str, object]:
    """A fake node that kwok looks after."""
    metadata = node["metadata"]
    assert isinstance(metadata, dict)
    metadata["labels"] = {**metadata["labels"], FAKE: "true"}
    return node


def _app_version() -> str:
    for line in (CHART / "Chart.yaml").read_text().splitlines():
        if line.startswith("appVersion: "):
            return line.removeprefix("appVersion: ").strip('"')
    raise LabError(f"{CHART / 'Chart.yaml'} has no appVersion")


def kill_kwok(number: signal.Signals = signal.SIGKILL) -> None:
    """End kwok alone."""
    daemon.end([one for one in daemon.recorded(folder()).values() if one.name == "kwok"], number)

# Over 300 lines: its scenarios share one lab with a real node, which takes minutes to start.
"""The chart's own Deployment, on a node that really runs containers: its pods, probes, accounts and hook.

Images are written by hand: Muster's from its wheel (the Dockerfile is not run: no base image can be pulled), the
stock kube-scheduler's from the lab's program. Pods have a network of their own and find the API as in any cluster.
Nothing of the chart is changed; its values name the images and ask for little of this machine's cores."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from e2e.cluster import Cluster, Json
from e2e.lab import Lab, LabError, NodeGroup, Shape, podnet, realnode
from e2e.lab.chart import CHART
from e2e.lab.images import Image
from e2e.lab.places import CHECKOUT
from e2e.scenario import bound, gated, job, show, wait_until

WHY_NOT = realnode.why_not() or podnet.why_not()
OWN_LAB = "want a real node of the lab"
pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(1800),  # the first start builds kubelet and containerd
    pytest.mark.skipif("E2E_KUBECONFIG" in os.environ, reason="about the lab, and this is another cluster"),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-"),
]

HELM_3 = os.environ.get("E2E_HELM") == "3"
SPACE = "muster-system"
SLOW = 300.0  # seconds: probes, back-offs and a Lease that runs out, on a busy machine
CRASHES = 1200.0  # seconds: two minutes of failed probes, and once more where the ended kube-scheduler is back first
LITTLE = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}
REPOSITORY = "registry.example/muster"
HANGS = b"""
import signal, threading

def hang(*_):
    from muster.live import Driver
    Driver._turn = Driver._gather = lambda *_: threading.Event().wait()

signal.signal(signal.SIGUSR1, hang)
"""
"""In the image beside Muster: at SIGUSR1 its planner stands still, and every other thread goes on."""


@dataclass(frozen=True)
class Installed:
    """A lab in which helm has installed the chart, as this release."""

    lab: Lab
    cluster: Cluster
    folder: Path
    release: str = "muster"
    space: str = SPACE

    def upgrade(self, *flags: str, **values: object) -> None:
        """`helm upgrade --install` with these values beside those that this machine needs."""
        wanted = {
            "image": {"repository": REPOSITORY, "pullPolicy": "Never"},
            "nodeSelector": {"type": "real"},
            "sharedNodes": True,  # the lab's default-scheduler may use them, too
            "resources": LITTLE,
            "scheduler": {"resources": LITTLE},
            "hooks": {"release": {"timeoutSeconds": 15}},
        }
        file = self.folder / "values.yaml"
        file.write_text(yaml.safe_dump(wanted | values))
        about = (self.release, str(CHART), "-n", self.space, "--create-namespace", "--values", str(file))
        self.lab.helm("upgrade", "--install", *about, *flags)

    def rolls_out(self, what: str) -> None:
        """All pods are those of the newest template, and Ready: `kubectl rollout status` waits for it."""
        about = (
            "rollout",
            "status",
            f"deployment/{self.release}",
            "-n",
            self.space,
            f"--timeout={SLOW:.0f}s",
        )
        try:
            self.lab.kubectl(*about)
        except LabError as late:
            raise AssertionError(f"not within {SLOW:.0f} s: {what}\n{self.said()}") from late

    @property
    def pods(self) -> list[Json]:
        answer = self.cluster.get(
            f"/api/v1/namespaces/{self.space}/pods", labelSelector="app.kubernetes.io/name=muster"
        )
        found: list[Json] = answer["items"]
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    @property
    def endings(self) -> list[str]:
        """What containers that ended have left as a message, each after its name."""
        endings = [(state["name"], state.get("lastState", {})) for one in self.pods for state in _states(one)]
        return [f"{name}: {ended['terminated'].get('message')}" for name, ended in endings if ended]

    @property
    def leader(self) -> str:
        """The pod whose kube-scheduler holds the Lease, "" for none."""
        lease = self.cluster.get(
            f"/apis/coordination.k8s.io/v1/namespaces/{self.space}/leases/{self.release}-scheduler"
        )
        return str(lease["spec"].get("holderIdentity") or "").rpartition("_")[0]

    def has_a_leader(self, other_than: str = "", within: float = SLOW) -> str:
        """Who leads, once one of the pods does."""

        def found() -> str:
            leader = self.leader
            names = {one["metadata"]["name"] for one in self.pods}
            return leader if leader in names - {other_than} else ""

        return wait_until(
            found,
            within=within,
            what=f"somebody leads{other_than and f', other than {other_than}'}",
            also=self.said,
        )

    def loses_its_leader(self) -> str:
        """The leader's pod is deleted; who leads then."""
        before = self.has_a_leader()
        self.lab.kubectl("delete", "pod", "-n", self.space, before, "--wait=false")
        return self.has_a_leader(other_than=before)

    def keeps_crashing(self, name: str) -> contextlib.AbstractContextManager[None]:
        """The pod's muster is killed whenever it runs, as the kernel kills one that is out of memory."""
        return self._keeps(name, signal.SIGKILL)

    def keeps_hanging(self, name: str) -> contextlib.AbstractContextManager[None]:
        """The pod's muster never plans, however often it is started; its probes have an answer."""
        return self._keeps(name, signal.SIGUSR1)

    @contextlib.contextmanager
    def _keeps(self, name: str, sig: signal.Signals) -> Iterator[None]:
        uid = self.pod(name)["metadata"]["uid"]
        ended = threading.Event()

        def send() -> None:
            while not ended.wait(1.0):
                with contextlib.suppress(OSError):  # it, or its cgroup, is gone
                    for pid in self.lab.real_nodes[0].cgroup.pids():
                        if _is_muster_of(uid, pid) and _takes(sig, pid):
                            os.kill(pid, sig)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def starts(self, name: str, within: float = SLOW) -> None:
        """A gang that takes both nodes starts whole."""
        self.cluster.submit(job(name, 2, gpus=8))
        self.is_bound(name, within)

    def is_bound(self, name: str, within: float = SLOW) -> None:
        wait_until(
            lambda: bound(self.cluster.pods("default", name), 2),
            within=within,
            what=f"gang {name} is bound",
            also=self.said,
        )

    def pod(self, name: str) -> Json:
        (found,) = (one for one in self.pods if one["metadata"]["name"] == name)
        return found

    def restarts(self, name: str) -> dict[str, int]:
        """Of the pod's containers that go on."""
        found = {state["name"]: state["restartCount"] for state in _states(self.pod(name))}
        return {one: count for one, count in found.items() if one != "check"}

    def is_ready(self, name: str) -> bool:
        """Whether both containers of the pod are, muster first, after what was checked."""
        return [(state["name"], state["ready"]) for state in _states(self.pod(name))] == [
            ("check", True),
            ("muster", True),
            ("kube-scheduler", True),
        ]

    def said(self) -> str:
        """For `also=`: Muster's pods, why their containers ended, their logs, and everybody's pods."""
        logs = sorted(self.lab.real_nodes[0].logs.glob(f"{self.space}_*/*/*.log"))
        lines = [
            self.lab.kubectl("get", "pods,lease", "-n", self.space, "-o", "wide", check=False),
            *(f"a container ended: {message}" for message in self.endings),
            *(f"{file.parts[-3]} {file.parts[-2]}: {file.read_text()[-1500:]}" for file in logs),
        ]
        return "\n".join([*lines, show(self.cluster.all_pods())])


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Two fake nodes of 8 GPUs for jobs, and a real one on which the chart's two replicas run."""
    folder = tmp_path_factory.mktemp("installed")
    lab = Lab(f"e2e-{os.getpid()}-installed")
    try:
        lab.up(Shape(groups=(NodeGroup(2, gpus=8),), chart=False, real=1, pod_network=True, helm_3=HELM_3))
        for node in lab.real_nodes:
            node.import_images([_muster(folder), _scheduler(node)])
        found = Installed(lab, Cluster(lab.kubeconfig), folder)
        found.upgrade()
        found.rolls_out("two replicas are Ready")
        yield found
    finally:
        lab.down()


def test_two_replicas_run_as_the_chart_has_them_and_the_other_takes_over(installed: Installed) -> None:
    installed.starts("first")
    for one in installed.pods:
        name = one["metadata"]["name"]
        assert one["status"]["podIP"].startswith("10.88.")
        wait_until(
            lambda name=name: installed.is_ready(name), within=SLOW, what="it is ready", also=installed.said
        )  # type: ignore[misc]
    installed.cluster.submit(job("second", 2, gpus=8))
    wait_until(lambda: gated(installed.cluster.pods("default", "second")), what="gang second is gated")
    after = installed.loses_its_leader()
    assert after in [one["metadata"]["name"] for one in installed.pods]
    installed.lab.kubectl("delete", "job", "first")
    installed.is_bound("second")
    installed.lab.kubectl("delete", "job", "second")
    installed.rolls_out("two replicas are Ready again")


def test_a_configuration_that_is_wrong_stops_nobody_and_is_said(installed: Installed) -> None:
    with pytest.raises(LabError, match="/config/patience"):  # helm refuses what the chart's schema knows
        installed.upgrade(config={"patience": "soon"})
    # A plugin that no image has: only Muster itself knows which are there.
    installed.upgrade(profile="mine", config={"profiles": [{"name": "mine", "shares": ["theirs"]}]})

    wait_until(
        lambda: [
            text
            for text in installed.endings
            if text.startswith("check: ") and "shares: plugin 'theirs' is not installed" in text
        ],
        within=SLOW,
        what="the init check of the new pod says what is wrong",
        also=installed.said,
    )
    # Its kube-scheduler waits: only a replica whose muster has started may get the Lease.
    after = installed.loses_its_leader()
    wait_until(
        lambda: installed.is_ready(after), within=SLOW, what="the leader is whole", also=installed.said
    )
    installed.starts("third")
    installed.lab.kubectl("delete", "job", "third")
    installed.upgrade(order="strict", tls={"mode": "chart"})  # from here on the kubelet probes by https
    installed.rolls_out("the mended configuration is rolled out")
    who = installed.lab.kubectl("get", "configmap", "-n", SPACE, "muster-ca", "-o", "jsonpath={.data}")
    assert "BEGIN CERTIFICATE" in who
    installed.starts("fourth")
    installed.lab.kubectl("delete", "job", "fourth")


def test_a_muster_that_crashes_again_and_again_keeps_nobody_else_from_leading(installed: Installed) -> None:
    installed.rolls_out("two replicas are Ready")
    before = installed.has_a_leader()
    with installed.keeps_crashing(before):
        # The kubelet ends the kube-scheduler beside it, which would hold the Lease as long as it lives.
        installed.has_a_leader(other_than=before, within=CRASHES)
        installed.starts("crashed", within=CRASHES)
        wait_until(
            lambda: all(installed.restarts(before).values()),
            within=SLOW,
            what="both containers of who led have restarted",
            also=lambda: installed.restarts(before),
        )
    installed.lab.kubectl("delete", "job", "crashed")
    installed.lab.kubectl("delete", "pod", "-n", SPACE, before, "--wait=false")
    installed.rolls_out("two replicas are Ready again")


@pytest.mark.long
def test_a_muster_whose_planner_hangs_is_started_again_and_keeps_nobody_else_from_leading(
    installed: Installed,
) -> None:
    installed.upgrade(config={"health": {"cycle": "10s"}})
    installed.rolls_out("two replicas are Ready that miss a plan after 10 s")
    before = installed.has_a_leader()
    with installed.keeps_hanging(before):
        wait_until(
            lambda: installed.restarts(before)["muster"],
            within=SLOW,
            what="the kubelet has started the muster that hangs again",
            also=installed.said,
        )
        # Its kube-scheduler is ended after two minutes, too.
        installed.has_a_leader(other_than=before, within=CRASHES)
        installed.starts("hung", within=CRASHES)
    installed.lab.kubectl("delete", "job", "hung")
    wait_until(lambda: installed.is_ready(before), within=SLOW, what="it is whole again", also=installed.said)
    installed.starts("unhung")
    installed.lab.kubectl("delete", "job", "unhung")


def test_an_uninstall_runs_its_hooks_as_pods_and_takes_all_along_but_gangs_which_another_release_has_then(
    installed: Installed,
) -> None:
    installed.starts("fifth")
    installed.cluster.submit(job("sixth", 2, gpus=8))
    wait_until(
        lambda: len(gated(installed.cluster.pods("default", "sixth"))) == 2,
        what="gang sixth is gated",
        also=installed.said,
    )
    wait_until(
        lambda: {"job-fifth", "job-sixth"} <= installed.cluster.gangs("default").keys(),
        what="both have their Gangs",
        also=installed.said,
    )
    gangs = _gangs(installed.cluster, "fifth", "sixth")
    installed.lab.helm("uninstall", "muster", "-n", SPACE, "--timeout", f"{SLOW:.0f}s")
    assert gated(installed.cluster.pods("default", "sixth")) == []
    left = (
        "jobs,deployments,services,configmaps,poddisruptionbudgets,leases,serviceaccounts,roles,rolebindings"
    )
    wait_until(
        lambda: "muster" not in installed.lab.kubectl("get", left, "-n", SPACE, "-o", "name"),
        within=SLOW,
        what="nothing of the chart's is left",
        also=lambda: installed.lab.kubectl("get", left, "-n", SPACE),
    )
    wait_until(lambda: not installed.pods, within=SLOW, what="no pod of Muster is left", also=installed.said)
    assert "muster" not in installed.lab.kubectl("get", "leases", "-n", SPACE, "-o", "name"), "nor made again"

    other = replace(installed, release="other", space="elsewhere")
    other.upgrade(*(["--take-ownership"] if HELM_3 else []))
    other.rolls_out("a release of another name and namespace")
    assert _gangs(other.cluster, "fifth", "sixth") == gangs, "kept"
    for name in ("fifth", "sixth"):
        other.lab.kubectl("delete", "job", name)
    other.starts("seventh")
    other.upgrade(order="strict")
    other.rolls_out("its upgrade, which has the definition among its objects")
    assert "kind: CustomResourceDefinition" in other.lab.helm("get", "manifest", "other", "-n", other.space)
    other.lab.helm("uninstall", "other", "-n", other.space, "--timeout", f"{SLOW:.0f}s")
    assert "other" not in other.lab.kubectl("get", "leases", "-n", other.space, "-o", "name")


def _gangs(cluster: Cluster, *jobs: str) -> list[str]:
    """The uids of these jobs' Gangs."""
    space = "/apis/muster.dev/v1alpha1/namespaces/default/gangs"
    return [str(cluster.get(f"{space}/job-{name}")["metadata"]["uid"]) for name in jobs]


def _states(one: Json) -> list[Json]:
    """What the kubelet says of each container, in the order of starting."""
    status = one["status"]
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def _is_muster_of(uid: str, pid: int) -> bool:
    """Whether this process of the machine is the `muster serve` of that pod."""
    process = Path(f"/proc/{pid}")
    with contextlib.suppress(OSError):  # it has ended
        mine = f"pod{uid}" in (process / "cgroup").read_text()
        return mine and b"muster.cli" in (process / "cmdline").read_bytes()
    return False


def _takes(sig: signal.Signals, pid: int) -> bool:
    """Whether the process does with it what it is sent for: SIGUSR1 would end one that has not read HANGS yet."""
    if sig != signal.SIGUSR1:
        return True
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (sig - 1) & 1)


def _muster(folder: Path) -> Image:
    """Muster's wheels on this machine's Python, which has what it needs."""
    sources = (str(CHECKOUT), str(CHECKOUT / "extender" / "report"))
    wheels = ("pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder))
    command = [sys.executable, "-m", *wheels, *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise LabError(f"pip could not build the wheels: {done.stderr.strip()}")
    files: dict[str, bytes] = {}
    for made in sorted(folder.glob("muster_*.whl")):
        with zipfile.ZipFile(made) as packed:
            files |= {name: packed.read(name) for name in packed.namelist() if not name.endswith("/")}
    version = made.name.split("-")[1]
    image = realnode.python_image(
        f"{REPOSITORY}:{version}", realnode.ENVIRONMENT, files | {"sitecustomize.py": HANGS}
    )
    env = {**image.env, "PYTHONPATH": "/app"}  # before the packages of this machine
    return replace(image, env=env, entrypoint=("python", "-c", "from muster.cli import main; main()"))


def _scheduler(node: realnode.RealNode) -> Image:
    """The stock kube-scheduler under the name that the chart gives it."""
    program = node.programs["kube-scheduler"]
    version = program.name.rpartition("-")[2]
    name = f"registry.k8s.io/kube-scheduler:{version}"
    return Image(name, {"/app/kube-scheduler": program.read_bytes()}, env={"PATH": "/app"})

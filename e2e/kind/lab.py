# Over 300 lines: it has every method of Lab that scenarios use, carried out on kind.
"""What scenarios do to processes of a lab, on kind: KindLab has the methods of Lab that they use.

A kubelet starts again what ends, so "does not run" is said to it: Muster's Deployment is scaled to none, and a
static pod's manifest is taken away; a Muster with faults may die and hang as it likes (outlived.py). Standing still
is SIGSTOP inside of the node. What can't be had here skips, with the reason."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from e2e.kind import cluster, inside, outlived, possible_shape
from e2e.kind.beside import Beside, left_behind
from e2e.kind.engine import docker
from e2e.kind.inside import Process
from e2e.kind.tidy import end_scenarios, left_as_found
from e2e.lab import chart as charts
from e2e.lab import complaints, credentials, ports, realnode
from e2e.lab import nodes as fake_nodes
from e2e.lab import shape as shapes
from e2e.lab.api import Api, ApiError
from e2e.lab.chart import NAMESPACE, RELEASE, Chart
from e2e.lab.controlplane import DEFAULT_SCHEDULER
from e2e.lab.errors import BadRequestError, LabError, NotReadyError
from e2e.lab.realnode import RealNode
from e2e.lab.shape import Shape

KIND = "kind"
PATIENCE = 180.0  # seconds for a pod to be ready again: an API server that comes back takes most of it
MUSTER, SCHEDULER = "muster-0", "kube-scheduler-0"
STATIC = {
    "etcd": "etcd",
    "kube-apiserver": "kube-apiserver",
    "kube-controller-manager": "kube-controller-manager",
    DEFAULT_SCHEDULER: "kube-scheduler",
}
"""Processes of a lab, and the static pods that they are here."""
MANIFESTS, ASIDE = "/etc/kubernetes/manifests", "/etc/kubernetes/taken-away"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{charts.LEASE}"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


def not_on_kind(why: str) -> NoReturn:
    pytest.skip(f"not on kind: {why}")


ONE_REPLICA = ("--set", "replicas=1")


class KindLab:
    """The kind cluster that `make kind` has made, with one replica of Muster while scenarios use it."""

    name = KIND
    exists = True

    def __init__(self) -> None:
        self.folder = cluster.folder() / "lab"
        made = Shape.from_json((cluster.folder() / "shape.json").read_text())
        self.shape = self._first = replace(made, replicas=1)
        self._expected: list[re.Pattern[str]] = []
        self._heard: dict[str, int] = {}
        self._aside: float = 0.0
        self._stopped: set[str] = set()
        self._paused: set[str] = set()
        self._logs: dict[str, dict[str, str]] = {}
        self._forwards: dict[int, tuple[str, subprocess.Popen[bytes], int]] = {}
        self._restarts: dict[tuple[str, str], int] = {}
        self._upgraded = self._with_env = False
        self._outlives = False  # Muster's container: outlived.py
        self._values = ONE_REPLICA

    # --- life ---------------------------------------------------------------------------------------------

    def open(self) -> KindLab:
        """One replica, and files as a lab has them: its administrator's kubeconfig, authority and configuration."""
        raw = yaml.safe_load(cluster.kubeconfig().read_text())
        credentials.write(self.folder / "kubeconfig" / "admin", cluster.kubeconfig().read_text())
        authority = base64.b64decode(raw["clusters"][0]["cluster"]["certificate-authority-data"])
        (self.folder / "pki").mkdir(parents=True, exist_ok=True)
        (self.folder / "pki" / "ca.crt").write_bytes(authority)
        self.server = raw["clusters"][0]["cluster"]["server"]
        programs = {name: cluster.program(name) for name in ("kubectl", "helm")}
        key = docker("exec", cluster.NODE, "cat", "/etc/kubernetes/pki/ca.key")
        credentials.write(self.folder / "pki" / "ca.key", key)
        self._chart = Chart(self.folder, self.shape, self.server, {}, programs)
        self._beside = Beside(self.folder, self.server, self.shape)
        end_scenarios(self.kubeconfig)
        if left := left_behind(self.folder):
            self._beside = Beside(self.folder, self.server, left)
            self._become(self.shape)
            shutil.rmtree(self.folder / "training", ignore_errors=True)
        self._scale(1, {})
        self._accounts()
        return self

    def close(self) -> None:
        """Two replicas again, of the chart's own Muster."""
        for _, process, _ in self._forwards.values():
            process.kill()
            process.wait()
        self._scale(2, {} if self._with_env else None, wait=False)

    def up(self, shape: Shape | None = None) -> KindLab:
        if shape is not None and shape != self.shape:
            not_on_kind("a control plane of another shape")
        self._beside.revive()
        return self

    @contextlib.contextmanager
    def shaped(self, shape: Shape) -> Iterator[KindLab]:
        """The cluster with this shape's fake nodes, values of the chart and operators; as it was when the block
        ends, without what the block has made outside of namespaces of its own. Skips where it can't be given it."""
        if problem := possible_shape.why_not(shape, self.shape):
            not_on_kind(problem)
        if self.shape != self._first:
            not_on_kind("two labs at once")
        with left_as_found(self.kubeconfig), contextlib.ExitStack() as put_right:
            put_right.callback(self._become, self._first)
            self._become(shape)
            yield self

    def _become(self, shape: Shape) -> None:
        """Operators first: Muster finds their kinds installed. Without the chart nobody of Muster's runs."""
        # Installed anew below: what was done to their rights may keep them from running until then.
        self._stopped -= {MUSTER, SCHEDULER}
        self._restart()
        self.shape, self._chart = shape, replace(self._chart, shape=shape)
        self._beside.down()
        self._beside = Beside(self.folder, self.server, shape)
        self._beside.up()
        values = [part for file in shape.values for part in ("--values", file)]
        values += [part for value in (*self._beside.values, *shape.set_values) for part in ("--set", value)]
        self._values = (*ONE_REPLICA, *values)
        self._restore_nodes()
        if self._is_installed():  # a scenario may have uninstalled it
            self._scale(0, {} if self._with_env else None)
        if not shape.chart:
            return
        self._upgraded = self._with_env = False
        self._install()
        self._settle()
        self._accounts()  # whoever has uninstalled it has taken them along
        self._until_gated()

    def _is_installed(self) -> bool:
        found = self.kubectl(
            "-n", NAMESPACE, "get", "deployment", RELEASE, "--ignore-not-found", "-o", "name"
        )
        return bool(found.strip())

    def _until_gated(self) -> None:
        """Until admission does what the chart's values say: a pod of ours is given the gate."""
        deadline = time.monotonic() + PATIENCE
        while self._chart.expects_gate() and (problem := self._chart.gates_pods()):
            if time.monotonic() > deadline:
                raise NotReadyError(f"kind: {problem}")
            time.sleep(0.3)

    # --- ways in ------------------------------------------------------------------------------------------

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig" / "admin"

    @property
    def nodes(self) -> list[str]:
        return [node.name for node in shapes.nodes(self.shape)]

    @property
    def real_nodes(self) -> list[RealNode]:
        """Of this machine, beside the cluster's own, as a lab has them."""
        return self._beside.real_nodes

    def add_image(self, name: str, files: Sequence[Path] = (), packages: Sequence[str] = ()) -> None:
        realnode.add_image(self.real_nodes, name, files, packages)

    @property
    def audit(self) -> NoReturn:
        not_on_kind("kube-apiserver's audit log")

    @property
    def ports(self) -> NoReturn:
        not_on_kind("ports of processes on this machine")

    @property
    def processes(self) -> tuple[str, ...]:
        return (*STATIC, "kwok", *self._beside.names, *self._ours)

    @property
    def _ours(self) -> tuple[str, ...]:
        """Containers of Muster's pod."""
        return charts.processes(self.shape, charts.Pair(0))

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        done = subprocess.run(
            [str(cluster.program("kubectl")), "--kubeconfig", str(self.kubeconfig), *arguments],
            input=stdin or "",
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            raise LabError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout if check else done.stdout + done.stderr

    def muster(
        self, *arguments: str, kubeconfig: Path | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(charts.muster_program()), *arguments, "--kubeconfig", str(kubeconfig or self.kubeconfig)],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if check and done.returncode != 0:
            raise LabError(f"muster {' '.join(arguments)} exited {done.returncode}: {done.stderr.strip()}")
        return done

    def hook_rights(self, event: str = "pre-delete") -> contextlib.AbstractContextManager[Path]:
        return self._chart.hook_rights(event)

    def hook(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        with self.hook_rights() as kubeconfig:
            return self.muster(*arguments, kubeconfig=kubeconfig, check=check)

    def helm(self, *arguments: str) -> str:
        return self._chart.helm(*arguments)

    def upgrade(self, *arguments: str, restart: bool = True) -> None:  # noqa: ARG002
        """`helm upgrade`; here a changed configuration makes new pods by itself, asked for or not."""
        self._upgraded = True
        self._install(*arguments)
        self._settle()

    def _install(self, *arguments: str) -> None:
        cluster.install(*self._values, *arguments, racks=bool(self.shape.rack_count))

    def roll_out(self) -> None:
        """A changed configuration makes new pods by itself."""
        self._upgraded = True
        self._settle()

    def mount(self) -> None:
        """A kubelet looks at a Secret's files when the pod changes."""
        self._look()

    def service_url(self, replica: int = 0) -> str:
        return self._forwarded(8080, replica).replace("http", self._chart.scheme, 1)

    def extender_url(self, replica: int = 0) -> str:
        return self._forwarded(8081, replica)

    def leader(self) -> int | None:
        holder = self._chart.leader()
        return 0 if any(holder.startswith(f"{pod['metadata']['name']}_") for pod in self._pods()) else None

    def write_configuration(self, text: str) -> None:
        """Muster's configuration, into its ConfigMap and, at once, into its pod: a kubelet looks when the pod
        changes."""
        file = self.folder / "config" / f"{MUSTER}.yaml"
        with Api(self.kubeconfig) as api:
            api.patch(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{RELEASE}", {"data": {"muster.yaml": text}})
            deadline = time.monotonic() + PATIENCE
            while not self._mounted(text):
                self._look()
                if time.monotonic() > deadline:
                    raise NotReadyError(
                        f"kind: the kubelet has not brought the configuration in {PATIENCE:.0f} s"
                    )
                time.sleep(0.3)
        file.write_text(text)

    # --- processes ----------------------------------------------------------------------------------------

    def alive(self, name: str) -> bool:
        """False also where its container has ended since it was started, or since the test began: it is the
        kubelet that starts it again."""
        name = self._resolve(name)
        if name in self._beside.names:
            return self._beside.alive(name)
        if name in self._stopped:
            return False
        if name == MUSTER and self._outlives and outlived.has_died(self._processes(name)):
            return False
        return name in STATIC or name == "kwok" or not self._has_ended(name)

    def state(self, name: str) -> str:
        name = self._resolve(name)
        if name in self._beside.names:
            return self._beside.state(name)
        return "ended" if not self.alive(name) else "paused" if name in self._paused else "running"

    def pid(self, name: str) -> int | None:
        """Its number inside of the node; an operator's on this machine."""
        if (resolved := self._resolve(name)) in self._beside.names:
            return self._beside.pid(resolved)
        found = self._first_process(resolved)
        return found.pid if found is not None else None

    def children(self, name: str) -> list[Process]:
        """Of a muster: the process that answers the verbs."""
        name = self._resolve(name)
        first = self._first_process(name)
        return [one for one in self._processes(name) if first is not None and one.parent == first.pid]

    def log(self, name: str) -> Path:
        """All that its containers have said since this session began, as the node keeps it."""
        name = self._resolve(name)
        if name in self._beside.names:
            return self._beside.log(name)
        container, folder = self._container(name)
        files = f"/var/log/pods/{folder}/{container}/*.log"
        script = f'for f in {files}; do echo "==> $f"; cat "$f"; done 2>/dev/null; true'
        kept = self._logs.setdefault(name, {})
        for part in docker("exec", cluster.NODE, "sh", "-c", script).split("==> ")[1:]:
            path, _, text = part.partition("\n")
            lines = (line.split(" ", 3) for line in text.splitlines())  # time, stream, F, text
            said = "".join(line[3] + "\n" for line in lines if len(line) == 4)
            if len(said) >= len(kept.get(path, "")):  # a rotated log is shorter
                kept[path] = said
        file = self.folder / "logs" / f"{name}.log"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(kept.values()))
        return file

    def start(
        self, name: str, env: Mapping[str, str] | None = None, wait: bool = True, patience: float = PATIENCE
    ) -> None:
        name = self._resolve(name)
        if name in self._beside.names:
            self._beside.start(name, env, wait)
            return
        if self.alive(name):
            raise BadRequestError(f"{name} of kind runs already")
        died = name not in self._stopped
        self._stopped.discard(name)
        if name == MUSTER:
            self._stopped.discard(SCHEDULER)
            if died and self._outlives:  # what is left of its pod holds the Lease
                self._scale(0)
            self._scale(1, env, wait=wait)
        elif died:
            self._note_restarts()
        elif name == SCHEDULER:
            self._signal(name, signal.SIGKILL)  # it stood still; the kubelet starts another one
        elif name in STATIC:
            manifest = f"{STATIC[name]}.yaml"
            docker("exec", cluster.NODE, "mv", f"{ASIDE}/{manifest}", f"{MANIFESTS}/{manifest}")
        if wait:
            self.wait_ready(name, max(patience, PATIENCE))

    def stop(self, name: str, sig: signal.Signals = signal.SIGTERM, patience: float = PATIENCE) -> None:
        """Muster: no replicas. kube-scheduler beside it: it stands still, since the two live and end together. A
        static pod: its manifest is gone."""
        name = self._resolve(name)
        if name in self._beside.names:
            self._beside.stop(name, sig)
            return
        if name in self._stopped:
            return
        self._stopped.add(name)
        if name == MUSTER:
            if sig == signal.SIGKILL:
                self._signal(name, sig)
            self._stopped.add(SCHEDULER)
            self._scale(0)
            if SCHEDULER in self._paused:
                self._paused.discard(SCHEDULER)
                self._lease_runs_out()
        elif name == SCHEDULER:
            self._signal(name, signal.SIGSTOP)
        elif name in STATIC:
            manifest = f"{STATIC[name]}.yaml"
            docker(
                "exec", cluster.NODE, "sh", "-c", f"mkdir -p {ASIDE} && mv {MANIFESTS}/{manifest} {ASIDE}/"
            )
            self._signal(name, sig)
            deadline = time.monotonic() + patience
            while self._processes(name):
                if time.monotonic() > deadline:
                    raise LabError(f"{name} of kind still runs after {patience:.0f} s")
                self._signal(name, signal.SIGKILL)
                time.sleep(0.5)
        else:
            not_on_kind(f"{name} is no container")

    def kill(self, name: str) -> None:
        self.stop(name, signal.SIGKILL)

    def restart(
        self,
        name: str,
        env: Mapping[str, str] | None = None,
        sig: signal.Signals = signal.SIGTERM,
        wait: bool = True,
    ) -> None:
        self.stop(name, sig)
        self.start(name, env, wait)

    def pause(self, name: str) -> None:
        name = self._resolve(name)
        if name in self._beside.names:
            self._beside.pause(name)
            return
        self._paused.add(name)
        self._signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        name = self._resolve(name)
        if name in self._beside.names:
            self._beside.resume(name)
            return
        self._paused.discard(name)
        self._signal(name, signal.SIGCONT)

    def revive(self) -> list[str]:
        """The kubelet does; what was told to stop starts again."""
        mended = [*self._stopped, *self._paused, *self._beside.revive()]
        self._restart()
        return mended

    def ready(self, name: str) -> bool:
        name = self._resolve(name)
        if name in self._beside.names:
            return self._beside.ready(name)
        with contextlib.suppress(ApiError, LabError), Api(self.kubeconfig) as api:
            if name in STATIC:
                return bool(self._processes(name)) and api.ready()
            return any(_is_ready(pod) for pod in self._pods()) and self.leader() is not None
        return False

    def wait_ready(self, name: str, patience: float = PATIENCE) -> None:
        deadline = time.monotonic() + patience
        while not self.ready(name):
            if time.monotonic() > deadline:
                raise NotReadyError(f"kind: {name} is not ready after {patience:.0f} s")
            time.sleep(0.3)

    # --- what nobody asked for ----------------------------------------------------------------------------

    def begin(self, *expected: str) -> None:
        self._expected = [re.compile(one) for one in expected]
        self._heard = {name: self.log(name).stat().st_size for name in self._ours}
        self._note_restarts()

    def expects(self, pattern: str) -> None:
        self._expected.append(re.compile(pattern))

    def troubles(self) -> list[str]:
        """Complaints in logs of Muster's pod since `begin`."""
        found: list[str] = []
        for name in self._ours:
            with open(self.log(name), "rb") as log:
                log.seek(self._heard.get(name, 0))
                found += complaints.found(name, log, self._expected)
        return found

    def restore(self) -> None:
        """One Muster that leads, without faults, with the chart's values; operators that run; nodes as they were
        made."""
        self._beside.revive()
        self._restart()
        if self._with_env:
            self._scale(1, {}, wait=not self._upgraded)
        if self._upgraded:
            self._upgraded = False
            self._install()
            self._settle()
        self._restore_nodes()
        self.wait_ready(MUSTER)

    # --- how ----------------------------------------------------------------------------------------------

    def _restore_nodes(self) -> None:
        keep = {cluster.NODE, *(node.name for node in self._beside.real_nodes)}
        fake_nodes.restore(self.kubeconfig, self.shape, keep=keep, made=cluster.manifest)

    def _restart(self) -> None:
        """What stands still or was stopped of the cluster's own runs again."""
        for name in list(self._paused):
            with contextlib.suppress(LabError):
                self.resume(name)
        for name in [one for one in self.processes if one in self._stopped]:
            if name in self._stopped:
                self.start(name)

    def _resolve(self, name: str) -> str:
        name = {"muster": MUSTER, "kube-scheduler": SCHEDULER}.get(name, name)
        if name not in self.processes:
            if name.endswith("-1"):
                not_on_kind("a second replica that can be told apart from the first")
            raise BadRequestError(f"kind has no process {name!r}, it has {', '.join(self.processes)}")
        return name

    def _container(self, name: str) -> tuple[str, str]:
        """Name of its container, and of its pod's folder of logs."""
        if name in STATIC:
            return STATIC[name], f"kube-system_{STATIC[name]}-{cluster.NODE}_*"
        if name == "kwok":
            not_on_kind("kwok is a process beside the cluster")
        return name.removesuffix("-0"), f"{NAMESPACE}_{RELEASE}-*"

    def _processes(self, name: str) -> list[Process]:
        """Of its containers, the first one first."""
        container, pods = self._container(name)
        return inside.of_container(container, pods.partition("_")[0])

    def _first_process(self, name: str) -> Process | None:
        found = self._processes(name)
        if name == MUSTER and self._outlives:
            return outlived.muster(found)
        return next(iter(found), None)

    def _signal(self, name: str, number: signal.Signals) -> None:
        found = self._processes(name)
        if not found and number != signal.SIGKILL:
            raise LabError(f"{name} of kind does not run")
        inside.send(found, number)

    def _has_ended(self, name: str) -> bool:
        """Whether a container of this name has ended since `_note_restarts`, or since its pod was made. False where
        the API is away: nobody says so."""
        container = self._container(name)[0]
        try:
            counts = self._counts()
        except ApiError as error:
            if error.status:
                raise
            counts = {}
        return any(count > self._restarts.get(key, 0) for key, count in counts.items() if key[1] == container)

    def _note_restarts(self) -> None:
        self._restarts = self._counts()

    def _counts(self) -> dict[tuple[str, str], int]:
        """How often each container of Muster's pods has ended, by the pod's uid and its name."""
        found: dict[tuple[str, str], int] = {}
        for pod in self._pods():
            status = pod["status"]
            for one in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
                ended = one["restartCount"] + ("terminated" in one["state"])
                found[pod["metadata"]["uid"], one["name"]] = ended
        return found

    def _pods(self) -> list[dict[str, Any]]:
        with Api(self.kubeconfig) as api:
            chosen = f"app.kubernetes.io/name=muster,app.kubernetes.io/instance={RELEASE}"
            found = api.get(PODS, labelSelector=chosen)["items"]
        return [pod for pod in found if pod["metadata"]["name"].startswith(f"{RELEASE}-")]

    def _scale(self, replicas: int, env: Mapping[str, str] | None = None, wait: bool = True) -> None:
        """So many pods of Muster's, with this environment (None: as it is), all others gone."""
        change: dict[str, Any] = {"spec": {"replicas": replicas}}
        if env is not None:
            self._with_env, self._outlives = bool(env), outlived.FAULTS in env
            manifest = self._chart.helm("get", "manifest", RELEASE, "-n", NAMESPACE)
            change["spec"]["template"] = {"spec": outlived.of_deployment(manifest, env)}
        self.kubectl(
            *("-n", NAMESPACE, "patch", "deployment", RELEASE, "--type=strategic", "-p", json.dumps(change))
        )
        if wait:
            self._settle(replicas)

    def _lease_runs_out(self) -> None:
        """Who stood still gave no Lease back when it was ended; a scenario may have made it a long one."""
        with Api(self.kubeconfig) as api:
            api.patch(LEASE, {"spec": {"leaseDurationSeconds": 15}})

    def _settle(self, replicas: int = 1) -> None:
        """Until exactly so many pods are there, ready, and one leads; the mirror of the configuration is theirs."""
        deadline = time.monotonic() + PATIENCE
        while True:
            pods = self._pods()
            if (
                len(pods) == replicas
                and all(map(_is_ready, pods))
                and (not replicas or self.leader() is not None)
            ):
                break
            if time.monotonic() > deadline:
                told = [f"{pod['metadata']['name']}: {pod['status'].get('phase')}" for pod in pods]
                raise NotReadyError(
                    f"kind: not {replicas} ready pods of Muster's after {PATIENCE:.0f} s: {told}"
                )
            time.sleep(0.3)
        if replicas:
            with Api(self.kubeconfig) as api:
                data = api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{RELEASE}")["data"]
            credentials.write(self.folder / "config" / f"{MUSTER}.yaml", data["muster.yaml"])

    def _accounts(self) -> None:
        with Api(self.kubeconfig) as api:
            self._chart.write_accounts(api)

    def _mounted(self, text: str) -> bool:
        """Whether the running pod has this configuration in its volume."""
        pods = self._pods()
        if len(pods) != 1:
            return False
        volume = f"/var/lib/kubelet/pods/{pods[0]['metadata']['uid']}/volumes/kubernetes.io~configmap/config"
        with contextlib.suppress(LabError):
            return docker("exec", cluster.NODE, "cat", f"{volume}/muster.yaml") == text
        return False

    def _look(self) -> None:
        """A kubelet looks at a pod when it changes, and brings what it mounts."""
        with Api(self.kubeconfig) as api:
            for pod in self._pods():
                note = {"metadata": {"annotations": {"e2e.muster.dev/look": str(time.time())}}}
                api.patch(f"{PODS}/{pod['metadata']['name']}", note)

    def _forwarded(self, port: int, replica: int) -> str:
        """A port of Muster's pod, by `kubectl port-forward`: loopback ports of the pod, too."""
        if replica:
            not_on_kind("a second replica that can be told apart from the first")
        # A Muster that is not healthy is looked at, too, where its container outlives it.
        pods = [pod["metadata"]["name"] for pod in self._pods() if self._outlives or _is_ready(pod)]
        if not pods:
            return "http://127.0.0.1:1"  # nobody answers
        name, process, local = self._forwards.get(port, ("", None, 0))
        if name != pods[0] or process is None or process.poll() is not None:
            if process is not None:
                process.kill()
                process.wait()
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                local = free.getsockname()[1]
            command = [str(cluster.program("kubectl")), "--kubeconfig", str(self.kubeconfig), "-n", NAMESPACE]
            process = subprocess.Popen(
                [*command, "port-forward", "--address=127.0.0.1", f"pod/{pods[0]}", f"{local}:{port}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            deadline = time.monotonic() + 20
            while not ports.listens(local) and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            self._forwards[port] = (pods[0], process, local)
        return f"http://127.0.0.1:{local}"


_opened: list[KindLab] = []


def the_lab() -> KindLab:
    """The cluster, taken into use by this session."""
    if not _opened:
        _opened.append(KindLab().open())
    return _opened[0]


def give_back() -> None:
    """The cluster as `make kind` has made it, where this session has used it."""
    while _opened:
        _opened.pop().close()


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions") or []
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]

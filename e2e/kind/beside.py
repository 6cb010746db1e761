"""Beside the kind cluster, as in a lab: real operators, and real nodes, processes of this machine. They find the API
server where kind publishes it. It calls webhooks at this machine's address on the node's network; pods of real nodes
find Muster at a port of loopback, from which it goes on to its pod."""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from e2e.kind import cluster
from e2e.kind.engine import docker
from e2e.lab import build, chart, daemon, operators, podnet, ports, realnode, versions
from e2e.lab import shape as shapes
from e2e.lab.api import Api
from e2e.lab.chart import NAMESPACE, RELEASE
from e2e.lab.daemon import Daemon
from e2e.lab.errors import BadRequestError, LabError, NotReadyError
from e2e.lab.operators import Operators
from e2e.lab.realnode import RealNode
from e2e.lab.say import say
from e2e.lab.shape import Shape

NETWORK = "kind"
PATIENCE = 120.0
TO_MUSTER = "to-muster"
"""The process that listens on loopback where pods of real nodes find Muster."""
NODE_PORT = 30880
SERVICE = f"/api/v1/namespaces/{NAMESPACE}/services/{RELEASE}-beside"


class Beside:
    """What runs beside the cluster in one shape. folder: KindLab's, with an administrator's kubeconfig and the
    authority."""

    def __init__(self, folder: Path, server: str, shape: Shape) -> None:
        self.folder, self.shape = folder, shape
        wanted = operators.binaries(shape.operators)
        named = operators.port_names(shape.operators)
        if shape.real:
            wanted |= versions.real_binaries(shape.kubernetes)
            named += [name for node in shapes.real_nodes(shape) for name in realnode.port_names(node.name)]
            named += [pair.ports[0] for pair in chart.pairs(shape)]
        if shape.dns:
            wanted |= {"coredns": versions.coredns()}
        numbers = ports.reserve(folder, named) if named else {}
        numbers["kube-apiserver"] = int(server.rpartition(":")[2])
        programs = build.find_all(wanted.values())
        self._ports = numbers
        host = address() if shape.operators else ""
        self._operators = Operators(folder, shape.operators, server, numbers, programs, host)
        about = (shape, server, numbers, programs)
        self.real_nodes = [RealNode(folder, spec, *about) for spec in shapes.real_nodes(shape)]

    @property
    def names(self) -> tuple[str, ...]:
        """Processes in the order of starting."""
        real = [name for node in self.real_nodes for name in node.processes]
        port = [TO_MUSTER] if self._muster_ports() else []
        return (*self._operators.names, *port, *real)

    @property
    def values(self) -> tuple[str, ...]:
        """What the chart is told of it, as `helm --set` takes it: where pods of real nodes find Muster."""
        hosts = ("127.0.0.1", podnet.SERVICE) if self.shape.pod_network else ("127.0.0.1",)
        urls = [f"http://{host}:{port}" for host in hosts for port in self._muster_ports()]
        return ("reporting.url=" + "\\,".join(urls),) if urls else ()

    def up(self) -> None:
        """CRDs, webhooks and processes, all ready."""
        if self.names:
            (self.folder / "beside.json").write_text(self.shape.to_json())
        self._operators.install()
        for name in self._operators.names:
            self.start(name, wait=False)
        if self._muster_ports():
            with Api(self.folder / "kubeconfig" / "admin") as api:
                api.apply(SERVICE, _service())
            self.start(TO_MUSTER)
        for node in self.real_nodes:
            node.come_up(partial(self.start, wait=False))
        for name in self.names:
            self.wait_ready(name)

    def down(self) -> None:
        """All of it away again. Operators run for that: they have to let go of their objects."""
        for name in self._operators.names:
            if not self.alive(name):
                self.start(name)
            self.resume(name)
        self._operators.remove()
        daemon.end([one for one in map(self._daemon, self.names) if one is not None])
        if self.real_nodes:
            realnode.remove(self.folder)
            with Api(self.folder / "kubeconfig" / "admin") as api:
                for path in (SERVICE, *(f"/api/v1/nodes/{node.name}" for node in self.real_nodes)):
                    operators.delete(api, path)
        (self.folder / "beside.json").unlink(missing_ok=True)

    def alive(self, name: str) -> bool:
        found = self._daemon(name)
        return found is not None and found.alive

    def state(self, name: str) -> str:
        found = self._daemon(name)
        return "ended" if found is None or not found.alive else "paused" if found.paused else "running"

    def pid(self, name: str) -> int | None:
        found = self._daemon(name)
        return found.pid if found is not None and found.alive else None

    def log(self, name: str) -> Path:
        return daemon.log_path(self.folder, name)

    def start(self, name: str, env: Mapping[str, str] | None = None, wait: bool = True) -> None:
        if self.alive(name):
            raise BadRequestError(f"{name} beside kind runs already")
        node = self._real_node(name)
        if node and name == node.processes[0]:  # a new namespace: what runs in an old one starts again in it
            daemon.end([one for one in map(self._daemon, node.processes[1:]) if one is not None])
        added = self._operators.environment(name) if name in self._operators.names else {}
        daemon.start(self.folder, name, self._command(name), added | dict(env or {}))
        if wait or (
            node and name != node.processes[-1]
        ):  # the next one enters it, or connects to it, at once
            self.wait_ready(name)

    def stop(self, name: str, sig: signal.Signals) -> None:
        found = self._daemon(name)
        if found is not None:
            daemon.end([found], sig, 30.0)

    def pause(self, name: str) -> None:
        self._signal(name, signal.SIGSTOP).wait_paused()

    def resume(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def ready(self, name: str) -> bool:
        if node := self._real_node(name):
            return node.ready(name)
        if name == TO_MUSTER:
            return all(map(ports.listens, self._muster_ports()))
        return self._operators.ready(name)

    def wait_ready(self, name: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.ready(name):
            if not self.alive(name) or time.monotonic() > deadline:
                why = "has ended" if not self.alive(name) else f"is not ready after {PATIENCE:.0f} s"
                end = daemon.log_tail(self.folder, name)
                raise NotReadyError(f"{name} beside kind {why}. The end of {self.log(name)}:\n{end}")
            time.sleep(0.1)

    def revive(self) -> list[str]:
        """As Lab.revive, with its words."""
        mended = []
        for name in self.names:
            if self.state(name) == "paused":
                say(f"{name} was paused: resuming it")
                self.resume(name)
            elif not self.alive(name):
                say(f"{name} was not running: starting it again (its log: {self.log(name)})")
                self.start(name)
            else:
                continue
            mended.append(name)
        return mended

    def _command(self, name: str) -> list[str]:
        if node := self._real_node(name):
            return node.command(name)
        if name == TO_MUSTER:
            to = f"in:{_node_address()}:{NODE_PORT}"
            pairs = [f"in:127.0.0.1:{port}={to}" for port in self._muster_ports()]
            own = ["sh", "-c", 'exec 8< /proc/self/ns/net && exec "$@"', TO_MUSTER]
            return [*own, sys.executable, str(Path(podnet.__file__)), "8", *pairs]
        return self._operators.command(name)

    def _muster_ports(self) -> list[int]:
        """Where pods of real nodes look for Muster, on this machine's loopback."""
        return [self._ports[pair.ports[0]] for pair in chart.pairs(self.shape)] if self.real_nodes else []

    def _real_node(self, process: str) -> RealNode | None:
        return next((node for node in self.real_nodes if process in node.processes), None)

    def _daemon(self, name: str) -> Daemon | None:
        return daemon.recorded(self.folder).get(name)

    def _signal(self, name: str, number: signal.Signals) -> Daemon:
        found = self._daemon(name)
        if found is None or not found.signal(number):
            raise LabError(f"{name} beside kind does not run")
        return found


def left_behind(folder: Path) -> Shape | None:
    """The shape of a run that was killed, whose operators and nodes may be there still."""
    file = folder / "beside.json"
    return Shape.from_json(file.read_text()) if file.exists() else None


def _service() -> dict[str, Any]:
    """Muster's service port at a port of the cluster's node."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{RELEASE}-beside", "namespace": NAMESPACE},
        "spec": {
            "type": "NodePort",
            "selector": {"app.kubernetes.io/name": "muster", "app.kubernetes.io/instance": RELEASE},
            "ports": [{"name": "service", "port": 8080, "targetPort": "service", "nodePort": NODE_PORT}],
        },
    }


def _node_address() -> str:
    template = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}"
    return docker("inspect", "--format", template, cluster.NODE).split()[0]


def address() -> str:
    """This machine's address on the node's network, its gateway. LabError where that is another machine's."""
    template = "{{range .IPAM.Config}}{{.Gateway}} {{end}}"
    for found in docker("network", "inspect", "--format", template, NETWORK).split():
        if "." in found:  # not IPv6's
            with socket.socket() as probe:
                try:
                    probe.bind((found, 0))
                except OSError as problem:
                    raise LabError(f"kind's node reaches this machine by no address: {found}") from problem
            return found
    raise LabError(f"Docker's network {NETWORK} has no gateway")

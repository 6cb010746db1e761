# Over 300 lines: a lab is one object that scenarios hold, and its processes are started and ended in order.
"""One lab: a real control plane on loopback with fake GPU nodes, and Muster in it as it is shipped.

    lab = Lab("mine")
    lab.up(Shape(groups=(NodeGroup(16),)))
    lab.kubectl("get", "nodes")
    lab.kill("muster"); lab.start("muster", env={"MUSTER_FAULTS": "..."})
    lab.down()

Everything a lab knows lies in its folder, so any process can take it up by name: tests, the CLI, a person."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e2e.lab import build, complaints, daemon, metrics_server, operators, places, ports, realnode, rights
from e2e.lab import chart as charts
from e2e.lab import nodes as fake_nodes
from e2e.lab import shape as shapes
from e2e.lab.api import Api, ApiError, answers, text
from e2e.lab.chart import Chart, Pair
from e2e.lab.controlplane import DEFAULT_SCHEDULER, PORTS, ControlPlane
from e2e.lab.daemon import Daemon
from e2e.lab.errors import BadRequestError, LabError, NotReadyError
from e2e.lab.operators import Operators
from e2e.lab.realnode import RealNode
from e2e.lab.say import say
from e2e.lab.shape import Shape
from e2e.lab.versions import binaries, coredns, helm_3, real_binaries

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

ASIDE = re.compile(r"^muster_quarantined_total(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)
PATIENCE = 120.0  # seconds for a process to become ready: a loaded 2-core machine needs tens


class Lab:
    """A lab by name, whether it runs or not. Methods raise LabError (see errors.py)."""

    def __init__(self, name: str = "default") -> None:
        try:
            self.folder = places.lab_folder(name)
        except ValueError as problem:
            raise BadRequestError(str(problem)) from problem
        self.name = name
        self._expected: list[re.Pattern[str]] = []
        self._ends: set[str] = set()
        self._heard: dict[str, int] = {}
        self._aside: dict[str, tuple[int | None, float]] = {}

    # --- life ---------------------------------------------------------------------------------------------

    def up(self, shape: Shape | None = None) -> Lab:
        """Bring the lab up, or find it up. Returns when a pod created next would be gated, planned and bound.

        BadRequestError where a lab of this name has another shape. NotReadyError names what did not come up,
        with the tail of its log; the processes are ended then, the logs stay in the folder until the next
        `up` or `down`."""
        shape = shape or Shape()
        with self._alone():
            if self.exists and self._state == "up":
                differing = self.shape.differences(shape)
                if differing:
                    raise BadRequestError(
                        f"lab {self.name} is up with another shape: {'; '.join(differing)}. "
                        f"Take another NAME, or end it: make lab-down NAME={self.name}"
                    )
                self.revive()
                self._wait_usable()
                return self
            if self.exists:
                say(f"lab {self.name}: an earlier start was not finished ({self._state}); starting over")
                self._remove()
            try:
                self._bring_up(shape)
            except BaseException:
                self._end()
                self._set_state("failed")
                raise
        return self

    def down(self) -> bool:
        """End every process of the lab and remove its folder. False where there was none."""
        with self._alone():
            there = self.folder.exists()
            rights.keep(self.name, self.folder)
            self._remove()
        return there

    @property
    def exists(self) -> bool:
        return (self.folder / "shape.json").exists()

    @cached_property
    def shape(self) -> Shape:
        """The shape it was made with. LabError where there is no such lab."""
        try:
            return Shape.from_json((self.folder / "shape.json").read_text())
        except FileNotFoundError:
            raise LabError(f"there is no lab {self.name}: make lab NAME={self.name}") from None

    # --- ways in ------------------------------------------------------------------------------------------

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "kubeconfig" / "admin"

    def hook_rights(self, event: str = "pre-delete") -> contextlib.AbstractContextManager[Path]:
        """What the chart's hooks of that event may do, while one runs: the kubeconfig of their service account."""
        return self._chart.hook_rights(event)

    @property
    def nodes(self) -> list[str]:
        """Names of the fake nodes that the lab was made with, in order."""
        return [node.name for node in shapes.nodes(self.shape)]

    @cached_property
    def real_nodes(self) -> list[RealNode]:
        """The nodes that really run containers (REAL=1), in order."""
        about = (self.shape, self._control_plane.server, self.ports, self._programs)
        return [RealNode(self.folder, spec, *about) for spec in shapes.real_nodes(self.shape)]

    def client(self) -> ApiClient:
        """The official client, as administrator; `kubernetes.client.CoreV1Api(lab.client())`."""
        from kubernetes import config  # half a second to import, so only where it is used

        made: ApiClient = config.new_client_from_config(str(self.kubeconfig))  # type: ignore[no-untyped-call]
        return made

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run the pinned kubectl as administrator; its stdout. LabError with its stderr (check=False: both)."""
        done = subprocess.run(
            [str(self._programs["kubectl"]), "--kubeconfig", str(self.kubeconfig), *arguments],
            input=stdin if stdin is not None else "",
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
        """Run a `muster` command (explain, release) to its end, as administrator or another."""
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

    def hook(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """What a hook of the chart runs, with the hook's service account: `lab.hook("release", "--all")`."""
        with self.hook_rights() as kubeconfig:
            return self.muster(*arguments, kubeconfig=kubeconfig, check=check)

    def helm(self, *arguments: str) -> str:
        """Run the pinned helm as administrator; its stdout."""
        return self._chart.helm(*arguments)

    def upgrade(self, *arguments: str, restart: bool = True) -> None:
        """`helm upgrade` with more arguments (`--set`, `mode=observe`), then the processes with the new
        configuration."""
        self._chart.install(*arguments)
        if restart:
            self._restart_pairs()

    def roll_out(self) -> None:
        """What the Deployment does after somebody else's `helm upgrade`: the processes with the new configuration."""
        self._chart.configure()
        self._restart_pairs()

    def _restart_pairs(self) -> None:
        for pair in self.pairs:
            for name in reversed(charts.processes(self.shape, pair)):
                self.restart(name)

    def add_image(self, name: str, files: Sequence[Path] = (), packages: Sequence[str] = ()) -> None:
        """An image for pods of the real nodes: this machine's Python, PyPI packages (none: what the lab's .venv
        has) and files or folders, which lie in /app, where it starts. BadRequestError where no node could use it."""
        if not self.real_nodes:
            raise BadRequestError(f"lab {self.name} has no real node: make lab NAME={self.name} REAL=1")
        realnode.add_image(self.real_nodes, name, files, packages)

    def service_url(self, replica: int = 0) -> str:
        """Muster's service port (/readyz, /metrics, /v1/jobs)."""
        return f"{self._chart.scheme}://127.0.0.1:{self.ports[Pair(replica).ports[0]]}"

    def write_configuration(self, text: str) -> None:
        """Another configuration of muster-0, at once, as the kubelet changes a ConfigMap's files: whoever reads
        it gets the old or the new one, and never an empty one, which would mean defaults."""
        file = self.folder / "config" / "muster-0.yaml"
        fresh = file.with_name(f".{file.name}.new")
        fresh.write_text(text)
        fresh.replace(file)

    def mount(self) -> None:
        """What the kubelet does some time after a Secret has changed that Muster's pods mount."""
        self._chart.mount()

    def extender_url(self, replica: int = 0) -> str:
        """Muster's extender port (/filter, /prioritize, /preempt)."""
        return f"http://127.0.0.1:{self.ports[Pair(replica).ports[1]]}"

    @property
    def audit(self) -> Path:
        """Where kube-apiserver keeps who wrote what (lab/audit.py). LabError where it was not asked to."""
        if not self.shape.audit:
            raise LabError(f"lab {self.name} keeps no audit log: make lab NAME={self.name} AUDIT=1")
        return self._control_plane.audit_log

    def leader(self) -> int | None:
        """Index of the replica whose kube-scheduler holds the Lease; None while nobody of ours does."""
        holder = self._chart.leader()
        ours = [pair.index for pair in self.pairs if holder.startswith(f"{pair.host}_")]
        if not ours and len(self.pairs) == 1 and holder.startswith(f"{os.uname().nodename}_"):
            return 0  # no UTS namespaces on this machine
        return ours[0] if ours else None

    # --- processes ----------------------------------------------------------------------------------------

    @property
    def processes(self) -> tuple[str, ...]:
        """Names in the order of starting."""
        own = [name for pair in self.pairs for name in charts.processes(self.shape, pair)]
        real = [name for node in self.real_nodes for name in node.processes]
        return (*self._control_plane.names, *self._operators.names, *own, *real)

    @property
    def pairs(self) -> list[Pair]:
        return charts.pairs(self.shape)

    def alive(self, name: str) -> bool:
        found = self._daemon(name)
        return found is not None and found.alive

    def pid(self, name: str) -> int | None:
        """None where it does not run."""
        found = self._daemon(name)
        return found.pid if found is not None and found.alive else None

    def children(self, name: str) -> list[Daemon]:
        """Of a muster: the process that answers the verbs."""
        found = self._daemon(name)
        return found.children if found is not None else []

    def state(self, name: str) -> str:
        """running, paused, ended or never started."""
        found = self._daemon(name)
        if found is None:
            return "never started"
        return "paused" if found.paused else "running" if found.alive else "ended"

    def log(self, name: str) -> Path:
        """Everything the process has said, over all its starts."""
        return daemon.log_path(self.folder, self._resolve(name))

    def start(
        self, name: str, env: Mapping[str, str] | None = None, wait: bool = True, patience: float = PATIENCE
    ) -> None:
        """Start a process that does not run; env=None keeps what it was last started with, {} clears it."""
        name = self._resolve(name)
        before = daemon.recorded(self.folder).get(name)
        if before is not None and before.alive:
            raise BadRequestError(f"{name} of lab {self.name} runs already (pid {before.pid})")
        self._start(name, dict(before.env) if env is None and before is not None else env)
        if wait:
            self.wait_ready(name, patience)

    def stop(self, name: str, sig: signal.Signals = signal.SIGTERM, patience: float = 30.0) -> None:
        """End a process and wait until it is gone; a process that has ended already is no error."""
        found = self._daemon(name)
        if found is not None:
            self._asked(found.name)
            daemon.end([found], sig, patience)

    def kill(self, name: str) -> None:
        """SIGKILL, and wait until it is gone."""
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
        """SIGSTOP, until it stands still: alive, and silent. LabError where it does not run."""
        self._asked(self._resolve(name))
        self._signal(name, signal.SIGSTOP).wait_paused()

    def resume(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def ready(self, name: str) -> bool:
        """What the process itself says of its health, now."""
        name = self._resolve(name)
        if name == "kube-apiserver":
            with Api(self.kubeconfig) as api:
                return api.ready()
        if node := self._real_node(name):
            return node.ready(name)
        if name in self._operators.names:
            return self._operators.ready(name)
        scheme, port, path = {
            "etcd": ("http", "etcd", "health"),
            "kwok": ("http", "kwok", "healthz"),
            "kube-controller-manager": ("https", "kube-controller-manager", "healthz"),
        }.get(name, ("https", name, "readyz"))
        if name.startswith("muster-"):
            scheme, port = self._chart.scheme, f"{name}-service"
        return answers(f"{scheme}://127.0.0.1:{self.ports[port]}/{path}")

    def wait_ready(self, name: str, patience: float = PATIENCE) -> None:
        """NotReadyError, with the tail of its log, where it ends or is not healthy within `patience` s."""
        name = self._resolve(name)
        self._wait(lambda: self.ready(name), f"{name} is not healthy", name, patience)

    def revive(self) -> list[str]:
        """Start what has ended since, saying so, and resume what is paused; the names of both.

        Nothing restarts by itself in a lab. Some processes end when the apiserver is away (a kube-scheduler
        that loses its Lease does): in a cluster the kubelet starts them again, in a scenario this does."""
        mended = []
        for name in self.processes:
            found = self._daemon(name)
            if found is not None and found.paused:
                say(f"{name} was paused: resuming it")
                found.signal(signal.SIGCONT)
            elif found is None or not found.alive:
                say(f"{name} was not running: starting it again (its log: {self.log(name)})")
                self._start(name, dict(found.env) if found else None)
            else:
                continue
            mended.append(name)
            if name in ("etcd", "kube-apiserver"):
                self.wait_ready(name)
        return mended

    # --- what nobody asked for ----------------------------------------------------------------------------

    def begin(self, *expected: str) -> None:
        """From here on `troubles` counts. expected: patterns of what logs and deaths may say."""
        self._expected = [re.compile(one) for one in expected]
        self._ends = set()
        self._heard = {path.stem: path.stat().st_size for path in self.folder.glob("logs/*.log")}
        self._aside = {name: (self.pid(name), aside) for name, aside in self._put_aside().items()}

    def expects(self, pattern: str) -> None:
        """A complaint of a log, or a death, that is part of what is tried: `troubles` says nothing of it."""
        self._expected.append(re.compile(pattern))

    def troubles(self) -> list[str]:
        """Since `begin`: processes that have ended though nobody ended them, complaints in logs, objects that
        Muster put aside; a sentence each."""
        if not self.exists or self._state != "up":
            return []
        found = self.ended()
        for name in self.processes:
            with contextlib.suppress(FileNotFoundError), open(self.log(name), "rb") as log:
                log.seek(self._heard.get(name, 0))
                found += complaints.found(name, log, self._expected)
        for name, aside in self._put_aside().items():
            pid, before = self._aside.get(name, (None, 0.0))
            if aside > (before if pid == self.pid(name) else 0.0):
                found.append(f"{name} has put objects aside: muster_quarantined_total is {aside:g}")
        return [one for one in found if not any(pattern.search(one) for pattern in self._expected)]

    def ended(self) -> list[str]:
        """Processes that have ended though nobody ended them; a sentence each."""
        return [
            f"{name} has ended, and nobody ended it. The end of its log:\n{daemon.log_tail(self.folder, name)}"
            for name in self.processes
            if name not in self._ends and not self.alive(name) and not self._was_to_die(name)
        ]

    def _asked(self, name: str) -> None:
        """Who ends or stands still because a test wants it; with it those that end when they can't renew a
        Lease."""
        self._ends.add(name)
        if name in ("etcd", "kube-apiserver"):
            self._ends |= {one for one in self.processes if one.startswith("kube-")} | {DEFAULT_SCHEDULER}

    def _was_to_die(self, name: str) -> bool:
        found = self._daemon(name)
        return found is not None and "die" in dict(found.env).get("MUSTER_FAULTS", "")

    def _put_aside(self) -> dict[str, float]:
        """muster_quarantined_total of each muster that answers."""
        pairs = self.pairs if self.exists else []
        alive = [pair for pair in pairs if self.alive(pair.muster)]
        told = {pair.muster: text(f"{self.service_url(pair.index)}/metrics") for pair in alive}
        return {name: sum(map(float, ASIDE.findall(said))) for name, said in told.items()}

    def restore(self) -> None:
        """Put right what a test has broken: processes run again, without faults in their environment, and the
        nodes are those that the lab was made with."""
        for name in self.processes:
            found = self._daemon(name)
            if found is not None and found.paused:
                self.resume(name)
            if found is not None and found.alive and dict(found.env) != self._environment(name):
                self.kill(name)
            if not self.alive(name):
                self._start(name)
                self.wait_ready(name)
        real = {node.name for node in self.real_nodes}
        fake_nodes.restore(self.kubeconfig, self.shape, keep=real, made=self._read_by)
        if self.pairs:
            self._wait(lambda: self.leader() is not None, "nobody leads", self.processes[-1])

    @property
    def ports(self) -> dict[str, int]:
        """Every port of the lab by name; reserved with the lab."""
        return self._ports

    # --- how it comes up ----------------------------------------------------------------------------------

    def _bring_up(self, shape: Shape) -> None:
        began = time.monotonic()
        self._forget()
        # 1. programs
        self.shape = shape
        if shape.real and (problem := realnode.why_not()):
            raise BadRequestError(f"REAL={shape.real}: {problem}")
        programs = self._programs
        if shape.chart:
            charts.muster_program()
        # 2. folder, ports, credentials
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        (self.folder / "shape.json").write_text(shape.to_json())
        self._set_state("starting")
        self._control_plane.prepare()
        version = binaries(shape.kubernetes)["kube-apiserver"].version
        say(f"lab {self.name}: Kubernetes {version}, {shape.nodes} nodes, in {self.folder}")
        # 3. etcd, then the apiserver, then who needs it
        self._start("etcd")
        self.wait_ready("etcd")
        self._start("kube-apiserver")
        self.wait_ready("kube-apiserver")
        say(f"kube-apiserver at {self._control_plane.server}")
        for name in self._control_plane.names[2:]:
            self._start(name)
        # 4. operators first: Muster finds their kinds installed
        self._operators.install()
        for name in self._operators.names:
            self._start(name)
        # 5. nodes, and Muster at the same time
        with ThreadPoolExecutor(1) as beside:
            installed = beside.submit(self._install) if shape.chart else None
            self._create_nodes()
            if installed is not None:
                installed.result()
        for node in self.real_nodes:
            self._join(node)
        # 6. until a pod created next is bound
        self._wait_usable()
        self._set_state("up")
        say(
            f"lab {self.name} is up after {time.monotonic() - began:.1f} s (programs: {programs['kwok'].parent})"
        )

    def _install(self) -> None:
        say("installing charts/muster")
        self._chart.install()
        for pair in self.pairs:
            for name in charts.processes(self.shape, pair):
                self._start(name)
            say(f"{pair.muster} at {self.service_url(pair.index)}, verbs at {self.extender_url(pair.index)}")

    def _join(self, node: RealNode) -> None:
        """A real node comes up: its namespace, its runtime with what images it can have, its kubelet."""
        say(f"starting {node.name}, which really runs containers, with {node.spec.group.gpus} devices")
        node.come_up(self._start)

    def _create_nodes(self) -> None:
        """All Node objects, from several threads: the apiserver takes about a thousand a second."""
        wanted = list(shapes.nodes(self.shape))
        now = fake_nodes.now()
        began = time.monotonic()
        with Api(self.kubeconfig, timeout=60) as api:

            def create(node: shapes.NodeSpec) -> None:
                api.post("/api/v1/nodes", self._read_by(node.manifest(now)))

            with ThreadPoolExecutor(8) as several:
                for number, _ in enumerate(several.map(create, wanted), start=1):
                    if number % 1000 == 0 and number < len(wanted):
                        say(f"  {number} of {len(wanted)} nodes")
        say(f"{len(wanted)} nodes created in {time.monotonic() - began:.1f} s")

    def _read_by(self, node: dict[str, Any]) -> dict[str, Any]:
        return metrics_server.read_by(node, self.shape.operators, self.ports)

    def _wait_usable(self) -> None:
        for name in self.processes[2:]:
            self.wait_ready(name)
        with Api(self.kubeconfig) as api:
            self._wait(
                lambda: _there(api, "/api/v1/namespaces/default/serviceaccounts/default"),
                "service account default/default does not exist",
                "kube-controller-manager",
            )
        if self.pairs:
            self._wait(
                lambda: self.leader() is not None,
                "nobody of ours holds the Lease",
                self.processes[-1],
            )
            if self._chart.expects_gate():
                self._wait(
                    lambda: not self._chart.gates_pods(),
                    self._chart.gates_pods,
                    "kube-apiserver",
                    PATIENCE / 2,
                )
            else:
                say("admission is not probed: these values leave namespace default out or only observe")

    def _start(self, name: str, env: Mapping[str, str] | None = None) -> None:
        node = self._real_node(name)
        if node and name == node.processes[0]:  # a new namespace: what runs in an old one starts again in it
            daemon.end([one for one in map(self._daemon, node.processes[1:]) if one is not None])
        own = next((one for one in (self._control_plane, self._operators) if name in one.names), None)
        command = (own or node or self._chart).command(name)
        daemon.start(self.folder, name, command, self._environment(name) | dict(env or {}))
        if node and name != node.processes[-1]:  # the next one enters it, or connects to it, at once
            self.wait_ready(name)

    def _environment(self, name: str) -> dict[str, str]:
        """What a process has in its environment by itself."""
        own = next((one for one in (self._control_plane, self._operators) if name in one.names), None)
        return own.environment(name) if own else {}

    def _wait(
        self,
        reservations: Callable[[], bool],
        problem: str | Callable[[], str],
        name: str,
        patience: float = PATIENCE,
    ) -> None:
        """Poll until it holds. NotReadyError at once when the process that it depends on has ended, else in
        the end."""
        deadline = time.monotonic() + patience
        pause = 0.02
        while True:
            with contextlib.suppress(ApiError, OSError):
                if reservations():
                    return
            ended = not self.alive(name)
            if ended or time.monotonic() > deadline:
                said = problem if isinstance(problem, str) else problem()
                why = f"{name} has ended" if ended else f"{said} after {patience:.0f} s"
                log = f"The end of {self.log(name)}:\n{daemon.log_tail(self.folder, name)}"
                raise NotReadyError(f"lab {self.name}: {why}. {log}")
            time.sleep(pause)
            pause = min(pause * 1.3, 0.25)

    # --- what it knows ------------------------------------------------------------------------------------

    def _resolve(self, name: str) -> str:
        """A process' full name; "muster" and "kube-scheduler" are short for the only replica's.
        BadRequestError else."""
        if name in self.processes:
            return name
        if name == "kube-scheduler" and not self.pairs and DEFAULT_SCHEDULER in self.processes:
            return DEFAULT_SCHEDULER
        if f"{name}-0" in self.processes and len(self.pairs) == 1:
            return f"{name}-0"
        raise BadRequestError(f"lab {self.name} has no process {name!r}, it has {', '.join(self.processes)}")

    def _real_node(self, process: str) -> RealNode | None:
        """The real node that a process belongs to."""
        return next((node for node in self.real_nodes if process in node.processes), None)

    def _daemon(self, name: str) -> Daemon | None:
        return daemon.recorded(self.folder).get(self._resolve(name))

    def _signal(self, name: str, number: signal.Signals) -> Daemon:
        found = self._daemon(name)
        if found is None or not found.signal(number):
            raise LabError(f"{name} of lab {self.name} does not run")
        return found

    @cached_property
    def _programs(self) -> dict[str, Path]:
        wanted = binaries(self.shape.kubernetes)
        if self.shape.real:
            wanted |= real_binaries(self.shape.kubernetes)
        if self.shape.dns:
            wanted |= {"coredns": coredns()}
        if self.shape.helm_3:
            wanted |= {"helm": helm_3()}
        wanted |= operators.binaries(self.shape.operators)
        return build.find_all(wanted.values())

    @cached_property
    def _ports(self) -> dict[str, int]:
        own = [name for pair in charts.pairs(self.shape) for name in pair.ports]
        own += [name for node in shapes.real_nodes(self.shape) for name in realnode.port_names(node.name)]
        own += operators.port_names(self.shape.operators)
        return ports.reserve(self.folder, [*PORTS, *own])

    @cached_property
    def _control_plane(self) -> ControlPlane:
        return ControlPlane(self.folder, self.shape, self.ports, self._programs)

    @cached_property
    def _chart(self) -> Chart:
        return Chart(self.folder, self.shape, self._control_plane.server, self.ports, self._programs)

    @cached_property
    def _operators(self) -> Operators:
        about = (self._control_plane.server, self.ports, self._programs)
        return Operators(self.folder, self.shape.operators, *about)

    def _forget(self) -> None:
        known = ("_programs", "_ports", "_control_plane", "_operators", "_chart", "real_nodes")
        for name in ("shape", *known):
            self.__dict__.pop(name, None)

    @property
    def _state(self) -> str:
        try:
            return (self.folder / "state").read_text()
        except FileNotFoundError:
            return "nothing recorded"

    def _set_state(self, state: str) -> None:
        if self.folder.exists():
            (self.folder / "state").write_text(state)

    def _remove(self) -> None:
        """SIGKILL: at a SIGTERM kube-apiserver waits a minute for its watches, and nothing here is kept."""
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._forget()

    def _end(self) -> None:
        daemon.end(list(daemon.recorded(self.folder).values()))
        realnode.remove(self.folder)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One `up` or `down` of a name at a time; the second waits."""
        places.labs().mkdir(parents=True, exist_ok=True)
        with open(places.labs() / f".{self.name}.lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"another command is bringing lab {self.name} up or down: waiting")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def all_labs() -> list[Lab]:
    """Every lab of this user, running or not."""
    return [Lab(path.parent.name) for path in sorted(places.labs().glob("*/shape.json"))]


def end_orphans(of: str) -> None:
    """Labs named `of`-PID or `of`-PID-... are ended whose process is no more: it was killed."""
    for lab in all_labs():
        prefix, _, rest = lab.name.partition("-")
        pid = rest.partition("-")[0]
        if prefix == of and pid.isdigit() and not Path(f"/proc/{pid}").exists():
            lab.down()


def _there(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except ApiError as refused:
        if refused.status == 404:
            return False
        raise
    return True

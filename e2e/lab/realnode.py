# Over 300 lines: a real node is containerd, kubelet, cgroups and mounts, made and removed in step.
"""Real nodes: kubelet and containerd that run containers on this machine, beside the lab's fake nodes.

What is real: the kubelet, the CRI, runc, cgroups, projected service-account tokens, volumes, how pods end. What
is not: the GPUs (devices of a plugin of the lab's, device_plugin.py; the CPU stands in for them), images (nothing
can be pulled: they are written here, and every container sees this machine's /usr and Python, read-only) and
the network (pods need hostNetwork: true; all is on loopback. `Shape.pod_network` gives each an address: podnet).

A node lives in a cgroup and a mount namespace of its own: its first process holds the namespace, and when the
cgroup's last process has ended, so have shims, containers and mounts. Needs root."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.lab import chart, credentials, daemon, places, podnet
from e2e.lab.api import Api, ApiError, answers
from e2e.lab.build import only_one
from e2e.lab.cgroups import Cgroup, hierarchies
from e2e.lab.controlplane import LEASE, gates
from e2e.lab.credentials import Authority
from e2e.lab.devices import HEALTHY, Devices, device_ids
from e2e.lab.errors import BadRequestError, LabError
from e2e.lab.images import Image
from e2e.lab.programs import output
from e2e.lab.say import say
from e2e.lab.shape import NodeSpec, Shape

GPU = "nvidia.com/gpu"
REAL = "e2e.muster.dev/real"  # label of real nodes; kwok keeps away from what has it
PAUSE = "muster.dev/lab-pause:1"
PYTHON = "muster.dev/lab-python:1"  # this machine's Python with what the lab's .venv has; pods may use it
# Folders that kubelet and containerd use whatever they are told; each node has its own, empty, in its namespace.
HARD_CODED = ("/var/lib/kubelet", "/run/containerd", "/var/log/containers")
HOLES_LOCK = "/run/muster-lab-holes.lock"  # who makes these folders and mounts over them, or takes them away
SOCKET_LIMIT = 107  # characters of a path that a Unix socket can be bound to
# Where every container sees this checkout's virtual environment: a /tmp of its own may hide a checkout in there.
ENVIRONMENT = Path("/opt/environment")


@dataclass(frozen=True)
class RealNode:
    """One real node of a lab; `spec` has its name, labels and GPUs."""

    folder: Path  # the lab's
    spec: NodeSpec
    shape: Shape
    server: str
    ports: Mapping[str, int]
    programs: Mapping[str, Path]

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def home(self) -> Path:
        return self.folder / "real" / self.name

    @property
    def processes(self) -> tuple[str, ...]:
        """In the order of starting: what holds the namespace, containerd, CoreDNS where pods are to find names, the
        device plugin where it has GPUs, kubelet."""
        holder, containerd, dns, plugin, kubelet = process_names(self.name)
        names, devices = [dns] if self.shape.dns else [], [plugin] if self.spec.group.gpus else []
        return (holder, containerd, *names, *devices, kubelet)

    @property
    def _number(self) -> int:
        return int(self.name.rpartition("-")[2])

    @property
    def devices(self) -> Devices:
        """What its device plugin has; `devices.write` changes them."""
        return Devices(self.home / "devices.json")

    @property
    def logs(self) -> Path:
        """Logs of containers: <namespace>_<pod>_<uid>/<container>/0.log."""
        return self.home / "pods"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig" / self.name

    @property
    def cgroup(self) -> Cgroup:
        return _cgroup(self.folder, self.name)

    @property
    def _socket(self) -> Path:
        return self.home / "containerd.sock"

    # --- before it starts ---------------------------------------------------------------------------------

    def come_up(self, start: Callable[[str], object]) -> None:
        """Each process in its turn, once its runtime has what images it can have. start: of one, by its name; what
        enters its namespace needs it ready."""
        self.prepare()
        holder, containerd, *others = self.processes
        start(holder)
        start(containerd)
        self.import_images(self.images())
        for name in others:
            start(name)

    def prepare(self) -> None:
        """Configuration, credentials and the cgroup. BadRequestError where this machine can't have it."""
        longest = self.home / "kubelet" / "pod-resources" / "kubelet.sock"
        if len(str(longest)) > SOCKET_LIMIT:
            raise BadRequestError(
                f"{longest} is too long for a socket: a shorter NAME or XDG_STATE_HOME, please"
            )
        for folder in ("cni", "cni-bin", "images", "kubelet", "pods", "root", "state"):
            (self.home / folder).mkdir(parents=True, exist_ok=True)
        self.cgroup.make()
        self.devices.write(dict.fromkeys(device_ids(self.name, self.spec.group.gpus), HEALTHY))
        authority = Authority(self.folder / "pki")
        user = authority.client(f"system:node:{self.name}", ("system:nodes",))
        credentials.write(self.kubeconfig, credentials.kubeconfig(self.server, authority.certificate, user))
        self._write("base.json", self._base_spec())
        self._write("kubelet.yaml", self._kubelet())
        if self.shape.dns:  # with all rights, as the lab's operators
            *_, health = port_names(self.name)
            user = authority.client("system:serviceaccount:kube-system:coredns", ("system:masters",))
            text = credentials.kubeconfig(self.server, authority.certificate, user)
            own = credentials.write(self.folder / "kubeconfig" / f"{self.name}-dns", text)
            credentials.write(self.home / "Corefile", podnet.corefile(own, self.ports[health]))
        credentials.write(self.home / "containerd.toml", self._containerd())
        if self.shape.pod_network:
            self._write("cni/10-pods.conflist", podnet.NETWORK)
            for name, text in (("pods", podnet.plugin(self._number)), ("loopback", podnet.LOOPBACK)):
                credentials.write(self.home / "cni-bin" / name, text).chmod(0o700)
        else:
            # A network must be named for the node to be Ready. Only pods with hostNetwork: true can start.
            loopback = {"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "loopback"}]}
            self._write("cni/10-none.conflist", loopback)

    def command(self, process: str) -> list[str]:
        """The argv of one of them."""
        holder, containerd, dns, plugin, _ = process_names(self.name)
        if process == holder:
            empty = [f"mkdir -p {hole} && mount -t tmpfs -o mode=755 lab {hole}" for hole in HARD_CODED]
            alone = " && ".join((f"exec 9>{HOLES_LOCK}", "flock 9", *empty, "exec 9>&-"))
            private = ["unshare", "--mount", "--propagation", "private"]
            if not self.shape.pod_network:
                return [*self.cgroup.enter(), *private, "sh", "-c", f"{alone} && exec sleep infinity"]
            own_network = podnet.set_up(self._number, self._pid_of("real-0"), dns=self.shape.dns)
            alone = " && ".join((alone, *own_network, 'exec "$@"'))
            kept = ["sh", "-c", 'exec 8< /proc/self/ns/net && exec "$@"', "kept"]
            kubelet = tuple(self.ports[name] for name in port_names(self.name))
            services = tuple(self.ports[pair.ports[0]] for pair in chart.pairs(self.shape))
            own = podnet.command(self.ports["kube-apiserver"], kubelet, services)
            return [*self.cgroup.enter(), *kept, *private, "--net", "sh", "-c", alone, "alone", *own]
        if process == containerd:
            own = [str(self.programs["containerd"]), f"--config={self.home / 'containerd.toml'}"]
        elif process == dns:
            own = [str(self.programs["coredns"]), "-conf", str(self.home / "Corefile")]
        elif process == plugin:
            path = f"PYTHONPATH={places.CHECKOUT}"
            own = ["env", path, sys.executable, "-m", "e2e.lab.device_plugin", str(self.devices.path)]
        else:
            own = [
                str(self.programs["kubelet"]),
                f"--config={self.home / 'kubelet.yaml'}",
                f"--kubeconfig={self.kubeconfig}",
                f"--root-dir={self.home / 'kubelet'}",
                f"--hostname-override={self.name}",
                f"--node-labels={REAL}=true",
                *([f"--node-ip={podnet.address(self._number)}"] if self.shape.pod_network else []),
                *gates(self.shape.feature_gates),
            ]
        return [*self.cgroup.enter(), *self._inside(), *own]

    def _inside(self) -> list[str]:
        """An argv prefix: in the node's mount namespace, as the same process."""
        holder = self._pid_of(self.processes[0])
        network = [f"--net=/proc/{holder}/ns/net"] if self.shape.pod_network else []
        return ["nsenter", f"--mount=/proc/{holder}/ns/mnt", *network, "--"]

    def _pid_of(self, process: str) -> int:
        """0 before it has started."""
        found = daemon.recorded(self.folder).get(process)
        return found.pid if found else 0

    # --- while it runs ------------------------------------------------------------------------------------

    def ready(self, process: str) -> bool:
        """What the process says of itself, now; of a kubelet: and that its node is Ready, with its GPUs."""
        holder, containerd, dns, plugin, _ = process_names(self.name)
        _, health, names = (self.ports[name] for name in port_names(self.name))
        if process == holder:
            return self._is_private()
        if process == containerd:
            return self._listens()
        if process == dns:
            return answers(f"http://127.0.0.1:{names}/ready")
        if process == plugin:
            return self._devices_told()
        if not answers(f"http://127.0.0.1:{health}/healthz"):
            return False
        with Api(self.folder / "kubeconfig" / "admin") as api:
            return self._is_ready(api)

    def _devices_told(self) -> bool:
        """Whether the kubelet has heard of the devices from the plugin that runs now. The node's status follows
        seconds later. True without a kubelet: it comes after the plugin."""
        _, _, _, plugin, kubelet = process_names(self.name)
        found = daemon.recorded(self.folder)
        if kubelet not in found or not found[kubelet].alive:
            return True
        with contextlib.suppress(FileNotFoundError, ValueError):
            told = json.loads(self.devices.told.read_text())
            return bool(told == {"pid": found[plugin].pid, "devices": self.devices.read()})
        return False

    def _is_private(self) -> bool:
        """Whether the namespace stands: before, what enters it would run in the machine's own."""
        pid = daemon.recorded(self.folder)[self.processes[0]].pid
        mounts = Path(f"/proc/{pid}/mountinfo").read_text()
        return os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt") and all(
            f" {hole} " in mounts for hole in HARD_CODED
        )

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(str(self._socket))
            return True
        return False

    def _is_ready(self, api: Api) -> bool:
        """Ready, with labels, and with the GPUs that its device plugin has healthy."""
        path = f"/api/v1/nodes/{self.name}"
        try:
            node = api.get(path)
        except ApiError as refused:
            if refused.status == 404:
                return False
            raise
        conditions = {item["type"]: item["status"] for item in node["status"].get("conditions", [])}
        if conditions.get("Ready") != "True":
            return False
        if self.spec.labels.items() - node["metadata"]["labels"].items():
            api.patch(path, {"metadata": {"labels": dict(self.spec.labels)}})
        healthy = sum(health == HEALTHY for health in self.devices.read().values())
        return int(node["status"]["allocatable"].get(GPU, "0")) == healthy

    def import_images(self, images: list[Image]) -> None:
        """Make images known to the runtime. LabError with ctr's own words."""
        for image in images:
            tar = image.write(self.home / "images" / f"{image.name.replace('/', '_')}.tar")
            ctr = [str(self.programs["ctr"]), f"--address={self._socket}", "--namespace=k8s.io"]
            output(
                [*self._inside(), *ctr, "images", "import", "--local", "--snapshotter=native", str(tar)],
                f"{self.name}: importing {image.name}",
            )

    def images(self) -> list[Image]:
        """The sandbox, and this machine's Python as an image."""
        pause = Image(PAUSE, {"/pause": self.programs["lab-pause"].read_bytes()}, entrypoint=("/pause",))
        return [pause, python_image(PYTHON, Path(sys.prefix))]

    # --- what they are told -------------------------------------------------------------------------------

    def _kubelet(self) -> dict[str, Any]:
        api, health, _ = (self.ports[name] for name in port_names(self.name))
        names = {"clusterDNS": [podnet.DNS], "clusterDomain": podnet.DOMAIN} if self.shape.dns else {}
        return names | {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": api,
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": health,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.folder / "pki" / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "podLogsDir": str(self.logs),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup.name}",
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "oomScoreAdj": 0,  # a lower one needs CAP_SYS_RESOURCE
            "nodeLeaseDurationSeconds": LEASE,
            "makeIPTablesUtilChains": False,
            "resolvConf": "",
            "volumePluginDir": str(self.home / "plugins"),
            "localStorageCapacityIsolation": False,
            "imageGCHighThresholdPercent": 100,  # never: what is lost can't be pulled again
            "evictionHard": {"memory.available": "1%", "nodefs.available": "1%", "imagefs.available": "1%"},
        }

    def _containerd(self) -> str:
        runc = shutil.which("runc")
        return f"""\
version = 3
root = "{self.home / "root"}"
state = "{self.home / "state"}"
disabled_plugins = ["io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.nri.v1.nri",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
required_plugins = ["io.containerd.grpc.v1.cri"]

[grpc]
address = "{self._socket}"

# Copies of empty folders are cheap, and no overlay is needed below.
[plugins."io.containerd.cri.v1.images"]
snapshotter = "native"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true # a lower one than ours needs CAP_SYS_RESOURCE
disable_apparmor = true

[plugins."io.containerd.cri.v1.runtime".cni]
conf_dir = "{self.home / "cni"}"
bin_dirs = ["{self.home / "cni-bin"}"]

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
runtime_path = "{self.programs["containerd-shim-runc-v2"]}"
base_runtime_spec = "{self.home / "base.json"}"
snapshotter = "native"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{runc}"
Root = "{self.home / "state" / "runc"}"
"""

    def _base_spec(self) -> dict[str, Any]:
        """containerd's default container with this machine's programs in it, read-only."""
        spec: dict[str, Any] = json.loads(output([str(self.programs["ctr"]), "oci", "spec"], "ctr oci spec"))
        mounts = [(ENVIRONMENT, Path(sys.prefix)), *((path, path) for path in host_folders())]
        for path, source in mounts:
            spec["mounts"].append(
                {
                    "destination": str(path),
                    "type": "bind",
                    "source": str(source),
                    "options": ["rbind", "ro", "nosuid", "rprivate"],
                }
            )
        return spec

    def _write(self, name: str, content: object) -> None:
        credentials.write(self.home / name, json.dumps(content, indent=1))


def process_names(node: str) -> tuple[str, str, str, str, str]:
    return node, f"{node}-containerd", f"{node}-dns", f"{node}-devices", f"{node}-kubelet"


def port_names(node: str) -> tuple[str, str, str]:
    """The kubelet's API, its health, and CoreDNS' health, as ports of the lab."""
    return f"{node}-kubelet", f"{node}-kubelet-health", f"{node}-dns"


def why_not() -> str:
    """Why this machine can't have a real node, as a sentence; "" where it can."""
    if platform.system() != "Linux":
        return "a real node needs Linux"
    if os.geteuid() != 0:
        return "a real node needs root (mounts, cgroups): leave out REAL, or run as root"
    missing = [name for name in ("runc", "unshare", "nsenter", "mount") if shutil.which(name) is None]
    if missing:
        return (
            f"a real node needs {', '.join(missing)}: "
            "apt-get install --no-install-recommends runc util-linux mount"
        )
    if not hierarchies():
        return "a real node needs cgroups, and none are mounted here"
    return ""


def python_image(name: str, environment: Path, files: Mapping[str, bytes] | None = None) -> Image:
    """An image whose Python is a virtual environment of this machine (in a folder of `host_folders`), with
    some files of its own in /app, where it starts."""
    # Where this machine has links instead of folders (merged /usr), so has the image.
    links = {f"/{path.name}": os.readlink(path) for path in _roots() if path.is_symlink()}
    return Image(
        name,
        {"/etc/passwd": b"root:x:0:0:root:/tmp:/bin/sh\n"}
        | {f"/app/{path}": content for path, content in (files or {}).items()},
        links,
        ("/app", "/tmp"),
        env={
            "PATH": f"{environment / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "PYTHONUNBUFFERED": "1",
            "HOME": "/tmp",
        },
        workdir="/app",
    )


def add_image(nodes: Iterable[RealNode], name: str, files: Sequence[Path], packages: Sequence[str]) -> None:
    """An image for pods of these nodes: Lab.add_image."""
    image = python_image(name, environment(packages), contents(files))
    for node in nodes:
        node.import_images([image])


def contents(files: Iterable[Path]) -> dict[str, bytes]:
    """Files, and those below folders, by their path in an image's /app."""
    inside = (
        (found.relative_to(one.parent), found)
        for one in files
        for found in ([one] if one.is_file() else sorted(one.rglob("*")))
    )
    return {
        str(path): found.read_bytes()
        for path, found in inside
        if found.is_file() and "__pycache__" not in path.parts
    }


def environments() -> Path:
    """Virtual environments for images, in the cache; every container of a real node sees them."""
    return places.cache() / "environments"


def host_folders() -> list[Path]:
    """What of this machine every container sees, read-only: its programs, libraries and Python."""
    environments().mkdir(parents=True, exist_ok=True)
    wanted = [path for path in _roots() if path.is_dir() and not path.is_symlink()]
    for path in (Path(sys.base_prefix), Path(sys.prefix), environments()):
        if not any(path.is_relative_to(have) for have in wanted):
            wanted.append(path)
    return wanted


def remove(folder: Path) -> None:
    """End whatever runs in the real nodes of a lab's folder, and their cgroups; mounts go with the last
    process. Nothing happens where there are none. LabError naming what stays."""
    names = sorted(path.name for path in (folder / "real").glob("*"))
    for name in names:
        _cgroup(folder, name).end()
    if not names:
        return
    with open(HOLES_LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        used = _mount_points()
        for hole in HARD_CODED:
            # Removing a folder takes away what other namespaces have mounted on it: another lab's, perhaps.
            if hole not in used:
                with contextlib.suppress(OSError):  # not empty: not ours
                    Path(hole).rmdir()


def _mount_points() -> set[str]:
    """Where something is mounted, in whichever process' namespace."""
    found: set[str] = set()
    for file in Path("/proc").glob("[0-9]*/mountinfo"):
        with contextlib.suppress(OSError):
            found |= {line.split()[4] for line in file.read_text().splitlines()}
    return found


def environment(packages: Sequence[str]) -> Path:
    """A virtual environment with these packages at the versions of config/constraints.txt, made once and kept
    in the cache; without packages, the lab's own. LabError where pip fails (its output has been shown)."""
    if not packages:
        return Path(sys.prefix)
    constraints = places.CHECKOUT / "config" / "constraints.txt"
    pinned = dict(line.split("==") for line in constraints.read_text().splitlines() if "==" in line)
    folder = environments() / "-".join(f"{name}-{pinned.get(name, 'latest')}" for name in sorted(packages))
    with only_one(folder):
        if not (folder / "made").exists():
            _install(packages, constraints, folder)
    return folder


def _install(packages: Sequence[str], constraints: Path, folder: Path) -> None:
    say(f"installing {' '.join(packages)} from PyPI into {folder} (once)")
    venv.create(folder, with_pip=True, clear=True)
    pip = [
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    done = subprocess.run(
        [*pip, "--constraint", str(constraints), *packages],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
    )
    if done.returncode != 0:
        raise LabError(f"pip could not install {' '.join(packages)}")
    (folder / "made").touch()


def _roots() -> list[Path]:
    return [
        Path(f"/{name}")
        for name in ("bin", "lib", "lib32", "lib64", "sbin", "usr")
        if Path(f"/{name}").exists()
    ]


def _cgroup(folder: Path, node: str) -> Cgroup:
    return Cgroup(f"muster-{folder.name}-{node}")

"""Images of a kind cluster: the node's, from its registry or built here of Debian packages and Go modules, and
Muster's.

What is built here lies in Docker, named after what it is made of: versions, and a digest of the files of this
folder. With the engine that is started by hand that is the cache outside the checkout (engine.py)."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.kind.engine import docker, folder, has_image, pulled
from e2e.kind.node_images import public
from e2e.lab import build, versions
from e2e.lab.errors import LabError
from e2e.lab.places import CHECKOUT
from e2e.lab.programs import output
from e2e.lab.say import say

NODE = Path(__file__).with_name("node")
SUITE = "bookworm"  # whose systemd can be run on cgroup v1, and whose Python is 3.11
PYTHON = "python:3.11-slim"
SLEEPER = "muster.dev/sleep:1"
"""An image that waits for a signal: what the workers of quickstart and scenarios run where no registry has one."""
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
ON_NODE = (
    *(
        "containerd",
        "containerd-shim-runc-v2",
        "ctr",
        "crictl",
        "kubeadm",
        "kubelet",
        "kubectl",
        "kube-proxy",
    ),
    *("ptp", "loopback", "host-local", "portmap"),
)


def node_image(kubernetes: str, wanted: str = "") -> str:
    """The node image: `wanted` where it is given; kind's own of this minor version where it can be had
    and run; else built here.

    LabError where it can't be built either."""
    if wanted:
        return wanted
    return public(kubernetes) or built_node_image(kubernetes)


def built_node_image(kubernetes: str) -> str:
    """The node image of Debian packages and the lab's programs, built once for these versions. One node's: its
    network plugin knows no other node."""
    wanted = versions.kind_binaries(kubernetes)
    name = built_name(wanted)
    with build.only_one(folder() / "node-image"):
        if not has_image(name):
            _build_node(name, wanted)
    return name


def muster_image(name: str) -> None:
    """Muster's image, built of this checkout, on Docker Hub's Python or its stand-in."""
    base = PYTHON if pulled(PYTHON, within=300) else _python()
    began = time.monotonic()
    docker(
        "build", "--quiet", "--network", "host", "--build-arg", f"BASE={base}", "--tag", name, str(CHECKOUT)
    )
    say(f"{name} on {base}: {time.monotonic() - began:.0f} s")


def sleeper() -> str:
    """The image of SLEEPER."""
    if not has_image(SLEEPER):
        program = build.find(versions.real_binaries()["lab-pause"])
        _static(SLEEPER, program, 'ENTRYPOINT ["/usr/local/bin/lab-pause"]', name="lab-pause")
    return SLEEPER


# --- the node's ---------------------------------------------------------------------------------------------


def built_name(wanted: Mapping[str, versions.Binary]) -> str:
    """Of the node image that is built of these programs."""
    return f"muster.dev/kind-node:{wanted['kubeadm'].version}-{_digest(wanted)}"


def _digest(wanted: Mapping[str, versions.Binary]) -> str:
    """Of all that goes into the node image: versions of programs, and this folder's files."""
    found = hashlib.sha256(SUITE.encode())
    for binary in sorted(wanted.values(), key=lambda one: one.name):
        found.update(binary.file_name.encode())
    for file in sorted(
        path for path in NODE.rglob("*") if path.is_file() and path.name != "python.Dockerfile"
    ):
        found.update(str(file.relative_to(NODE)).encode() + file.read_bytes())
    return found.hexdigest()[:12]


def _build_node(name: str, wanted: Mapping[str, versions.Binary]) -> None:
    # 1. programs, and Debian
    programs = build.find_all(wanted.values())
    debian = _debian()
    began = time.monotonic()
    say(f"building {name}")
    # 2. the node's file system, and kube-proxy's
    version = wanted["kubeadm"].version
    bare = f"{name}-bare"
    names = _image_names(programs["kubeadm"], version)
    arguments = ("--build-arg", f"DEBIAN={debian}", "--build-arg", f"VERSION={version}", "--network", "host")
    with _context(programs) as context:
        docker("build", "--quiet", *arguments, "--target", "node", "--tag", bare, context)
        docker(
            "build", "--quiet", *arguments, "--target", "kube-proxy", "--tag", names["kube-proxy"], context
        )
    # 3. images of one static program each
    entry = 'ENTRYPOINT ["/usr/local/bin/{}"]'
    for program in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"):
        _static(names[program], programs[program], name=program)
    _static(names["coredns"], programs["coredns"], entry.format("coredns"), name="coredns")
    pauses = {names["pause"], *re.findall(r'sandbox_image = "([^"]+)"', _containerd_configuration())}
    for pause in pauses:
        _static(pause, programs["lab-pause"], entry.format("pause"), name="pause")
    # 4. into the node's containerd, unpacked when they are used
    _import(bare, name, sorted({*names.values(), *pauses, sleeper()}))
    say(f"{name}: {time.monotonic() - began:.0f} s")


def _image_names(kubeadm: Path, version: str) -> dict[str, str]:
    """The images that kubeadm asks for, by the last part of their name."""
    listed = output([str(kubeadm), "config", "images", "list", "--kubernetes-version", version], "kubeadm")
    return {line.rpartition("/")[2].partition(":")[0]: line for line in listed.split()}


def _containerd_configuration() -> str:
    return (_kind_files() / "etc" / "containerd" / "config.toml").read_text()


def _kind_files() -> Path:
    """images/base/files of the kind that is pinned."""
    go = build.go("kind")
    found = output(
        [*go, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kind"], "go list", cwd=versions.MODULES / "kind"
    )
    return Path(found.strip()) / "images" / "base" / "files"


class _context:  # noqa: N801  (a context manager)
    """A folder for `docker build`: kind's files, ours, and the programs."""

    def __init__(self, programs: Mapping[str, Path]) -> None:
        self.programs = programs

    def __enter__(self) -> str:
        self.folder = tempfile.TemporaryDirectory(prefix="muster-kind-")
        context = Path(self.folder.name)
        shutil.copytree(_kind_files(), context / "kind", copy_function=shutil.copyfile)
        for made in (context / "kind").rglob("*"):  # Go's modules are read-only
            made.chmod(0o755 if made.is_dir() or made.suffix == ".sh" or made.name == "entrypoint" else 0o644)
        shutil.copytree(NODE / "rootfs", context / "rootfs")
        shutil.copyfile(NODE / "Dockerfile", context / "Dockerfile")
        (context / "bin").mkdir()
        for name in ON_NODE:
            shutil.copy(self.programs[name], context / "bin" / name)
        return str(context)

    def __exit__(self, *_: object) -> None:
        self.folder.cleanup()


def _static(tag: str, program: Path, more: str = "ENV PATH=/usr/local/bin", *, name: str) -> None:
    """An image with one program at /usr/local/bin/`name`."""
    lines = f"FROM scratch\nCOPY {name} /usr/local/bin/{name}\n{more}\n".encode()
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as context:
            about = tarfile.TarInfo("Dockerfile")
            about.size = len(lines)
            context.addfile(about, io.BytesIO(lines))
            context.add(program, name)
        file.seek(0)
        docker("build", "--quiet", "--tag", tag, "-", stdin=file.read())


def _import(bare: str, name: str, images: Sequence[str]) -> None:
    """As `kind build node-image` does: a container of the bare image takes the images into its containerd, and
    is committed."""
    made = docker(
        *("run", "--detach", "--privileged", "--entrypoint", "sleep", bare, "infinity"), within=120
    ).strip()
    try:
        docker("exec", "--detach", made, "containerd")
        docker("exec", made, "sh", "-c", "until ctr version > /dev/null 2>&1; do sleep 0.2; done", within=60)
        archive = subprocess.run(
            ["docker", "save", *images], capture_output=True, check=True, env=_environment()
        ).stdout
        docker(
            *("exec", "--interactive", made, "ctr", "--namespace=k8s.io", "images", "import"),
            *("--label=io.cri-containerd.pinned=pinned", "--all-platforms", "--no-unpack", "--digests", "-"),
            stdin=archive,
        )
        rest = "pkill -x containerd; sleep 1; rm -rf /run/containerd /var/lib/containerd/tmpmounts /tmp/*"
        docker("exec", made, "sh", "-c", rest)
        entry = 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]'
        docker("commit", "--change", entry, "--change", "CMD []", made, name)
    finally:
        docker("rm", "--force", made)


def _environment() -> dict[str, str]:
    from e2e.kind.engine import environment

    return environment()


# --- bases --------------------------------------------------------------------------------------------------


def _debian() -> str:
    """Debian with systemd, by debootstrap from the mirror that this machine's apt uses."""
    name = f"muster.dev/debian:{SUITE}"
    if has_image(name):
        return name
    if not shutil.which("debootstrap"):
        raise LabError(
            "building a node image needs debootstrap: apt-get install --no-install-recommends debootstrap"
        )
    began = time.monotonic()
    say(f"{name} by debootstrap")
    with tempfile.TemporaryDirectory(prefix="muster-kind-") as scratch:
        root = Path(scratch) / "root"
        include = "systemd,systemd-sysv,dbus,ca-certificates"
        output(
            ["nice", "debootstrap", "--variant=minbase", f"--include={include}", SUITE, str(root), _mirror()],
            "debootstrap",
        )
        left_out = ("--exclude=./var/cache/apt/archives/*.deb", "--exclude=./var/lib/apt/lists/*")
        packed = Path(scratch) / "root.tar"
        output(["tar", "-C", str(root), *left_out, "-cf", str(packed), "."], "tar")
        docker("import", str(packed), name)
    say(f"{name}: {time.monotonic() - began:.0f} s")
    return name


def _mirror() -> str:
    """Where this machine's apt has Debian from. LabError where it has none."""
    lists = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for file in lists:
        text = file.read_text() if file.is_file() else ""
        if found := re.search(r"^(?!#).*?(https?://\S+/debian)/?(?=\s|$)", text, re.MULTILINE):
            return found[1]
    raise LabError(
        "building a node image needs Debian packages, and this machine's apt names no mirror of Debian"
    )


def _python() -> str:
    """The stand-in for Docker Hub's Python."""
    debian = _debian()
    name = (
        f"muster.dev/python:3.11-{hashlib.sha256((NODE / 'python.Dockerfile').read_bytes()).hexdigest()[:12]}"
    )
    if not has_image(name):
        with tempfile.TemporaryDirectory(prefix="muster-kind-") as context:
            shutil.copyfile(CERTIFICATES, Path(context) / CERTIFICATES.name)
            file = str(NODE / "python.Dockerfile")
            arguments = ("--network", "host", "--build-arg", f"DEBIAN={debian}", "--file", file)
            docker("build", "--quiet", *arguments, "--tag", name, context)
    return name

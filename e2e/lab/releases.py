"""Programs of the lab as their projects release them: seconds instead of minutes, where the internet is.

Each comes with the sum that its project publishes beside it, over TLS, and is not used with another. That guards
against what breaks on the way, not against a project's own site; whoever wants that builds from modules, whose
hashes are in go.sum (MUSTER_RELEASES=off). MUSTER_RELEASES=http://127.0.0.1:8000 is a mirror: the same paths
below another address, host first."""

from __future__ import annotations

import hashlib
import io
import os
import platform
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from e2e.lab.errors import BadRequestError, LabError
from e2e.lab.say import say
from e2e.lab.versions import Binary

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
CONNECT, READ = 5.0, 60.0  # seconds, of a connection and of each part of an answer
INSTEAD = "Again may help; MUSTER_RELEASES=off builds it instead"


@dataclass(frozen=True)
class Release:
    """Where a program is released. {version} is v1.2.3, {number} 1.2.3, {arch} amd64; `member`: its path in a tar.gz,
    "" for a bare file; `sums`: a file that has the sum, alone or in a line with the file's name."""

    url: str
    sums: str
    member: str = ""


def _archive(folder: str, file: str, sums: str = ".sha256", member: str = "{name}") -> Release:
    """A tar.gz with its sum in a file beside it."""
    return Release(f"{folder}/{file}", f"{folder}/{file}{sums}", member)


_KUBERNETES = Release(
    "https://dl.k8s.io/release/{version}/bin/linux/{arch}/{name}",
    "https://dl.k8s.io/release/{version}/bin/linux/{arch}/{name}.sha256",
)
RELEASES: Mapping[str, Release] = {
    **dict.fromkeys(
        (
            *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
            *("kubelet", "kubeadm", "kube-proxy"),
        ),
        _KUBERNETES,
    ),
    "etcd": Release(
        "https://github.com/etcd-io/etcd/releases/download/{version}/etcd-{version}-linux-{arch}.tar.gz",
        "https://github.com/etcd-io/etcd/releases/download/{version}/SHA256SUMS",
        "etcd-{version}-linux-{arch}/etcd",
    ),
    "helm": Release(
        "https://get.helm.sh/helm-{version}-linux-{arch}.tar.gz",
        "https://get.helm.sh/helm-{version}-linux-{arch}.tar.gz.sha256sum",
        "linux-{arch}/helm",
    ),
    "kind": Release(
        "https://github.com/kubernetes-sigs/kind/releases/download/{version}/kind-linux-{arch}",
        "https://github.com/kubernetes-sigs/kind/releases/download/{version}/kind-linux-{arch}.sha256sum",
    ),
    # The static one: the other wants the C library that it was linked with.
    **dict.fromkeys(
        ("containerd", "containerd-shim-runc-v2", "ctr"),
        _archive(
            "https://github.com/containerd/containerd/releases/download/{version}",
            "containerd-static-{number}-linux-{arch}.tar.gz",
            sums=".sha256sum",
            member="bin/{name}",
        ),
    ),
    "crictl": _archive(
        "https://github.com/kubernetes-sigs/cri-tools/releases/download/{version}",
        "crictl-{version}-linux-{arch}.tar.gz",
    ),
    **dict.fromkeys(
        ("ptp", "loopback", "host-local", "portmap"),
        _archive(
            "https://github.com/containernetworking/plugins/releases/download/{version}",
            "cni-plugins-linux-{arch}-{version}.tgz",
        ),
    ),
    "coredns": _archive(
        "https://github.com/coredns/coredns/releases/download/{version}",
        "coredns_{number}_linux_{arch}.tgz",
    ),
    "actionlint": Release(
        "https://github.com/rhysd/actionlint/releases/download/{version}/actionlint_{number}_linux_{arch}.tar.gz",
        "https://github.com/rhysd/actionlint/releases/download/{version}/actionlint_{number}_checksums.txt",
        "actionlint",
    ),
}
"""The others are built: lab-pause is ours, kwok is released without a sum, operators are released as images."""
_archives: dict[str, bytes] = {}
"""The last archive with a right sum, by its address: it has more than one program of the lab."""
_silent: set[str] = set()
"""Hosts that nobody answers for: asked once a process."""


def fetched(binary: Binary, target: Path) -> bool:
    """Put the released program at `target`; False where there is none, or nobody answers. LabError where it has
    another sum than its project published; BadRequestError for a MUSTER_RELEASES that is no address."""
    mirror = _mirror()
    release = RELEASES.get(binary.name)
    architecture = ARCHITECTURES.get(platform.machine())
    if mirror == "off" or release is None or architecture is None or platform.system() != "Linux":
        return False
    number = binary.version.removeprefix("v")
    words = {"name": binary.name, "version": binary.version, "number": number, "arch": architecture}
    url, sums, member = (part.format(**words) for part in (release.url, release.sums, release.member))
    if mirror:
        url, sums = (f"{mirror}/{address.removeprefix('https://')}" for address in (url, sums))
    data = _archives.get(url) or _with_its_sum(url, sums)
    if data is None:
        return False
    if member:
        _archives.clear()
        _archives[url] = data
        data = _member(data, member, url)
    half_done = target.with_name(f".{target.name}.{os.getpid()}")
    half_done.write_bytes(data)
    half_done.chmod(0o755)
    half_done.rename(target)
    say(f"{binary.name} {binary.version} from {url}")
    return True


def _mirror() -> str:
    """MUSTER_RELEASES: off, a mirror's address without the slash at its end, or "" for the projects' own."""
    told = os.environ.get("MUSTER_RELEASES", "").rstrip("/")
    if told in ("", "off") or re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", told):
        return told
    raise BadRequestError(
        f"MUSTER_RELEASES={told}: expected off, or the address of a mirror such as http://127.0.0.1:8000"
    )


def _with_its_sum(url: str, sums: str) -> bytes | None:
    """The file at `url`; None where there is none, or nobody answers. LabError where it has not its published sum."""
    told = _got(sums)
    data = None if told is None else _got(url)
    if told is None or not data:
        return None
    expected, found = _sum_of(told.decode(errors="replace"), url), hashlib.sha256(data).hexdigest()
    if not expected:
        raise LabError(f"{sums}: expected the sha256 of {url.rpartition('/')[2]}, found none. {INSTEAD}")
    if expected != found:
        raise LabError(f"{url}: sha256 expected {expected}, found {found}. {INSTEAD}")
    return data


def _sum_of(text: str, url: str) -> str:
    """The sum of the file at `url` in a file of sums; "" where it has none."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    name = url.rpartition("/")[2]
    named = [line[0] for line in lines if len(line) > 1 and line[-1].lstrip("*").rpartition("/")[2] == name]
    alone = [line[0] for line in lines if len(line) == 1]
    return next((one.lower() for one in (named or alone) if re.fullmatch(r"[0-9a-fA-F]{64}", one)), "")


def _member(archive: bytes, member: str, url: str) -> bytes:
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as files:
            # some archives are of a folder: ./ptp
            found = next(one for one in files if one.isfile() and one.name.removeprefix("./") == member)
            file = files.extractfile(found)
            assert file is not None
            return file.read()
    except (StopIteration, AssertionError, tarfile.TarError) as problem:
        raise LabError(f"{url}: expected a tar.gz with {member}, found none. {INSTEAD}") from problem


def _got(where: str) -> bytes | None:
    """What is there; None where nobody answers, or says no: it says so, since minutes of building follow."""
    host = httpx.URL(where).host
    if host in _silent:
        return None
    try:
        answer = httpx.get(where, follow_redirects=True, timeout=httpx.Timeout(READ, connect=CONNECT))
    except httpx.HTTPError as problem:
        _silent.add(host)
        say(f"no releases from {host} ({problem or type(problem).__name__}): they are built instead")
        return None
    if answer.status_code != 200:
        say(f"no release at {where} ({answer.status_code}): it is built instead")
        return None
    return answer.content

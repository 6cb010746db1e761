"""Released programs from a file server on loopback: taken with the right sum, refused with another, and built
where there are none."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import os
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.lab import build, releases, versions
from e2e.lab.errors import BadRequestError, LabError
from e2e.lab.versions import Binary

PROGRAM = b"#!/bin/sh\necho v1.37.1\n"
APISERVER = Binary("kube-apiserver", "v1.37.1", "kubernetes-1.37", "k8s.io/kubernetes/cmd/kube-apiserver")
HELM = Binary("helm", "v4.3.1", "helm", "helm.sh/helm/v4/cmd/helm")
FOLDER = "dl.k8s.io/release/v1.37.1/bin/linux/amd64"
NO_SUM = "kube-apiserver.sha256: expected the sha256 of kube-apiserver, found none"
_asked: list[str] = []
"""Files that the mirror was asked for."""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        _asked.append(self.path.rpartition("/")[2])
        super().do_GET()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that a file server serves as the mirror of all releases."""
    served = tmp_path / "mirror"
    served.mkdir()
    handler = functools.partial(Quiet, directory=str(served))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        monkeypatch.setenv("MUSTER_RELEASES", f"http://127.0.0.1:{server.server_address[1]}")
        monkeypatch.setattr("platform.machine", lambda: "x86_64")
        monkeypatch.setattr("platform.system", lambda: "Linux")
        monkeypatch.setattr(releases, "_silent", set())
        monkeypatch.setattr(releases, "_archives", {})
        _asked.clear()
        yield served
        server.shutdown()
        thread.join()


def put(mirror: Path, path: str, data: bytes) -> None:
    (mirror / path).parent.mkdir(parents=True, exist_ok=True)
    (mirror / path).write_bytes(data)


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def test_a_released_program_with_its_sum_is_taken_and_can_be_run(mirror: Path, tmp_path: Path) -> None:
    put(mirror, f"{FOLDER}/kube-apiserver", PROGRAM)
    put(mirror, f"{FOLDER}/kube-apiserver.sha256", digest(PROGRAM))
    target = tmp_path / "kube-apiserver-v1.37.1"
    assert releases.fetched(APISERVER, target)
    assert target.read_bytes() == PROGRAM
    assert target.stat().st_mode & 0o111


def packed(*members: str) -> bytes:
    """A tar.gz of these files, each of which says its name; a folder is one that ends with a slash."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for member in members:
            data = member.encode()
            about = tarfile.TarInfo(member.rstrip("/") or ".")
            if member.endswith("/"):
                about.type = tarfile.DIRTYPE
                archive.addfile(about)
            else:
                about.size = len(data)
                archive.addfile(about, io.BytesIO(data))
    return file.getvalue()


@dataclass(frozen=True)
class Archive:
    """As a project makes one: `programs` of ours by their path in it; `told` is its file of sums."""

    where: str
    programs: Mapping[str, str]
    sums: str
    told: str = "{sum}  {name}\n"
    more: Sequence[str] = ()


GITHUB = "github.com/{}/releases/download"
CONTAINERD = GITHUB.format("containerd/containerd") + "/v2.4.2/containerd-static-2.4.2-linux-amd64.tar.gz"
CRICTL = GITHUB.format("kubernetes-sigs/cri-tools") + "/v1.36.0/crictl-v1.36.0-linux-amd64.tar.gz"
PLUGINS = GITHUB.format("containernetworking/plugins") + "/v1.9.1/cni-plugins-linux-amd64-v1.9.1.tgz"
COREDNS = GITHUB.format("coredns/coredns") + "/v1.14.6/coredns_1.14.6_linux_amd64.tgz"
ACTIONLINT = GITHUB.format("rhysd/actionlint") + "/v1.7.8/actionlint_1.7.8_linux_amd64.tar.gz"
IN_CONTAINERD = ("containerd", "containerd-shim-runc-v2", "ctr")
IN_PLUGINS = ("ptp", "loopback", "host-local", "portmap")
ARCHIVES = (
    Archive("get.helm.sh/helm-v4.3.1-linux-amd64.tar.gz", {"helm": "linux-amd64/helm"}, ".sha256sum"),
    Archive("get.helm.sh/helm-v3.22.0-linux-amd64.tar.gz", {"helm-3": "linux-amd64/helm"}, ".sha256sum"),
    Archive(
        CONTAINERD,
        {name: f"bin/{name}" for name in IN_CONTAINERD},
        ".sha256sum",
        more=("bin/", "bin/containerd-stress"),
    ),
    Archive(CRICTL, {"crictl": "crictl"}, ".sha256", told="{sum}\n"),
    Archive(PLUGINS, {name: f"./{name}" for name in IN_PLUGINS}, ".sha256", more=("./", "./README.md")),
    Archive(COREDNS, {"coredns": "coredns"}, ".sha256"),
    Archive(
        ACTIONLINT,
        {"actionlint": "actionlint"},
        f"{ACTIONLINT.rpartition('/')[0]}/actionlint_1.7.8_checksums.txt",
        told="0" * 64 + "  actionlint_1.7.8_linux_arm64.tar.gz\n{sum}  {name}\n",
        more=("README.md", "docs/checks.md"),
    ),
)


OTHERS = {"actionlint": versions.actionlint(), "helm-3": versions.helm_3()}


def pinned(name: str) -> Binary:
    return {**versions.kind_binaries(), **OTHERS}[name]


def publish(mirror: Path, archive: Archive, data: bytes) -> None:
    name = archive.where.rpartition("/")[2]
    sums = archive.where + archive.sums if archive.sums.startswith(".") else archive.sums
    put(mirror, archive.where, data)
    put(mirror, sums, archive.told.format(sum=digest(data).decode(), name=name).encode())


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda one: next(iter(one.programs)))
def test_programs_in_an_archive_are_taken_by_its_sum_and_it_is_fetched_once(
    archive: Archive, mirror: Path, tmp_path: Path
) -> None:
    publish(mirror, archive, packed(*archive.more, *archive.programs.values()))
    for name, member in archive.programs.items():
        binary = pinned(name)
        target = tmp_path / binary.file_name
        assert releases.fetched(binary, target), f"nothing at {archive.where} of {binary.file_name}"
        assert target.read_bytes() == member.encode()
        assert target.stat().st_mode & 0o111
    assert _asked.count(archive.where.rpartition("/")[2]) == 1


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda one: next(iter(one.programs)))
def test_an_archive_with_another_sum_or_without_the_program_is_an_error(
    archive: Archive, mirror: Path, tmp_path: Path
) -> None:
    name = next(iter(archive.programs))
    target = tmp_path / "kept" / name
    target.parent.mkdir()
    publish(mirror, archive, packed(*archive.programs.values()))
    put(mirror, archive.where, packed("another"))
    with pytest.raises(LabError, match="sha256 expected"):
        releases.fetched(pinned(name), target)
    publish(mirror, archive, packed("another"))
    with pytest.raises(LabError, match=r"expected a tar\.gz with .*, found none"):
        releases.fetched(pinned(name), target)
    assert list(target.parent.iterdir()) == []


def test_what_no_project_releases_with_a_sum_is_named() -> None:
    wanted = {**versions.kind_binaries(), "actionlint": versions.actionlint()}
    assert wanted.keys() - releases.RELEASES.keys() == {"kwok", "lab-pause"}
    assert releases.RELEASES.keys() <= wanted.keys()


@pytest.mark.parametrize(
    ("published", "problem"),
    [
        (
            digest(b"another"),
            f"kube-apiserver: sha256 expected {digest(b'another').decode()}, found {digest(PROGRAM).decode()}",
        ),
        (b"not a sum", NO_SUM),
        (digest(PROGRAM) + b"  another-file", NO_SUM),
    ],
)
def test_another_sum_is_an_error_and_nothing_is_kept(
    mirror: Path, tmp_path: Path, published: bytes, problem: str
) -> None:
    put(mirror, f"{FOLDER}/kube-apiserver", PROGRAM)
    put(mirror, f"{FOLDER}/kube-apiserver.sha256", published)
    target = tmp_path / "kept" / "kube-apiserver-v1.37.1"
    target.parent.mkdir()
    with pytest.raises(LabError) as raised:
        releases.fetched(APISERVER, target)
    asked = os.environ["MUSTER_RELEASES"]
    assert (
        str(raised.value)
        == f"{asked}/{FOLDER}/{problem}. Again may help; MUSTER_RELEASES=off builds it instead"
    )
    assert list(target.parent.iterdir()) == []


def test_what_is_not_released_or_not_wanted_is_built(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []

    def build_it(binary: Binary, target: Path) -> None:
        built.append(binary.name)
        target.write_bytes(b"built")

    monkeypatch.setattr(build, "_build", build_it)
    monkeypatch.setattr(build, "_given", lambda _: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kwok = Binary("kwok", "v0.8.0", "kwok", "sigs.k8s.io/kwok/cmd/kwok")
    assert build.find(kwok).read_bytes() == b"built"
    assert build.find(APISERVER).read_bytes() == b"built", "the mirror has none"
    put(mirror, f"{FOLDER}/kube-apiserver", PROGRAM)
    put(mirror, f"{FOLDER}/kube-apiserver.sha256", digest(PROGRAM))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert build.find(APISERVER).read_bytes() == PROGRAM
    monkeypatch.setenv("MUSTER_RELEASES", "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "third"))
    assert build.find(APISERVER).read_bytes() == b"built"
    assert built == ["kwok", "kube-apiserver", "kube-apiserver"]


@pytest.mark.usefixtures("mirror")
def test_a_host_that_does_not_answer_is_asked_once_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MUSTER_RELEASES", "http://127.0.0.1:1")
    assert not releases.fetched(APISERVER, tmp_path / "none")
    assert releases._silent == {"127.0.0.1"}
    assert not releases.fetched(HELM, tmp_path / "none")
    assert capsys.readouterr().err.count("no releases from 127.0.0.1 (") == 1


@pytest.mark.usefixtures("mirror")
def test_what_a_mirror_does_not_have_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not releases.fetched(APISERVER, tmp_path / "none")
    told = f"no release at {os.environ['MUSTER_RELEASES']}/{FOLDER}/kube-apiserver.sha256 (404): it is built instead"
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("told", ["OFF", "no", "mirror.example", "file:///mirror", "http://", "http://a b"])
def test_what_is_no_address_of_a_mirror_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    monkeypatch.setenv("MUSTER_RELEASES", told)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    with pytest.raises(BadRequestError, match="expected off, or the address of a mirror such as http://"):
        releases.fetched(APISERVER, tmp_path / "none")

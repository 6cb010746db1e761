"""Released programs from a file server on loopback: taken with the right sum, refused with another, and built
where there are none."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.lab import build, releases
from e2e.lab.errors import LabError
from e2e.lab.versions import Binary

PROGRAM = b"#!/bin/sh\necho v1.37.1\n"
APISERVER = Binary("kube-apiserver", "v1.37.1", "kubernetes-1.37", "k8s.io/kubernetes/cmd/kube-apiserver")
HELM = Binary("helm", "v4.3.1", "helm", "helm.sh/helm/v4/cmd/helm")
FOLDER = "dl.k8s.io/release/v1.37.1/bin/linux/amd64"


class Quiet(http.server.SimpleHTTPRequestHandler):
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


def test_a_program_in_an_archive_is_taken_by_a_sum_that_names_it(mirror: Path, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        about = tarfile.TarInfo("linux-amd64/helm")
        about.size = len(PROGRAM)
        archive.addfile(about, io.BytesIO(PROGRAM))
    name = "helm-v4.3.1-linux-amd64.tar.gz"
    put(mirror, f"get.helm.sh/{name}", packed.getvalue())
    put(mirror, f"get.helm.sh/{name}.sha256sum", digest(packed.getvalue()) + b"  " + name.encode() + b"\n")
    target = tmp_path / "helm-v4.3.1"
    assert releases.fetched(HELM, target)
    assert target.read_bytes() == PROGRAM


@pytest.mark.parametrize("published", [digest(b"another"), b"not a sum", digest(PROGRAM) + b"  another-file"])
def test_another_sum_is_an_error_and_nothing_is_kept(mirror: Path, tmp_path: Path, published: bytes) -> None:
    put(mirror, f"{FOLDER}/kube-apiserver", PROGRAM)
    put(mirror, f"{FOLDER}/kube-apiserver.sha256", published)
    target = tmp_path / "kept" / "kube-apiserver-v1.37.1"
    target.parent.mkdir()
    with pytest.raises(LabError, match=f"sha256 expected .*, found {digest(PROGRAM).decode()}"):
        releases.fetched(APISERVER, target)
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
def test_a_host_that_does_not_answer_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_RELEASES", "http://127.0.0.1:1")
    assert not releases.fetched(APISERVER, tmp_path / "none")
    assert releases._silent == {"127.0.0.1"}
    assert not releases.fetched(HELM, tmp_path / "none")

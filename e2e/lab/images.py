"""Container images written by hand, as OCI layout tars: nothing can be pulled in a lab. `ctr images import`
reads them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # as Go and OCI name them


@dataclass(frozen=True)
class Image:
    """One image of one layer. `files` is content by absolute path, `links` the target by absolute path;
    directories come by themselves."""

    name: str  # in full, with its tag: as pods write it
    files: Mapping[str, bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    folders: Sequence[str] = ()
    entrypoint: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"

    def write(self, path: Path) -> Path:
        """The image as one tar; the same image gives the same bytes."""
        layer = self._layer()
        blobs = [layer]
        config = _json(
            {
                "architecture": ARCHITECTURES.get(os.uname().machine, os.uname().machine),
                "os": "linux",
                "config": {
                    "Entrypoint": list(self.entrypoint) or None,
                    "Env": [f"{key}={value}" for key, value in self.env.items()],
                    "WorkingDir": self.workdir,
                },
                "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            }
        )
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": _descriptor("application/vnd.oci.image.config.v1+json", config),
                "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar", layer)],
            }
        )
        blobs += [config, manifest]
        named = _descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
        named["annotations"] = {
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": self.name.rpartition(":")[2],
        }
        with tarfile.open(path, "w") as tar:
            _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
            _add(tar, "index.json", _json({"schemaVersion": 2, "manifests": [named]}))
            for blob in blobs:
                _add(tar, f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}", blob)
        return path

    def _layer(self) -> bytes:
        whole = io.BytesIO()
        folders = {str(parent) for path in (*self.files, *self.links) for parent in Path(path).parents}
        folders |= {str(part) for path in self.folders for part in (Path(path), *Path(path).parents)}
        with tarfile.open(fileobj=whole, mode="w") as tar:
            for folder in sorted(folders - {"/"}):
                entry = tarfile.TarInfo(folder.lstrip("/"))
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "/tmp" else 0o755
                tar.addfile(entry)
            for path, target in sorted(self.links.items()):
                entry = tarfile.TarInfo(path.lstrip("/"))
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                tar.addfile(entry)
            for path, content in sorted(self.files.items()):
                _add(tar, path.lstrip("/"), content, 0o755)
        return whole.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}

"""What a lab is asked for, its images, and who its processes are: nothing of it is started here."""

from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.lab import BadRequestError, Lab, NodeGroup, Shape
from e2e.lab.daemon import Daemon
from e2e.lab.images import Image
from e2e.lab.shape import groups_from_file, nodes


def test_mixed_groups_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "shape.yaml"
    file.write_text(
        "- {count: 1, gpus: 8, product: NVIDIA-H100-80GB-HBM3, taints: [{key: big, effect: NoSchedule}]}\n"
        "- {count: 1, gpus: 0, labels: {pool: cpu}}\n"
    )
    big, small = nodes(Shape(groups=groups_from_file(file), racks=2))
    assert (big.name, big.labels["nvidia.com/gpu.product"]) == ("node-00", "NVIDIA-H100-80GB-HBM3")
    assert big.manifest("")["spec"]["taints"] == [{"key": "big", "value": "", "effect": "NoSchedule"}]
    assert (small.labels["pool"], small.labels["topology.kubernetes.io/rack"]) == ("cpu", "rack-1")
    assert "nvidia.com/gpu" not in small.manifest("")["status"]["capacity"]


def test_a_shape_file_with_an_unknown_field_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "shape.yaml"
    file.write_text("- {count: 1, gpu: 8}\n")
    with pytest.raises(BadRequestError, match=r"group 0 needs `count` and may have count, gpus, labels"):
        groups_from_file(file)


def test_a_shape_survives_its_file_and_says_what_differs() -> None:
    shape = Shape(groups=(NodeGroup(2, labels=(("a", "b"),)),), feature_gates=("X=true",))
    assert Shape.from_json(shape.to_json()) == shape
    assert shape.differences(replace(shape, replicas=2)) == ["replicas: has 1, asked for 2"]


def test_only_the_recorded_process_is_signalled_never_one_that_got_its_pid() -> None:
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        remembered = Daemon("etcd", ("sleep",), (), stranger.pid, born=1)
        assert not remembered.alive
        assert not remembered.signal(signal.SIGKILL)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_kubernetes_without_a_pinned_kubelet_is_refused_in_a_sentence() -> None:
    with pytest.raises(
        BadRequestError, match=r"REAL with K8S=1\.34: real nodes are there for K8S=1\.37 only"
    ):
        Lab("refused").up(Shape(chart=False, real=1, kubernetes="1.34"))


def test_an_image_is_the_same_bytes_whenever_it_is_written(tmp_path: Path) -> None:
    image = Image("muster.dev/x:1", {"/app/x.py": b"1"}, {"/bin": "usr/bin"}, ("/tmp",))
    first, second = (image.write(tmp_path / name).read_bytes() for name in ("a", "b"))
    assert first == second
    assert json.dumps("muster.dev/x:1").encode() in first

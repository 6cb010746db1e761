"""What `python -m e2e.bench peers` computes and says; no lab."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from e2e.bench import peers
from e2e.bench.__main__ import main
from e2e.bench.figures import held_in_part
from e2e.bench.peer import OF, PEERS, Peer, turn
from e2e.bench.peer_jobs import Use, held, sized
from e2e.bench.peers import Kept, rows
from e2e.bench.predicted import RESIZE_COST
from e2e.bench.report import Progress, Result
from e2e.bench.trainings import Seen, Trained, Trainings
from muster.points import load


def said(part: str, *found: dict[str, Any]) -> dict[str, str]:
    """Rows of one part of two peers, by what they are."""
    result = Result("peers", "")
    rows(result, [{"part": part, "round": 0, **one} for one in found], ["stock", "kueue"])
    return {row.what: row.value for row in result.rows}


def test_pods_of_a_gang_hold_their_gpus_in_vain_until_the_last_one_is_bound() -> None:
    assert held_in_part([3.0, 1.0, 2.0], 3, 10.0, gpus=8) == 8 * (2.0 + 1.0)
    assert held_in_part([1.0, 2.0], 3, 10.0, gpus=8) == 8 * (9.0 + 8.0), (
        "never whole: until nobody looks any more"
    )
    assert held_in_part([], 3, 10.0, gpus=8) == 0.0


def test_each_round_begins_with_another_peer() -> None:
    peers = [PEERS[name] for name in ("stock", "native", "kueue")]
    assert [one.name for one in turn(peers, 1)] == ["native", "kueue", "stock"]
    assert turn(peers, 3) == peers


@pytest.mark.parametrize("name", PEERS)
def test_a_gang_of_every_peer_has_the_same_pods_and_one_owner(name: str) -> None:
    *before, (path, owner) = PEERS[name].gang("team", "train", 3, gpus=2, annotations={"a": "b"})
    assert path.endswith("/namespaces/team/jobs")
    assert owner["kind"] == "Job"
    assert [one["kind"] for _, one in before] == (["PodGroup"] if name == "native" else [])
    spec = owner["spec"]
    (task,) = spec.get("tasks") or [{"replicas": spec.get("parallelism"), "template": spec.get("template")}]
    assert task["replicas"] == 3
    (container,) = task["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2"}
    assert task["template"]["metadata"]["labels"][OF] == "train"
    assert task["template"]["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("stock", 4, 4),
        ("kueue", 4, 4),
        ("muster fifo", 4, 4),
        ("kueue partial", 1, 4),
        ("muster afs-l", 1, 8),
    ],
)
def test_a_job_is_as_large_as_it_asks_for_but_where_the_peer_may_change_it(
    name: str, least: int, most: int
) -> None:
    drawn = Trained("train", 0.0, 4, 1, 8, 100.0, tuple(map(float, range(9))))
    one = sized(PEERS[name], drawn)
    assert (one.request, one.least, one.most) == (4, least, most)


def test_kueue_may_start_a_job_with_one_pod_where_partial_admission_is_compared() -> None:
    for name, pods, least in (("kueue", 3, None), ("kueue partial", 3, "1"), ("kueue partial", 1, None)):
        ((_, job),) = PEERS[name].gang("team", "train", pods)
        assert job["metadata"].get("annotations", {}).get("kueue.x-k8s.io/job-min-parallelism") == least, name


def test_the_sentence_of_a_wait_is_its_conditions_or_the_status_own() -> None:
    kueue = {"status": {"conditions": [{"type": "QuotaReserved", "message": "insufficient quota"}]}}
    assert PEERS["kueue"].waits.words(kueue) == "insufficient quota"
    assert PEERS["muster fifo"].waits.words({"status": {"message": "needs 16 GPUs"}}) == "needs 16 GPUs"
    assert PEERS["stock"].waits.words({"status": {"phase": "Pending"}}) == ""


def test_a_run_that_was_cut_off_finds_what_it_has_and_tries_again_what_was_not_run(tmp_path: Path) -> None:
    file, arguments = tmp_path / "out" / "peers.jsonl", {"nodes": 4}
    first = Kept(file, arguments)
    first.add({"peer": "stock", "round": 0, "part": "a", "first_s": 1.0})
    first.add({"peer": "kueue", "round": 0, "part": "a", "no_figure": "gave up: pods bound: 1 of 3"})
    first.add({"peer": "volcano", "round": 0, "part": "a", "no_figure": "not run: building volcano failed"})
    again = Kept(file, arguments)
    assert [again.has(name, 0, "a") for name in ("stock", "kueue", "volcano")] == [True, True, False]
    assert not again.has("stock", 1, "a")
    assert Kept(file, {"nodes": 8}).found == [], "other arguments, other figures"


def test_a_part_that_failed_once_says_so_beside_the_rounds_that_did_not() -> None:
    told = said(
        "b",
        {"peer": "stock", "median_s": 0.2, "worst_s": 0.4},
        {"peer": "stock", "no_figure": "gave up: pods bound: 1 of 8"},
        {"peer": "kueue", "no_figure": "not run: building kueue failed"},
    )
    assert told == {
        "(b) stock: a gang on an idle cluster, median (worst)": "0.2 s (0.4 s); gave up: pods bound: 1 of 8",
        "(b) kueue: a gang on an idle cluster, median (worst)": "not run: building kueue failed",
    }


def test_a_big_gang_that_never_started_is_told_with_what_it_held() -> None:
    stream = {"stream_s": 60.0, "of": 4}
    told = said(
        "e",
        {"peer": "stock", "started_s": None, "bound": 2, "held_in_part_gpu_s": 100.0, **stream},
        {"peer": "kueue", "started_s": 9.0, "bound": 4, "held_in_part_gpu_s": 0.0, **stream},
        {"peer": "kueue", "started_s": None, "bound": 0, "held_in_part_gpu_s": 0.0, **stream},
    )
    assert list(told.values()) == [
        "not in 60 s of it in 1 of 1, 2 of 4 pods bound; held in part: 100 GPU-s",
        "started after 9 s in 1 of 2; not in 60 s of it in 1 of 2, 0 of 4 pods bound; held in part: 0 (0, 0) GPU-s",
    ]


def test_what_nobody_holds_and_what_is_held_in_vain_are_counted_apart() -> None:
    use = Use(gpus=8)
    use.look(2.0, 6, 4)  # nobody until now
    use.look(5.0, 8, 0)
    use.look(6.0, 0, 0)
    assert (use.idle, use.in_vain) == (8 * 2.0 + 2 * 3.0, 4 * 3.0)


def test_pods_of_a_gang_below_its_least_hold_in_vain() -> None:
    trainings = Trainings(pause=0.0)
    for name, least in (("whole", 1), ("part", 3), ("over", 1)):
        trainings.submitted(Trained(name, 0.0, least, least, least, 1.0, (0.0, 1.0, 2.0, 3.0)), 0.0)
    for pod, name in (("a", "whole"), ("b", "part"), ("c", "part"), ("d", "over")):
        trainings.saw(Seen(name, pod, "n0", over=False), 0.0)
    trainings.jobs["over"].ended = 1.0
    assert held(trainings) == (3, 2)


def test_the_jobs_of_a_peer_are_told_by_their_times_and_what_idled() -> None:
    one = {"jct_s": 1000, "p99_s": 3000, "makespan_s": 9000, "idle_gpu_h": 12.5, "in_vain_gpu_h": 0.0}
    assert list(said("d", {"peer": "stock", **one}).values()) == ["1000, 3000, 9000 s; 12.5, 0"]


def test_a_gang_that_lost_a_node_is_told_by_when_it_was_whole_and_whom_it_cost() -> None:
    told = said(
        "f",
        {"peer": "stock", "whole_again_s": 11.0, "healthy_ended": 0, "of": 4},
        {"peer": "kueue", "whole_again_s": None, "healthy_ended": 3, "of": 4},
    )
    assert list(told.values()) == ["11 s; 0 of 3", "not within 120 s in 1 of 1; 3 of 3"]


def test_a_peer_that_has_one_part_only_is_not_asked_for_the_others() -> None:
    asked = CliRunner().invoke(main, ["peers", "--peer", "kueue partial", "--part", "a", "--part", "c"])
    assert asked.exit_code == 2
    assert "--peer 'kueue partial' is compared in part d only; found --part a c" in asked.output


def trainings_only(
    monkeypatch: pytest.MonkeyPatch, results: Path, on_a_lab: Callable[[str], None], *, beside: int
) -> None:
    """(d) of four peers, where a lab is what is given."""

    def peer_only(_: Progress, __: Kept, peer: Peer, *___: object) -> None:
        on_a_lab(peer.name)

    monkeypatch.setattr(peers, "draw", lambda *_: [])
    monkeypatch.setattr(peers, "measured", dict)
    monkeypatch.setattr(peers, "APART", 0.0)
    monkeypatch.setattr(peers, "_on_a_lab", peer_only)
    peers.measure(Progress(), rounds=1, peers=list(PEERS)[:4], parts=("d",), beside=beside, results=results)


def test_so_many_peers_as_are_asked_for_train_at_a_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    both, seen = threading.Barrier(2, timeout=10.0), list[str]()

    def on_a_lab(peer: str) -> None:
        both.wait()  # breaks where one is alone
        seen.append(peer)

    trainings_only(monkeypatch, tmp_path / "none", on_a_lab, beside=2)
    assert sorted(seen) == sorted(list(PEERS)[:4])


def test_who_waits_for_a_lab_is_not_begun_once_the_measure_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[str] = []

    def on_a_lab(peer: str) -> None:
        seen.append(peer)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainings_only(monkeypatch, tmp_path / "none", on_a_lab, beside=1)
    assert len(seen) == 1


def test_what_resizes_cost_is_as_compressed_as_the_jobs() -> None:
    plugin = load("resize-cost")
    assert {name: getattr(plugin, name) for name in RESIZE_COST} == RESIZE_COST
    (file,) = replace(PEERS["muster afs-l"], hurried=20.0).shape(8).values
    assert yaml.safe_load(Path(file).read_text()) == {
        "config": {
            "estimate": "declared",
            "pluginArgs": {"resize-cost": {"horizon": 30.0, "cost": 1.5}},
        }
    }
    assert replace(PEERS["muster fifo"], hurried=20.0).shape(8).values == ()

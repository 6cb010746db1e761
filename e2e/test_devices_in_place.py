# Over 300 lines: scenarios of one lab with a real node, whose start costs more than they do.
"""Devices change hands while pods go on: real trainings below real agents on a real node, given devices by Muster.

The referee of devices (e2e/in_place.py) reads from the trainings' own logs that none was used by two at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import Cluster
from e2e.elastic import measured_beside
from e2e.in_place import (
    ON_A_REAL_NODE,
    VALUES,
    as_they_were,
    forget,
    holders,
    left_empty,
    names_of,
    said,
    shared,
    trains,
    trains_on,
    uses,
)
from e2e.lab import Lab, Shape
from e2e.lab.devices import device_ids
from e2e.lab.realnode import RealNode
from e2e.labs import own_lab
from e2e.scenario import configured, gang, show, wait_until
from e2e.test_say_why import account, ask
from muster.cluster.quota_reader import AGAIN

RUNS_ON_KIND = True
pytestmark = ON_A_REAL_NODE
SLOW = 300.0
LEASE = "90s"
"""Longer than a busy machine takes until another muster leads: trainings outlive that."""


@pytest.fixture(scope="module")
def real() -> Iterator[Lab]:
    values = (*VALUES, f"devices.lease={LEASE}")
    with own_lab(
        "in-place", Shape(groups=(), racks=0, real=1, real_gpus=2, pod_network=True, set_values=values)
    ) as lab:
        yield lab


@pytest.fixture
def cluster(real: Lab) -> Iterator[Cluster]:
    """Afterwards: no job, and no holder."""
    cluster = Cluster(real.kubeconfig)
    yield cluster
    left_empty(cluster, SLOW)


def shown(cluster: Cluster, node: RealNode, *names: str) -> str:
    """For `also=`."""
    texts = [show(cluster.pods("default")), show(holders(cluster))]
    for name in names:
        texts += [str(gang(cluster, "default", f"job-{name}")), said(node, name)[-600:]]
    return "\n".join(texts)


def both_train(cluster: Cluster, node: RealNode, one: str, other: str) -> None:
    wait_until(
        lambda: (len(trains_on(node, one)), len(trains_on(node, other))) == (1, 1),
        within=SLOW,
        what=f"{one} and {other} train on one device each",
        also=lambda: shown(cluster, node, one, other),
    )


def sees(real: Lab, cluster: Cluster, node: str, every: frozenset[str]) -> None:
    """The page names the device of a and of b, and /metrics has their hand-over."""
    reader = account(cluster, "default", "in-place", "view")

    def told() -> dict[str, set[str]]:
        answer = ask(real, "/v1/cluster?namespace=default", reader)
        if answer.status_code != 200:
            return {}
        found = answer.json()
        [here] = [one for one in found["nodes"] if one["name"] == node]
        uses: dict[str, set[str]] = {}
        for id_, state, jobs in here.get("devices", []):
            for job in jobs if state == "in use" else ():
                uses.setdefault(found["jobs"][job]["name"], set()).add(id_)
        return (
            uses if {found["jobs"][one["job"]]["name"] for one in found["handOvers"]} == uses.keys() else {}
        )

    uses = wait_until(
        lambda: found if len(found := told()) == 2 else None,
        within=SLOW,
        what="the page tells of both, and of their hand-over",
        also=lambda: f"{told()} {ask(real, '/v1/cluster?namespace=default', reader).text}",
    )
    assert set().union(*uses.values()) == every
    assert sum(len(own) for own in uses.values()) == 2
    wait_until(
        lambda: (
            counted(real, "muster_hand_over_seconds_count") >= 2
            and counted(real, "muster_agent_round_trip_seconds_count") >= 3
        ),
        what="it is counted",
        also=lambda: ask(real, "/metrics", reader).text,
    )


def counted(real: Lab, name: str) -> float:
    lines = ask(real, "/metrics", "").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.split(" ")[0] == name)


def test_a_second_job_gets_a_device_of_the_first_and_no_pod_starts_or_ends(
    real: Lab, cluster: Cluster, tmp_path: Path
) -> None:
    node = real.real_nodes[0]
    every = frozenset(device_ids(node.name, 2))
    trains(cluster, "a", "1,2", tmp_path)
    wait_until(
        lambda: trains_on(node, "a") == every,
        within=SLOW,
        what="a trains on both devices",
        also=lambda: shown(cluster, node, "a"),
    )
    made, first = names_of(holders(cluster)), as_they_were(cluster, "a")
    trains(cluster, "b", "1,2", tmp_path)
    both_train(cluster, node, "a", "b")
    assert trains_on(node, "a") | trains_on(node, "b") == every
    assert names_of(holders(cluster)) == made, "the same holders keep the same devices"
    assert as_they_were(cluster, "a") == first
    sees(real, cluster, node.name, every)
    # and back
    cluster.delete("/apis/batch/v1/namespaces/default/jobs/b", propagationPolicy="Background")
    wait_until(
        lambda: trains_on(node, "a") == every,
        within=SLOW,
        what="a has both again",
        also=lambda: shown(cluster, node, "a", "b"),
    )
    assert names_of(holders(cluster)) == made
    assert as_they_were(cluster, "a") == first
    assert not shared(node, "a", "b")


def test_a_leader_that_is_killed_in_a_hand_over_ends_no_training_and_the_next_one_goes_on(
    real: Lab, cluster: Cluster, tmp_path: Path
) -> None:
    node = real.real_nodes[0]
    trains(cluster, "c", "1,2", tmp_path)
    wait_until(
        lambda: len(trains_on(node, "c")) == 2,
        within=SLOW,
        what="c trains on both devices",
        also=lambda: shown(cluster, node, "c"),
    )
    made, first = names_of(holders(cluster)), as_they_were(cluster, "c")
    trains(cluster, "d", "1,2", tmp_path)
    wait_until(
        lambda: any(
            words in str(gang(cluster, "default", "job-d"))
            for words in ("handed over once it is ready", "in place: ")
        ),
        within=SLOW,
        what="one of them is to be d's",
        also=lambda: shown(cluster, node, "c", "d"),
    )
    real.kill("muster-0")
    steps = said(node, "c").count("muster: step=")
    wait_until(
        lambda: said(node, "c").count("muster: step=") > steps + 20, what="c goes on while nobody leads"
    )
    real.start("muster-0")
    both_train(cluster, node, "c", "d")
    assert names_of(holders(cluster)) == made
    assert as_they_were(cluster, "c") == first
    assert not shared(node, "c", "d")
    assert said(node, "c").count("from step ") == 2, "it was started on both devices, and on one"
    assert said(node, "d").count("from step ") == 1


def test_each_pod_of_a_job_has_a_device_and_one_that_is_deleted_comes_back_with_one(
    real: Lab, cluster: Cluster, tmp_path: Path
) -> None:
    node = real.real_nodes[0]
    trains(cluster, "g", "1", tmp_path, pods=2)
    each = ("g-0", "g-1")
    wait_until(
        lambda: all(len(trains_on(node, pod)) == 1 for pod in each),
        within=SLOW,
        what="each pod trains on one device",
        also=lambda: shown(cluster, node, "g"),
    )
    stays, ((uid, _),) = as_they_were(cluster, "g-0"), as_they_were(cluster, "g-1")
    starts = len(uses(node, "g-1"))
    (pod,) = [one for one in cluster.pods("default") if one.uid == uid]
    cluster.delete(f"/api/v1/namespaces/default/pods/{pod.name}")
    wait_until(
        lambda: len(uses(node, "g-1")) > starts and len(trains_on(node, "g-1")) == 1,
        within=SLOW,
        what="another pod trains in its stead",
        also=lambda: shown(cluster, node, "g"),
    )
    assert as_they_were(cluster, "g-0") == stays
    assert len(uses(node, "g-0")) == 1, "its sibling went on"
    assert not shared(node, *each)


def test_a_quota_of_one_gpu_leaves_a_job_that_can_use_two_with_one_and_its_gang_says_so(
    real: Lab, cluster: Cluster, tmp_path: Path
) -> None:
    node, spec = real.real_nodes[0], {"hard": {"requests.nvidia.com/gpu": "1"}}
    cluster.submit({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}, "spec": spec})
    try:
        path = "/api/v1/namespaces/default/resourcequotas/gpus"
        wait_until(lambda: cluster.get(path).get("status", {}).get("hard"), what="the quota is in force")
        # What was read of this namespace for the jobs before is as old as that at most.
        time.sleep(AGAIN + 1.0)
        trains(cluster, "h", "1,2", tmp_path)
        words = "ResourceQuota gpus allows no more (requests.nvidia.com/gpu: hard 1, used 0, 1 in place)"
        wait_until(
            lambda: len(trains_on(node, "h")) == 1 and words in str(gang(cluster, "default", "job-h")),
            within=SLOW,
            what="it trains on one device and says why",
            also=lambda: shown(cluster, node, "h"),
        )
    finally:
        cluster.delete("/api/v1/namespaces/default/resourcequotas/gpus")
    wait_until(
        lambda: len(trains_on(node, "h")) == 2,
        within=SLOW,
        what="it has both once the quota is gone",
        also=lambda: shown(cluster, node, "h"),
    )
    assert [len(use.devices) for use in uses(node, "h")] == [1, 2]


PAIRS = {
    "profile": "pairs",
    "profiles": [
        {"name": "pairs", "scores": [{"name": "pack", "weight": 1}], "shares": ["similarity"], "round": 4}
    ],
    "pluginArgs": {"similarity": {"jp": True, "mode": "gpu"}},
}
"""The similarity policy puts two jobs on a GPU where nothing else is free, in rounds of 4 s."""


def needs(memory: str) -> dict[str, str]:
    """Annotations of a model that the policy knows."""
    return {"muster.dev/model": "MobileNet", "muster.dev/gpu-memory": memory}


def with_product(cluster: Cluster, node: RealNode) -> None:
    """GPUs of a product of which the policy has references, for a pair too."""
    labels = {"metadata": {"labels": {"nvidia.com/gpu.product": "Tesla-T4"}}}
    cluster.patch(f"/api/v1/nodes/{node.name}", labels)


def message(cluster: Cluster, name: str) -> str:
    """What the owner of a job is told."""
    return str(gang(cluster, "default", f"job-{name}").get("message", ""))


def test_two_jobs_that_fit_share_a_device_until_one_ends_and_who_does_not_fit_is_told(
    real: Lab, cluster: Cluster, tmp_path: Path
) -> None:
    node = real.real_nodes[0]
    # Its GPUs have 1,024 MiB by the lab's label; of their product the policy knows what others did.
    with_product(cluster, node)
    with configured(real, **PAIRS):
        trains(cluster, "p", "1", tmp_path, notes={"muster.dev/model": "MobileNet"})
        trains(cluster, "q", "1", tmp_path, notes=needs("400Mi"))
        both_train(cluster, node, "p", "q")
        made, first = names_of(holders(cluster)), as_they_were(cluster, "q")
        # more than is left: it waits, and its owner is told
        trains(cluster, "s", "1", tmp_path, notes=needs("700Mi"))
        wait_until(
            lambda: "needs 700 MiB of its memory: 624 of 1024 MiB are left" in message(cluster, "s"),
            within=SLOW,
            what="the owner of s is told why it waits",
            also=lambda: shown(cluster, node, "p", "q", "s"),
        )
        # it fits beside q, and p says nothing of memory
        trains(cluster, "r", "1", tmp_path, notes=needs("500Mi"))
        wait_until(
            lambda: trains_on(node, "r") == trains_on(node, "q"),
            within=SLOW,
            what="r trains on the device of q",
            also=lambda: shown(cluster, node, "p", "q", "r", "s"),
        )
        steps = said(node, "q").count("muster: step=")
        wait_until(
            lambda: said(node, "q").count("muster: step=") > steps + 20, within=SLOW, what="q trains on"
        )
        assert as_they_were(cluster, "q") == first
        assert said(node, "q").count("from step ") == 1, "q was not started again for it"
        assert names_of(holders(cluster)) == made, "the device has one holder for both"
        # one ends, the other has it alone
        second, device = as_they_were(cluster, "r"), trains_on(node, "q")
        cluster.delete("/apis/batch/v1/namespaces/default/jobs/q", propagationPolicy="Background")
        wait_until(lambda: not as_they_were(cluster, "q"), within=SLOW, what="the pod of q is gone")
        steps = said(node, "r").count("muster: step=")
        wait_until(
            lambda: said(node, "r").count("muster: step=") > steps + 20,
            within=SLOW,
            what="r trains on, alone",
            also=lambda: shown(cluster, node, "r"),
        )
        assert trains_on(node, "r") == device
        assert said(node, "r").count("from step ") == 1
        assert as_they_were(cluster, "r") == second
        assert names_of(holders(cluster)) == made
        assert not uses(node, "s"), "nobody has so much memory left"
    assert not shared(node, "p", "q", "r", "s", pairs={frozenset("qr")})


PACED = """
import runpy, time
from pathlib import Path

sleep = time.sleep
time.sleep = lambda seconds: sleep(seconds * float(Path("/state/pace").read_text()))
runpy.run_path("/samples/train.py", run_name="__main__")
"""
"""The sample, of which a step takes as many times as long as the file says: what a GPU does to two."""


def test_a_pair_that_trains_slowly_is_taken_apart_and_one_that_trains_well_stays(
    real: Lab, cluster: Cluster, tmp_path: Path
) -> None:
    node = real.real_nodes[0]
    with_product(cluster, node)
    (tmp_path / "paced.py").write_text(PACED)
    forget(node)

    def pace(times: float) -> None:
        """Whole or not at all."""
        (tmp_path / "pace.new").write_text(str(times))
        (tmp_path / "pace.new").rename(tmp_path / "pace")

    def paced(name: str, model: str) -> None:
        notes = {**needs("300Mi"), "muster.dev/model": model}
        trains(cluster, name, "1", tmp_path, notes=notes, script="/state/paced.py")

    def beside(name: str) -> None:
        wait_until(
            lambda: trains_on(node, name) == trains_on(node, "q") != frozenset(),
            within=SLOW,
            what=f"{name} trains on the device of q",
            also=lambda: shown(cluster, node, "q", name),
        )

    pace(5.0)  # long beside what a busy machine adds to a step
    with configured(real, **PAIRS):
        trains(cluster, "p", "1", tmp_path, notes={"muster.dev/model": "MobileNet"})
        paced("q", "ResNet50")
        both_train(cluster, node, "p", "q")
        wait_until(
            lambda: "" in measured_beside(real, cluster, "default", "job-q"),
            within=SLOW,
            what="q is measured alone",
        )
        first = as_they_were(cluster, "q")
        # two that take turns and lose time by it
        paced("r", "MobileNet")
        beside("r")
        pace(12.5)
        wait_until(
            lambda: "the two trained at 0." in message(cluster, "r"),
            within=SLOW,
            what="r leaves, and its owner is told why",
            also=lambda: (
                f"{measured_beside(real, cluster, 'default', 'job-q')} {shown(cluster, node, 'q', 'r')}"
            ),
        )
        found = measured_beside(real, cluster, "default", "job-q")
        assert 2.0 * found["MobileNet"] / found[""] < 1.1
        # another one beside it, and both do well; the first pair is not tried again
        pace(6.5)
        tried = len(uses(node, "r"))
        paced("s", "VGG16")
        beside("s")
        wait_until(
            lambda: "VGG16" in measured_beside(real, cluster, "default", "job-q"),
            within=SLOW,
            what="that pair is measured",
            also=lambda: (
                f"{measured_beside(real, cluster, 'default', 'job-q')} {shown(cluster, node, 'q', 's')}"
            ),
        )
        steps = said(node, "s").count("muster: step=")
        wait_until(
            lambda: said(node, "s").count("muster: step=") > steps + 80, within=SLOW, what="s trains on"
        )
        found = measured_beside(real, cluster, "default", "job-q")
        assert 2.0 * found["VGG16"] / found[""] > 1.1
        assert trains_on(node, "s") == trains_on(node, "q")
        assert len(uses(node, "r")) == tried
        assert as_they_were(cluster, "q") == first
        assert said(node, "q").count("from step ") == 1, "q was never started again"
    assert not shared(node, "p", "q", "r", "s", pairs={frozenset("qr"), frozenset("qs")})

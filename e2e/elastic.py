"""The words that elastic scenarios are written in: jobs that grow and shrink, and their shares.

    with shared_by(lab, "max-min"):
        cluster.submit(train("a", most=16), namespace=namespace)
        has(cluster, namespace, "a", 16)

The room is chosen by cordoning (`only`): a policy shares the GPUs of open nodes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from e2e.cluster import Cluster, Json, Pod, Refused
from e2e.lab import Lab
from e2e.scenario import FOR_MUSTER, PATIENCE, bound, configured, gang, job, show, wait_until
from muster.core import snapshot_codec
from muster.core.cycle import cycle
from muster.core.views.view import View
from muster.settings import load_settings, profile_of
from muster.types import Config, Job

INDEX = "batch.kubernetes.io/job-completion-index"
LINEAR = ""
ROOM = ("node-00", "node-01")
"""16 GPUs."""
FREE = {"resizeCost": False}
"""Shares as the policy says, however often: for scenarios that are not about what a change costs."""


ROUND = 4
"""Seconds."""


def train(
    name: str,
    *,
    least: int = 1,
    most: int = 16,
    speeds: str = LINEAR,
    work: float | None = None,
    restart: bool = False,
    annotations: Mapping[str, str] | None = None,
    **what: Any,
) -> Json:
    """An Indexed Job that trains with `least` to `most` single-GPU workers. speeds: "1=1.0,2=1.9"; work: s on one;
    restart: a change of its size ends all of its replicas."""
    ours = {
        "muster.dev/speed": speeds or None,
        "muster.dev/remaining-work": None if work is None else f"{work:.3f}",
        "muster.dev/resize": "restart" if restart else None,
    }
    notes = {key: value for key, value in ours.items() if value} | dict(annotations or {})
    return job(name, most, min_replicas=least, max_replicas=most, success_on="0", annotations=notes, **what)


@contextlib.contextmanager
def shared_by(lab: Lab, profile: str, **changes: Any) -> Iterator[None]:
    """Muster shares GPUs by this profile, and does not weigh what changes cost unless told to."""
    with configured(lab, profile=profile, **{**FREE, **changes}):
        yield


def in_rounds(share: str, every: float = ROUND, **arguments: object) -> dict[str, Any]:
    """Settings of a profile of one's own: this share, in rounds of so many s."""
    return {
        "profile": "quick",
        "profiles": [
            {"name": "quick", "scores": [{"name": "pack", "weight": 1}], "shares": [share], "round": every}
        ],
        "pluginArgs": {share: arguments},
        "resizeCost": False,
    }


def only(lab: Lab, cluster: Cluster, *nodes: str) -> None:
    """All other nodes are cordoned until the lab is restored (when the test ends)."""
    with ThreadPoolExecutor(4) as several:
        list(several.map(cluster.cordon, (name for name in lab.nodes if name not in nodes)))


def failed(cluster: Cluster, namespace: str, name: str) -> int:
    """Pods of the Job that its controller counts as failed."""
    return int(cluster.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}")["status"].get("failed", 0))


def indexes(pods: Sequence[Pod]) -> list[int]:
    """Completion indexes of an Indexed Job's pods, ascending."""
    return sorted(int(one.labels[INDEX]) for one in pods)


def has(cluster: Cluster, namespace: str, name: str, replicas: int, within: float = PATIENCE) -> list[Pod]:
    """The job's living pods once exactly so many are bound, and the Gang says Running."""
    found = wait_until(
        lambda: bound(cluster.pods(namespace, name), replicas),
        within=within,
        what=f"{name} has {replicas} bound pods",
        also=lambda: (
            f"{shares(cluster, namespace)}\n{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}"
        ),
    )
    wait_until(
        lambda: gang(cluster, namespace, f"job-{name}").get("state") == "Running",
        what=f"the Gang of {name} is Running",
        also=lambda: str(gang(cluster, namespace, f"job-{name}")),
    )
    return found


def holding(cluster: Cluster, namespace: str) -> dict[str, list[Pod]]:
    """Bound pods by Job, all of one moment."""
    found: dict[str, list[Pod]] = {}
    for one in bound(cluster.pods(namespace)):
        found.setdefault(one.labels.get("batch.kubernetes.io/job-name", one.name), []).append(one)
    return found


def shares(cluster: Cluster, namespace: str) -> dict[str, int]:
    """Bound pods by Job."""
    return {name: len(pods) for name, pods in holding(cluster, namespace).items()}


def settles(
    cluster: Cluster, namespace: str, expected: Mapping[str, int], within: float = PATIENCE
) -> dict[str, list[Pod]]:
    """The pods by job, once all have these shares; indexed jobs run a prefix then."""
    wanted = {name: count for name, count in expected.items() if count}

    def as_wanted() -> dict[str, list[Pod]] | None:
        found = holding(cluster, namespace)
        return found if {name: len(pods) for name, pods in found.items()} == wanted else None

    found = wait_until(
        as_wanted,
        within=within,
        what=f"shares are {wanted}",
        also=lambda: f"{shares(cluster, namespace)}\n{cluster.gangs(namespace)}",
    )
    for name, pods in found.items():
        if all(INDEX in one.labels for one in pods):
            assert indexes(pods) == list(range(len(pods))), f"{name} runs no prefix: {show(pods)}"
    return found


def snapshot_of(lab: Lab, cluster: Cluster, replica: int = 0) -> Json:
    """The newest snapshot of the live service, with the plan that was made of it."""
    token = reader(cluster)

    def ask() -> httpx.Response | None:
        answer = httpx.get(
            f"{lab.service_url(replica)}/debug/snapshot",
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,
            timeout=60,
        )
        return answer if answer.status_code == 200 else None

    found: Json = wait_until(ask, what="the right to read the snapshot").json()
    return found


def jobs_of(lab: Lab, cluster: Cluster, namespace: str) -> dict[str, Job]:
    """Jobs as the newest plan knows them, by name."""
    snapshot, _ = snapshot_codec.load(snapshot_of(lab, cluster))
    return {key.name: one for key, one in snapshot.jobs.items() if key.namespace == namespace}


def replayed(lab: Lab, cluster: Cluster, replica: int = 0) -> Json:
    """The newest snapshot of the live service; its plan is made again by what is in force, and nothing differs.

    Muster says that a configuration is in force before its first plan by it: a snapshot from before is not meant."""
    file = lab.folder / "config" / f"muster-{replica}.yaml"

    def by_what_is_in_force() -> Json | None:
        newest = snapshot_of(lab, cluster, replica)
        return newest if snapshot_codec.load(newest)[0].now >= file.stat().st_mtime else None

    found = wait_until(by_what_is_in_force, what="a plan by the present configuration")
    snapshot, name = snapshot_codec.load(found)
    profile = profile_of(load_settings(file))
    assert (name, found["order"]) == (profile.name, profile.order)
    again = View(snapshot, cycle(snapshot, profile), profile, free=snapshot.free)
    assert json.loads(json.dumps(snapshot_codec.dump(again)))["plan"] == found["plan"]
    return found


def measured(lab: Lab, cluster: Cluster, namespace: str, name: str) -> dict[int, float]:
    """Speeds of a job ("job-train") that Muster has measured so far, by replicas. In the Gang they are written with
    the next change of its state, or within a minute."""
    found = _samples(lab, cluster, namespace, name)
    return {config.replicas: speed for config, speed in found.items() if not config.beside}


def measured_beside(lab: Lab, cluster: Cluster, namespace: str, name: str) -> dict[str, float]:
    """The same by who was on its GPU, "" = nobody."""
    return {config.beside: speed for config, speed in _samples(lab, cluster, namespace, name).items()}


def _samples(lab: Lab, cluster: Cluster, namespace: str, name: str) -> dict[Config, float]:
    snapshot, _ = snapshot_codec.load(snapshot_of(lab, cluster))
    return {
        config: speed
        for key, job in snapshot.jobs.items()
        if (key.namespace, key.name) == (namespace, name)
        for config, speed in job.samples.items()
    }


def reader(cluster: Cluster) -> str:
    """A token that may read everything; its account stays with the lab."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    binding = {
        "metadata": {"name": "e2e-reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "e2e-reader", "namespace": "default"}],
    }
    for path, body in (
        (accounts, {"metadata": {"name": "e2e-reader"}}),
        ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding),
    ):
        try:
            cluster.request("POST", path, body)
        except Refused as refused:
            if refused.status != 409:
                raise
    return str(cluster.request("POST", f"{accounts}/e2e-reader/token", FOR_MUSTER)["status"]["token"])

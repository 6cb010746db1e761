"""Who acts: a Lease of our own where a team's scheduler calls us (config/existing-scheduler)."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime

import yaml

from e2e.cluster import Cluster, Refused
from e2e.kind.lab import KIND, not_on_kind
from e2e.lab import Lab
from e2e.scenario import bound, holds_for, job, rewrite, wait_until


def test_without_a_scheduler_beside_it_muster_holds_a_lease_of_its_own(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """The scheduler that binds is then another one; here the lab's own, under another Lease."""
    if lab.name == KIND:
        not_on_kind("a muster whose kube-scheduler holds no Lease that counts")
    file = lab.folder / "config" / "muster-0.yaml"
    text = file.read_text()
    settings = yaml.safe_load(text)
    settings["leader"] |= {"lease": "muster-own", "own": True}
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{settings['leader']['namespace']}/leases/muster-own"
    # The chart lets muster's account write the Lease that the chart names; this one is only for the test.
    cluster.submit(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "muster-own", "namespace": settings["leader"]["namespace"]},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "admin-leases",
            },
            "subjects": [
                {"kind": "ServiceAccount", "name": "muster", "namespace": settings["leader"]["namespace"]}
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "admin-leases"},
            "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}],
        },
        namespace=settings["leader"]["namespace"],
    )
    try:
        rewrite(file, yaml.safe_dump(settings))
        lab.restart("muster-0")
        wait_until(
            lambda: cluster.get(lease)["spec"]["holderIdentity"].startswith("muster-0_"),
            what="muster holds its own Lease",
        )
        cluster.submit(job("train", 2, gpus=8), namespace=namespace)
        wait_until(
            lambda: bound(cluster.pods(namespace), 2), what="the gang runs", also=lambda: lab.log("muster-0")
        )
        lab.pause("muster-0")
        time.sleep(16)  # its Lease runs out while it sleeps, and another takes it
        now = datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        other = {"holderIdentity": "somebody-else_1", "leaseDurationSeconds": 3600, "renewTime": now}
        cluster.patch(lease, {"spec": other})
        lab.resume("muster-0")
        cluster.submit(job("later", 1, gpus=8), namespace=namespace)
        holds_for(
            lambda: not bound(cluster.pods(namespace, "later")),
            seconds=4,
            what="nobody acts without the Lease",
        )
    finally:
        rewrite(file, text)
        lab.restart("muster-0")
        namespaced = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{settings['leader']['namespace']}"
        roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
        for path in (lease, f"{namespaced}/rolebindings/muster-own", f"{roles}/admin-leases"):
            with contextlib.suppress(Refused):
                cluster.delete(path)
    wait_until(lambda: bound(cluster.pods(namespace, "later"), 1), what="the scheduler's Lease counts again")

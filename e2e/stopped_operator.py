"""Operators that are stopped in the middle: something in the cluster refuses a part of the pods that they make. For
the labs of several operators (e2e/test_operators_*.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from e2e.cluster import Cluster, Json, Refused
from e2e.lab import Lab
from e2e.operated import everything
from e2e.scenario import bound, configured, gang, gang_versions, gated, in_state, pod, stays, wait_until

POLICIES = "/apis/admissionregistration.k8s.io/v1"


def waits_for_the_last_of_its_pods_and_starts_whole(
    lab: Lab,
    cluster: Cluster,
    namespace: str,
    owner: Json,
    gang_name: str,
    sizes: Mapping[str, int],
    refused: Mapping[str, str],
    message: str,
) -> None:
    """sizes: of its roles; refused: labels of those that it can't make for a while; message: its Gang's meanwhile.
    However long that is, Muster takes its operator to be at work, also a Muster that starts anew."""
    with configured(lab, gang={"ownerPause": "1h"}):
        with refuses(cluster, namespace, refused):
            cluster.submit(owner, namespace=namespace)
            wait_until(
                lambda: in_state(cluster, namespace, gang_name, "Incomplete").get("message") == message,
                what=f"it says what is missing: {message}",
                also=lambda: everything(cluster, namespace),
            )
            lab.kill("muster")
            before = gang_versions(cluster, namespace)
            lab.start("muster")
            waiting = {one.uid for one in gated(cluster.pods(namespace))}
            stays(
                cluster,
                lambda: (
                    {one.uid for one in cluster.pods(namespace)} == waiting
                    and not bound(cluster.pods(namespace))
                    and gang_versions(cluster, namespace) == before
                ),
                what="nothing of it starts, and a restart has nothing new to write",
                also=lambda: everything(cluster, namespace),
            )
        runs(cluster, namespace, gang_name, sizes)
    assert waiting < {one.uid for one in bound(cluster.pods(namespace))}
    assert list(cluster.gangs(namespace)) == [gang_name]


def starts_on_places_that_are_held_for_the_rest(
    lab: Lab,
    cluster: Cluster,
    namespace: str,
    owner: Json,
    gang_name: str,
    sizes: Mapping[str, int],
    refused: Mapping[str, str],
    places: int,
) -> None:
    """An operator that makes no pod for a second is taken to wait for those that it has made; places: for how many
    it can't make."""
    with configured(lab, gang={"ownerPause": "1s"}):
        with refuses(cluster, namespace, refused):
            cluster.submit(owner, namespace=namespace)
            wait_until(
                lambda: bound(cluster.pods(namespace), sum(sizes.values()) - places),
                what="what it has made runs before the others exist",
                also=lambda: everything(cluster, namespace),
            )
            holds_places(cluster, namespace, gang_name, places)
        runs(cluster, namespace, gang_name, sizes)


@contextlib.contextmanager
def refuses(cluster: Cluster, namespace: str, labels: Mapping[str, str]) -> Iterator[None]:
    """No pod of the namespace with all of these labels is let in."""
    name, metadata = f"few-{namespace}", {"name": f"few-{namespace}"}
    its = "object.metadata.labels"
    meant = " && ".join(f"'{key}' in {its} && {its}['{key}'] == '{value}'" for key, value in labels.items())
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    of_namespace = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    policy = {
        "metadata": metadata,
        "spec": {
            "matchConstraints": {"namespaceSelector": of_namespace, "resourceRules": [rule]},
            "validations": [{"expression": f"!(has({its}) && {meant})", "message": "not now"}],
        },
    }
    binding = {"metadata": metadata, "spec": {"policyName": name, "validationActions": ["Deny"]}}

    def is_refused() -> bool:
        try:
            cluster.submit(pod("probe", labels=dict(labels)), namespace=namespace, dry_run=True)
        except Refused as refused:
            return "not now" in str(refused)
        return False

    cluster.request("POST", f"{POLICIES}/validatingadmissionpolicies", policy)
    cluster.request("POST", f"{POLICIES}/validatingadmissionpolicybindings", binding)
    try:
        wait_until(is_refused, what="such pods are refused")
        yield
    finally:
        cluster.delete(f"{POLICIES}/validatingadmissionpolicybindings/{name}")
        cluster.delete(f"{POLICIES}/validatingadmissionpolicies/{name}")


def holds_places(cluster: Cluster, namespace: str, gang_name: str, count: int) -> None:
    """Its Gang says places for so many pods that do not exist."""

    def unnamed() -> list[str]:
        placement = gang(cluster, namespace, gang_name).get("placement", ())
        return [place.get("pod", "") for place in placement if not place.get("uid")]

    wait_until(
        lambda: unnamed() == [""] * count,
        what=f"{count} places are held for pods that do not exist",
        also=lambda: everything(cluster, namespace),
    )


def runs(cluster: Cluster, namespace: str, gang_name: str, sizes: Mapping[str, int]) -> None:
    """Its Gang runs, with roles of these sizes, all of them bound."""
    wanted = {name: (size, size) for name, size in sizes.items()}

    def have() -> dict[str, tuple[int, int]]:
        roles = in_state(cluster, namespace, gang_name, "Running").get("roles", {})
        return {name: (one["min"], one["bound"]) for name, one in roles.items()}

    wait_until(
        lambda: have() == wanted,
        what=f"the Gang {gang_name} runs with {dict(sizes)}",
        also=lambda: everything(cluster, namespace),
    )

# Over 300 lines: each source of a pod's job, role and size is tried, alone and against the others.
"""Whose pod is this, which role, and how many: the order of sources, and what is said about mistakes."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.workload import identity
from muster.core.workload.annotations import (
    Declared,
    RoleSize,
    declared,
    merge,
    parse_roles,
    parse_sizes,
    parse_speed,
    role_bounds,
)
from muster.core.workload.identity import index_of, job_key, role_of, topmost
from muster.errors import InputError
from muster.types import JobKey, Owner, OwnerRecord, PodRecord

SET = Owner("jobset.x-k8s.io/v1alpha2", "JobSet", "llm", "set-uid")
JOB = Owner("batch/v1", "Job", "llm-workers-0", "job-uid")
OWNERS = {JOB.uid: OwnerRecord(JOB, "team", 4, parent=SET)}


def pod(
    name: str = "p0",
    *,
    owner: Owner | None = None,
    labels: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
    group: str = "",
) -> PodRecord:
    """A pod of ours in namespace team."""
    return PodRecord(
        f"{name}-uid",
        "team",
        name,
        controller=owner,
        labels=dict(labels or {}),
        annotations=dict(notes or {}),
        group=group,
    )


# ---- the job ----

EVERY_SOURCE = {
    "labels": {
        "muster.dev/job": "mine",
        "jobset.sigs.k8s.io/jobset-name": "llm",
    },
    "group": "pg",
    "owner": JOB,
}


def test_our_label_comes_first_and_pods_of_several_owners_share_it() -> None:
    assert job_key(pod(**EVERY_SOURCE), OWNERS) == JobKey("team", "mine", "")  # type: ignore[arg-type]


def test_then_the_native_group() -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": "llm"}
    assert job_key(pod(labels=labels, group="pg", owner=JOB), OWNERS) == JobKey("team", "podgroup-pg", "")


@pytest.mark.parametrize(
    ("labels", "key"),
    [
        ({"jobset.sigs.k8s.io/jobset-name": "llm"}, JobKey("team", "jobset-llm", "set-uid")),
        ({"training.kubeflow.org/job-name": "bert"}, JobKey("team", "kubeflow-bert", "set-uid")),
        ({"ray.io/cluster": "tune"}, JobKey("team", "raycluster-tune", "set-uid")),
        ({"scheduling.x-k8s.io/pod-group": "pg"}, JobKey("team", "podgroup-pg", "")),
        ({"volcano.sh/job-name": "mpi"}, JobKey("team", "volcano-mpi", "set-uid")),
        (
            {
                "leaderworkerset.sigs.k8s.io/name": "vllm",
                "leaderworkerset.sigs.k8s.io/group-index": "3",
            },
            JobKey("team", "leaderworkerset-vllm-3", ""),
        ),
    ],
)
def test_then_the_well_known_labels(labels: Mapping[str, str], key: JobKey) -> None:
    assert job_key(pod(labels=labels, owner=JOB), OWNERS) == key


def test_volcanos_group_is_an_annotation() -> None:
    notes = {"scheduling.k8s.io/group-name": "pg"}
    assert job_key(pod(notes=notes), {}) == JobKey("team", "podgroup-pg", "")


def test_then_the_topmost_controlling_owner_in_lower_case() -> None:
    assert job_key(pod(owner=JOB), OWNERS) == JobKey("team", "jobset-llm", "set-uid")
    assert job_key(pod(owner=JOB), {}) == JobKey("team", "job-llm-workers-0", "job-uid")


TRAIN = Owner("trainer.kubeflow.org/v1alpha1", "TrainJob", "llm", "train-uid")
OF_TRAINER = {**OWNERS, SET.uid: OwnerRecord(SET, "team", named_after=TRAIN)}
SET_LABEL = {"jobset.sigs.k8s.io/jobset-name": "llm"}


def test_a_trainjob_comes_before_the_label_of_its_jobset() -> None:
    assert job_key(pod(labels=SET_LABEL, owner=JOB), OF_TRAINER) == JobKey(
        "team", "trainjob-llm", "train-uid"
    )


def test_our_label_and_the_native_group_come_before_a_trainjob() -> None:
    assert job_key(pod(**EVERY_SOURCE), OF_TRAINER).name == "mine"  # type: ignore[arg-type]
    assert job_key(pod(labels=SET_LABEL, owner=JOB, group="pg"), OF_TRAINER).name == "podgroup-pg"


def test_a_jobset_of_another_namespace_names_nobody() -> None:
    elsewhere = {**OWNERS, SET.uid: OwnerRecord(SET, "other", named_after=TRAIN)}
    assert job_key(pod(labels=SET_LABEL, owner=JOB), elsewhere) == JobKey("team", "jobset-llm", "job-uid")


def test_a_jobset_that_was_not_found_in_another_namespace_is_still_whose_the_job_is() -> None:
    """Somebody else refers to it, too, and it was looked for there."""
    not_there = {**OWNERS, SET.uid: OwnerRecord(SET, "other")}
    assert job_key(pod(labels=SET_LABEL, owner=JOB), not_there) == JobKey("team", "jobset-llm", "set-uid")


def test_a_replicaset_counts_as_its_deployment() -> None:
    deployment = Owner("apps/v1", "Deployment", "serve", "d")
    replicaset = Owner("apps/v1", "ReplicaSet", "serve-7c9", "r")
    owners = {"r": OwnerRecord(replicaset, "team", 2, parent=deployment)}
    assert job_key(pod(owner=replicaset), owners) == JobKey("team", "deployment-serve", "d")


def test_at_last_the_pod_alone() -> None:
    assert job_key(pod("lonely"), {}) == JobKey("team", "pod-lonely", "lonely-uid")


def test_the_same_name_with_another_owner_is_another_job() -> None:
    again = JOB._replace(uid="new")
    assert job_key(pod(owner=JOB), {}) != job_key(pod(owner=again), {})


def test_the_same_name_in_another_namespace_is_another_job() -> None:
    labels = {"muster.dev/job": "mine"}
    assert job_key(pod(labels=labels), {}) != job_key(replace(pod(labels=labels), namespace="other"), {})


def test_a_circle_of_owners_ends() -> None:
    a, b = Owner("v1", "A", "a", "a"), Owner("v1", "B", "b", "b")
    owners = {"a": OwnerRecord(a, "team", parent=b), "b": OwnerRecord(b, "team", parent=a)}
    assert topmost(pod(owner=a), owners) in (a, b)


# ---- the role and the index ----


@pytest.mark.parametrize(
    ("labels", "notes", "role"),
    [
        ({}, {}, "worker"),
        ({"training.kubeflow.org/replica-type": "Master"}, {}, "master"),
        ({"jobset.sigs.k8s.io/replicatedjob-name": "driver"}, {}, "driver"),
        ({"ray.io/group": "gpu-group"}, {}, "gpu-group"),
        ({"volcano.sh/task-spec": "ps"}, {}, "ps"),
        ({"ray.io/group": "gpu-group"}, {"muster.dev/role": "server"}, "server"),
    ],
)
def test_the_role_is_ours_then_a_well_known_label_then_worker(
    labels: Mapping[str, str], notes: Mapping[str, str], role: str
) -> None:
    assert role_of(pod(labels=labels, notes=notes)) == role


@pytest.mark.parametrize(
    ("made", "index"),
    [
        (pod(labels={"batch.kubernetes.io/job-completion-index": "7"}), 7),
        (pod(notes={"batch.kubernetes.io/job-completion-index": "7"}), 7),
        (pod("web-3", owner=Owner("apps/v1", "StatefulSet", "web", "s")), 3),
        (pod("job-3", owner=JOB), -1),
        (pod(notes={"batch.kubernetes.io/job-completion-index": "²"}), -1),
        (pod(notes={"batch.kubernetes.io/job-completion-index": "9" * 5000}), -1),
    ],
)
def test_the_index_comes_from_the_owner_that_counts(made: PodRecord, index: int) -> None:
    assert index_of(made) == index


# ---- what the annotations declare ----


def test_all_annotations_of_a_good_pod() -> None:
    notes = {
        "muster.dev/role": "worker",
        "muster.dev/roles": "scheduler=1, server=2,worker=8",
        "muster.dev/min-replicas": "2",
        "muster.dev/max-replicas": "8",
        "muster.dev/sizes": "8,2,4,4",
        "muster.dev/topology-required": "topology.kubernetes.io/zone",
        "muster.dev/topology-preferred": "rack",
        "muster.dev/placement": "scored",
        "muster.dev/evictable": "true",
        "muster.dev/remaining-work": "3600",
        "muster.dev/speed": "2=1.9,1=1.0",
        "muster.dev/gpus": "4-6, 2, 1",
    }
    assert declared(pod(notes=notes)) == Declared(
        role="worker",
        roles=(("scheduler", 1), ("server", 2), ("worker", 8)),
        size=RoleSize(2, 8, (2, 4, 8)),
        topology_required="topology.kubernetes.io/zone",
        topology_preferred="rack",
        placement="scored",
        evictable=True,
        remaining_work=3600.0,
        speed=((1, 1.0), (2, 1.9)),
        gpus=(1, 2, 4, 5, 6),
    )


@pytest.mark.parametrize(
    ("notes", "message"),
    [
        (
            {"muster.dev/role": "Worker!"},
            "muster.dev/role: expected a name of lower-case letters, digits and '-', found 'Worker!'",
        ),
        *(
            (
                {"muster.dev/gpus": f"2,{found}"},
                'muster.dev/gpus: expected numbers of GPUs from 1 to 128, as "1,2,4" or "1-8", '
                f"found {found!r}",
            )
            for found in ("0", "-2", "8-2", "1-2-4", "1-1000000", "", "two", "\u00b2")
        ),
        (
            {"muster.dev/roles": "worker"},
            "muster.dev/roles: expected \"role=count,...\", found 'worker' in 'worker'",
        ),
        (
            {"muster.dev/roles": "worker=1,worker=2"},
            "muster.dev/roles: expected each role once, found 'worker' twice in 'worker=1,worker=2'",
        ),
        (
            {"muster.dev/roles": "worker=0"},
            "muster.dev/roles: expected a count from 1 to 10000, found worker=0",
        ),
        (
            {"muster.dev/roles": "worker=20000"},
            "muster.dev/roles: expected a count from 1 to 10000, found worker=20000",
        ),
        (
            {"muster.dev/roles": "worker=²"},
            "muster.dev/roles: expected \"role=count,...\", found 'worker=²' in 'worker=²'",
        ),
        (
            {"muster.dev/roles": "server=1,scheduler=1"},
            "muster.dev/role: expected one of the roles in muster.dev/roles (server, scheduler), found 'worker'",
        ),
        (
            {"muster.dev/min-replicas": "5", "muster.dev/max-replicas": "4"},
            "muster.dev/min-replicas: expected at most muster.dev/max-replicas (4), found 5",
        ),
        (
            {"muster.dev/min-replicas": "two"},
            "muster.dev/min-replicas: expected a whole number from 1 to 10000, found 'two'",
        ),
        (
            {"muster.dev/min-replicas": "0"},
            "muster.dev/min-replicas: expected a whole number from 1 to 10000, found '0'",
        ),
        (
            {"muster.dev/max-replicas": "-3"},
            "muster.dev/max-replicas: expected a whole number from 1 to 10000, found '-3'",
        ),
        (
            {"muster.dev/max-replicas": "²"},
            "muster.dev/max-replicas: expected a whole number from 1 to 10000, found '²'",
        ),
        (
            {"muster.dev/sizes": "1,two"},
            "muster.dev/sizes: expected counts from 1 to 10000 as \"1,2,4\", found 'two'",
        ),
        (
            {"muster.dev/sizes": "1,1000000"},
            "muster.dev/sizes: expected counts from 1 to 10000 as \"1,2,4\", found '1000000'",
        ),
        (
            {"muster.dev/batch-sizes": "64,0"},
            "muster.dev/batch-sizes: expected global batch sizes from 1 to 1000000000 as \"64,128\", found '0'",
        ),
        (
            {"muster.dev/batch-sizes": ",".join(["1"] * 65)},
            "muster.dev/batch-sizes: expected at most 64 batch sizes, found 65",
        ),
        (
            {"muster.dev/sizes": "1,2", "muster.dev/min-replicas": "3"},
            "muster.dev/sizes: expected a count from muster.dev/min-replicas (3) to "
            "muster.dev/max-replicas (not set), found '1,2'",
        ),
        (
            {"muster.dev/placement": "anywhere"},
            "muster.dev/placement: expected pinned or scored, found 'anywhere'",
        ),
        (
            {"muster.dev/evictable": "yes"},
            'muster.dev/evictable: expected "true" or "false", found \'yes\'',
        ),
        (
            {"muster.dev/remaining-work": "an hour"},
            "muster.dev/remaining-work: expected seconds on one replica (a number from 0), found 'an hour'",
        ),
        (
            {"muster.dev/remaining-work": "nan"},
            "muster.dev/remaining-work: expected seconds on one replica (a number from 0), found 'nan'",
        ),
        (
            {"muster.dev/speed": "1=fast"},
            "muster.dev/speed: expected \"replicas=speed,...\", found '1=fast' in '1=fast'",
        ),
        (
            {"muster.dev/sizes": ",".join(["1"] * 257)},
            "muster.dev/sizes: expected at most 256 counts of replicas, found 257",
        ),
        (
            {"muster.dev/speed": "1=-2"},
            "muster.dev/speed: expected positive numbers, at most 1 000 000 000 times one replica, of 1 to 10000 "
            "replicas, found '1=-2'",
        ),
    ],
)
def test_a_mistake_names_annotation_expectation_and_finding(notes: Mapping[str, str], message: str) -> None:
    assert declared(pod("p0", notes=notes)).error == f"pod p0: {message}"


@given(
    key=st.sampled_from(
        [identity.ROLES, identity.MIN, identity.MAX, identity.SIZES, identity.SPEED, identity.REMAINING]
    ),
    text=st.text(max_size=12) | st.from_regex(r"[a-z0-9=,.²-]{1,12}", fullmatch=True),
)
def test_no_text_whatever_is_more_than_a_mistake(key: str, text: str) -> None:
    declared(pod(notes={key: text}))


def test_empty_annotations_declare_nothing() -> None:
    assert parse_roles("") == parse_sizes("") == parse_speed("") == ()


def test_pods_that_declare_the_same_are_read_once() -> None:
    """A job is made again at each change of a pod of it: its annotations are not parsed again each time."""
    notes = {"muster.dev/roles": "worker=2", "muster.dev/sizes": "1,2"}
    one = declared(pod("a", notes=notes))
    indexed = {**notes, "batch.kubernetes.io/job-completion-index": "1"}
    assert declared(pod("b", labels={"muster.dev/job": "x"}, notes=indexed)) is one
    assert declared(pod("b", notes={**notes, "muster.dev/sizes": "2"})) is not one
    assert declared(pod("b", labels={"muster.dev/model": "llm"}, notes=notes)) == replace(one, model="llm")


def test_a_mistake_that_pods_share_names_each_of_them() -> None:
    notes = {"muster.dev/roles": "worker"}
    said = [declared(pod(name, notes=notes)).error for name in ("a", "b")]
    assert [text.partition(":")[0] for text in said] == ["pod a", "pod b"]


# ---- pods of one job together ----


def test_pods_that_all_declare_the_same_are_of_one_mind() -> None:
    notes = {"muster.dev/role": "server", "muster.dev/min-replicas": "2", "muster.dev/placement": "scored"}
    parts = [(name, declared(pod(name, notes=notes))) for name in ("a", "b", "c")]
    job, sizes = merge(parts)
    assert (job.placement, sizes) == ("scored", {"server": RoleSize(2, None, ())})
    assert merge([]) == (Declared(), {})


def test_one_pod_that_carries_an_annotation_is_enough() -> None:
    one = declared(pod("a", notes={"muster.dev/roles": "worker=2", "muster.dev/min-replicas": "1"}))
    assert merge([("a", one), ("b", declared(pod("b")))]) == (
        Declared(roles=(("worker", 2),)),
        {"worker": RoleSize(1, None, ())},
    )


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            {"muster.dev/roles": "worker=2"},
            {"muster.dev/roles": "worker=3"},
            "muster.dev/roles: expected the same on every pod that carries it; found worker=2 on a and worker=3 on b",
        ),
        (
            {"muster.dev/topology-required": "rack"},
            {"muster.dev/topology-required": "zone"},
            "muster.dev/topology-required: expected the same on every pod that carries it; "
            "found rack on a and zone on b",
        ),
        (
            {"muster.dev/min-replicas": "2"},
            {"muster.dev/min-replicas": "3"},
            "muster.dev/min-replicas: expected the same on every pod of role 'worker'; found 2 on a and 3 on b",
        ),
        (
            {"muster.dev/min-replicas": "2", "muster.dev/sizes": "2,4"},
            {"muster.dev/min-replicas": "2"},
            "muster.dev/sizes: expected the same on every pod of role 'worker'; found 2,4 on a and nothing on b",
        ),
        (
            {"muster.dev/roles": "worker=2"},
            {"muster.dev/role": "server"},
            "muster.dev/role: expected one of worker, found 'server' on pod b",
        ),
        (
            {},
            {"muster.dev/sizes": "x"},
            "pod b: muster.dev/sizes: expected counts from 1 to 10000 as \"1,2,4\", found 'x'",
        ),
    ],
)
def test_pods_that_contradict_each_other_are_named(
    first: Mapping[str, str], second: Mapping[str, str], message: str
) -> None:
    parts = [("a", declared(pod("a", notes=first))), ("b", declared(pod("b", notes=second)))]
    with pytest.raises(InputError) as error:
        merge(parts)
    assert str(error.value) == message


def test_roles_may_differ_in_size() -> None:
    server = declared(pod("a", notes={"muster.dev/role": "server", "muster.dev/min-replicas": "1"}))
    worker = declared(pod("b", notes={"muster.dev/min-replicas": "2"}))
    assert merge([("a", server), ("b", worker)])[1] == {
        "server": RoleSize(1, None, ()),
        "worker": RoleSize(2, None, ()),
    }


# ---- how many ----


@pytest.mark.parametrize(
    ("size", "in_roles", "owner_size", "ended", "present", "owned", "bounds"),
    [
        pytest.param(RoleSize(2, 8), 4, 6, 0, 6, False, (2, 8), id="annotations come first"),
        pytest.param(RoleSize(), 4, 6, 0, 6, False, (4, 4), id="then the count in roles"),
        pytest.param(RoleSize(), None, 6, 0, 3, True, (6, 6), id="then the owner's declared size"),
        pytest.param(RoleSize(), None, None, 0, 3, False, (1, 3), id="nothing declared: as they come"),
        pytest.param(RoleSize(min=2), None, 6, 0, 6, True, (2, 6), id="min alone: up to the owner's size"),
        pytest.param(RoleSize(max=4), None, 6, 0, 6, False, (4, 4), id="max alone bounds the rest"),
        pytest.param(RoleSize(2, 8), None, 4, 0, 4, True, (2, 4), id="the owner wants no more than 4 now"),
        pytest.param(RoleSize(), 4, None, 1, 3, False, (3, 3), id="what has ended well is not needed again"),
        pytest.param(RoleSize(1, 6, (2, 4, 8)), None, None, 0, 6, False, (2, 4), id="to sizes allowed"),
    ],
)
def test_bounds_of_a_role(
    size: RoleSize,
    in_roles: int | None,
    owner_size: int | None,
    ended: int,
    present: int,
    owned: bool,
    bounds: tuple[int, int],
) -> None:
    assert role_bounds(size, in_roles, owner_size, ended, present, owned) == bounds


def test_each_run_of_a_cron_job_is_a_job_of_its_own() -> None:
    cron = Owner("batch/v1", "CronJob", "nightly", "cron-uid")
    run = Owner("batch/v1", "Job", "nightly-29", "run-uid")
    owners = {run.uid: OwnerRecord(run, "team", 4, parent=cron)}
    assert job_key(pod(owner=run), owners) == JobKey("team", "job-nightly-29", "run-uid")

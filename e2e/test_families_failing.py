# Over 300 lines: what each family owes its four jobs stands in one table, beside those jobs.
"""Each family of policies with the jobs that it has to bear: an honest one, one that says nothing, one that lies, and
a rigid one that never said that it can be restarted. Muster is killed while nothing changes, and dies in the middle
of what a fifth job's arrival changes. Lies are those that trainings report; what owners declare is their word.

`make test` runs three families, `make families-failing` all. Random faults under each: `make bad-days`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from e2e.chaos.days import LIKE_VGG16, NONSENSE, SOON, SPEEDS, Kind, Trainings
from e2e.chaos.end import fates
from e2e.chaos.machine import away
from e2e.cluster import Cluster, Json, Pod, Refused
from e2e.elastic import FREE, ROOM, holding, in_rounds, jobs_of, only, replayed, shares, snapshot_of, train
from e2e.lab import Lab
from e2e.scenario import bound, configured, ends_now, job, looking, planned_after, stays, wait_until
from e2e.test_coach import with_servers
from e2e.test_elastic_failures import comes_back
from e2e.test_families import by, whole
from e2e.test_families_more import asked, nodes_of
from muster.core import snapshot_codec
from muster.core.cycle import cycle
from muster.settings import load_settings, profile_of
from muster.types import Report

pytestmark = [pytest.mark.lab, pytest.mark.referee(again=10)]

REPORTS = {"muster.dev/report": "true"}
DIES = "die after 1 PATCH pods"
"""Of what a change needs, one patch is sent."""
LONG = 1e9
"""s: a quantum that does not end here."""
IN_CI = ("srtf", "gavel", "coach")
"""Those that differ most: jobs stop for shorter ones, take turns in rounds, change epoch by epoch."""

Shares = Mapping[str, int]
"""Bound pods by Job."""


# --- the jobs -----------------------------------------------------------------------------------------------


def elastic() -> dict[str, list[Json]]:
    """Of one to eight replicas, and a rigid one of four."""
    told: dict[str, Any] = {"most": 8, "speeds": SPEEDS, "annotations": REPORTS}
    return {
        "rigid": [job("rigid", 4)],
        "honest": [train("honest", **told)],
        "silent": [train("silent", most=8)],
        "liar": [train("liar", most=8, annotations=REPORTS)],
        "late": [train("late", work=60.0, **told)],
    }


def all_or_nothing(late: int = 4) -> dict[str, list[Json]]:
    """Of four GPUs, all of which are used; who comes late needs so many."""
    return {
        "rigid": [job("rigid", 4)],
        "honest": [whole("honest", 4, seconds=600.0, annotations=REPORTS)],
        "silent": [whole("silent", 4)],
        "liar": [whole("liar", 4, annotations=REPORTS)],
        "late": [whole("late", late, seconds=60.0, annotations=REPORTS)],
    }


def of_fixed_size() -> dict[str, list[Json]]:
    names = ("rigid", "honest", "silent", "liar", "late")
    return {name: [job(name, 4, annotations={} if name == "silent" else REPORTS)] for name in names}


def by_restarts() -> dict[str, list[Json]]:
    sizes: dict[str, Any] = {"most": 4, "sizes": "1,2,4", "restart": True}
    told = {**sizes, "work": 1e4, "speeds": SPEEDS, "annotations": REPORTS}
    return {
        "rigid": [job("rigid", 2)],
        "honest": [train("honest", **told)],
        "silent": [train("silent", **sizes)],
        "liar": [train("liar", annotations=REPORTS, **sizes)],
        "late": [train("late", **told)],
    }


def of_one_replica() -> dict[str, list[Json]]:
    """Nobody comes late: the first place for him would be on the node that comes."""
    names = ("honest", "silent", "liar")
    found = {name: [whole(name, 1, annotations=REPORTS)] for name in names}
    return found | {"rigid": [job("rigid", 1, annotations=REPORTS)], "late": []}


def of_models() -> dict[str, list[Json]]:
    """One model is like a reference, one is none at all, and of one nothing is known."""
    like = {**REPORTS, "muster.dev/model": LIKE_VGG16, "muster.dev/batch-sizes": "64,512"}
    none = {**REPORTS, "muster.dev/model": "layers=0,parameters=1"}
    sizes: dict[str, Any] = {"most": 4, "restart": True}
    return {
        "rigid": [job("rigid", 4)],
        "honest": [train("honest", annotations=like, **sizes)],
        "silent": [train("silent", **sizes)],
        "liar": [train("liar", annotations=none, **sizes)],
        "late": [train("late", annotations=like, **sizes)],
    }


def of_two_roles() -> dict[str, list[Json]]:
    names = ("honest", "silent", "liar", "late")
    return {"rigid": [job("rigid", 4)]} | {name: with_servers(name, workers=2, servers=2) for name in names}


# --- what each family owes them -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """What a family's own questions are asked of."""

    lab: Lab
    cluster: Cluster
    namespace: str


def nothing(_: Scene) -> None:
    """No more than for all families."""


@dataclass(frozen=True)
class Family:
    """settings: of the configuration. first, then: whether shares are what the policy means, before and after `late`
    has come. spares: Jobs of which no pod ever ends. ready: waited for before Muster is killed, a training's own
    progress. changes: what happens as `late` comes. owes: what else is to be at the end."""

    settings: Mapping[str, Any]
    jobs: Callable[[], dict[str, list[Json]]]
    first: Callable[[Shares], object]
    then: Callable[[Shares], object]
    spares: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ROOM
    ready: Callable[[Scene], object] = lambda _: True
    changes: Callable[[Scene], None] = nothing
    owes: Callable[[Scene], None] = nothing
    calm: bool = True
    """Whether shares stay as they are in the end: not where jobs take turns, nor where they rank by what they have
    done so far."""


def shared(profile: str, **arguments: Any) -> dict[str, Any]:
    """Settings of a profile by name; arguments: of the plugin that is called like it."""
    return {"profile": profile, **FREE, **(by(profile, **arguments) if arguments else {})}


def exactly(**wanted: int) -> Callable[[Shares], object]:
    return lambda now: dict(now) == wanted


def level(now: Shares) -> object:
    """Nobody has two more than another one."""
    counts = [count for name, count in now.items() if name != "rigid"]
    return all_run(now) and max(counts) - min(counts) <= 1


def alike(now: Shares) -> object:
    """Of the silent one and of the liar nothing is known: who lies has no more of it."""
    return all_run(now) and now["liar"] - now["silent"] <= 1


def nearly_alike(now: Shares) -> object:
    """The same where a search comes near to what is best: five and two are worse than four and three by so little
    that a change may cost more."""
    return all_run(now) and now["liar"] - now["silent"] <= 3


def takes_nothing(now: Shares) -> object:
    """Who runs keeps what it has. How large the new one gets is no question here: its second GPU is a restart, which
    the crash may cut short."""
    return "late" in now and (now.get("rigid"), now.get("silent"), now.get("liar")) == (2, 1, 1)


def an_even_part(now: Shares) -> object:
    """Of six GPUs who lies has no more than three jobs would have each; sizes are 1, 2 and 4."""
    return now.get("rigid") == 2 and {"honest", "silent"} <= now.keys() and now.get("liar", 3) <= 2


def saves_nothing(now: Shares) -> object:
    """A job of unknown length has its first GPU."""
    return all_run(now) and now["silent"] == now["liar"] == 1


def all_run(now: Shares) -> object:
    return now.get("rigid") == 4 and {"honest", "silent", "liar"} <= now.keys()


def and_late(so: Callable[[Shares], object]) -> Callable[[Shares], object]:
    return lambda now: "late" in now and so(now)


def end_well(cluster: Cluster, pods: list[Pod]) -> None:
    """Their processes end; of a job that is over by that the others have gone meanwhile."""
    with contextlib.suppress(Refused):
        ends_now(cluster, *pods)


def honest_ends(scene: Scene) -> None:
    """So there is room for who waits, and nobody has to end for it."""
    end_well(scene.cluster, bound(scene.cluster.pods(scene.namespace, "honest")))


def a_node_comes(scene: Scene) -> None:
    scene.cluster.patch(f"/api/v1/nodes/{ROOM[1]}", {"spec": {"unschedulable": None}})


def have_converged(scene: Scene) -> bool:
    """By all that is known now: of what came within a minute before a kill the next leader may know nothing."""
    return all(
        asked(scene.lab, scene.cluster, scene.namespace, f"job-{name}") for name in ("honest", "rigid")
    )


def only_honest_moves(scene: Scene) -> None:
    """The rigid one has converged, too; of the silent one nothing is known."""

    def shown() -> str:
        jobs = jobs_of(scene.lab, scene.cluster, scene.namespace)
        kept = {name: one.memory.get("specon") for name, one in jobs.items()}
        return f"{kept}\n{nodes_of(scene.cluster, scene.namespace)}\n{scene.cluster.gangs(scene.namespace)}"

    wait_until(
        lambda: nodes_of(scene.cluster, scene.namespace).get("honest") == {ROOM[1]},
        what="who has converged is on the idle node",
        also=shown,
    )
    wait_until(lambda: have_converged(scene), what="the rigid one has converged as well", also=shown)
    planned_after(scene.cluster)
    moved = {
        name: one.facts.moves for name, one in jobs_of(scene.lab, scene.cluster, scene.namespace).items()
    }
    assert (moved["job-rigid"], moved["job-silent"]) == (0, 0), moved
    assert moved["job-honest"] == max(moved.values()) == 1, moved


def liar_gives_way(scene: Scene) -> None:
    """It holds on to nothing by what it says: its turn ends, too."""
    wait_until(
        lambda: (now := shares(scene.cluster, scene.namespace)) and "liar" not in now and "late" in now,
        what="it is another one's turn",
        also=lambda: scene.cluster.gangs(scene.namespace),
    )


def lies_gain_nothing(scene: Scene) -> None:
    """The liar has what the policy grants, no more than if its reports said nothing. Compared by one snapshot: the
    longer a job of unknown length runs the more it is believed to have left, so who came later has more than the
    silent one in time, and rightly."""
    profile = profile_of(load_settings(scene.lab.folder / "config" / "muster-0.yaml"))

    def granted() -> tuple[int, int, int] | None:
        """Of the liar: bound pods, and what is granted by what it has said, and without."""
        snapshot, _ = snapshot_codec.load(snapshot_of(scene.lab, scene.cluster))
        (liar,) = (one for key, one in snapshot.jobs.items() if key[:2] == (scene.namespace, "job-liar"))
        if liar.report is None:
            return None
        kept = {name: one for name, one in liar.memory.items() if name != "reported"}
        says_nothing = replace(liar, report=Report(at=liar.report.at, step=0.0), samples={}, memory=kept)
        without = replace(snapshot, jobs={**snapshot.jobs, liar.key: says_nothing})
        has = shares(scene.cluster, scene.namespace).get("liar", 0)
        by, instead = (cycle(one, profile).shares[liar.key] for one in (snapshot, without))
        return has, by, instead

    found = wait_until(
        lambda: (now := granted()) and now[0] == now[1] and now, what="the liar has its share", also=granted
    )
    assert 1 <= found[1] <= found[2], found


def same_part_of_time(scene: Scene) -> None:
    """No speed of either was ever measured."""

    def parts() -> dict[str, object]:
        jobs = jobs_of(scene.lab, scene.cluster, scene.namespace)
        kept = {name: one.memory.get("gavel-max-min") for name, one in jobs.items() if name != "job-rigid"}
        return {
            name: sum(one["share"].values())
            for name, one in kept.items()
            if isinstance(one, dict) and one["jobs"] == len(jobs)
        }

    found = wait_until(
        lambda: (now := parts()) and len(now) == 4 and now,
        what="time is split between those that are there",
        also=parts,
    )
    assert found["job-liar"] == pytest.approx(found["job-silent"], abs=0.02), found


def tries_workers(scene: Scene) -> None:
    """Its first epochs are known."""
    wait_until(
        lambda: shares(scene.cluster, scene.namespace).get("honest-workers") == 2,
        what="the honest one tries two workers",
        also=lambda: f"{jobs_of(scene.lab, scene.cluster, scene.namespace)}",
    )


def one_of_each(*names: str) -> Callable[[Shares], object]:
    """Who tells no epochs, or none that can be, stays with one worker and one server."""
    return lambda now: (
        now.get("rigid") == 4
        and {"honest-workers", "honest-servers"} <= now.keys()
        and all(now.get(f"{name}-{role}s") == 1 for name in names for role in ("worker", "server"))
    )


FOUR = exactly(rigid=4, honest=4, silent=4, liar=4)
LIAR_WAITS = exactly(rigid=4, honest=4, silent=4, late=4)
BUT_HONEST = exactly(rigid=4, silent=4, liar=4, late=4)
FAMILIES = {
    "max-min": Family(shared("max-min"), elastic, level, and_late(level)),
    "afs-l": Family(shared("afs-l"), elastic, alike, and_late(alike)),
    "afs-p": Family(shared("afs-p", quantum=LONG), elastic, alike, and_late(alike)),
    "afs-s": Family(shared("afs-s", quantum=LONG), elastic, level, and_late(level)),
    "optimus": Family(
        shared("optimus"), elastic, saves_nothing, and_late(saves_nothing), spares=("silent", "liar")
    ),
    "tide": Family(shared("tide"), elastic, all_run, and_late(all_run), owes=lies_gain_nothing, calm=False),
    "pollux": Family(
        in_rounds("pollux", delay=1.0), elastic, nearly_alike, and_late(nearly_alike), calm=False
    ),
    "srtf": Family(shared("srtf"), all_or_nothing, FOUR, LIAR_WAITS, spares=("honest", "silent")),
    "srsf": Family(shared("srsf"), all_or_nothing, FOUR, LIAR_WAITS, spares=("honest", "silent")),
    "tiresias": Family(
        shared("tiresias-l", threshold=40.0),
        lambda: all_or_nothing(late=1),
        FOUR,
        exactly(rigid=4, honest=4, silent=4, late=1),
        spares=("honest", "silent"),
    ),
    "themis": Family(
        shared("themis", lease=5.0),
        all_or_nothing,
        FOUR,
        lambda now: now.get("late") == 4,
        owes=liar_gives_way,
        calm=False,
    ),
    "gavel": Family(
        in_rounds("gavel-max-min", round=4.0, interval=8.0, perf=True),
        all_or_nothing,
        FOUR,
        lambda now: now.get("late") == 4,
        owes=same_part_of_time,
        calm=False,
    ),
    "gang": Family(
        {"profile": "gang"}, of_fixed_size, FOUR, BUT_HONEST, spares=("silent", "liar"), changes=honest_ends
    ),
    "similarity": Family(
        in_rounds("similarity", mode="gpu_ngpu_bs"),
        of_models,
        FOUR,
        BUT_HONEST,
        spares=("silent", "liar"),
        changes=honest_ends,
    ),
    "reshape": Family(
        {"profile": "reshape-restart", **FREE, **by("reshape", restart=True, settling=3.0)},
        by_restarts,
        an_even_part,
        and_late(an_even_part),
        nodes=ROOM[:1],
    ),
    "termination": Family(
        shared("termination", settling=3.0),
        by_restarts,
        exactly(rigid=2, honest=4, silent=1, liar=1),
        takes_nothing,
        spares=("silent", "liar"),
        nodes=ROOM[:1],
        changes=honest_ends,
    ),
    "specon": Family(
        shared("specon", alpha=0.0005, interval=2.0, smoothing=0.0),
        of_one_replica,
        exactly(rigid=1, honest=1, silent=1, liar=1),
        exactly(rigid=1, honest=1, silent=1, liar=1),
        spares=("silent",),
        nodes=ROOM[:1],
        ready=have_converged,
        changes=a_node_comes,
        owes=only_honest_moves,
    ),
    "coach": Family(
        shared("coach"),
        of_two_roles,
        one_of_each("silent", "liar"),
        one_of_each("silent", "liar", "late"),
        spares=tuple(f"{name}-{role}s" for name in ("silent", "liar") for role in ("worker", "server")),
        owes=tries_workers,
        calm=False,
    ),
}


# --- the scenario -------------------------------------------------------------------------------------------


class Lives:
    """A look for `looking`: which pods of each Job have been seen bound."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._own, self._namespace = Cluster(cluster.kubeconfig), namespace
        self._seen: dict[str, set[str]] = {}

    def __call__(self) -> dict[str, set[str]]:
        now = {name: {one.uid for one in pods} for name, pods in holding(self._own, self._namespace).items()}
        for name, uids in now.items():
            self._seen.setdefault(name, set()).update(uids)
        return now

    def ended(self, *names: str) -> dict[str, set[str]]:
        """Those of these Jobs that are not bound any more."""
        now = self()
        gone = {name: self._seen.get(name, set()) - now.get(name, set()) for name in names}
        return {name: uids for name, uids in gone.items() if uids}


def kinds(jobs: Mapping[str, list[Json]]) -> dict[str, Kind]:
    """Who reports what, by Job. A rigid one that reports tells the truth."""
    told = {"liar": Kind.LIES, "silent": Kind.SILENT}
    return {
        one["metadata"]["name"]: told.get(name, Kind.TELLS)
        for name, manifests in jobs.items()
        for one in manifests
        if name != "rigid" or one["spec"]["template"]["metadata"]["annotations"]
        if not one["metadata"]["name"].endswith("-servers")
    }


def all_are_done(cluster: Cluster, namespace: str) -> None:
    """Whoever runs ends well; who waits starts then, and ends well, too."""

    def done() -> bool:
        end_well(cluster, bound(cluster.pods(namespace)))
        return all(one.what == "done" for one in fates(cluster, namespace))

    wait_until(done, what="each job has run to its end", also=lambda: fates(cluster, namespace))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in IN_CI else pytest.mark.long) for name in FAMILIES]
)
def test_beside_a_liar_and_one_that_says_nothing_nobody_healthy_ends_though_muster_is_killed_twice(
    lab: Lab, cluster: Cluster, namespace: str, name: str
) -> None:
    family, scene = FAMILIES[name], Scene(lab, cluster, namespace)
    only(lab, cluster, *family.nodes)
    jobs = family.jobs()
    lives = Lives(cluster, namespace)
    trainings = Trainings(lab, Cluster(cluster.kubeconfig, timeout=SOON), namespace, kinds(jobs))

    def shown() -> str:
        return f"{shares(cluster, namespace)}\n{cluster.gangs(namespace)}"

    def come_to(so: Callable[[Shares], object]) -> None:
        wait_until(
            lambda: so(shares(cluster, namespace)), what="shares are as the policy has them", also=shown
        )

    with configured(lab, **family.settings), looking(lives, 0.2, away):
        for each in ("rigid", "honest", "silent"):
            cluster.submit(*jobs[each], namespace=namespace)
        time.sleep(1.1)  # whole seconds count: who lies came last
        cluster.submit(*jobs["liar"], namespace=namespace)
        come_to(family.first)
        with looking(trainings, 0.9, away):
            wait_until(
                lambda: trainings.taken + trainings.refused >= 3 * len(NONSENSE) and family.ready(scene),
                what="every lie has been told",
            )
        stays(
            cluster, lambda: family.first(shares(cluster, namespace)), what="lies change nothing", also=shown
        )
        # 1 killed while nothing changes
        before = lives()
        lab.kill("muster-0")
        lab.start("muster-0", env={"MUSTER_FAULTS": DIES})
        stays(cluster, lambda: lives() == before, what="each has what it had, on the same pods", also=shown)
        # 2 killed in the middle of a change
        with looking(trainings, 0.9, away):
            cluster.submit(*jobs["late"], namespace=namespace)
            family.changes(scene)
            comes_back(lab, DIES)
            come_to(family.then)
            family.owes(scene)
            if family.calm:
                stays(
                    cluster, lambda: family.then(shares(cluster, namespace)), what="it stays so", also=shown
                )
            replayed(lab, cluster)
        planned_after(cluster)
        wait_until(
            lambda: all(one.well for one in fates(cluster, namespace)),
            what="each job runs whole, or says why it waits",
            also=lambda: f"{fates(cluster, namespace)}\n{shown()}",
        )
        assert lives.ended("rigid", *family.spares) == {}, shown()
        all_are_done(cluster, namespace)

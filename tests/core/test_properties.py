# Over 300 lines: the properties share the generators of clusters and jobs.
"""What holds for every plan, whatever the cluster and the jobs: the rules of core/cycle.py's docstring."""

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.placement.feasibility import allows
from muster.points import Profile
from muster.types import (
    Job,
    NodeRecord,
    Phase,
    Plan,
    Requirement,
    Reservation,
    Role,
    Snapshot,
    State,
    Taint,
    Term,
    Toleration,
)
from muster_plugins.gang import Gang
from muster_plugins.gang_pack import GangPack
from muster_plugins.pack import Pack
from tests.scenario import (
    FIFO,
    NOW,
    RACK,
    asks,
    job,
    key,
    node,
    plan,
    role,
    snapshot,
    used_places,
)

PROFILES = (
    FIFO,
    replace(FIFO, order="strict"),
    Profile("gang", sort=Gang(), filters=(Gang(),), scores=((Gang(), 1.0),), placement="scored"),
    Profile("mixed", scores=((Pack(), 1.0), (GangPack(), 2.0)), topology_levels=(RACK,), patience=0.0),
)
ZONE_A = Term((Requirement("zone", "In", ("a",)),))
SHAPES = (
    asks(1),
    asks(2, cpu=4000),
    asks(8),
    asks(cpu=30_000),
    asks(3, selector=(("zone", "a"),)),
    asks(1, affinity=(ZONE_A,), tolerations=(Toleration("", "Exists"),)),
    asks(1, unmodelled=("podAntiAffinity",)),
)


@st.composite
def nodes(draw: st.DrawFn) -> list[NodeRecord]:
    """One to eight nodes of two sizes, in zones and racks, some tainted, some cordoned."""
    return [
        node(
            f"n{i}",
            gpus=draw(st.sampled_from([0, 4, 8])),
            labels={"zone": draw(st.sampled_from("ab")), RACK: f"r{i % 2}"},
            taints=[Taint("gpu")] if draw(st.integers(0, 5)) == 0 else [],
            cordoned=draw(st.integers(0, 7)) == 0,
        )
        for i in range(draw(st.integers(1, 8)))
    ]


@st.composite
def roles(draw: st.DrawFn, name: str, where: list[str]) -> list[Role]:
    """One to three roles; some replicas run, some pods are missing, some roles may grow."""
    result = []
    runs = draw(st.booleans())
    for each in draw(st.sampled_from([["worker"], ["server", "worker"], ["scheduler", "server", "worker"]])):
        least = draw(st.integers(1, 5))
        most = least + draw(st.integers(0, 4))
        on = draw(st.lists(st.sampled_from(where), max_size=least)) if runs and where else []
        present = max(len(on), most - draw(st.integers(0, 3)))
        shape = draw(st.sampled_from(SHAPES))
        result.append(
            role(each, least, least=least, most=most, present=present, on=on, shape=shape, job=name)
        )
    return result


@st.composite
def jobs(draw: st.DrawFn, where: list[str]) -> list[Job]:
    """Up to eight jobs; those whose running replicas would over-commit a node wait instead."""
    result = []
    for i in range(draw(st.integers(1, 8))):
        name = f"j{i}"
        made = job(
            name,
            roles=draw(roles(name, where)),
            priority=draw(st.integers(0, 2)),
            submitted=NOW - draw(st.integers(0, 1000)),
            topology_required=draw(st.sampled_from(["", RACK])),
            remaining_work=draw(st.sampled_from([None, 100.0, 5000.0])),
            expects=draw(st.booleans()),
        )
        if made.started and made.unbound:
            made = replace(made, below_since=NOW - draw(st.sampled_from([60.0, 200.0])))
        result.append(made)
    return result


@st.composite
def worlds(draw: st.DrawFn) -> Snapshot:
    """A cluster that no job over-commits, and jobs that run and wait in it."""
    records = draw(nodes())
    where = [n.name for n in records]
    kept: list[Job] = []
    for each in draw(jobs(where)):
        if (snapshot(nodes=records, jobs=[*kept, each]).free >= 0).all():
            kept.append(each)
    return snapshot(nodes=records, jobs=kept)


def free_after(before: Snapshot, after: Plan) -> list[list[int]]:
    """What is left on each node when all places of the plan are taken."""
    planned = [replace(j, reservations=after.reservations.get(k, ())) for k, j in before.jobs.items()]
    left: list[list[int]] = snapshot(nodes=before.nodes.records, jobs=planned).free.tolist()
    return left


@given(before=worlds(), profile=st.sampled_from(PROFILES))
def test_no_node_is_over_committed(before: Snapshot, profile: Profile) -> None:
    after = plan(before, profile)
    assert min(min(row) for row in free_after(before, after)) >= 0


@given(before=worlds(), profile=st.sampled_from(PROFILES))
def test_a_job_that_starts_has_its_minimum_of_every_role_and_no_more_than_its_maximum(
    before: Snapshot, profile: Profile
) -> None:
    after = plan(before, profile)
    for k, reservations in after.reservations.items():
        each = before.jobs[k]
        for r in each.roles:
            bound = sum(1 for m in r.members if m.phase is Phase.BOUND)
            granted = bound + sum(1 for h in reservations if h.role == r.name)
            if reservations and not each.started:
                assert granted >= r.min, f"{k} starts with {granted} of {r.min} {r.name}"
            if reservations:
                assert granted <= max(r.max, bound), f"{k} has {granted} of at most {r.max} {r.name}"


@given(before=worlds(), profile=st.sampled_from(PROFILES))
def test_replicas_get_places_only_where_their_shape_allows(before: Snapshot, profile: Profile) -> None:
    after = plan(before, profile)
    for k, reservations in after.reservations.items():
        shapes = {r.name: r.shape for r in before.jobs[k].roles}
        for reservation in reservations:
            record = before.nodes.records[before.nodes.index[reservation.node]]
            assert allows(record, shapes[reservation.role]), f"{k}: {reservation}"


@given(before=worlds(), profile=st.sampled_from(PROFILES))
def test_no_replica_has_two_places_and_no_bound_one_gets_another(before: Snapshot, profile: Profile) -> None:
    after = plan(before, profile)
    for k, reservations in after.reservations.items():
        uids = [h.uid for h in reservations if h.uid]
        members = {m.uid: m for r in before.jobs[k].roles for m in r.members}
        assert len(uids) == len(set(uids))
        assert all(members[uid].phase is Phase.GATED for uid in uids)


@given(before=worlds(), profile=st.sampled_from(PROFILES))
def test_a_required_rack_holds_every_replica_of_a_job_that_starts(before: Snapshot, profile: Profile) -> None:
    after = plan(before, profile)
    for k, reservations in after.reservations.items():
        each = before.jobs[k]
        if each.topology_required and not each.started:
            racks = {before.nodes.records[before.nodes.index[h.node]].labels[RACK] for h in reservations}
            assert len(racks) <= 1


@given(before=worlds(), profile=st.sampled_from(PROFILES))
def test_who_is_sent_back_was_below_its_minimum_for_the_timeout(before: Snapshot, profile: Profile) -> None:
    after = plan(before, profile)
    for k in after.back:
        each = before.jobs[k]
        short = any(sum(1 for m in r.members if m.phase is Phase.BOUND) < r.min for r in each.roles)
        assert each.started
        assert short
        assert NOW - each.below_since >= profile.timeout
    for k, each in before.jobs.items():
        if each.started and each.below_since and NOW - each.below_since < profile.timeout:
            assert k not in after.back


def test_the_worlds_meet_each_rule_dozens_of_times() -> None:
    """Else the properties hold of worlds in which nothing happens."""
    met: Counter[str] = Counter()

    @given(before=worlds())
    @settings(max_examples=300, derandomize=True)
    def count(before: Snapshot) -> None:
        after = plan(before)
        met["jobs sent back"] += len(after.back)
        for k, reservations in after.reservations.items():
            each = before.jobs[k]
            if not reservations or each.started:
                continue
            met["starts"] += 1
            met["starts of several roles"] += len({h.role for h in reservations}) > 1
            met["starts in a required rack"] += bool(each.topology_required)
            met["starts over several nodes of a required rack"] += (
                bool(each.topology_required) and len({h.node for h in reservations}) > 1
            )
            met["starts that leave pods to come"] += any(not h.uid for h in reservations)

    count()
    assert min(met.values()) >= 24, met
    assert len(met) == 6, met


@given(before=worlds(), profile=st.sampled_from(PROFILES))
def test_every_job_has_a_status_and_only_waiting_ones_a_position(before: Snapshot, profile: Profile) -> None:
    after = plan(before, profile)
    assert set(after.statuses) == set(before.jobs)
    assert len(set(after.order)) == len(after.order)
    assert all(after.statuses[k].state is State.WAITING for k in after.order)
    assert all(s.message for s in after.statuses.values())
    assert not any(after.reservations.get(k) for k in after.order)


@given(before=worlds(), profile=st.sampled_from(PROFILES))
def test_the_same_snapshot_gives_the_same_plan(before: Snapshot, profile: Profile) -> None:
    backwards = replace(before, jobs=dict(reversed(before.jobs.items())))
    first = plan(before, profile)
    for again in (plan(before, profile), plan(backwards, profile)):
        assert (again.order, again.reservations, again.statuses) == (
            first.order,
            first.reservations,
            first.statuses,
        )
        assert (again.unpins, again.back, again.requeue_at) == (first.unpins, first.back, first.requeue_at)


@given(before=worlds(), profile=st.sampled_from(PROFILES), priority=st.integers(0, 9))
def test_an_incomplete_job_changes_nobodys_plan(before: Snapshot, profile: Profile, priority: int) -> None:
    half = job("half", roles=[role("worker", 4, present=3, job="half")], priority=priority, submitted=1.0)
    with_it = replace(before, jobs={**before.jobs, half.key: half})
    one, two = plan(before, profile), plan(with_it, profile)
    assert two.statuses[key("half")].state is State.INCOMPLETE
    assert {k: s for k, s in two.statuses.items() if k != half.key} == one.statuses
    assert (one.order, one.reservations) == (two.order, two.reservations)


@given(before=worlds(), profile=st.sampled_from(PROFILES))
def test_a_second_cycle_keeps_every_place_of_the_first(before: Snapshot, profile: Profile) -> None:
    """The plan is stable: with its places recorded and nothing else changed, nobody is moved."""
    first = plan(before, profile)
    recorded = [replace(j, reservations=first.reservations.get(k, ())) for k, j in before.jobs.items()]
    again = snapshot(nodes=before.nodes.records, jobs=recorded)
    second = plan(again, profile)
    for k, reservations in first.reservations.items():
        kept = second.reservations.get(k, ())
        assert set(places(reservations)) <= set(places(kept)), f"{k}: {reservations} became {kept}"


def places(reservations: tuple[Reservation, ...]) -> list[tuple[str, str, str]]:
    """Role, node and uid of each place."""
    return [(h.role, h.node, h.uid) for h in reservations]


@given(before=worlds())
def test_the_scenarios_charge_each_replica_once(before: Snapshot) -> None:
    bound = sum(1 for j in before.jobs.values() for r in j.roles for m in r.members if m.phase.on_node)
    assert sum(len(used_places(j)) for j in before.jobs.values()) == bound == int(before.ours_on.sum())


# ---- when things go wrong between two cycles ----


@st.composite
def disturbed(draw: st.DrawFn) -> Snapshot:
    """The places of a first plan are recorded and partly carried out; then nodes break and pods vanish."""
    before = draw(worlds())
    first = plan(before)
    jobs = []
    for k, each in before.jobs.items():
        reservations = first.reservations.get(k, ())
        how = {
            h.uid: draw(st.sampled_from(["gated", "pinned", "refused", "bound", "gone"]))
            for h in reservations
        }
        where = {h.uid: h.node for h in reservations}
        changed_roles = []
        for r in each.roles:
            members = []
            for m in r.members:
                state = how.get(m.uid, "as before")
                if state in ("pinned", "refused"):
                    m = replace(m, phase=Phase.UNGATED, node=where[m.uid], pinned=True)
                    m = replace(m, refused_at=NOW - 6, refusal="no") if state == "refused" else m
                elif state == "bound":
                    m = replace(m, phase=Phase.BOUND, node=where[m.uid])
                if state != "gone":
                    members.append(m)
            changed_roles.append(replace(r, members=tuple(members)))
        kept = tuple(
            replace(h, uid="", pod="") if how[h.uid] == "gone" else h
            for h in reservations
            if how[h.uid] != "bound"
        )
        started = each.started or any(how[h.uid] in ("pinned", "refused", "bound") for h in reservations)
        jobs.append(replace(each, roles=tuple(changed_roles), reservations=kept, started=started))
    records = []
    for record in before.nodes.records:
        match draw(st.sampled_from(["as before", "as before", "gone", "cordoned", "tainted", "smaller"])):
            case "gone":
                continue
            case "cordoned":
                record = replace(record, unschedulable=True)
            case "tainted":
                record = replace(record, taints=(Taint("broken"),))
            case "smaller":
                record = replace(record, allocatable={**record.allocatable, "nvidia.com/gpu": 1})
        records.append(record)
    return snapshot(nodes=records, jobs=jobs)


def fixed(before: Snapshot) -> list[Job]:
    """The jobs with only what can't be moved by a plan: replicas that are bound, ending or pinned."""
    return [
        replace(j, reservations=tuple(h for h in j.reservations if h.uid in pinned(j)))
        for j in before.jobs.values()
    ]


def pinned(each: Job) -> set[str]:
    """Replicas whose gate is off and whose node affinity names the node."""
    return {m.uid for r in each.roles for m in r.members if m.phase is Phase.UNGATED and m.pinned}


@given(before=disturbed(), profile=st.sampled_from(PROFILES))
def test_a_plan_never_makes_a_node_worse_than_what_can_not_be_moved_makes_it(
    before: Snapshot, profile: Profile
) -> None:
    after = plan(before, profile)
    floor = snapshot(nodes=before.nodes.records, jobs=fixed(before)).free
    for row, (left, least) in enumerate(zip(free_after(before, after), floor.tolist(), strict=True)):
        worst = [min(0, b) for b in least]
        assert all(a >= b for a, b in zip(left, worst, strict=True)), before.nodes.names[row]


@given(before=disturbed(), profile=st.sampled_from(PROFILES))
def test_a_job_that_has_not_started_holds_its_whole_minimum_or_nothing(
    before: Snapshot, profile: Profile
) -> None:
    after = plan(before, profile)
    for k, each in before.jobs.items():
        reservations = after.reservations.get(k, each.reservations)
        if not each.started and reservations:
            assert all(sum(1 for h in reservations if h.role == r.name) >= r.min for r in each.roles), k


@given(before=disturbed(), profile=st.sampled_from(PROFILES))
def test_places_that_can_be_moved_are_on_nodes_that_admit_the_replica(
    before: Snapshot, profile: Profile
) -> None:
    after = plan(before, profile)
    for k, reservations in after.reservations.items():
        shapes = {r.name: r.shape for r in before.jobs[k].roles}
        for reservation in reservations:
            if reservation.uid not in pinned(before.jobs[k]):
                record = before.nodes.records[before.nodes.index[reservation.node]]
                assert allows(record, shapes[reservation.role]), f"{k}: {reservation}"


@given(before=disturbed(), profile=st.sampled_from(PROFILES))
def test_what_is_undone_is_a_pin_with_evidence_against_it(before: Snapshot, profile: Profile) -> None:
    for undo in plan(before, profile).unpins:
        (member,) = [m for r in before.jobs[undo.job].roles for m in r.members if m.uid == undo.uid]
        record = next((n for n in before.nodes.records if n.name == undo.node), None)
        assert member.pinned
        assert record is None or record.unschedulable or member.refused_at

"""What holds for every plan, whatever the cluster and the jobs: the rules of core/cycle.py's docstring."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from muster.core.constraints import allows
from muster.points import Profile
from muster.types import (
    Hold,
    Job,
    NodeRecord,
    Phase,
    Plan,
    Requirement,
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
            labels={"zone": draw(st.sampled_from("ab")), RACK: f"r{i % 3}"},
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
        present = max(len(on), most - draw(st.integers(0, 2)))
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
            topology_required=draw(st.sampled_from(["", "", RACK])),
            remaining_work=draw(st.sampled_from([None, 100.0, 5000.0])),
            expects=draw(st.booleans()),
        )
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
    planned = [replace(j, holds=after.holds.get(k, ())) for k, j in before.jobs.items()]
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
    for k, holds in after.holds.items():
        each = before.jobs[k]
        for r in each.roles:
            bound = sum(1 for m in r.members if m.phase is Phase.BOUND)
            granted = bound + sum(1 for h in holds if h.role == r.name)
            if holds and not each.started:
                assert granted >= r.min, f"{k} starts with {granted} of {r.min} {r.name}"
            if holds:
                assert granted <= max(r.max, bound), f"{k} has {granted} of at most {r.max} {r.name}"


@given(before=worlds(), profile=st.sampled_from(PROFILES))
def test_replicas_get_places_only_where_their_shape_allows(before: Snapshot, profile: Profile) -> None:
    after = plan(before, profile)
    for k, holds in after.holds.items():
        shapes = {r.name: r.shape for r in before.jobs[k].roles}
        for hold in holds:
            record = before.nodes.records[before.nodes.index[hold.node]]
            assert allows(record, shapes[hold.role]), f"{k}: {hold}"


@given(before=worlds(), profile=st.sampled_from(PROFILES))
def test_no_replica_has_two_places_and_no_bound_one_gets_another(before: Snapshot, profile: Profile) -> None:
    after = plan(before, profile)
    for k, holds in after.holds.items():
        uids = [h.uid for h in holds if h.uid]
        members = {m.uid: m for r in before.jobs[k].roles for m in r.members}
        assert len(uids) == len(set(uids))
        assert all(members[uid].phase is Phase.GATED for uid in uids)


@given(before=worlds(), profile=st.sampled_from(PROFILES))
def test_a_required_rack_holds_every_replica_of_a_job_that_starts(before: Snapshot, profile: Profile) -> None:
    after = plan(before, profile)
    for k, holds in after.holds.items():
        each = before.jobs[k]
        if each.topology_required and not each.started:
            racks = {before.nodes.records[before.nodes.index[h.node]].labels[RACK] for h in holds}
            assert len(racks) <= 1


@given(before=worlds(), profile=st.sampled_from(PROFILES))
def test_every_job_has_a_status_and_only_waiting_ones_a_position(before: Snapshot, profile: Profile) -> None:
    after = plan(before, profile)
    assert set(after.statuses) == set(before.jobs)
    assert len(set(after.order)) == len(after.order)
    assert all(after.statuses[k].state is State.WAITING for k in after.order)
    assert all(s.waits for s in after.statuses.values())
    assert not any(after.holds.get(k) for k in after.order)


@given(before=worlds(), profile=st.sampled_from(PROFILES))
def test_the_same_snapshot_gives_the_same_plan(before: Snapshot, profile: Profile) -> None:
    backwards = replace(before, jobs=dict(reversed(before.jobs.items())))
    first = plan(before, profile)
    for again in (plan(before, profile), plan(backwards, profile)):
        assert (again.order, again.holds, again.statuses) == (first.order, first.holds, first.statuses)
        assert (again.undo, again.back, again.wake) == (first.undo, first.back, first.wake)


@given(before=worlds(), profile=st.sampled_from(PROFILES), priority=st.integers(0, 9))
def test_an_incomplete_job_changes_nobodys_plan(before: Snapshot, profile: Profile, priority: int) -> None:
    half = job("half", roles=[role("worker", 4, present=3, job="half")], priority=priority, submitted=1.0)
    with_it = replace(before, jobs={**before.jobs, half.key: half})
    one, two = plan(before, profile), plan(with_it, profile)
    assert two.statuses[key("half")].state is State.INCOMPLETE
    assert {k: s for k, s in two.statuses.items() if k != half.key} == one.statuses
    assert (one.order, one.holds) == (two.order, two.holds)


@given(before=worlds(), profile=st.sampled_from(PROFILES))
def test_a_second_cycle_keeps_every_place_of_the_first(before: Snapshot, profile: Profile) -> None:
    """The plan is stable: with its places recorded and nothing else changed, nobody is moved."""
    first = plan(before, profile)
    recorded = [replace(j, holds=first.holds.get(k, ())) for k, j in before.jobs.items()]
    again = snapshot(nodes=before.nodes.records, jobs=recorded)
    second = plan(again, profile)
    for k, holds in first.holds.items():
        kept = second.holds.get(k, ())
        assert set(places(holds)) <= set(places(kept)), f"{k}: {holds} became {kept}"


def places(holds: tuple[Hold, ...]) -> list[tuple[str, str, str]]:
    """Role, node and uid of each place."""
    return [(h.role, h.node, h.uid) for h in holds]


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
        holds = first.holds.get(k, ())
        how = {h.uid: draw(st.sampled_from(["gated", "pinned", "refused", "bound", "gone"])) for h in holds}
        where = {h.uid: h.node for h in holds}
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
            replace(h, uid="", pod="") if how[h.uid] == "gone" else h for h in holds if how[h.uid] != "bound"
        )
        started = each.started or any(how[h.uid] in ("pinned", "refused", "bound") for h in holds)
        jobs.append(replace(each, roles=tuple(changed_roles), holds=kept, started=started))
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
    return [replace(j, holds=tuple(h for h in j.holds if h.uid in pinned(j))) for j in before.jobs.values()]


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
        holds = after.holds.get(k, each.holds)
        if not each.started and holds:
            assert all(sum(1 for h in holds if h.role == r.name) >= r.min for r in each.roles), k


@given(before=disturbed(), profile=st.sampled_from(PROFILES))
def test_places_that_can_be_moved_are_on_nodes_that_admit_the_replica(
    before: Snapshot, profile: Profile
) -> None:
    after = plan(before, profile)
    for k, holds in after.holds.items():
        shapes = {r.name: r.shape for r in before.jobs[k].roles}
        for hold in holds:
            if hold.uid not in pinned(before.jobs[k]):
                record = before.nodes.records[before.nodes.index[hold.node]]
                assert allows(record, shapes[hold.role]), f"{k}: {hold}"


@given(before=disturbed(), profile=st.sampled_from(PROFILES))
def test_what_is_undone_is_a_pin_with_evidence_against_it(before: Snapshot, profile: Profile) -> None:
    for undo in plan(before, profile).undo:
        (member,) = [m for r in before.jobs[undo.job].roles for m in r.members if m.uid == undo.uid]
        record = next((n for n in before.nodes.records if n.name == undo.node), None)
        assert member.pinned
        assert record is None or record.unschedulable or member.refused_at

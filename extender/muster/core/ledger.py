"""The Ledger: events in (`apply`), frozen Snapshots out (`snapshot`); a Plan in, Actions out (`adopt`).

What became of the actions comes back as events. Nothing here knows a client, a clock or a log: the driver passes
`now`.

Invariant: a gate comes off only for a pod whose uid and node stand in a placement on the API (`JobState.records`): in
the Gang's status, or, of a small job's start, on its first pod, which gets it with its own gate. So a crash between
any two requests loses nothing: the next leader reads the placement and goes on. Capacity is charged by pod uid from
the hold until the pod has ended (core.placement.usage).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from muster.core import events
from muster.core.actions.adoption import Adoption
from muster.core.actions.evict import all_back, evict, give_up, leave_out, leftovers, put_back, send_back
from muster.core.actions.provisioning import ask_for_nodes, chosen_for_nodes, drop_nodes
from muster.core.actions.queue_turns import tell_turn, turns_told
from muster.core.actions.reconcile_gang import diff
from muster.core.actions.save_learned import teach
from muster.core.actions.scale_down import (
    begin_change,
    keep_grants,
    let_go,
    let_out,
    out_of_round,
    overtake,
    recorded_first,
    told_to_leave,
)
from muster.core.actions.ungate import ungate, ungated_at_birth
from muster.core.devices.granted import left_out
from muster.core.gang_object.gang_status import ends_told, tell_alike, warned
from muster.core.progress.estimate import believed
from muster.core.state import blockers, queue_time, restore
from muster.core.state import snapshot as snapshots
from muster.core.state.job_state import JobState
from muster.core.state.quarantine import PAUSE_MOST, devices_failed, planned, set_aside
from muster.core.state.reservation_usage import set_holds
from muster.core.state.state import LedgerState
from muster.core.views.view import View
from muster.types import (
    Action,
    EndReason,
    Event,
    Evict,
    Fault,
    Job,
    JobKey,
    Plan,
    Reason,
    Reservation,
    Snapshot,
    Status,
    Unpin,
)


class Ledger(LedgerState):
    """What the driver talks to: events in, Snapshots out, plans in, actions out."""

    def apply(self, event: Event, now: float) -> None:
        """Learn one event, and what became of an action of ours. Late and repeated events are harmless."""
        events.apply(self, event, now)

    def take_over(self, now: float = 0.0) -> None:
        """Become the one who plans: what the API says counts, intents of an earlier term are forgotten."""
        restore.take_over(self, now)

    def step_down(self) -> None:
        """Another replica plans from now on."""
        restore.step_down(self)

    def plan(self, snapshot: Snapshot) -> Plan:
        """One cycle; jobs over which it raises are put aside. Raises where it is no job's fault."""
        found = planned(snapshot, self.profile, halve=snapshot.now >= self.blameless_until)
        if found.blameless:
            self.blameless_until = snapshot.now + PAUSE_MOST
        for key, error in found.culprits.items():
            set_aside(self, key, "plan", error, snapshot.now)
        return found.plan

    def take_faults(self) -> list[Fault]:
        """What raised since this was last asked, for the log."""
        faults, self.faults = self.faults, []
        return faults

    def snapshot(self, now: float) -> Snapshot:
        """Everything that a plan may depend on, at `now`."""
        if self.in_place is not None:
            devices_failed(self, self.in_place.take_failed(), now)
        found = snapshots.snapshot_of(self, now)
        if self.in_place is None:
            return found
        try:
            jobs = snapshots.in_place(self)
            quotas = blockers.quotas_in_place(self, jobs, now)
            room = snapshots.room(found.nodes)
            return self.in_place.snapshot(found, jobs, self.charges.charged, quotas, self.job_of, room)
        except Exception as error:
            devices_failed(self, self.in_place.culprits(found) or {None: error}, now)
            return found

    def adopt(self, snapshot: Snapshot, plan: Plan) -> tuple[Action, ...]:
        """Make the plan ours and say what to do about it. 6 diff into actions (design §3).

        Actions stand in the plan's order, so gates come off in the order of the queue. All or nothing for each job
        (core.state.quarantine).
        """
        now = snapshot.now
        if self.in_place is not None:
            try:
                plan = self.in_place.plan(snapshot, plan)
            except Exception as error:
                devices_failed(self, self.in_place.culprits(snapshot, plan) or {None: error}, now)
                plan = left_out(plan, self.in_place.sizes)
        self.believed = believed(snapshot, self.profile, [])
        self.rest(now, plan)
        steps, evictions, behind = Adoption(self, now), let_out(self), let_out(self, told=False)
        for uid in self.unsaid:
            if (key := self.job_of.get(uid)) is not None:
                steps.of(key, partial(ungated_at_birth, self, key, uid))
        self.created_ungated -= {uid for uid in self.unsaid if uid not in self.job_of}
        self.unsaid.clear()
        for undo in plan.unpins:
            steps.of(undo.job, partial(self._undo, undo, now))
        for key, why in plan.back.items():
            steps.of(key, partial(send_back, self, key, plan.ends[key], why, now))
        for key, why in plan.preempted.items():
            steps.of(key, partial(self._preempt, key, plan.ends[key], why, now))
        overtake(self, plan)
        for shrink in plan.shrinks:
            steps.of(shrink.job, partial(let_go, self, plan, shrink, now))
        returning = plan.back.keys() | plan.preempted.keys()
        for key, reservations in plan.reservations.items():
            job_state = self.entries.get(key)
            if job_state is not None and key not in returning and job_state.planned != reservations:
                steps.of(key, partial(self._hold, job_state, plan, reservations, now))
            elif job_state is not None and job_state.desired.reservations is None:
                job_state.desired.reservations = reservations
        self._share(snapshot, plan)
        self.short_jobs.clear()
        for key, status in plan.statuses.items():
            job_state = self.entries.get(key)
            if job_state is None or job_state.job is None:
                continue
            if status.reason in (Reason.PODS_MISSING, Reason.QUOTA) and job_state.job.expects:
                blockers.ask_for_quotas(self, job_state, now)
            if (
                not plan.shared
                and status.reason is Reason.SHARE
                and job_state.recorded.told[:2] == (status.state, Reason.SHARE)
            ):
                # between rounds what the last one said holds
                status = status._replace(message=job_state.recorded.told[2])
            said = job_state.said
            if said is not None and said[0] is job_state.job and tell_alike(said[1], status):
                continue
            steps.of(key, partial(self._tell, job_state, job_state.job, status, now))
        self._tell_all(steps, snapshot, plan)
        self.recorded.clear()
        blockers.forget_quotas(self, now)
        return (*evictions, *recorded_first(self, (*behind, *steps.actions)))

    def _tell_all(self, steps: Adoption, snapshot: Snapshot, plan: Plan) -> None:
        """What is to be done beside the plan: told, put back, asked for."""
        now = snapshot.now
        evictions: dict[JobKey, list[Evict]] = {}
        for action in steps.actions:
            if isinstance(action, Evict):
                evictions.setdefault(action.job, []).append(action)
        for key, each in evictions.items():
            steps.of(key, partial(ends_told, key, each))
        for uid in sorted(self.half_done):
            key = self.job_of[uid]
            steps.of(key, partial(put_back, self, key, uid, now))
        blockers.forget_budgets(self)
        for key in sorted(self.guarded_jobs):
            steps.of(key, partial(blockers.tell_guarded, self, key, now))
        chosen = steps.over(plan.order, partial(chosen_for_nodes, self, snapshot, plan)) or ()
        for key in sorted(self.asked):
            steps.of(key, partial(drop_nodes, self, key, chosen, now))
        for key in chosen:
            steps.of(key, partial(ask_for_nodes, self, snapshot, key))
        for key, (reason, length) in self.to_tell.items():
            steps.of(key, partial(queue_time.tell, self, key, reason, length))
        self.to_tell.clear()
        for key in list(turns_told(self, plan, steps.actions, now)):
            steps.of(key, partial(tell_turn, self, plan, key, now))
        for key, words in self.in_place.to_warn() if self.in_place is not None else ():
            steps.of(key, partial(warned, self, key, words))
        # of jobs that are no more: floats and texts, over which nothing raises
        steps.actions += teach(self, now)

    def _undo(self, undo: Unpin, now: float) -> Iterator[Action]:
        leave_out(self, undo.job, undo.role, undo.node, now)
        if undo.ends:
            yield from evict(self, undo.job, undo.uid, EndReason.PIN_UNDONE, f"unpin: {undo.why}", now)
        else:
            give_up(self, undo.job, undo.uid, undo.why, now)

    def _preempt(self, key: JobKey, reason: EndReason, why: str, now: float) -> Iterator[Action]:
        yield from all_back(self, key, reason, why, now)
        self.entries[key].desired.preempted = why

    def _hold(
        self, job_state: JobState, plan: Plan, reservations: tuple[Reservation, ...], now: float
    ) -> None:
        set_holds(self, job_state, reservations)
        self.dirty.add(job_state.key)
        if job_state.job is not None and len(reservations) > len(job_state.job.reservations):
            begin_change(self, job_state, plan, now)

    def _tell(self, job_state: JobState, job: Job, status: Status, now: float) -> Iterator[Action]:
        yield from leftovers(self, job_state, now)
        yield from told_to_leave(self, job_state, job, now)
        yield from diff(self, job_state, job, status, now)

    def _share(self, snapshot: Snapshot, plan: Plan) -> None:
        """What the plan says of shares, kept for the next one and for the Gangs."""
        self.whys, self.shares, self.queue = plan.whys, plan.shares, plan  # sentences are made when written
        if plan.shared:
            self.shared_at = snapshot.now
            out_of_round(self, plan)
        for key, memory in plan.memory.items():
            job_state = self.entries.get(key)
            if job_state is not None:
                job_state.memory = {**job_state.memory, **memory}
                self.heard.add(key)
        keep_grants(self, snapshot, plan)

    def proceed(self, now: float) -> tuple[Action, ...]:
        """Between two cycles: the gates of places that the API has recorded since, evictions that waited for it.

        The plan has decided them; waiting for the next one would make every start as slow as the planning of
        the whole cluster. Only for whoever leads.
        """
        if not (self.recorded or self.held_back):  # nearly every time, and it is asked at each event
            return ()
        recorded, self.recorded = self.recorded, []
        steps = Adoption(self, now)
        for job_state in (self.entries.get(key) for key in recorded):
            if (
                job_state is not None
                and job_state.job is not None
                and job_state.desired.reservations is not None
            ):
                steps.of(
                    job_state.key,
                    partial(ungate, self, job_state, job_state.job, job_state.desired.reservations, now),
                )
        return (*let_out(self), *steps.actions)

    def rest(self, now: float, plan: Plan) -> None:
        """A plan that is only looked at (another replica leads, or mode: observe): when to look again."""
        self.requeue_at = {w for w in self.requeue_at if w > now}
        if plan.requeue_at is not None:
            self.requeue_at.add(plan.requeue_at)

    def due(self, now: float) -> bool:
        """Whether a cycle could decide anything new: something was learnt, or a time has come."""
        return (
            bool(self.dirty)
            or self.charges.moved
            or self.charges.stale
            or any(w <= now for w in self.requeue_at)
            or (self.in_place is not None and self.in_place.moved)
        )

    @property
    def wake(self) -> float | None:
        """When a cycle is due although nothing happens."""
        return min(self.requeue_at, default=None)

    def view(self, snapshot: Snapshot, plan: Plan, *, leading: bool, synced: bool) -> View:
        """What the extender verbs and the API read until the next cycle."""
        places: dict[str, tuple[JobKey, Reservation]] = {}
        for job_state in self.entries.values():
            for reservation in job_state.planned:
                if reservation.uid:
                    places[reservation.uid] = (job_state.key, reservation)
        free = self.charges.free() if self.charges.current(snapshot.nodes) else snapshot.free
        return View(
            snapshot=snapshot,
            plan=plan,
            profile=self.profile,
            reservations=places,
            free=free,
            released=frozenset(self.released),
            leading=leading,
            synced=synced,
            ended=dict(self.ended),
            ungated=len(self.created_ungated),
            in_place=self.in_place.shown() if self.in_place is not None else None,
        )

"""The Ledger: events in (`apply`), frozen Snapshots out (`snapshot`); a Plan in, Actions out (`adopt`).

What became of the actions comes back as events. Nothing here knows a client, a clock or a log: the driver passes
`now`.

Invariant: a gate comes off only for a pod whose uid and node stand in a placement on the API (`Entry.records`): in
the Gang's status, or, of a small job's start, on its first pod, which gets it with its own gate. So a crash between
any two requests loses nothing: the next leader reads the placement and goes on. Capacity is charged by pod uid from
the hold until the pod has ended (core.charges).
"""

from __future__ import annotations

from muster.core import events, recall, snapshots
from muster.core.asking import ask_for_nodes
from muster.core.endings import all_back, evict, leave_out, leftovers, put_back, send_back
from muster.core.estimate import believed
from muster.core.gates import ungate, ungated_at_birth
from muster.core.leaving import begin_change, let_go
from muster.core.memory import Memory
from muster.core.obstacles import ask_for_quotas, forget_quotas, tell_guarded
from muster.core.places import set_holds
from muster.core.teaching import teach
from muster.core.telling import tell_alike
from muster.core.view import View
from muster.core.writing import diff
from muster.types import Action, Code, Event, Hold, JobKey, Plan, Snapshot


class Ledger(Memory):
    """What the driver talks to: events in, Snapshots out, plans in, actions out."""

    def apply(self, event: Event, now: float) -> None:
        """Learn one event, and what became of an action of ours. Late and repeated events are harmless."""
        events.apply(self, event, now)

    def take_over(self) -> None:
        """Become the one who plans: what the API says counts, intents of an earlier term are forgotten."""
        recall.take_over(self)

    def step_down(self) -> None:
        """Another replica plans from now on."""
        recall.step_down(self)

    def snapshot(self, now: float) -> Snapshot:
        """Everything that a plan may depend on, at `now`."""
        return snapshots.snapshot_of(self, now)

    def adopt(self, snapshot: Snapshot, plan: Plan) -> tuple[Action, ...]:
        """Make the plan ours and say what to do about it. 6 diff into actions (design §3).

        Actions stand in the plan's order, so gates come off in the order of the queue.
        """
        now = snapshot.now
        self.believed = believed(snapshot, self.profile, [])
        self.rest(now, plan)
        actions: list[Action] = list(ungated_at_birth(self))
        for undo in plan.undo:
            leave_out(self, undo.job, undo.role, undo.node, now)
            actions += evict(self, undo.job, undo.uid, f"undo a pin: {undo.why}", now)
        for key, why in plan.back.items():
            actions += send_back(self, key, why, now)
        for key, why in plan.preempted.items():
            actions += all_back(self, key, why, now)
            self.entries[key].preempted = why
        actions += let_go(self, plan, now)
        returning = plan.back.keys() | plan.preempted.keys()
        for key, holds in plan.holds.items():
            entry = self.entries.get(key)
            if entry is not None and key not in returning and entry.planned != holds:
                set_holds(self, entry, holds)
                self.dirty.add(key)
                if entry.job is not None and len(holds) > len(entry.job.holds):
                    begin_change(self, entry, plan, now)
            elif entry is not None and entry.holds is None:
                entry.holds = holds
        self._share(snapshot, plan)
        self.short_jobs.clear()
        for key, status in plan.statuses.items():
            entry = self.entries.get(key)
            if entry is None or entry.job is None:
                continue
            if status.code in (Code.PODS_MISSING, Code.QUOTA) and entry.job.expects:
                ask_for_quotas(self, entry, now)
            if entry.said is not None and entry.said[0] is entry.job and tell_alike(entry.said[1], status):
                continue
            actions += leftovers(self, entry, now)
            actions += diff(self, entry, entry.job, status, now)
        actions += put_back(self, now)
        actions += tell_guarded(self, now)
        actions += ask_for_nodes(self, snapshot, plan)
        actions += teach(self, now)
        self.recorded.clear()
        forget_quotas(self)
        return tuple(actions)

    def _share(self, snapshot: Snapshot, plan: Plan) -> None:
        """What the plan says of shares, kept for the next one and for the Gangs."""
        self.whys = plan.whys  # a sentence is made when it is written
        if plan.shared:
            self.shared_at = snapshot.now
        for key, memory in plan.memory.items():
            entry = self.entries.get(key)
            if entry is not None:
                entry.memory = {**entry.memory, **memory}
                self.heard.add(key)
        for key in plan.shares:
            entry = self.entries.get(key)
            if entry is None:
                continue
            want = plan.wants.get(key)
            if entry.want != want:
                entry.want = want
                self.heard.add(key)

    def proceed(self, now: float) -> tuple[Action, ...]:
        """Between two cycles: the gates of places that the API has recorded since.

        The plan has decided them; waiting for the next one would make every start as slow as the planning of
        the whole cluster. Only for whoever leads.
        """
        recorded, self.recorded = self.recorded, []
        actions: list[Action] = []
        for entry in (self.entries.get(key) for key in recorded):
            if entry is not None and entry.job is not None and entry.holds is not None:
                actions += ungate(self, entry, entry.job, entry.holds, now)
        return tuple(actions)

    def rest(self, now: float, plan: Plan) -> None:
        """A plan that is only looked at (another replica leads, or mode: observe): when to look again."""
        self.wakes = {w for w in self.wakes if w > now}
        if plan.wake is not None:
            self.wakes.add(plan.wake)

    def due(self, now: float) -> bool:
        """Whether a cycle could decide anything new: something was learnt, or a time has come."""
        return (
            bool(self.dirty) or self.charges.moved or self.charges.stale or any(w <= now for w in self.wakes)
        )

    @property
    def wake(self) -> float | None:
        """When a cycle is due although nothing happens."""
        return min(self.wakes, default=None)

    def view(self, snapshot: Snapshot, plan: Plan, *, leading: bool, synced: bool) -> View:
        """What the extender verbs and the API read until the next cycle."""
        places: dict[str, tuple[JobKey, Hold]] = {}
        for entry in self.entries.values():
            for hold in entry.planned:
                if hold.uid:
                    places[hold.uid] = (entry.key, hold)
        free = self.charges.free() if self.charges.current(snapshot.nodes) else snapshot.free
        return View(
            snapshot=snapshot,
            plan=plan,
            profile=self.profile,
            holds=places,
            free=free,
            released=frozenset(self.released),
            leading=leading,
            synced=synced,
            ungated=len(self.created_ungated),
        )

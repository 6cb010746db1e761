"""The Ledger: what was observed (core.memory), and the way from a plan to actions.

A Plan goes in and Actions come out (`adopt`); what became of them comes back as events. Nothing here knows a
client, a clock or a log: the driver passes `now`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from muster.core.endings import Endings
from muster.core.entry import Entry
from muster.core.estimate import believed
from muster.core.outlook import outlook
from muster.core.table import declared
from muster.core.telling import gang_name, sayings, sizes_of, status_of, tell_alike
from muster.core.view import View
from muster.points import Estimation, Profile
from muster.types import (
    Action,
    AskNodes,
    Code,
    DeleteGang,
    DropNodes,
    Event,
    Evict,
    Expose,
    Hold,
    Job,
    JobKey,
    Nominate,
    Outcome,
    Phase,
    Plan,
    Retrack,
    Say,
    Snapshot,
    State,
    Status,
    Ungate,
    WriteGang,
    WriteLearned,
)

QUIET = 2.0
"""Seconds without a new pod before "3 of 12 pods exist" is worth a write; creation times are cut to whole seconds, so
at least one has passed."""
RETRY = 0.5
"""Seconds before a request that was refused is planned again (a newer event may make it needless)."""
RETRY_EVICTION = 5.0
REFUSED, CHANGED, NOT_SENT = 429, 409, -1
"""Outcomes of an eviction: a PodDisruptionBudget does not allow it now; the pod changed meanwhile; called back."""
KEEPS_FIRST, KEEPS_MOST, KEEPS_WHOLE = 5.0, 300.0, 1800.0
"""Seconds for which a job is not made smaller after a refused eviction: the first time, doubling up to the most; and
where the whole job was to go: a budget that lets a part of it go costs it a restart for nothing each time."""
KEPT_EVERY = 60.0
"""Seconds between two writes of a Gang of which only progress, speeds or a plugin's memory are new."""
TEACH_EVERY = 60.0
"""Seconds between two writes of what jobs taught."""
ASK_RETRY, ASK_ANEW = 60.0, 600.0
"""Seconds before nodes are asked for again: after a request that the API refused, and after one that brought none."""


class Ledger(Endings):
    """State across cycles, and what is done about a plan; see the module's docstring."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self._recorded: list[JobKey] = []
        self._believed: Callable[[Job], Estimation] = lambda job: declared(job, 0.0)
        self._whys: Mapping[JobKey, str] = {}
        self._taught_at = -math.inf
        self._teacher = JobKey("", "")
        self.overtaken: frozenset[str] = frozenset()
        """Pods whose eviction is under way and not wanted any more: it is called back where it has not begun."""

    # ---- plan in, actions out ----

    def adopt(self, snapshot: Snapshot, plan: Plan) -> tuple[Action, ...]:
        """Make the plan ours and say what to do about it. 6 diff into actions (design §3).

        Actions stand in the plan's order, so gates come off in the order of the queue.
        """
        now = snapshot.now
        self._believed = believed(snapshot, self.profile, [])
        self.rest(now, plan)
        actions: list[Action] = list(self._ungated_at_birth())
        for undo in plan.undo:
            self._leave_out(undo.job, undo.role, undo.node, now)
            actions += self._evict(undo.job, undo.uid, f"undo a pin: {undo.why}", now)
        for key, why in plan.back.items():
            actions += self._send_back(key, why, now)
        for key, why in plan.preempted.items():
            actions += self._all_back(key, why, now)
            self._entries[key].preempted = why
        actions += self._shrink(plan, now)
        returning = plan.back.keys() | plan.preempted.keys()
        for key, holds in plan.holds.items():
            entry = self._entries.get(key)
            if entry is not None and key not in returning and entry.planned != holds:
                self._set_holds(entry, holds)
                self._dirty.add(key)
                if entry.job is not None and len(holds) > len(entry.job.holds):
                    self._resizes(entry, plan, now)
            elif entry is not None and entry.holds is None:
                entry.holds = holds
        self._share(snapshot, plan)
        self._short.clear()
        for key, status in plan.statuses.items():
            entry = self._entries.get(key)
            if entry is None or entry.job is None:
                continue
            if status.code in (Code.PODS_MISSING, Code.QUOTA) and entry.job.expects:
                self._ask_for_quotas(entry, now)
            if entry.said is not None and entry.said[0] is entry.job and tell_alike(entry.said[1], status):
                continue
            actions += self._leftovers(entry, now)
            actions += self._diff(entry, entry.job, status, now)
        actions += self._put_back(now)
        actions += self._guard(now)
        actions += self._ask_for_nodes(snapshot, plan)
        actions += self._teach(now)
        self._recorded.clear()
        self._forget_quotas()
        return tuple(actions)

    # ---- shares ----

    def _shrink(self, plan: Plan, now: float) -> Iterator[Action]:
        """Replicas that leave while their job goes on. Evictions that an earlier plan decided and that have not begun
        are called back where this plan makes the job larger again."""
        asked = {uid for kind, uid in self._in_flight if kind == "evict"} & self._shrinking
        self.overtaken = frozenset(uid for uid in asked if self._grows(uid, plan))
        for shrink in plan.shrinks:
            evictions = tuple(self._evict(shrink.job, shrink.uid, shrink.cause, now))
            if evictions:
                self._shrinking.add(shrink.uid)
                self._resizes(self._entries[shrink.job], plan, now)
                self._dirty.add(shrink.job)
            yield from evictions

    def _grows(self, uid: str, plan: Plan) -> bool:
        """Whether the plan gives the pod's job more replicas than stay without it."""
        key = self._job_of.get(uid)
        job = self._jobs.get(key) if key is not None else None
        return job is not None and job.elastic is not None and plan.shares.get(job.key, 0) > job.elastic.bound

    def _resizes(self, entry: Entry, plan: Plan, now: float) -> None:
        """A change of a running job's size begins; the next one counts once this one is complete."""
        key, job = entry.key, entry.job
        if entry.changing or job is None or key not in plan.shares or not job.bound:
            return
        entry.changing = True
        entry.facts = replace(entry.facts, last_resize=now, resizes=entry.facts.resizes + 1)
        self._dirty.add(key)

    def _share(self, snapshot: Snapshot, plan: Plan) -> None:
        """What the plan says of shares, kept for the next one and for the Gangs."""
        self._whys = plan.whys  # a sentence is made when it is written
        if plan.shared:
            self.shared_at = snapshot.now
        for key, memory in plan.memory.items():
            entry = self._entries.get(key)
            if entry is not None:
                entry.memory = {**entry.memory, **memory}
                self._heard.add(key)
        for key in plan.shares:
            entry = self._entries.get(key)
            if entry is None:
                continue
            want = plan.wants.get(key)
            if entry.want != want:
                entry.want = want
                self._heard.add(key)

    def _ask_for_quotas(self, entry: Entry, now: float) -> None:
        """Where an owner's pods don't appear, a quota may be why."""
        if now - entry.newest_pod >= QUIET:
            self._short.add(entry.key)
        else:
            self._wakes.add(entry.newest_pod + QUIET)

    def _forget_quotas(self) -> None:
        wanted = frozenset((key.namespace,) for key in self._short)
        if wanted != self.short:
            self.short = wanted
            for namespace in self._quotas.keys() - {name for (name,) in wanted}:
                del self._quotas[namespace]

    def _ask_for_nodes(self, snapshot: Snapshot, plan: Plan) -> Iterator[Action]:
        """What an autoscaler is asked for, and what it is not any more (points.Asking)."""
        now, asking = snapshot.now, self.profile.asking
        chosen, wake = asking.chosen(plan, snapshot, self._asked)
        if wake is not None:
            self._wakes.add(wake)
        for key in sorted(self._asked):
            entry = self._entries[key]
            old = now - entry.asked >= ASK_ANEW  # autoscalers give a request up for good
            if (key not in chosen or old) and not self._ask_waits(entry, now):
                entry.asking = True
                roles = [role.name for role in entry.job.roles] if entry.job is not None else []
                name = gang_name(key.name)
                yield DropNodes(key, name, tuple(f"{name}-{role}" for role in roles), "not wanted any more")
        for key in chosen:
            entry = self._entries[key]
            if asking.how == "ungate":
                yield from self._expose(entry, snapshot.jobs[key], now)
            elif entry.gang is not None and not entry.asked and not self._ask_waits(entry, now):
                entry.asking = True
                yield AskNodes(
                    key,
                    gang_name(key.name),
                    entry.gang.name,
                    entry.gang.object_uid,
                    asking.provisioning_class,
                    tuple((r.name, r.min, r.shape) for r in snapshot.jobs[key].roles if r.min),
                    "the head of the queue waits for nodes",
                )

    def _ask_waits(self, entry: Entry, now: float) -> bool:
        if entry.ask_again > now:
            self._wakes.add(entry.ask_again)
        return entry.asking or entry.ask_again > now

    def _expose(self, entry: Entry, job: Job, now: float) -> Iterator[Action]:
        """The gates of the minimum come off without a place; filter keeps the pods unbound until they have one."""
        for role in job.roles:
            for member in [m for m in role.members if m.ready][: role.min]:
                pod = entry.pods[member.uid]
                if pod.phase is Phase.GATED and not self._busy(pod.uid, now):
                    self._in_flight.add(("expose", pod.uid))
                    yield Expose(entry.key, pod.uid, pod.name, pod.version, "an autoscaler is to see it")

    def proceed(self, now: float) -> tuple[Action, ...]:
        """Between two cycles: the gates of places that the API has recorded since.

        The plan has decided them; waiting for the next one would make every start as slow as the planning of
        the whole cluster. Only for whoever leads.
        """
        recorded, self._recorded = self._recorded, []
        actions: list[Action] = []
        for entry in (self._entries.get(key) for key in recorded):
            if entry is not None and entry.job is not None and entry.holds is not None:
                actions += self._ungate(entry, entry.job, entry.holds, now)
        return tuple(actions)

    def _ungated_at_birth(self) -> Iterator[Action]:
        """Pods of ours that came without the gate: left alone, and said once. Those that we ungated are none."""
        for uid in self._unsaid:
            key = self._job_of.get(uid)
            entry = self._entries.get(key) if key is not None else None
            if entry is None or uid in {recorded for recorded, _ in entry.recorded}:
                self.created_ungated.discard(uid)
                continue
            yield Say(
                entry.key,
                "CreatedUngated",
                "was created without the scheduling gate muster.dev/queue, so Muster's admission was not in force; "
                "it is left as it is and gets a place when its job's turn comes",
                warning=True,
                pod=entry.pods[uid].name,
                uid=uid,
            )
        self._unsaid.clear()

    def rest(self, now: float, plan: Plan) -> None:
        """A plan that is only looked at (another replica leads, or mode: observe): when to look again."""
        self._wakes = {w for w in self._wakes if w > now}
        if plan.wake is not None:
            self._wakes.add(plan.wake)

    def _diff(self, entry: Entry, job: Job, status: Status, now: float) -> Iterator[Action]:
        entry.said = None
        self._clock(entry, job, status, now)
        if status.state is State.FINISHED:
            yield from self._finished(entry, job, status, now)
            return
        bound = sum(1 for r in job.roles for m in r.members if m.phase is Phase.BOUND)
        holds = entry.planned
        wanted = max(bound + len(holds), sum(r.min for r in job.roles))
        replicas = f"{bound}/{wanted}"
        telling = (str(status.state), str(status.code), status.waits, replicas)
        unrecorded = any(h.uid and (h.uid, h.node) not in entry.recorded for h in holds)
        # While a start is on its way only its placement is worth a write; counts follow when it is complete.
        moving = status.state in (State.STARTING, State.RESIZING)
        same = telling[:3] == entry.written[:3] and (moving or telling[3] == entry.written[3])
        scaled = not moving and entry.sizes is not None and sizes_of(job) != entry.sizes
        asked = entry.asked != entry.asked_kept
        barred = any(bar.until > now and bar not in entry.bars for bar in entry.barred.values())
        lived = self._lived_on(entry, now) or entry.keeps_told != (job.keeps or job.rigid)
        if not same or unrecorded or scaled or barred or asked or lived or entry.gang is None:
            quiet = not unrecorded and (status.code is Code.PODS_MISSING or same)
            yield from self._write(entry, job, status, telling, now, quiet=quiet)
        elif not holds and not self._owners.of_queue(entry.pods.values()):
            # A cycle changes a few of 10,000 jobs, and whatever is learnt of one makes its Job anew.
            entry.said = (job, status)
        yield from self._ungate(entry, job, holds, now)

    def _lived_on(self, entry: Entry, now: float) -> bool:
        """Whether what the job attained or reported, or why it has its share, is worth a write: with any other one,
        else once in a while."""
        runs = entry.job is not None and entry.job.bound > 0 and entry.key in self._whys
        if all(new is old for new, old in zip(entry.lived, entry.kept, strict=True)):
            if not runs:
                return False
            if now >= entry.kept_at + KEPT_EVERY and self._whys.get(entry.key, "") == entry.why:
                entry.kept_at = now  # looked at: it still holds
        if entry.gang is None or now >= entry.kept_at + KEPT_EVERY:
            return True
        self._again(entry.key, entry.kept_at + KEPT_EVERY)
        return False

    def _clock(self, entry: Entry, job: Job, status: Status, now: float) -> None:
        if entry.state != status.state:
            entry.state, entry.since = str(status.state), now
            self._dirty.add(entry.key)
        below = job.started and status.state is State.STARTING
        if below and not entry.below_since:
            entry.below_since = now
            self._wakes.add(now + self.profile.timeout)
            self._dirty.add(entry.key)
        elif not below and entry.below_since:
            entry.below_since = 0.0
            self._dirty.add(entry.key)
        if status.state is State.RUNNING and (not entry.started_at or entry.backoff):
            entry.started_at = entry.started_at or now
            entry.backoff, entry.not_before = 0, 0.0
            self._dirty.add(entry.key)
        if status.state is State.RUNNING:
            entry.sent_back = False
        if status.state is not State.FINISHED:
            entry.ended_at = 0.0

    def _write(
        self,
        entry: Entry,
        job: Job,
        status: Status,
        telling: tuple[str, str, str, str],
        now: float,
        *,
        quiet: bool,
    ) -> Iterator[Action]:
        if entry.writing:
            return
        if entry.retry_at > now:
            self._wakes.add(entry.retry_at)
            return
        if quiet and now - entry.newest_pod < QUIET:
            self._wakes.add(entry.newest_pod + QUIET)
            return
        entry.writing = True
        entry.why = self._whys.get(entry.key, "")
        holds = entry.planned
        name = gang_name(entry.key.name)
        other = self._gang_names.get((entry.key.namespace, name))
        yield WriteGang(
            job=entry.key,
            gang=name,
            owner=job.owner,
            status=status_of(entry, job, telling, holds, outlook(job, self._believed(job), now), now),
            exists=entry.gang is not None,
            holds=holds,
            sizes=sizes_of(job),
            barred=frozenset(entry.barred.values()),
            asked=entry.asked,
            kept=entry.lived,
            replaces=other.object_uid if other is not None and other.key != entry.key else "",
            cause=f"{status.state}: {status.waits}",
        )
        if telling[1:3] != entry.written[1:3]:
            yield from sayings(entry, job, status)

    def _ungate(self, entry: Entry, job: Job, holds: Iterable[Hold], now: float) -> Iterator[Action]:
        """Gates of recorded places; scored pods are nominated first, so that the space is kept (design §2)."""
        for hold in holds:
            if not hold.uid or (hold.uid, hold.node) not in entry.recorded:
                continue
            pod = entry.pods.get(hold.uid)
            if pod is None or pod.phase not in (Phase.GATED, Phase.UNGATED) or pod.deleting:
                continue
            if pod.pin or self._busy(hold.uid, now):
                continue
            if (job.scored or pod.phase is Phase.UNGATED) and pod.nominated != hold.node:
                self._in_flight.add(("nominate", hold.uid))
                if pod.phase is Phase.UNGATED:  # kube-scheduler may clear it again: no hot loop
                    self._retry[hold.uid] = now + RETRY_EVICTION
                yield Nominate(entry.key, hold.uid, pod.name, hold.node, "keep the planned space")
            elif pod.phase is Phase.GATED:
                self._in_flight.add(("ungate", hold.uid))
                self._dirty.add(entry.key)
                yield Ungate(
                    entry.key,
                    hold.uid,
                    pod.name,
                    pod.version,
                    hold.node,
                    not job.scored,
                    "start",
                    pod.affinity_terms,
                    self._within(job, hold),
                    pod.applied,
                )

    def _within(self, job: Job, hold: Hold) -> tuple[str, str]:
        """The node label that keeps a scored pod in its job's domain where no filter verb of ours does."""
        node = self._charges.nodes.get(hold.node)
        if self.profile.binder != "cluster" or not (job.scored and job.topology_required) or node is None:
            return "", ""
        return job.topology_required, node.labels.get(job.topology_required, "")

    def _finished(self, entry: Entry, job: Job, status: Status, now: float) -> Iterator[Action]:
        """Said once, and removed a set time later; an owner that is deleted takes its Gang along anyway."""
        if not entry.ended_at:
            if entry.gang is None or not entry.gang.ended:
                self._learn(entry, job)
            entry.ended_at = (entry.gang.ended if entry.gang is not None else 0.0) or now
        if entry.planned:
            self._set_holds(entry, ())
        telling = (str(State.FINISHED), str(status.code), status.waits, "0/0")
        if entry.gang is None and not entry.pods:
            return
        if entry.gang is not None and now >= entry.ended_at + self.profile.forget:
            if not entry.writing:
                entry.writing = True
                yield DeleteGang(entry.key, entry.gang.name, entry.gang.object_uid, "the job ended long ago")
            return
        self._wakes.add(entry.ended_at + self.profile.forget)
        if telling[:3] != entry.written[:3] and (entry.gang is not None or entry.started_at):
            yield from self._write(entry, job, status, telling, now, quiet=False)

    def _learn(self, entry: Entry, job: Job) -> None:
        """What the job taught, for those of its image and model that come after it."""
        phases = {pod.phase for pod in entry.pods.values()}
        well = Phase.SUCCEEDED in phases and Phase.FAILED not in phases
        self.lessons.learn(job, entry.track, ended_well=well)
        self._teacher = entry.key

    def _teach(self, now: float) -> Iterator[Action]:
        """What was learned since the last time, at most every TEACH_EVERY seconds."""
        if not self.lessons.changed:
            return
        due = self._taught_at + TEACH_EVERY
        if now < due:
            self._wakes.add(due)
            return
        self._taught_at = now
        yield WriteLearned(self._teacher, self.lessons.plain(), "jobs have ended")

    # ---- outcomes ----

    def apply(self, event: Event, now: float) -> None:
        """Learn one event, and what became of an action of ours. Late and repeated events are harmless."""
        if isinstance(event, Outcome):
            self._outcome(event, now)
        else:
            super().apply(event, now)

    def _outcome(self, outcome: Outcome, now: float) -> None:
        action, good = outcome.action, 200 <= outcome.status < 300
        entry = self._entries.get(action.job)
        match action:
            case WriteGang():
                if entry is None:
                    return
                entry.writing = False
                self._dirty.add(entry.key)
                if good:
                    entry.recorded = frozenset((h.uid, h.node) for h in action.holds if h.uid)
                    self._recorded.append(entry.key)
                    status = action.status
                    entry.written = (
                        str(status["state"]),
                        str(status["code"]),
                        str(status["reason"]),
                        str(status["replicas"]),
                    )
                    entry.sizes, entry.bars = action.sizes, action.barred
                    entry.asked_kept = action.asked
                    entry.keeps_told = str(status.get("keeps") or "")
                    entry.kept, entry.kept_at = action.kept, now
                else:
                    if outcome.status == 404:
                        entry.gang = None
                    self._put_off(entry, now)
            case DeleteGang():
                if entry is not None:
                    entry.writing = False
                    if not good and outcome.status != 404:
                        self._put_off(entry, now)
            case AskNodes() | DropNodes():
                if entry is not None:
                    self._asked_for(entry, action, good, now)
            case Ungate(uid=uid) | Nominate(uid=uid) | Evict(uid=uid) | Expose(uid=uid) | Retrack(uid=uid):
                kind = type(action).__name__.lower()
                self._in_flight.discard((kind, uid))
                if entry is not None:
                    self._dirty.add(entry.key)
                if entry is not None and isinstance(action, Evict) and good:
                    self._goes(entry, uid)
                if entry is not None and isinstance(action, Evict) and uid in self._shrinking:
                    self._shrunk(entry, uid, outcome, now)
                elif entry is not None and isinstance(action, Evict) and outcome.status == REFUSED:
                    self._stays(entry, outcome, KEEPS_WHOLE, now)
                    entry.preempted = ""  # what is gone of it comes back to it first
                if not good:
                    slow = isinstance(action, Evict) and outcome.status not in (CHANGED, NOT_SENT)
                    pause = RETRY_EVICTION if slow else RETRY
                    self._retry[uid] = now + pause
                    self._wakes.add(now + pause)
            case WriteLearned():
                if not good:
                    self.lessons.changed = True  # tried again with what is learned until then
                    self._wakes.add(self._taught_at + TEACH_EVERY)
            case Say():
                pass

    def _shrunk(self, entry: Entry, uid: str, outcome: Outcome, now: float) -> None:
        """One that was to leave leaves, or may not: then its job stays as large as it is for a time that doubles."""
        if 200 <= outcome.status < 300:
            entry.keeps_for = 0.0
            return
        self._shrinking.discard(uid)
        if entry.changing:
            entry.changing = False
            entry.facts = replace(entry.facts, resizes=max(0, entry.facts.resizes - 1))
        if outcome.status == REFUSED:
            self._stays(entry, outcome, min(2 * entry.keeps_for or KEEPS_FIRST, KEEPS_MOST), now)

    def _stays(self, entry: Entry, outcome: Outcome, length: float, now: float) -> None:
        """A PodDisruptionBudget does not let it go: it keeps its size for so many seconds, and its owner is told."""
        entry.keeps_for = length
        entry.keeps, entry.keeps_until = outcome.message, now + length
        self._again(entry.key, entry.keeps_until)
        self._guarded.add(entry.key)

    def _asked_for(self, entry: Entry, action: AskNodes | DropNodes, good: bool, now: float) -> None:
        entry.asking = False
        self._dirty.add(entry.key)
        if not good:
            entry.ask_again = now + ASK_RETRY
        elif isinstance(action, AskNodes):
            entry.asked = now
            self._asked.add(entry.key)
        else:
            entry.asked = 0.0
            self._asked.discard(entry.key)

    def _put_off(self, entry: Entry, now: float) -> None:
        entry.retry_at = now + RETRY
        self._wakes.add(entry.retry_at)

    def due(self, now: float) -> bool:
        """Whether a cycle could decide anything new: something was learnt, or a time has come."""
        return (
            bool(self._dirty)
            or self._charges.moved
            or self._charges.stale
            or any(w <= now for w in self._wakes)
        )

    @property
    def wake(self) -> float | None:
        """When a cycle is due although nothing happens."""
        return min(self._wakes, default=None)

    # ---- readers ----

    def view(self, snapshot: Snapshot, plan: Plan, *, leading: bool, synced: bool) -> View:
        """What the extender verbs and the API read until the next cycle."""
        places: dict[str, tuple[JobKey, Hold]] = {}
        for entry in self._entries.values():
            for hold in entry.planned:
                if hold.uid:
                    places[hold.uid] = (entry.key, hold)
        free = self._charges.free() if self._charges.current(snapshot.nodes) else snapshot.free
        return View(
            snapshot=snapshot,
            plan=plan,
            profile=self.profile,
            holds=places,
            free=free,
            released=frozenset(self._released),
            leading=leading,
            synced=synced,
            ungated=len(self.created_ungated),
        )

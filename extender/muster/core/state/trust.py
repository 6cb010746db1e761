"""What is believed of a pod that says it has passed the queue: its pin, the placement that it carries, its release.

Each can be written by anybody who may create a pod. Admission lets only Muster and the break-glass group write them;
where it is not in force, this is the second wall:

- A pin counts where Muster recorded it: in the Gang's placement, or in the plan that the first pod of the start
  carries. Any other is a wish of the pod's owner, as a selector is: no place, no charge, and it waits for its turn
  (`claimed`).
- A plan or a release counts on a pod that had our gate, in a namespace that has opted in. One that the watch saw come
  without the gate never passed the queue, whatever it says.

Not known here: who wrote what on a pod that was there before this process was, or that lost its gate by hand while
admission was off.
"""

from __future__ import annotations

from dataclasses import replace

from muster.core.state.job_state import JobState
from muster.core.state.state import LedgerState
from muster.core.workload.identity import lives_elsewhere
from muster.types import GangRecord, Phase, PodRecord, Requirement, Shape, Term

NAME_FIELD = "metadata.name"


def trusted(state: LedgerState, job_state: JobState, pod: PodRecord) -> PodRecord:
    """The pod with what may be believed of it; asked again (`trust_again`) when more is recorded."""
    open_by_us = pod.uid not in state.came_open and not state.outside(pod.namespace)
    if pod.phase is Phase.RELEASED and not open_by_us:
        pod = replace(pod, phase=Phase.UNGATED)
    if pod.carries and not (
        open_by_us and any((h.uid, h.node) == (pod.uid, pod.pin or pod.claimed) for h in pod.carries)
    ):
        pod = replace(pod, carries=())
    if pod.phase is not Phase.UNGATED or not (pod.pin or pod.claimed):
        return pod
    node = pod.pin or pod.claimed
    if open_by_us and _vouched(job_state, pod, node):
        return pod if pod.pin else replace(pod, pin=node, claimed="", shape=_without(pod.shape))
    return replace(pod, pin="", claimed=node, shape=_with(pod.shape, node)) if pod.pin else pod


def placed_by_us(state: LedgerState, gang: GangRecord) -> GangRecord:
    """The Gang without places of pods that came open: where a later leader planned them, it plans them again."""
    if state.outside(gang.key.namespace):
        return replace(gang, placement=())
    if not any(h.uid in state.came_open for h in gang.placement):
        return gang
    return replace(gang, placement=tuple(h for h in gang.placement if h.uid not in state.came_open))


def of_its_namespace(state: LedgerState, pod: PodRecord) -> PodRecord:
    """A pod without a controller that is known to live in another namespace: such a reference counts for nothing, as
    in Kubernetes, whose garbage collector takes that owner for gone."""
    owner = pod.controller
    if owner is None or not lives_elsewhere(state.owners.records.get(owner.uid), pod.namespace):
        return pod
    state.owners.left(pod)
    state.owners.leave(pod.uid)
    return replace(pod, controller=None)


def trust_again(state: LedgerState, job_state: JobState) -> list[PodRecord]:
    """Pods whose pin is recorded by now. One that came open was never pinned by us: it was nominated."""
    if state.outside(job_state.key.namespace):
        return []
    claiming = [p for p in job_state.pods.values() if p.claimed and p.uid not in state.came_open]
    return [p for p in claiming if _vouched(job_state, p, p.claimed)]


def _vouched(job_state: JobState, pod: PodRecord, node: str) -> bool:
    if pod.uid in job_state.given_up:
        return False
    before = job_state.pods.get(pod.uid)
    if before is not None and before.pin == node:  # it was believed, and a pin does not change
        return True
    place = (pod.uid, node)
    return place in job_state.recorded.places or any(
        (h.uid, h.node) == place for h in (*pod.carries, *job_state.carried)
    )


def _with(shape: Shape, node: str) -> Shape:
    """The shape as its pod has it: decoding took the pin off."""
    pin = Requirement(NAME_FIELD, "In", (node,))
    terms = shape.affinity or (Term(),)
    return replace(shape, affinity=tuple(Term(t.expressions, (*t.fields, pin)) for t in terms))


def _without(shape: Shape) -> Shape:
    terms = tuple(Term(t.expressions, t.fields[:-1]) for t in shape.affinity)
    return replace(shape, affinity=() if terms == (Term(),) else terms)

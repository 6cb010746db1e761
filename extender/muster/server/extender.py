"""The extender verbs that the kube-scheduler beside us calls: /filter, /prioritize, /preempt.

Each reads the newest View through a Guard and answers; nothing is written, no lock is taken. Nothing waits, but for
one: a replica that follows (a team's own scheduler reaches any) learns a moment later what the leader has recorded.
It looks again for LATE seconds before it refuses a pod.

What is answered when something is wrong, and why so:
- A body that can't be understood is 400, one above 8 MB is 413, in the verb's own form with `Error` set.
  kube-scheduler never reads the body of a non-200 answer and counts it as an error of the extender; it never
  sends such a body either, so the text is for whoever did.
- A request that was understood and can't be answered is 200 with `Error` set: kube-scheduler puts that text
  into the pod's event and tries the pod again, and does not mark it Unschedulable (a refusal would count as
  evidence against the pod's pin). So it is before the first sync, for an empty list of nodes, and where no
  node of the list is known. Single unknown nodes among known ones fail alone, with a constant text.
- prioritize has no place for an error and kube-scheduler swallows it: before the first sync all scores are 0.
  preempt then vetoes every node.

Refused nodes are FailedAndUnresolvableNodes: FailedNodes would make kube-scheduler try preemption there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter

from starlette.requests import ClientDisconnect
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from muster.core.views.extender_rules import OTHER_NODE, UNKNOWN, ExtenderRules
from muster.core.views.view import Board
from muster.core.workload import identity
from muster.errors import UsageError
from muster.server import extender_types

log = logging.getLogger(__name__)

MOST = 8 * 1024 * 1024
"""Bytes of the largest body that is read. 5,000 node names are about 100 kB; whole nodes can be megabytes."""
PATIENCE = 4 * MOST
"""Bytes that are read, though not kept, before an answer is given and the connection closed."""
NOT_SYNCED = "muster has not read the whole cluster yet"
NO_NODES = "no node is named"
NONE_KNOWN = "muster knows none of these nodes"
JSON = b"application/json"
LATE, GLANCE = 0.8, 0.02
"""Seconds for which a follower looks again, below the httpTimeout of config/existing-scheduler (1 s); and between."""
REFUSED = "refused"

Verb = Callable[[ExtenderRules, bytes], tuple[bytes, str]]
"""A body in, the answer and a word for the metrics out."""
Note = Callable[[str, int, str, float], None]
"""Called for each call that was answered: verb, HTTP status, verdict ("" where there is none), seconds."""


class TooLargeError(UsageError):
    """A body above the limit."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the body is above {most} bytes")


class Newest:
    """The Guard of the newest View, made once for each View."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._guard = ExtenderRules(board.view)

    def guard(self) -> ExtenderRules:
        """What the newest View allows."""
        view = self._board.view
        if self._guard.view is not view:
            self._guard = ExtenderRules(view, self._guard)
        return self._guard


def make_extender_app(
    board: Board, note: Note = lambda *_: None, scheduler: str = "muster", late: float = LATE
) -> ASGIApp:
    """The app for 127.0.0.1: it has no authentication of its own.

    `scheduler` is the schedulerName of ours; `late`: seconds for which a follower looks again before it refuses.
    """
    newest = Newest(board)
    routes = [
        Route(f"/{name}", _Endpoint(name, verb, refuse, newest, note, late), methods=["POST"])
        for name, verb, refuse in (
            ("filter", partial(filter_verb, scheduler=scheduler), extender_types.filter_error),
            ("prioritize", prioritize_verb, extender_types.error),
            ("preempt", preempt_verb, extender_types.error),
        )
    ]
    return Router(routes)


class _Endpoint:
    """Raw bytes in and out: every pod that starts is a call, and pydantic, FastAPI's middleware and Starlette's own
    Request cost more than the verbs."""

    def __init__(
        self,
        name: str,
        verb: Verb,
        refuse: Callable[[str], bytes],
        newest: Newest,
        note: Note,
        late: float,
    ) -> None:
        self._name, self._verb, self._refuse = name, verb, refuse
        self._newest, self._note, self._late = newest, note, late

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name, verb, newest = self._name, self._verb, self._newest
        try:
            body = await read_body(scope, receive)
        except TooLargeError as error:
            self._note(name, 413, "", 0.0)
            await _send(send, 413, self._refuse(str(error)), (b"connection", b"close"))
            return
        except ClientDisconnect:
            self._note(name, 499, "", 0.0)
            return
        began = perf_counter()
        try:
            guard = newest.guard()
            content, verdict = verb(guard, body)
            while verdict == REFUSED and not guard.view.leading and perf_counter() - began < self._late:
                await asyncio.sleep(GLANCE)
                if newest.guard() is not guard:
                    guard = newest.guard()
                    content, verdict = verb(guard, body)
            status = 200
        except UsageError as error:
            content, verdict, status = self._refuse(str(error)), "malformed", 400
        except Exception:  # a fault of ours, or of a plugin, must not take the others' verbs with it
            log.exception("%s failed", name)
            content, verdict, status = self._refuse("muster failed; its log says why"), "failed", 500
        self._note(name, status, verdict, perf_counter() - began)
        await _send(send, status, content)


async def _send(send: Send, status: int, content: bytes, *more: tuple[bytes, bytes]) -> None:
    headers = [(b"content-length", b"%d" % len(content)), (b"content-type", JSON), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def read_body(scope: Scope, receive: Receive, most: int = MOST, patience: int = PATIENCE) -> bytes:
    """The whole body. Raises TooLargeError where it is above `most` bytes, announced or not.

    Nothing above `most` is kept. Up to `patience` bytes are read and thrown away, since a client that still
    sends when its connection is closed may never see the answer. Raises ClientDisconnect where that goes away.
    """
    announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if announced.isdigit() and int(announced) > patience:
        raise TooLargeError(most)
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size > patience:
            raise TooLargeError(most)
        if size > most:
            parts.clear()
        else:
            parts.append(part)
    if size > most:
        raise TooLargeError(most)
    return parts[0] if len(parts) == 1 else b"".join(parts)


# ---- the verbs ----


def filter_verb(guard: ExtenderRules, body: bytes, scheduler: str = "muster") -> tuple[bytes, str]:
    """The nodes on which the plan lets the pod be bound; for a pod of another scheduler's all of them."""
    args = extender_types.read_args(body)
    whole = args.node_names is None and args.nodes is not None
    raw = (args.nodes.items or []) if whole and args.nodes else []
    names = extender_types.node_names(raw) if whole else args.node_names or []
    uid, error = _uid(args.pod), ""
    held = guard.holds(_name(args.pod), names)
    foreign = _foreign(args.pod, guard, scheduler)
    if not guard.view.synced and not foreign:
        error = NOT_SYNCED
    elif not names:
        error = NO_NODES
    if error:
        passed, why = list[str](), ""
    elif foreign or (_let_go(args.pod) and guard.waited(uid)):
        passed, why = names, ""
    elif held is not None:
        passed, why = held, OTHER_NODE
    else:
        passed, why = guard.passes(uid, names)
    failed: Mapping[str, str] = {}
    if not error and len(passed) < len(names):
        failed = dict.fromkeys(names, why)
        for name in passed:
            failed.pop(name, None)
        unknown = guard.unknown(names)
        failed.update(dict.fromkeys(unknown, UNKNOWN))
        if len(unknown) == len(names):
            error = NONE_KNOWN
    verdict = "error" if error else "passed" if passed else REFUSED
    if whole:
        kept = set(passed)
        nodes = [node for node, name in zip(raw, names, strict=True) if name in kept]
        return extender_types.filter_nodes(nodes, failed, error), verdict
    return extender_types.filter_names(passed, failed, error), verdict


def prioritize_verb(guard: ExtenderRules, body: bytes) -> tuple[bytes, str]:
    """0 to 10 for each node, by the profile's Score plugins."""
    args = extender_types.read_args(body)
    if args.node_names is not None:
        names = args.node_names
    else:
        names = extender_types.node_names((args.nodes.items if args.nodes else None) or [])
    uid = _uid(args.pod)
    if not guard.view.synced:
        return extender_types.priorities(names, [0] * len(names)), "error"
    scores = guard.scores(uid, names)
    return extender_types.priorities(names, scores), "scored" if any(scores) else "even"


def preempt_verb(guard: ExtenderRules, body: bytes) -> tuple[bytes, str]:
    """The candidates of a preemption without the nodes where it would break a gang of ours."""
    args = extender_types.read_preemption(body)
    if args.meta is not None:
        victims = args.meta
    else:
        victims = {
            node: extender_types.MetaVictims(
                None
                if whole.pods is None
                else [extender_types.MetaPod(pod.metadata.uid) for pod in whole.pods],
                whole.violations,
            )
            for node, whole in (args.victims or {}).items()
        }
    if not guard.view.synced:
        return extender_types.preemption({}), "error"
    kept = guard.spared({node: [pod.uid for pod in v.pods or ()] for node, v in victims.items()})
    return extender_types.preemption({node: victims[node] for node in kept}), (
        "kept" if len(kept) == len(victims) else "vetoed"
    )


def _let_go(pod: extender_types.Pod | None) -> bool:
    """Whether the pod that was sent says that it was released.

    The View may not have seen that yet, and a pod that is refused now is tried again only when something happens.
    Said by a pod that never waited behind our gate it means nothing.
    """
    return pod is not None and (pod.metadata.annotations or {}).get(identity.RELEASED) == "true"


def _foreign(pod: extender_types.Pod | None, guard: ExtenderRules, scheduler: str) -> bool:
    """Whether it is none of ours: a team's own scheduler asks about it to have its preemptions looked at."""
    if pod is None or pod.metadata.uid in guard.view.reservations:
        return False
    return pod.spec.scheduler_name not in ("", scheduler)


def _name(pod: extender_types.Pod | None) -> str:
    return "" if pod is None else f"{pod.metadata.namespace}/{pod.metadata.name}"


def _uid(pod: extender_types.Pod | None) -> str:
    if pod is None:
        raise UsageError("Pod: missing")
    return pod.metadata.uid

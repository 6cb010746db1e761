"""Who may read, and which pod reports: a bearer token is asked about with TokenReview.

Both bring tokens for the audience `muster.dev`: one that is stolen here opens nothing at the API server, and nobody
is asked for one that would. What a token claims is read first: one for another audience costs no review.
Readers: SubjectAccessReview on gangs follows. The same right that lets a tenant `kubectl get gangs` in a namespace
lets him read its jobs here; nothing else is granted or stored. Pods: a token that is bound to a pod speaks for that
pod and nothing else.
Answers are kept for a while by the token's digest (never the token), and reviews that are not kept are limited, of
readers and of pods apart, so that a flood of requests costs the API server a bounded number of calls.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import json
import threading
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

import msgspec
from cachetools import TLRUCache, TTLCache

from muster.cached import ENTRY, MIB, weight
from muster.errors import ClusterError, MusterError

KEPT = 5.0
"""Seconds for which an answer is kept: a right taken away lasts that long."""
ANSWERS = 16 * MIB
"""Bytes of answers that are kept, by token; the oldest goes first."""
REVIEWS = 20.0
"""Reviews a second that go to the API server, with a burst of the same number."""
PODS_KEPT, NOBODY_KEPT = 600.0, 10.0
"""Seconds for which it is kept, at most, whose a pod's token is, and that it is nobody's. A pod that is gone is in no
job."""
PODS = 32 * MIB
"""Bytes of pods' tokens that are kept: 65,000 and more."""
POD_REVIEWS = 50.0
"""Reviews of pods' tokens a second, with a burst of the same number: 1,000 jobs that start report within 20 s."""
AUDIENCE = "muster.dev"
"""What tokens for Muster are for; one for the API server is of no use here, and ours of no use there."""
POD_UID = "authentication.kubernetes.io/pod-uid"
"""Where a TokenReview tells the pod that a token is bound to (its user's `extra`)."""
LONGEST = 16 * 1024
"""Characters of a token; service account tokens are about 1,000."""

GROUP, RESOURCE, VERB = "muster.dev", "gangs", "list"


class Verdict(enum.Enum):
    """What a caller may do."""

    ALLOWED = "allowed"
    DENIED = "denied"  # known, without the right
    UNKNOWN = "unknown"  # the token is nobody's
    ELSEWHERE = "elsewhere"  # the token is for another audience; whose it is was not asked


class FloodError(MusterError):
    """More callers than reviews that may be asked for; worth another try in a second."""


class Access(Protocol):
    """Whether a token's owner may list gangs in a namespace, or in all of them (None)."""

    def may_list(self, token: str, namespace: str | None) -> Verdict:
        """May block. Raises FloodError, and ClusterError where the API server can't be asked."""


class Request(Protocol):
    """One call to the API server: HTTP status and body. May raise ClusterError where no answer came."""

    def __call__(self, method: str, path: str, body: bytes) -> tuple[int, bytes]: ...


def claimed(token: str) -> tuple[str, tuple[str, ...] | None]:
    """What a token claims, unproven: its pod's uid ("": none) and its audiences (None: it is no JWT)."""
    try:
        part = token.split(".")[1]
        plain = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        audiences = plain.get("aud", ())
        audiences = (audiences,) if isinstance(audiences, str) else tuple(map(str, audiences))
    except (IndexError, ValueError, AttributeError, TypeError, binascii.Error, RecursionError):
        return "", None
    try:
        return str(plain.get("kubernetes.io", {}).get("pod", {}).get("uid", "")), audiences
    except AttributeError:
        return "", audiences


@dataclass(frozen=True, slots=True)
class Caller:
    """A token's owner, as TokenReview names him."""

    name: str
    uid: str
    groups: tuple[str, ...]
    extra: Mapping[str, list[str]]


class Reviews:
    """TokenReview and SubjectAccessReview, `rate` a second at most. Used by several threads at once."""

    def __init__(self, request: Request, clock: Callable[[], float], rate: float) -> None:
        self._request, self._clock = request, clock
        self._lock = threading.Lock()
        self._rate = self._left = rate
        self._filled = clock()

    def who(self, token: str, audience: str = "") -> Caller | None:
        """The token's owner, None for nobody's; with an audience: only of a token that is for it.

        Raises FloodError, and ClusterError where the API server can't be asked.
        """
        spec: dict[str, Any] = {"token": token} | ({"audiences": [audience]} if audience else {})
        status = self._review(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec},
        )
        user = status.get("user") or {}
        if not status.get("authenticated") or not user.get("username"):
            return None
        if audience and audience not in (status.get("audiences") or ()):
            return None  # whoever authenticated it knows no audiences: it may be a token for anything
        return Caller(
            user["username"], user.get("uid", ""), tuple(user.get("groups") or ()), user.get("extra") or {}
        )

    def may(self, caller: Caller, namespace: str | None) -> bool:
        """Whether he may list gangs in the namespace, or in all (None). Raises as `who`."""
        attributes = {"verb": VERB, "group": GROUP, "resource": RESOURCE}
        if namespace is not None:
            attributes["namespace"] = namespace
        status = self._review(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": caller.name,
                    "uid": caller.uid,
                    "groups": list(caller.groups),
                    "extra": dict(caller.extra),
                    "resourceAttributes": attributes,
                },
            },
        )
        return status.get("allowed") is True

    def _review(self, path: str, review: Mapping[str, Any]) -> dict[str, Any]:
        """The status of a review that the API server filled in."""
        self._spend()
        code, body = self._request("POST", path, msgspec.json.encode(review))
        if code not in (200, 201):
            raise ClusterError(f"the API server answered {path.rsplit('/', 1)[-1]} with {code}", code)
        try:
            answer = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise ClusterError(f"the API server's answer can't be understood: {error}") from error
        status = answer.get("status") if isinstance(answer, dict) else None
        return status if isinstance(status, dict) else {}

    def _spend(self) -> None:
        """One review of the budget that fills with time. Raises FloodError where it is used up."""
        with self._lock:
            now = self._clock()
            self._left = min(self._rate, self._left + (now - self._filled) * self._rate)
            self._filled = now
            if self._left < 1.0:
                raise FloodError("too many callers to ask the API server about; try again in a second")
            self._left -= 1.0


class ReviewedAccess:
    """Access as the cluster's own RBAC gives it. Used by several threads at once.

    for_api_server: tokens that are for the API server are taken, too (settings: readers.apiServerTokens)."""

    def __init__(
        self,
        request: Request,
        clock: Callable[[], float] = monotonic,
        kept: float = KEPT,
        reviews: float = REVIEWS,
        *,
        for_api_server: bool = False,
    ) -> None:
        self._reviews = Reviews(request, clock, reviews)
        self._for_api_server = for_api_server
        self._lock = threading.Lock()
        self._callers: TTLCache[bytes, Caller | None] = TTLCache(ANSWERS, kept, clock, _size)
        self._verdicts: TTLCache[tuple[bytes, str | None], Verdict] = TTLCache(ANSWERS, kept, clock, _size)

    def may_list(self, token: str, namespace: str | None) -> Verdict:
        """Two calls to the API server at most, none while the answer is kept."""
        if not token or len(token) > LONGEST:
            return Verdict.UNKNOWN
        _, audiences = claimed(token)
        ours = audiences is None or AUDIENCE in audiences
        if not ours and not self._for_api_server:
            return Verdict.ELSEWHERE
        digest = _digest(token)
        with self._lock:
            kept = self._verdicts.get((digest, namespace))
            known = digest in self._callers
            caller = self._callers.get(digest)
        if kept is not None:
            return kept
        if not known:
            caller = self._reviews.who(token, AUDIENCE if ours else "")
            if caller is None and audiences is None and self._for_api_server:
                caller = self._reviews.who(token)
            with self._lock:
                _keep(self._callers, digest, caller)
        if caller is None:
            verdict = Verdict.UNKNOWN
        else:
            verdict = Verdict.ALLOWED if self._reviews.may(caller, namespace) else Verdict.DENIED
        with self._lock:
            _keep(self._verdicts, (digest, namespace), verdict)
        return verdict


class ReviewedPods:
    """Which pod a token is bound to, by the API server's word. Used by several threads at once."""

    def __init__(
        self, request: Request, clock: Callable[[], float] = monotonic, reviews: float = POD_REVIEWS
    ) -> None:
        self._reviews = Reviews(request, clock, reviews)
        self._lock = threading.Lock()
        self._pods: TLRUCache[bytes, str] = TLRUCache(PODS, _until, clock, _size)
        self._nobodies: TTLCache[bytes, str] = TTLCache(ANSWERS, NOBODY_KEPT, clock, _size)

    def kept(self, token: str) -> str | None:
        """The pod's uid, "" for nobody's token, None where the API server must be asked."""
        digest = _digest(token)
        with self._lock:
            return self._pods.get(digest, self._nobodies.get(digest))

    def ask(self, token: str) -> str:
        """The same by the API server's answer. May block; raises FloodError, and ClusterError without an answer."""
        caller = self._reviews.who(token, AUDIENCE)
        uids = caller.extra.get(POD_UID, ()) if caller is not None else ()
        uid = uids[0] if len(uids) == 1 else ""
        with self._lock:
            _keep(self._pods if uid else self._nobodies, _digest(token), uid)
        return uid


def _until(digest: bytes, pod: str, now: float) -> float:  # noqa: ARG001
    """When it is asked again whose a pod's token is: of a thousand pods that started together not all at once."""
    return now + PODS_KEPT * (0.5 + 0.5 * digest[0] / 255)


def _size(value: object) -> int:
    """Bytes of an entry: its key is a digest, perhaps with a namespace's name; cachetools links and dates it."""
    return 3 * ENTRY + weight(value)


def _keep(cache: TTLCache[Any, Any] | TLRUCache[Any, Any], key: Hashable, value: object) -> None:
    """Keep it, if it is not larger than all together may be."""
    with suppress(ValueError):
        cache[key] = value


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()

"""Requests to the API server as bytes, with the official client's configuration.

The official client finds the credentials (kubeconfig or the pod's own); its models are left out, since a V1Pod
costs a millisecond and 111 kB (design §5). Requests go over kept connections (line.py, libcurl); watches, and all
where there is a proxy, over the client's urllib3 pool. 429 is asked again, after the time that the server says.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tenacity
import urllib3
from kubernetes.client import ApiClient, Configuration

from muster.cluster.curl_pool import Answer, CurlPool, usable
from muster.cluster.faults import Faults
from muster.errors import ClusterError, NoAnswerError

STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
JSON = "application/json"
REQUEST_TIMEOUT = 5.0
"""Seconds. Below the scheduler's lease (15 s), so that a leader that lost it has nothing under way."""
WATCH_SILENCE = 330.0
"""Seconds without a byte after which a watch is taken for dead; servers end one after `timeoutSeconds`."""
TRIES, PAUSE, LONGEST_PAUSE = 3, 0.1, 2.0
"""Requests after a 429, and connections after one that was refused; seconds before the second, doubling, where the
server does not say; and the most that is waited, however much it asks for: the plan tries again anyway."""
CREDENTIALS = 5.0
"""Seconds for which a header with a credential is kept: the client reads its files again each time it is asked."""
UNCHECKED = "fieldValidation=Ignore"
"""Our bodies name no field that is not there; looking for such was an eighth of what a patch of a pod cost the
server (measured as FORGET in action_bodies.py)."""
NOT_SENT = -1
"""Status of what was not sent: its term was over, or it was called back."""


class TermOverError(ClusterError):
    """The request belongs to a term that is over: it was not sent."""

    def __init__(self) -> None:
        super().__init__("not sent: the Lease is not ours any more", NOT_SENT)


class Errand:
    """Requests of one action: each is sent only while `may` says so, asked right before. after: the most seconds that
    the server asked to wait."""

    __slots__ = ("after", "may")

    def __init__(self, may: Callable[[], bool]) -> None:
        self.may, self.after = may, 0.0


class Api:
    """The API server. Safe to use from several threads."""

    def __init__(
        self,
        config: Configuration,
        faults: Faults | None = None,
        connections: int = 32,
        impersonate: tuple[str, Sequence[str]] = ("", ()),
    ) -> None:
        """`impersonate`: user and groups, as kubectl's --as and --as-group."""
        config.connection_pool_maxsize = connections
        self._config = config
        self._client = ApiClient(config)
        self._pool: urllib3.PoolManager = self._client.rest_client.pool_manager
        self._faults = faults or Faults()
        self._user, self._groups = impersonate
        direct = type(self._pool) is urllib3.PoolManager  # else it goes through a proxy
        self._lines = CurlPool(config, REQUEST_TIMEOUT) if direct and usable(config) else None
        self._kept: list[tuple[float, urllib3.HTTPHeaderDict, list[str]]] = []  # one, shared with copies
        self._errand: Errand | None = None

    def during(self, errand: Errand) -> Api:
        """The same server for the requests of one action, which raise TermOverError where they may not be sent."""
        own = Api.__new__(Api)
        own.__dict__.update(self.__dict__)  # copy.copy costs ten times as much, and each action asks for one
        own._errand = errand
        return own

    def _headers(self) -> tuple[urllib3.HTTPHeaderDict, list[str]]:
        """What every request says, as a mapping and as lines."""
        kept = self._kept[0] if self._kept else None
        if kept is None or time.monotonic() - kept[0] > CREDENTIALS:
            headers = self._new_headers()
            lines = [f"{name}: {value}" for name, value in headers.iteritems()]
            kept = (time.monotonic(), headers, lines)
            self._kept[:] = [kept]
        return kept[1], kept[2]

    def _new_headers(self) -> urllib3.HTTPHeaderDict:
        headers = urllib3.HTTPHeaderDict({"Accept": JSON, "User-Agent": f"muster/{socket.gethostname()}"})
        if self._user:
            headers["Impersonate-User"] = self._user
        for group in self._groups:
            headers.add("Impersonate-Group", group)
        settings: Mapping[str, Any] = self._config.auth_settings()
        for setting in settings.values():
            if setting["in"] == "header":
                headers[setting["key"]] = setting["value"]
        return headers

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = JSON, *, patient: bool = True
    ) -> tuple[int, bytes]:
        """Status and body of one request; a body that is not bytes is sent as JSON. patient: ask again after a 429.

        Raises NoAnswerError (status 0) when no answer came, TermOverError where it was not sent (`during`); an HTTP
        error is returned, not raised.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            rule = self._faults.before(method, path)
        except ClusterError as error:
            if error.status:
                return error.status, str(error).encode()
            raise
        try:
            answer = (self._ask if patient else self._once)(method, path, data, content_type)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise NoAnswerError(f"{method} {path}: {error}", str(self._config.host)) from error
        self._faults.after(rule)
        return answer.status, answer.body

    def _ask(self, method: str, path: str, data: bytes | None, content_type: str) -> Answer:
        """Again after a 429, and where nothing listens (a server that restarts): nothing was done then. The first
        request goes without tenacity, which costs as much CPU as the request."""
        try:
            answer = self._once(method, path, data, content_type)
            if not _busy(answer):
                return answer
            asked = answer.after
        except ConnectionRefusedError:
            asked = 0.0
        time.sleep(_pause(asked, 0))
        again = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(TRIES),
            wait=lambda state: _pause(_asked(state), state.attempt_number),
            retry=tenacity.retry_if_exception_type(ConnectionRefusedError) | tenacity.retry_if_result(_busy),
            retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
        )
        last: Answer = again(self._once, method, path, data, content_type)
        return last

    def _once(self, method: str, path: str, data: bytes | None, content_type: str) -> Answer:
        headers, lines = self._headers()
        if method in ("POST", "PATCH"):
            path += ("&" if "?" in path else "?") + UNCHECKED
        errand = self._errand
        if errand is not None and not errand.may():
            raise TermOverError
        if self._lines is not None:
            said = lines if data is None else [*lines, f"Content-Type: {content_type}"]
            try:
                told = self._lines.ask(method, path, said, data, errand.may if errand is not None else None)
            except ConnectionAbortedError as error:
                raise TermOverError from error
            if errand is not None:
                errand.after = max(errand.after, told.after)
            return told
        if data is not None:
            headers = headers.copy()
            headers["Content-Type"] = content_type
        answer = self._pool.request(
            method,
            self._config.host + path,
            body=data,
            headers=headers,
            timeout=urllib3.Timeout(connect=REQUEST_TIMEOUT, read=REQUEST_TIMEOUT),
            retries=False,
        )
        after = answer.headers.get("Retry-After", "")
        return Answer(answer.status, answer.data, float(after) if after.isdecimal() else 0.0)

    def close(self) -> None:
        """End the connections that rest."""
        if self._lines is not None:
            self._lines.close()

    def get(self, path: str) -> bytes:
        """The body of a GET that must succeed. Raises ClusterError with the server's message."""
        status, data = self.request("GET", path)
        if status != 200:
            raise ClusterError(f"GET {path}: {status} {message(data)}", status)
        return data

    def lines(self, path: str) -> Iterator[bytes]:
        """Lines of a watch, until the server ends it. Raises ClusterError."""
        try:
            answer = self._pool.request(
                "GET",
                self._config.host + path,
                headers=self._headers()[0],
                timeout=urllib3.Timeout(connect=REQUEST_TIMEOUT, read=WATCH_SILENCE),
                preload_content=False,
                retries=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise ClusterError(f"watch {path}: {error}") from error
        try:
            if answer.status != 200:
                raise ClusterError(f"watch {path}: {answer.status} {message(answer.read())}", answer.status)
            rest = b""
            while chunk := answer.read1():
                *whole, rest = (rest + chunk).split(b"\n")
                yield from (line for line in whole if line)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise ClusterError(f"watch {path}: {error}") from error
        finally:
            answer.close()


def _busy(answer: Answer) -> bool:
    return answer.status == 429


def _asked(state: tenacity.RetryCallState) -> float:
    """Seconds that the server said, 0 where it did not."""
    outcome = state.outcome
    return 0.0 if outcome is None or outcome.failed else float(outcome.result().after)


def _pause(asked: float, retries: int) -> float:
    """Seconds before the next try, after so many: what the server says, else doubling."""
    return min(asked or PAUSE * 2**retries, LONGEST_PAUSE)


def message(body: bytes) -> str:
    """The message of a Status object, else the start of whatever came."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace").strip()

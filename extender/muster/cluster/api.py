"""Requests to the API server as bytes, over the official client's configuration and connection pool.

The official client finds the credentials (kubeconfig or the pod's own) and its urllib3 pool sends; models are
left out, since a V1Pod costs a millisecond and 111 kB (design §5). 429 and Retry-After are urllib3's business.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import kubernetes
import urllib3
from kubernetes.client import ApiClient, Configuration

from muster.cluster.faults import Faults
from muster.errors import ClusterError, ConfigurationError

STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
JSON = "application/json"
REQUEST_TIMEOUT = 5.0
"""Seconds. Below the scheduler's lease (15 s), so that a leader that lost it has nothing under way."""
WATCH_SILENCE = 330.0
"""Seconds without a byte after which a watch is taken for dead; servers end one after `timeoutSeconds`."""


def configuration(kubeconfig: str | None = None, context: str | None = None) -> Configuration:
    """Credentials from a kubeconfig (as kubectl finds it), else from the pod's service account.

    Raises ConfigurationError when there is neither.
    """
    found = Configuration()
    try:
        if kubeconfig is None and context is None:
            try:
                kubernetes.config.load_incluster_config(client_configuration=found)  # type: ignore[no-untyped-call]
                return found
            except kubernetes.config.ConfigException:
                pass
        kubernetes.config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig, context=context, client_configuration=found
        )
    except (kubernetes.config.ConfigException, OSError) as error:
        raise ConfigurationError(
            f"no way to a cluster: {error}; give --kubeconfig or set KUBECONFIG"
        ) from error
    return found


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
        self._retry = urllib3.Retry(
            total=3, connect=2, read=0, redirect=0, other=0, status=3, status_forcelist=(429,),
            allowed_methods=None, respect_retry_after_header=True, raise_on_status=False, backoff_factor=0.1,
        )  # fmt: skip
        self._user, self._groups = impersonate

    def _headers(self, content_type: str | None) -> urllib3.HTTPHeaderDict:
        headers = urllib3.HTTPHeaderDict({"Accept": JSON, "User-Agent": "muster"})
        if self._user:
            headers["Impersonate-User"] = self._user
        for group in self._groups:
            headers.add("Impersonate-Group", group)
        settings: Mapping[str, Any] = self._config.auth_settings()
        for setting in settings.values():
            if setting["in"] == "header":
                headers[setting["key"]] = setting["value"]
        if content_type:
            headers["Content-Type"] = content_type
        return headers

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = JSON
    ) -> tuple[int, bytes]:
        """Status and body of one request; a body that is not bytes is sent as JSON.

        Raises ClusterError with status 0 when no answer came; an HTTP error is returned, not raised.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            rule = self._faults.before(method, path)
        except ClusterError as error:
            if error.status:
                return error.status, str(error).encode()
            raise
        try:
            answer = self._pool.request(
                method,
                self._config.host + path,
                body=data,
                headers=self._headers(content_type if data is not None else None),
                timeout=urllib3.Timeout(connect=REQUEST_TIMEOUT, read=REQUEST_TIMEOUT),
                retries=self._retry,
            )
        except urllib3.exceptions.HTTPError as error:
            raise ClusterError(f"{method} {path}: {error}") from error
        self._faults.after(rule)
        return answer.status, answer.data

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
                headers=self._headers(None),
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


def message(body: bytes) -> str:
    """The message of a Status object, else the start of whatever came."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")

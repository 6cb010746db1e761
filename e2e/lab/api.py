"""The few API calls that the lab itself makes, as plain JSON (tests use the official client)."""

from __future__ import annotations

import base64
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from e2e.lab import libyaml
from e2e.lab.errors import LabError

Json = dict[str, Any]


class ApiError(LabError):
    """The apiserver answered with an error status, or not at all (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """HTTP to one apiserver with the credentials of a kubeconfig file. Usable from several threads.

    ApiError when the server says no, or nothing."""

    def __init__(self, kubeconfig: Path, timeout: float = 30.0) -> None:
        raw = libyaml.load(kubeconfig.read_text())
        cluster, user = raw["clusters"][0]["cluster"], raw["users"][0]["user"]
        context = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        )
        headers = {}
        if "token" in user:
            headers["Authorization"] = f"Bearer {user['token']}"
        else:
            with tempfile.NamedTemporaryFile() as pair:  # ssl loads a client certificate from a file only
                pair.write(base64.b64decode(user["client-certificate-data"]))
                pair.write(base64.b64decode(user["client-key-data"]))
                pair.flush()
                context.load_cert_chain(pair.name)
        self._http = httpx.Client(
            base_url=cluster["server"],
            headers=headers,
            timeout=timeout,
            trust_env=False,  # a proxy of the environment has no business on loopback
            transport=httpx.HTTPTransport(
                verify=context,
                limits=httpx.Limits(max_connections=64, max_keepalive_connections=64),
                # Of connecting only. At each connection httpcore sets ALPN on the shared context, which another
                # thread may be copying: seldom a handshake is garbled, and refused (alert decode_error).
                retries=1,
            ),
        )

    def __enter__(self) -> Api:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, path: str, **parameters: str) -> Json:
        return self._call("GET", path, parameters)

    def post(self, path: str, body: Json, **parameters: str) -> Json:
        return self._call("POST", path, parameters, body)

    def patch(self, path: str, body: Json) -> Json:
        """A merge patch."""
        return self._call("PATCH", path, None, body, {"Content-Type": "application/merge-patch+json"})

    def apply(self, path: str, body: Json) -> Json:
        """Server-side apply, taking over whatever others set."""
        whole = {"fieldManager": "lab", "force": "true"}
        return self._call("PATCH", path, whole, body, {"Content-Type": "application/apply-patch+yaml"})

    def delete(self, path: str, **parameters: str) -> Json:
        return self._call("DELETE", path, parameters)

    def ready(self) -> bool:
        """Whether /readyz says so; False also when nobody answers."""
        try:
            return self._http.get("/readyz", timeout=3).status_code == 200
        except httpx.HTTPError:
            return False

    def _call(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        try:
            response = self._http.request(method, path, params=parameters, json=body, headers=headers)
        except httpx.HTTPError as silence:
            raise ApiError(0, f"no answer to {method} {path}: {silence}") from silence
        if response.status_code >= 400:
            try:
                message = str(response.json().get("message", response.text))
            except ValueError:
                message = response.text
            raise ApiError(response.status_code, message)
        answer: Json = response.json()
        return answer


def answers(url: str) -> bool:
    """Whether a health URL on loopback says 200; self-signed ones too, it is our own process."""
    try:
        return httpx.get(url, timeout=3, verify=False, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def text(url: str) -> str:
    """What a URL on loopback says, self-signed ones too; "" where it does not answer, or not with 200."""
    try:
        answer = httpx.get(url, timeout=3, verify=False, trust_env=False)
    except httpx.HTTPError:
        return ""
    return answer.text if answer.status_code == 200 else ""

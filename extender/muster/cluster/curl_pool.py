"""Kept connections to the API server, by libcurl.

A start is two or three requests a pod, and through urllib3 each costs Python four times as much (measured on an idle
machine: 0.29 ms of CPU a request against 0.06 ms), so the requests of a leader go this way. Watches and proxies stay
with the official client's urllib3.

libcurl sends a request once more where a kept connection turns out to be closed before a byte of the answer has come.
All that we ask for may be said twice (preconditions and names make the second one a 409 or 422).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import NamedTuple

import certifi
import pycurl
from kubernetes.client import Configuration


class Answer(NamedTuple):
    """Of one request. `after`: seconds that the server asks to wait before the next one, 0 where it does not say."""

    status: int
    body: bytes
    after: float = 0.0


class CurlPool:
    """Connections to one server. Safe to use from several threads: each request has one to itself."""

    def __init__(self, config: Configuration, timeout: float) -> None:
        """timeout: seconds for a whole request."""
        self._config, self._timeout = config, timeout
        self._idle: list[pycurl.Curl] = []  # the last used first; append and pop are atomic

    def ask(
        self,
        method: str,
        path: str,
        headers: Sequence[str],
        body: bytes | None,
        may: Callable[[], bool] | None = None,
    ) -> Answer:
        """One request and its answer. may: asked once the connection stands, right before the request is sent.

        Raises OSError where no answer came: ConnectionRefusedError where nobody listens, TimeoutError,
        ConnectionAbortedError where it may not be sent, else ConnectionError.
        """
        try:
            line = self._idle.pop()
        except IndexError:
            line = self._open()
        answer = io.BytesIO()
        line.setopt(pycurl.URL, self._config.host + path)
        line.setopt(pycurl.HTTPHEADER, [*headers, "Expect:"])  # no 100-continue: the body is small
        if body is None:
            line.setopt(pycurl.HTTPGET, 1)
        else:
            line.setopt(pycurl.POSTFIELDS, body)
        line.setopt(pycurl.CUSTOMREQUEST, method)
        line.setopt(pycurl.WRITEFUNCTION, answer.write)
        line.setopt(
            pycurl.PREREQFUNCTION,
            lambda *_: pycurl.PREREQFUNC_OK if may is None or may() else pycurl.PREREQFUNC_ABORT,
        )
        try:
            line.perform()
        except pycurl.error as error:
            line.close()
            raise FAULTS.get(int(error.args[0]), ConnectionError)(error.args[-1]) from error
        result = Answer(
            line.getinfo(pycurl.RESPONSE_CODE), answer.getvalue(), float(line.getinfo(pycurl.RETRY_AFTER))
        )
        self._idle.append(line)
        return result

    def close(self) -> None:
        """End the connections that rest; those in use end with the process."""
        while self._idle:
            self._idle.pop().close()

    def _open(self) -> pycurl.Curl:
        """A handle of its own connection, as the official client's configuration says."""
        config, line = self._config, pycurl.Curl()
        line.setopt(pycurl.NOSIGNAL, 1)  # several threads
        line.setopt(pycurl.PROXY, "")
        line.setopt(pycurl.TIMEOUT_MS, int(self._timeout * 1000))
        line.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        line.setopt(pycurl.TCP_NODELAY, 1)
        known = getattr(config, "ca_cert_data", None)
        if known:
            line.setopt(pycurl.CAINFO_BLOB, known if isinstance(known, str) else known.decode())
        else:
            line.setopt(pycurl.CAINFO, config.ssl_ca_cert or certifi.where())
        if not config.verify_ssl:
            line.setopt(pycurl.SSL_VERIFYPEER, 0)
        if not config.verify_ssl or config.assert_hostname is False:
            line.setopt(pycurl.SSL_VERIFYHOST, 0)
        if config.cert_file:
            line.setopt(pycurl.SSLCERT, config.cert_file)
            line.setopt(pycurl.SSLKEY, config.key_file)
        return line


FAULTS = {
    pycurl.E_COULDNT_CONNECT: ConnectionRefusedError,
    pycurl.E_OPERATION_TIMEDOUT: TimeoutError,
    pycurl.E_ABORTED_BY_CALLBACK: ConnectionAbortedError,
}


def usable(config: Configuration) -> bool:
    """Whether all that the configuration asks for is done here: another name in the certificate is not."""
    return not getattr(config, "tls_server_name", None)

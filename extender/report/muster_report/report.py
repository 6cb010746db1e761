# Over 300 lines: users copy it beside their training as one file of the standard library.
"""Tell Muster how training goes. One file of the standard library: a package, or copied beside train.py.

    import muster_report as muster                 # or, copied: import report as muster
    for step in range(total):
        ...
        muster.report(step=step, total=total, loss=loss, samples=step * batch)

`report` never raises and never waits: a thread of its own sends the newest values, at most one post in the
`every` seconds that Muster asks for. It returns Muster's newest answer, {"replicas": {"worker": 3}, "every": 10},
or None. `batch(default)` is the global batch size to train with, where the job declares some (muster.dev/batch-sizes)
and tells its present one: `muster.report(step=step, batch=size); size = muster.batch(size)`.
What is wrong is said once, on stderr. One process of a job is enough (rank 0); Muster listens to one pod.

The pod's annotation `muster.dev/report: "true"` brings the token and sets what is read here, but the two files:

    MUSTER_URL          http://muster.muster-system.svc:8080; several, separated by commas. Not set: nothing is sent
    MUSTER_TOKEN_FILE   the pod's token (/var/run/secrets/muster.dev/token), read for each post: it is renewed
    MUSTER_CA_FILE      for https: who signed the server's certificate, a file, PEM (default: MUSTER_CA)
    MUSTER_CA           the same as text, as admission gives it (default: who the system trusts)
    MUSTER_BATCH        the global batch size that was chosen when the pod started, where it declares some

On a command line: `muster-report --step 3 --loss 0.2`, or `python report.py ...`.
"""

from __future__ import annotations

import argparse
import atexit
import difflib
import json
import math
import os
import random
import sys
import threading
import time
from types import ModuleType
from urllib.parse import urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from http.client import HTTPConnection
    from typing import Any, NoReturn, SupportsFloat

STAYS = ("step", "samples", "total", "epoch", "steps_per_epoch", "target", "workers", "batch", "noise")
"""Values that hold until they are told again: sent with every post once they are known."""
ONCE = ("loss", "boundary")
"""Values of one moment: sent with one post."""
TOKEN_FILE = "/var/run/secrets/muster.dev/token"
EVERY = 10.0
"""Seconds between posts until an answer says otherwise."""
SHORTEST, LONGEST = 0.2, 60.0
"""Seconds between two posts whatever is asked for; between tries while nobody answers."""
TIMEOUT = 5.0
"""Seconds for a post."""
AT_EXIT = 1.0
"""Seconds that the end of the process waits for the last post."""
TRIES = 8
"""Fresh connections for one post where a replica answers that it does not lead (421): behind a Service, each may
reach another one."""


def report(
    step: SupportsFloat | None = None,
    samples: SupportsFloat | None = None,
    loss: SupportsFloat | None = None,
    total: SupportsFloat | None = None,
    epoch: SupportsFloat | None = None,
    steps_per_epoch: SupportsFloat | None = None,
    boundary: bool = False,
    target: SupportsFloat | None = None,
    workers: SupportsFloat | None = None,
    batch: SupportsFloat | None = None,
    noise: SupportsFloat | None = None,
) -> dict[str, Any] | None:
    """Tell what is known; all of it is optional.

    step: iterations done, from the start of training (not of this process); samples: training samples
    processed, by all replicas together; loss: the newest value of what is evaluated; total: iterations that
    training will do; epoch: whole epochs done, with steps_per_epoch; target: the value of `loss` at which
    training stops by itself; boundary: True where the job may be resized now (muster.dev/resize-at: boundary);
    workers: replicas that took part in the newest steps, where it is not simply all that run; batch: samples of an
    iteration, of all replicas together (global batch size), where it may change (muster.dev/batch-sizes);
    noise: gradient noise scale, in samples, above 0: left out until it is known.
    """
    try:
        return _own().report(
            step=step,
            samples=samples,
            loss=loss,
            total=total,
            epoch=epoch,
            steps_per_epoch=steps_per_epoch,
            boundary=boundary or None,
            target=target,
            workers=workers,
            batch=batch,
            noise=noise,
        )
    except Exception as error:  # whatever it is, training goes on
        _tell(f"reports are not sent: {error!r}")
        return None


def batch(default: int = 0) -> int:
    """The global batch size that Muster chose for this job: of its newest answer, else of when this pod started, else
    `default`. What is read here holds from the next iteration on; tell it with `report(batch=...)`."""
    try:
        answer = _own().answer or {}
        return int(answer.get("batch") or os.environ.get("MUSTER_BATCH") or default)
    except (TypeError, ValueError):
        return default


def flush(timeout: float = 2.0) -> bool:
    """Send what was reported now, and wait `timeout` seconds at most. Whether all of it has arrived."""
    try:
        return _own().flush(timeout)
    except Exception as error:
        _tell(f"reports are not sent: {error!r}")
        return False


class Refused(Exception):  # noqa: N818  (an answer, seldom an error of this file)
    """A post that was not accepted. status: HTTP status, 0 for no answer; after: seconds to wait, as asked."""

    def __init__(self, status: int, why: str, after: float = 0.0) -> None:
        super().__init__(why)
        self.status, self.after = status, after


class Reporter:
    """What is known, and the thread that sends it. Of one process: a fork begins with nothing to send."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        """say: takes each problem's sentence, once; default: stderr."""
        self._say = say or _tell
        self._said: set[str] = set()
        self._turn = threading.Condition()  # re-entrant: a signal's handler may report, too
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._stays: dict[str, Any] = {}
        self._once: dict[str, Any] = {}
        self._told = self._sent = 0  # reports taken in; those that a post has carried
        self._go = False  # a report came when a post was due: its values are of this moment
        self._hurry = 0  # somebody waits for so many of them
        self._closed = False
        self._every, self._due = EVERY, 0.0
        self._not_before = 0.0
        self._failures = 0
        self._first = 0  # index of the URL that answered last
        self.answer: dict[str, Any] | None = None

    def report(self, **values: Any) -> dict[str, Any] | None:
        """Take in what is not None; what is no finite number is said and left out. Muster's newest answer."""
        fresh = {
            name: found for name, value in values.items() if (found := self._value(name, value)) is not None
        }
        if not fresh:
            return self.answer
        if not os.environ.get("MUSTER_URL", "").strip():
            self._complain(
                "nowhere",
                'reports are not sent: MUSTER_URL is not set; the annotation muster.dev/report: "true" sets it',
            )
            return None
        with self._turn:
            self._stays.update((name, value) for name, value in fresh.items() if name in STAYS)
            self._once.update((name, value) for name, value in fresh.items() if name in ONCE)
            self._told += 1
            if time.monotonic() >= self._due:
                self._go = True
            if fresh.get("boundary"):
                self._hurry = self._told
            if self._thread is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._run, name="muster-report", daemon=True)
                self._thread.start()
            self._turn.notify_all()
        return self.answer

    def flush(self, timeout: float) -> bool:
        """Whether all that was reported has been sent, after `timeout` seconds at most."""
        until = time.monotonic() + timeout
        with self._turn:
            wanted = self._told
            while self._sent < wanted:
                self._hurry = max(self._hurry, wanted)
                self._turn.notify_all()
                left = until - time.monotonic()
                if left <= 0 or self._thread is None or self._pid != os.getpid():
                    return False
                self._turn.wait(left)
        return True

    def close(self) -> None:
        """Send nothing any more; the thread ends."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()

    def _value(self, name: str, value: Any) -> Any:
        if value is None or isinstance(value, bool):
            return value if name == "boundary" else None
        try:
            number = float(value)  # numpy's and tensors' scalars, too
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return number
        self._complain(
            f"value {name}", f"{name} is left out: expected a finite number, found {str(value)[:80]}"
        )
        return None

    # ---- the thread ----

    def _run(self) -> None:
        while True:
            with self._turn:
                while (pause := self._pause(time.monotonic())) != 0.0 and not self._closed:
                    self._turn.wait(pause)
                if self._closed:
                    return
                body = {**self._stays, **self._once}
                once, self._once = self._once, {}
                taken, self._go, self._hurry = self._told, False, 0
                now = time.monotonic()
                self._due, self._not_before = now + self._every, now + SHORTEST
            done = True
            try:
                self.answer = self.post(body)
                self._failures = 0
            except Refused as refused:
                done = refused.status in (400, 413)  # the same again would be refused again
                self._complain(f"status {refused.status}", f"a report was not accepted: {refused}")
                if not done:
                    self._failures += 1
                    self._wait(refused.after)
            except Exception as error:  # a thread that dies would take later reports with it
                done = False
                self._complain("post", f"reports are not sent: {error!r}")
                self._failures += 1
                self._wait(0.0)
            with self._turn:
                if done:
                    self._sent = taken
                    every = (self.answer or {}).get("every")
                    if isinstance(every, (int, float)) and 1.0 <= every <= 3600.0:
                        self._every = float(every)
                        self._due = now + self._every
                else:
                    self._once = {**once, **self._once}
                self._turn.notify_all()

    def _pause(self, now: float) -> float | None:
        """Seconds until there is something to send, 0 = now, None = until somebody says so.

        A value that waits for the next post is left for a newer one, which is then sent in the moment that it is
        of; where none comes, it goes one period later.
        """
        if self._told == self._sent:
            return None
        at = self._not_before
        if self._hurry <= self._sent:
            at = max(at, self._due if self._go else self._due + self._every)
        return max(0.0, at - now)

    def _wait(self, asked: float) -> None:
        """After a try that failed: longer each time, as the server asks at least, and not all clients at once."""
        pause = min(LONGEST, 2.0 ** min(self._failures - 1, 10)) * random.uniform(0.75, 1.25)
        now = time.monotonic()
        self._due = now + max(pause, asked)
        self._not_before = now + max(SHORTEST, min(asked, 3600.0))

    def _complain(self, kind: str, text: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            self._say(text)

    # ---- one post ----

    def post(self, body: dict[str, Any]) -> dict[str, Any]:
        """Send one report now; the answer. Raises Refused."""
        urls = addresses()
        if not urls:
            raise Refused(0, "MUSTER_URL is not set")
        token = pod_token()
        text = json.dumps(body, allow_nan=False).encode()
        last = Refused(0, "nobody answered")
        for attempt in range(max(TRIES, len(urls))):
            which = (self._first + attempt) % len(urls)
            try:
                answer = _ask(urls[which], token, text)
            except Refused as refused:
                last = refused
                if refused.status == 421 or (refused.status in (0, 502, 503) and attempt + 1 < len(urls)):
                    time.sleep(0.01 * attempt)
                    continue
                raise
            self._first = which
            return answer
        raise last


def addresses() -> list[str]:
    """Where Muster may be reached, as the pod is told."""
    return [url.strip() for url in os.environ.get("MUSTER_URL", "").split(",") if url.strip()]


def pod_token() -> str:
    """The pod's token, as it is now. Raises Refused."""
    file = os.environ.get("MUSTER_TOKEN_FILE") or TOKEN_FILE
    try:
        with open(file, encoding="ascii") as opened:
            return opened.read().strip()
    except (OSError, ValueError) as error:
        raise Refused(0, f"MUSTER_TOKEN_FILE: {file} can't be read: {error}") from error


def _ask(url: str, token: str, body: bytes) -> dict[str, Any]:
    """One request on a connection of its own."""
    connection = connection_to(url, TIMEOUT)
    try:
        return exchange(connection, url, "/v1/report", token, body, {"Connection": "close"})
    finally:
        connection.close()


def connection_to(url: str, timeout: float) -> HTTPConnection:
    """One that is not open yet. Proxies are not asked: it will carry a token. Raises Refused."""
    from http.client import HTTPConnection, HTTPSConnection

    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or parts.scheme not in ("http", "https"):
        raise Refused(0, f"MUSTER_URL: expected http://host:port or https://host:port, found {url[:200]!r}")
    if parts.scheme == "http":
        return HTTPConnection(host, port, timeout=timeout)
    import ssl

    file = os.environ.get("MUSTER_CA_FILE") or None
    text = None if file else os.environ.get("MUSTER_CA") or None
    try:
        trusted = ssl.create_default_context(cafile=file, cadata=text)
    except (OSError, ValueError) as error:
        raise Refused(0, f"{url}: {error!r}") from error
    return HTTPSConnection(host, port, timeout=timeout, context=trusted)


def exchange(
    connection: HTTPConnection, url: str, path: str, token: str, body: bytes, headers: dict[str, str]
) -> dict[str, Any]:
    """What is answered to one POST. Redirects are not followed: it carries a token. Raises Refused."""
    from http.client import HTTPException

    told = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **headers}
    try:
        connection.request("POST", f"{urlsplit(url).path.rstrip('/')}{path}", body, told)
        response = connection.getresponse()
        status, after, found = response.status, response.getheader("Retry-After"), response.read(65536)
    except (OSError, ValueError, HTTPException) as error:
        raise Refused(0, f"{url}: {error!r}") from error
    try:
        answer = json.loads(found)
    except (ValueError, RecursionError):
        answer = None
    if status != 200 or not isinstance(answer, dict):
        why = answer.get("error") if isinstance(answer, dict) else None
        raise Refused(
            status, f"{url} answered {status}: {str(why or 'not as Muster does')[:500]}", _seconds(after)
        )
    return answer


def _seconds(after: str | None) -> float:
    try:
        return max(0.0, min(float(after or 0), 3600.0))
    except ValueError:
        return 0.0


# ---- the process' own reporter ----

_reporter: Reporter | None = None
_guard = threading.Lock()


def _own() -> Reporter:
    global _reporter
    if _reporter is None:
        with _guard:
            if _reporter is None:
                _reporter = Reporter()
                atexit.register(flush, AT_EXIT)
    return _reporter


def _forget() -> None:
    """In a child that was forked: the thread and the locks are its parent's."""
    global _reporter, _guard
    if _reporter is not None:
        said, _reporter = _reporter._said, Reporter()
        _reporter._said = said
    _guard = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _tell(text: str) -> None:
    try:
        print(f"muster: {text}", file=sys.stderr, flush=True)
    except Exception:  # stderr is closed: there is nobody to tell
        return


class CommandLine(argparse.ArgumentParser):
    """One whose usage errors say what was meant and end with an example, as those of Muster's other commands."""

    example = ""
    """Words behind the program's name that it understands."""

    def error(self, message: str) -> NoReturn:
        """Say it and end with exit code 2."""
        unknown, _, words = message.partition("unrecognized arguments: ")
        if words and not unknown:
            message = " ".join(map(self._unknown, words.split())).removesuffix(".")
        usage = self.format_usage().replace("usage:", "Usage:", 1)
        told = f"{usage}Try '{self.prog} --help' for help.\n\nError: {message}\n"
        self.exit(2, f"{told}For example: {self.prog} {self.example}\n")

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"Unexpected argument {word!r}."
        word = word.partition("=")[0]
        known = [option for action in self._actions for option in action.option_strings]
        close = difflib.get_close_matches(word, known, n=1)
        return f"No such option {word!r}" + (f"; did you mean {close[0]!r}?" if close else ".")


def main(arguments: Sequence[str] | None = None) -> int:
    """Send one report and print the answer. Exit code 0 accepted, 1 not, 2 bad usage."""
    parser = CommandLine(
        usage="%(prog)s [OPTIONS]",
        description="Tell Muster how training goes, once, with this pod's token. Prints Muster's answer (JSON).",
        epilog="Reads MUSTER_URL and MUSTER_CA, which the pod's annotation "
        'muster.dev/report: "true" sets, and the '
        "token that it brings; MUSTER_TOKEN_FILE and MUSTER_CA_FILE of your own name other files. "
        "Example: muster-report --step 300 --total 1000 --loss 0.21",
    )
    parser.example = "--step 300 --total 1000 --loss 0.21"
    for name, help_text in (
        ("step", "iterations done, from the start of training"),
        ("samples", "training samples processed, by all replicas together"),
        ("loss", "newest value of what is evaluated"),
        ("total", "iterations that training will do"),
        ("epoch", "whole epochs done"),
        ("steps_per_epoch", "iterations of an epoch"),
        ("target", "value of the loss at which training stops by itself"),
        ("workers", "replicas that took part in the newest steps"),
        ("batch", "samples of an iteration, of all replicas together"),
        ("noise", "gradient noise scale, in samples"),
    ):
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, metavar="N", help=help_text)
    parser.add_argument("--boundary", action="store_true", help="the job may be resized now")
    body = {
        name: value
        for name, value in vars(parser.parse_args(arguments)).items()
        if value not in (None, False)
    }
    if not body:
        parser.error("give at least one value, such as --step 3")
    if not all(math.isfinite(value) for value in body.values()):
        parser.error("every value must be a finite number")
    try:
        print(json.dumps(Reporter().post(body)))
    except Refused as refused:
        _tell(f"not accepted: {refused}")
        return 1
    return 0


class _Callable(ModuleType):
    """This module, callable: `muster_report.report(step=1)` finds a module of that name in the package."""

    def __call__(self, *positional: Any, **named: Any) -> dict[str, Any] | None:
        return report(*positional, **named)


sys.modules[__name__].__class__ = _Callable

if __name__ == "__main__":
    sys.exit(main())

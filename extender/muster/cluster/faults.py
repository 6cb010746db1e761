"""Fault injection, a seam of the cluster from the first day: fail or die after so many API calls, hang or end after
so many steps.

`MUSTER_FAULTS` is a list of rules separated by ";", each "<what> after <n> [<METHOD>] [<path part>] [x<times>]":

    die after 3 PATCH pods          the process kills itself instead of sending the 4th PATCH of pods
    die-sent after 3 PATCH pods     ... right after the server has answered the 4th
    fail after 0 PATCH pods x5      five PATCHes of pods are answered with 500 and not sent
    409 after 2 PATCH gangs x1      so is 429, or any other status
    timeout after 1 POST x1         no answer, not sent;  lost: sent, but the answer is dropped
    slow after 0 POST eviction      each is sent a second (SLOW) later
    hang after 3 CYCLE              the fourth cycle never ends;  raise: it fails
    raise after 9 THREAD watch-pods x2   an error that nobody expects, at the 10th and 11th step of that thread
    end after 9 THREAD lease        the thread ends without a word;  hang: it never goes on

For tests only; a process with rules says so in its log.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from dataclasses import dataclass, field

from muster.errors import ClusterError, ConfigurationError
from muster.threads import KilledError

VARIABLE = "MUSTER_FAULTS"
SLOW = 1.0
STEPS = ("CYCLE", "THREAD")
"""What has steps, beside the requests."""
_OF_STEPS = ("hang", "raise", "end")
_RULE = re.compile(
    r"(?P<what>die|die-sent|fail|timeout|lost|slow|hang|raise|end|[45]\d\d) after (?P<after>\d+)"
    r"(?: (?P<method>GET|POST|PATCH|PUT|DELETE|CYCLE|THREAD))?(?: (?P<part>[^ ]*[a-z][^ ]*?))??(?: x(?P<times>\d+))?"
)


@dataclass
class Rule:
    """One rule and how often its calls have come by."""

    what: str
    after: int
    method: str = ""
    part: str = ""
    times: int = 1 << 30
    seen: int = 0

    def hits(self, method: str, path: str) -> bool:
        """Count this call; true when the rule applies to it."""
        if method in STEPS and not self.method:
            return False  # it is one of requests
        if (self.method and self.method != method) or (self.part and self.part not in path):
            return False
        self.seen += 1
        return self.after < self.seen <= self.after + self.times


@dataclass
class Faults:
    """The rules of this process; empty in real life."""

    rules: list[Rule] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def parse(cls, text: str) -> Faults:
        """Raises ConfigurationError for a rule that can't be read."""
        rules = []
        for part in (p.strip() for p in text.split(";")):
            if not part:
                continue
            found = _RULE.fullmatch(part)
            if found is None or (found["what"] in _OF_STEPS) != (found["method"] in STEPS):
                raise ConfigurationError(
                    f'{VARIABLE}: expected "<what> after <n> [METHOD] [path part] [x<times>]", '
                    f"with hang, raise and end for CYCLE and THREAD only, found {part!r}"
                )
            rules.append(
                Rule(
                    found["what"],
                    int(found["after"]),
                    found["method"] or "",
                    found["part"] or "",
                    int(found["times"] or 1 << 30),
                )
            )
        return cls(rules)

    @classmethod
    def from_environment(cls) -> Faults:
        """The rules of MUSTER_FAULTS."""
        return cls.parse(os.environ.get(VARIABLE, ""))

    def before(self, method: str, path: str) -> Rule | None:
        """Called for each request that is about to be sent; returns the rule for `after`, if any."""
        if not self.rules:
            return None
        rule = self._hit(method, path)
        if rule is None:
            return None
        if rule.what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if rule.what == "slow":
            time.sleep(SLOW)
        if rule.what == "timeout":
            raise ClusterError("no answer (injected)", 0)
        if rule.what == "fail" or rule.what.isdigit():
            status = 500 if rule.what == "fail" else int(rule.what)
            raise ClusterError(f"{status} (injected)", status)
        return rule

    def step(self, kind: str, name: str = "") -> None:
        """Called at each step of a cycle (CYCLE) or a thread (THREAD, its name)."""
        rule = self._hit(kind, name) if self.rules else None
        if rule is None:
            return
        if rule.what == "end":
            raise KilledError
        if rule.what == "raise":
            raise RuntimeError("injected")
        while True:
            time.sleep(3600.0)

    def _hit(self, method: str, path: str) -> Rule | None:
        with self._lock:
            return next((r for r in self.rules if r.hits(method, path)), None)

    @staticmethod
    def after(rule: Rule | None) -> None:
        """Called when the answer is there."""
        if rule is None:
            return
        if rule.what == "die-sent":
            os.kill(os.getpid(), signal.SIGKILL)
        if rule.what == "lost":
            raise ClusterError("the answer was lost (injected)", 0)

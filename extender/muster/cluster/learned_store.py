"""Where what jobs taught is kept: one ConfigMap of the release, that the chart makes and only muster writes.

Read once at the start of a term, written at most once a minute (core.actions.save_learned). Where it is missing or
can't be read nothing is known, and that is no reason not to schedule: jobs start as if nobody had run before them.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

from muster.cluster.api import MERGE, Api, message
from muster.cluster.paths import path
from muster.errors import ClusterError
from muster.types import LearnedSeen, WriteLearned

log = logging.getLogger(__name__)

KEY = "lessons.json"


def learned_by(lease: str) -> str:
    """The ConfigMap's name, as the chart has it: the release's name is told by its Lease."""
    return f"{lease.removesuffix('-scheduler')}-learned"


@dataclass(frozen=True, slots=True)
class Shelf:
    """The ConfigMap `name` in `namespace`; an empty name: nothing is kept."""

    api: Api
    namespace: str = ""
    name: str = ""

    @property
    def path(self) -> str:
        return path("v1", "configmaps", self.namespace, self.name)

    def read(self) -> list[LearnedSeen]:
        """What stands there, as an event; none where nothing does."""
        if not self.name:
            return []
        try:
            found = json.loads(self.api.get(self.path)).get("data") or {}
            return [LearnedSeen(json.loads(found[KEY]))] if found.get(KEY) else []
        except (ClusterError, ValueError, AttributeError) as error:
            log.warning("what was learned of earlier jobs can't be read, ConfigMap %s: %s", self.name, error)
            return []

    def write(self, action: WriteLearned, api: Api | None = None) -> tuple[int, str]:
        """The HTTP status and what the server says of a refusal. api: that of this action's requests."""
        if not self.name:
            return 200, ""
        data = {KEY: json.dumps(action.lessons, separators=(",", ":"))}
        status, answer = (api or self.api).request("PATCH", self.path, {"data": data}, MERGE)
        return status, "" if status == 200 else message(answer)

"""Whether Muster's account has the rights that it uses, and no others: the chart's RBAC rules against audit logs.

With E2E_RIGHTS=1 each lab leaves in `out/rights` what Muster's account may do, what it did, and what it was refused
for want of a right (`keep`). `python -m e2e.lab rights`, after all scenarios (`make test`), compares (`compare`): no
rule is unused but those of UNTRIED, and nothing was refused.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.lab.api import Api
from e2e.lab.audit import HOOKS, MUSTER
from e2e.lab.places import CHECKOUT

FOLDER = CHECKOUT / "out" / "rights"
WANTED = os.environ.get("E2E_RIGHTS") == "1"
"""Whether labs keep for this comparison what Muster's accounts ask for."""
OF_THE_CHART = "app.kubernetes.io/instance=muster"
SIBLINGS = "its siblings are tried; all are decoded by one function"
UNTRIED: Mapping[str, str] = {
    **{
        f"muster {verb} kubeflow.org/{plural}": SIBLINGS
        for verb in ("get", "list", "watch")
        for plural in ("jaxjobs", "mpijobs", "paddlejobs", "tfjobs", "xgboostjobs")
    },
}
"""Rules that no scenario uses, and why they are there."""
OPTIONAL = (
    "ray.io/",
    "leaderworkerset.x-k8s.io/",
    "kubeflow.org/pytorchjobs",
    "batch.volcano.sh/",
    "scheduling.volcano.sh/",
    "metrics.k8s.io/",
)
"""What rules are about that only scenarios of operators use which not every machine has built."""

Right = str  # "muster patch pods/status", "muster get jobset.x-k8s.io/jobsets"


@dataclass
class Kept:
    """Of one lab, or of all: what may be done, what was done, and what was refused (with the object)."""

    granted: set[Right] = field(default_factory=set)
    used: set[Right] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)

    def add(self, other: Kept) -> None:
        """The other's, too."""
        self.granted |= other.granted
        self.used |= other.used
        self.refused |= other.refused


def right(account: str, verb: str, group: str, resource: str) -> Right:
    """One right by its name."""
    return f"{account} {verb} {group}/{resource}" if group else f"{account} {verb} {resource}"


def rights_of(account: str, rules: Iterable[Mapping[str, Any]]) -> set[Right]:
    """What RBAC rules let an account do. Names of objects (`resourceNames`) don't count here."""
    return {
        right(account, verb, group, resource)
        for rule in rules
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for verb in rule.get("verbs", ())
    }


def asked(lines: Iterable[str]) -> Kept:
    """What an audit log says that Muster's accounts did, and were refused by RBAC (not by admission)."""
    found = Kept()
    for line in lines:
        event = json.loads(line)
        user, about = event["user"]["username"], event.get("objectRef")
        if user not in (MUSTER, HOOKS) or about is None or event.get("impersonatedUser"):
            continue
        account = user.rpartition(":")[2]
        resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
        one = right(account, event["verb"], about.get("apiGroup", ""), resource)
        if event.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid":
            found.refused.add(f"{one}: {event.get('requestURI', '')}")
        else:
            found.used.add(one)
    return found


def note(api: Api, folder: Path) -> None:
    """Remember in the lab's folder what Muster's account may do now; what it might before counts, too."""
    file = folder / "rights.json"
    granted = set(json.loads(file.read_text())) if file.exists() else set()
    for kind in ("clusterroles", "roles"):
        answer = api.get(f"/apis/rbac.authorization.k8s.io/v1/{kind}", labelSelector=OF_THE_CHART)
        for role in answer["items"]:
            if role["metadata"]["name"] == "muster":
                granted |= rights_of("muster", role["rules"])
    file.write_text(json.dumps(sorted(granted)))


def keep(name: str, folder: Path) -> None:
    """Leave what a lab that is about to go has shown, where it kept an audit log and had the chart."""
    file, log = folder / "rights.json", folder / "logs" / "audit.json"
    if not WANTED or not file.exists() or not log.exists():
        return
    with log.open() as lines:
        found = asked(line for line in lines if line.endswith("\n"))
    found.granted = set(json.loads(file.read_text()))
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = {key: sorted(values) for key, values in vars(found).items()}
    (FOLDER / f"{name}.json").write_text(json.dumps(kept, indent=1))


def compare(kept: Kept) -> list[str]:
    """What is wrong, a line each.

    A refusal counts where the chart grants no such right at all: an API server that has just started has not read its
    roles yet, and after an uninstall there are none.
    """
    unused = sorted(kept.granted - kept.used - UNTRIED.keys())
    return [
        *(
            f"no scenario uses the right: {one}"
            for one in unused
            if not one.split(" ")[-1].startswith(OPTIONAL)
        ),
        *(
            f"refused for want of a right: {one}"
            for one in sorted(kept.refused)
            if one.partition(": ")[0] not in kept.granted
        ),
        *(f"UNTRIED names a right that is used: {one}" for one in sorted(UNTRIED.keys() & kept.used)),
    ]


def main() -> int:
    """Compare what all labs left; exit 1 where something is wrong, or nothing is there."""
    whole = Kept()
    files = sorted(FOLDER.glob("*.json"))
    for file in files:
        whole.add(Kept(**{name: set(values) for name, values in json.loads(file.read_text()).items()}))
    wrong = compare(whole) if files else ["no lab left anything to compare: run the scenarios first"]
    for line in wrong:
        print(f"rights: {line}", file=sys.stderr)
    if not wrong:
        print(
            f"rights: {len(whole.granted)} of Muster's account, {len(files)} labs: none unused, nothing refused"
        )
    return 1 if wrong else 0

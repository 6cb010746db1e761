"""All checks in order, and what is printed of them."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.cluster.paths import path
from muster.doctor.checks import BEFORE_START, CHECKS
from muster.doctor.finding import ASK, Finding, Level, fail
from muster.doctor.patient import Asked, Patient, ask
from muster.errors import ClusterError, ConfigurationError
from muster.refused import LOG_IN
from muster.server.answering import sendable
from muster.settings import Settings, load_settings, profile_of

WIDTH = 110
WAITS = "nothing, unless it stays so: kubectl get --raw /readyz says how the API server is"
SHARED = "muster.dev/shared-nodes"
"""Annotation by Muster, of its ConfigMap: GPU nodes may be open to other schedulers (the value sharedNodes)."""


@dataclass(frozen=True)
class Place:
    """Where Muster is, as the command line has it; see Patient. inside: the caller is in a pod of the cluster."""

    namespace: str = "muster-system"
    release: str = "muster"
    probe: str = "default"
    url: str = ""
    inside: bool = False

    def service(self, settings: Settings) -> str:
        """The service port's URL; "" = by the API server's proxy."""
        if self.url or not self.inside:
            return self.url.rstrip("/")
        scheme = "https" if settings.tls is not None else "http"
        return f"{scheme}://{self.release}.{self.namespace}.svc:{settings.ports.service}"


def examine(api: Asked, place: Place, version: str = "") -> list[Finding]:
    """What was found of the installation. ClusterError where the API server does not answer at all. version: of this
    program."""
    settings, shared, found = _settings(api, place.namespace, place.release)
    if settings is None:
        return found
    url = place.service(settings)
    patient = Patient(api, place.namespace, place.release, settings, place.probe, url, version, shared)
    return found + _checked(patient, CHECKS)


def before_start(api: Asked, place: Place, config: Path | str) -> list[Finding]:
    """As Muster's own account, before it starts. config: its file, or what is in it. An API server that does not
    answer is no fault of the installation: Muster waits for it."""
    try:
        settings = _usable(config)
    except ConfigurationError as error:
        return [_refused(error, place.release)]
    patient = Patient(api, place.namespace, place.release, settings, place.probe)
    try:
        return _checked(patient, BEFORE_START)
    except ClusterError as error:
        return [Finding(Level.UNKNOWN, "kubernetes", f"{error}: muster starts, and waits for it", WAITS)]


def _checked(patient: Patient, checks: Sequence[Callable[[Patient], Iterable[Finding]]]) -> list[Finding]:
    """ClusterError where the API server does not answer at all."""
    found: list[Finding] = []
    for check in checks:
        about = check.__name__.replace("_", " ")
        try:
            found.extend(check(patient))
        except ClusterError as error:
            if error.status == 0:
                raise
            found.append(Finding(Level.UNKNOWN, about, f"can't be looked at: {error}", _advice(error)))
    return found


def _advice(error: ClusterError) -> str:
    """What to do where the API server answered, and not what was asked for."""
    match error.status:
        case 401:
            return f"{LOG_IN} (kubectl auth whoami asks the same)"
        case 403:
            return ASK
        case 404:
            return (
                "it is not served: kubectl api-resources lists what is; helm upgrade puts Muster's own back"
            )
    log = "kubectl get --raw '/readyz?verbose' and the API server's log say why"
    return f"run it again in a minute; if it stays so, {log}"


def _settings(api: Asked, namespace: str, release: str) -> tuple[Settings | None, bool, list[Finding]]:
    """Muster's configuration as it is installed, whether nodes may be shared, and what is wrong with it."""
    try:
        stored = ask(api, "GET", path("v1", "configmaps", namespace, release))
        settings = _usable(str(stored["data"]["muster.yaml"]))
        notes = stored.get("metadata", {}).get("annotations") or {}
        return settings, notes.get(SHARED) == "true", []
    except ClusterError as error:
        if error.status == 0:
            raise
        says = f"the ConfigMap {release} in {namespace} can't be read: {error}"
        return None, False, [Finding(Level.FAIL, "installation", says, _to_read_it(error, namespace))]
    except ConfigurationError as error:
        return None, False, [_refused(error, release)]


def _usable(config: Path | str) -> Settings:
    """What `muster serve` takes of it when it starts. Raises its ConfigurationError."""
    settings = load_settings(config)
    sendable(profile_of(settings))
    return settings


def _refused(error: ConfigurationError, release: str) -> Finding:
    return fail("configuration", str(error), f"correct the chart's values and run helm upgrade {release}")


def _to_read_it(error: ClusterError, namespace: str) -> str:
    """What to do where the configuration can't be read."""
    match error.status:
        case 403:
            return f"it takes the right to get configmaps in {namespace}, which an administrator gives: {ASK}"
        case 404:
            return (
                "helm list -A shows where Muster is: give --namespace and --release; it is not installed where none "
                "is listed (config/quickstart.md)"
            )
    return _advice(error)


def inside() -> bool:
    """Whether this runs in a pod of the cluster."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def text(found: Sequence[Finding]) -> str:
    """A line for each, or for each of its lines, with what to do below."""
    wide = max(len(one.about) for one in found)
    margin = " " * (len(Level.UNKNOWN) + wide + 4)
    lines = []
    for one in found:
        head = f"{one.level:{len(Level.UNKNOWN)}}  {one.about:{wide}}  "
        for line in one.says.splitlines():
            lines.append(textwrap.fill(line, WIDTH, initial_indent=head, subsequent_indent=margin))
            head = margin
        if one.do:
            lines.append(
                textwrap.fill(one.do, WIDTH, initial_indent=f"{margin}-> ", subsequent_indent=margin)
            )
    return "\n".join(lines) + "\n"

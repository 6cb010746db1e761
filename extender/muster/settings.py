# Over 300 lines: it is one table of all settings, with what is said of a wrong one.
"""muster.yaml: every setting with its unit and why one would change it.

    apiVersion: muster.dev/v1alpha1
    kind: MusterConfiguration
    profile: gang-pack
    order: strict
    gang: {timeout: 2m}

Times are seconds, or text such as "90s", "2m", "1h30m". A key that is not listed here is an error: a typing
error must not silently mean the default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, PydanticCustomError

from muster import live_recipes, profiles
from muster.asking import Asking
from muster.errors import ConfigurationError, did_you_mean
from muster.points import Profile
from muster.types import GPU, Namespaces, Requirement, device_names

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
LABEL = r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
NAME = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
DEVICE = (
    r"^([*]/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
    r"|[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/([A-Za-z0-9][-A-Za-z0-9_.]*[*]?|[*]))$"
)
"""An extended resource, or a * in place of its domain or of the rest of its name."""


def seconds(value: Any) -> Any:
    """Seconds of "90s", "2m", "1h30m" or a number; raises with what is allowed."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and DURATION.fullmatch(value.strip()):
        return sum(float(n) * UNITS[unit] for n, unit in PART.findall(value))
    raise PydanticCustomError("duration", "must be a time such as 90s, 2m or 1h30m, or a number of seconds")


Duration = Annotated[float, BeforeValidator(seconds), Field(gt=0, le=365 * 86400)]


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True, strict=True
    )


class Leader(_Model):
    """The Lease that decides which replica acts: that of the kube-scheduler in Muster's pod (design §6). At start
    only."""

    namespace: str = Field(default="muster-system", pattern=NAME)
    """Namespace of the Lease: the release's."""
    lease: str = Field(default="muster-scheduler", pattern=NAME)
    """leaderElection.resourceName of the kube-scheduler in Muster's pod."""
    own: bool = False
    """true: no kube-scheduler runs in its pod: Muster holds this Lease itself (registered with a scheduler that
    the team already runs)."""


class Ports(_Model):
    """Where muster listens. Change one where the host's network is shared. At start only."""

    address: str = "0.0.0.0"
    """Address of the service port and the webhook. 127.0.0.1 where a proxy stands before them."""
    service: int = Field(default=8080, ge=1, le=65535)
    """TCP port of probes, metrics and the API."""
    extender: int = Field(default=8081, ge=1, le=65535)
    """With binder own: TCP port of the extender verbs, on 127.0.0.1 only: they have no authentication."""


class Webhook(_Model):
    """The gate by webhook, where the cluster has no MutatingAdmissionPolicy (below 1.36)."""

    port: int = Field(default=9443, ge=1, le=65535)
    """TCP port of POST /mutate, HTTPS."""
    certificates: str = "/etc/muster-webhook"
    """Folder with tls.crt and tls.key, PEM. Read again when they change."""


class Tls(_Model):
    """HTTPS on the service port: a certificate that others renew (`certificates`), or Muster's own (`secret`)."""

    certificates: str = ""
    """Folder with tls.crt and tls.key, PEM, and ca.crt where clients need the authority. Read again when they
    change."""
    secret: str = Field(default="", pattern=rf"^$|{NAME}")
    """Secret in the Lease's namespace where Muster stores an authority and a certificate that it makes itself."""
    hosts: tuple[Annotated[str, Field(min_length=1, max_length=253)], ...] = Field(default=(), strict=False)
    """With secret: DNS names and addresses by which clients call the service port."""
    life: Duration = 90 * 86400.0
    """With secret: lifetime of a certificate. Muster renews it after two thirds of that."""
    publish: str = Field(default="", pattern=rf"^$|{NAME}")
    """ConfigMap in the Lease's namespace to whose ca.crt Muster writes the authority; empty: it writes none."""

    @model_validator(mode="after")
    def _one(self) -> Tls:
        if bool(self.certificates) == bool(self.secret):
            raise PydanticCustomError("profiles", "tls: either certificates or secret must be given")
        if self.secret and not self.hosts:
            raise PydanticCustomError(
                "profiles", "tls.hosts: with secret, a name or address at least must be given"
            )
        return self


class Reporting(_Model):
    """Reports of training: POST /v1/report on the service port. At start only, but for shareLessons."""

    enabled: bool = True
    """false: Muster takes no reports; speeds and lengths are what owners declare. Profiles that do nothing without
    reports (`coach`, `specon`, `gavel-*-perf`) are refused then."""
    url: str = Field(default="", pattern=r"^$|^https?://[^\s/,]+(/[^\s,]*)?(,https?://[^\s/,]+(/[^\s,]*)?)*$")
    """Address that the webhook gives to pods with `muster.dev/report: "true"` (MUSTER_URL); empty: none, because the
    admission policy does, or reports are off."""
    tell_authority: bool = True
    """With tls, whether the webhook also gives these pods the authority of the service port's certificate
    (MUSTER_CA). false: the url leads elsewhere."""
    share_lessons: bool = False
    """true: what Muster learned of an image and model in one namespace (speeds, lengths, what a change costs) counts
    for jobs of all others, too. false: for its own only, so that no tenant can mislead or watch another."""


class Readers(_Model):
    """Who reads /v1 and /debug on the service port. At start only."""

    api_server_tokens: bool = False
    """true: tokens for the API server's own audience are accepted, too, where people have no others, such as those of
    an OIDC provider. A token stolen here then works at the API server. false: those for muster.dev only."""


class SelectorRequirement(_Model):
    """One of a label selector's matchExpressions."""

    key: str = Field(pattern=LABEL)
    """A label's key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """As in Kubernetes."""
    values: tuple[str, ...] = Field(default=(), strict=False)
    """Of In and NotIn, which need one at least."""

    @model_validator(mode="after")
    def _as_in_kubernetes(self) -> SelectorRequirement:
        if bool(self.values) != (self.operator in ("In", "NotIn")):
            wanted = "must be empty" if self.values else "must name one at least"
            raise PydanticCustomError(
                "values", f"values: {wanted} with operator {self.operator}; found {list(self.values)!r}"
            )
        return self


class NamespaceSelector(_Model):
    """A label selector on Namespaces, as in Kubernetes; empty: all."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    """Labels and their values."""
    match_expressions: tuple[SelectorRequirement, ...] = Field(default=(), strict=False)
    """Requirements that all hold, too."""


class GangSettings(_Model):
    """Timeouts of a gang."""

    timeout: Duration = 120.0
    """From a gang's first bind: a gang that is not whole by then goes back to the gate, so that what it holds
    is not idle. Longer where volumes or nodes take minutes to be there."""
    ttl_after_finished: Duration = 3600.0
    """From a job's end until its Gang object is removed. Until then `muster explain` answers for it."""
    owner_pause: Duration = 10.0
    """From an owner's newest pod: an owner that creates no more for so long, although its minimum is incomplete,
    counts as waiting for its first pods to run. These start, and the others' places are reserved. Longer for a slow
    operator."""
    incomplete: Duration = 600.0
    """How long a job stays at its place in the queue while pods of its minimum are missing, held by another gate or
    suspended, and neither a quota nor a creating owner is the cause. After that it queues from the moment
    when it is whole. Longer where people create the pods of a job by hand."""


class AutoscalerSettings(_Model):
    """Asking for nodes. Autoscalers ignore gated pods, so without this they add no node for waiting jobs."""

    ask: Literal["none", "provisioning-request", "ungate"] = "none"
    """provisioning-request: an autoscaling.x-k8s.io/v1 ProvisioningRequest for the minimum of the head of the queue.
    ungate: its pods' gates are removed without a place, so that any autoscaler sees them Pending; they stay unbound
    until the whole job has a place, and can't be gated again. Needs binder own, whose filter guards them."""
    provisioning_class: str = Field(
        default="best-effort-atomic-scale-up.autoscaling.x-k8s.io",
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
    )
    """With ask provisioning-request: provisioningClassName of the request."""
    after: Duration = 30.0
    """With ask: how long a job waits before nodes are asked for: running jobs may end meanwhile."""
    limit: int = Field(default=1, ge=1, le=100)
    """With ask: jobs for which nodes are asked at a time, from the head of the queue."""


class ScoreSettings(_Model):
    """A Score plugin of a profile with its weight (no unit; only ratios count)."""

    name: str
    """The plugin."""
    weight: float = Field(default=1.0, gt=0, le=1000)
    """Its weight."""


class ProfileSettings(_Model):
    """A profile of the team's own: plugins by extension point."""

    name: str = Field(pattern=NAME)
    """What `profile` calls it."""
    sort: str = ""
    """QueueSort plugin; empty: priority, submission, key."""
    filters: tuple[str, ...] = Field(default=(), strict=False)
    """Filter plugins, all of which must let a node pass."""
    scores: tuple[ScoreSettings, ...] = Field(default=(), strict=False)
    """Score plugins; a node's score is their weighted mean."""
    shares: tuple[str, ...] = Field(default=(), strict=False)
    """A Share plugin and the Adjust plugins behind it, in this order."""
    rebalance: tuple[str, ...] = Field(default=(), strict=False)
    """Rebalance plugins: which running jobs are placed again."""
    estimate: str = ""
    """Estimate plugin: speed and remaining work of jobs; empty: the one that the setting `estimate` names, where it
    shares or moves jobs, else what their owners declare."""
    resize: Literal["restart", "in-place", "hand-over"] = "restart"
    """How a running job changes where `muster simulate --profile` reads this file: ended and started again, survivors
    go on, or the new replicas made ready first. On a cluster each job says it (`muster.dev/resize`,
    `muster.dev/gpus`), and hand-over needs devices.enabled. Only with shares or rebalance."""
    round: Annotated[float, BeforeValidator(seconds), Field(ge=0, le=365 * 86400)] = 0.0
    """Shares are computed again only at whole multiples of it; 0: whenever something changes. Only with shares."""
    placement: Literal["pinned", "scored"] = "pinned"
    """pinned: the planner picks the node. scored: kube-scheduler does, by Muster's prioritize verb. With binder
    cluster, which calls none, it is pinned."""


class DeviceSettings(_Model):
    """GPUs of a running pod in place: pods with `muster.dev/gpus` get them from Muster, more and fewer of them while
    they go on. Without `enabled` the others are refused. At start only. In the chart: the value `devices`."""

    enabled: bool = False
    """true: such pods are given devices. false: their jobs are Invalid, and say so."""
    lease: Annotated[float, BeforeValidator(seconds), Field(ge=30, le=3600)] = 60.0
    """How long a training goes on while its agent hears nothing of the replica that leads. More than a failover
    takes: a training that loses its lease ends by itself, and starts again later."""
    grace: Annotated[float, BeforeValidator(seconds), Field(ge=1, le=600)] = 5.0
    """From the end of a lease until its devices are given to others: what clocks may differ by."""
    keep: Annotated[float, BeforeValidator(seconds), Field(ge=0, le=3600)] = 10.0
    """How long a device that nobody uses stays with Muster. Longer where jobs in place follow each other."""
    namespace: str = Field(default="muster-devices", pattern=NAME)
    """Namespace of the pods that hold devices, and of nothing else."""
    image: str = Field(default="registry.k8s.io/pause:3.10.1", min_length=1, max_length=500)
    """What these pods run: any image whose program waits, with report hold one that has the command `muster`."""
    report: Literal["status", "hold"] = "status"
    """Who says which device such a pod got. status: its status (Kubernetes from 1.36). hold: its container, which
    runs `muster hold`."""
    url: str = Field(default="", max_length=2000)
    """With report hold: where it says so, URLs of Muster's service port with commas between them."""
    priority_class: str = Field(default="muster-devices", pattern=rf"^$|{NAME}")
    """Their PriorityClass; empty: the cluster's default."""


class HealthSettings(_Model):
    """When /healthz fails, so that the kubelet starts muster again. At start only."""

    cycle: Duration = 60.0
    """Time without a successful cycle although one was due. Longer where a single plan takes minutes."""


class Settings(_Model):
    """The whole of muster.yaml."""

    api_version: Literal["muster.dev/v1alpha1"] = "muster.dev/v1alpha1"
    kind: Literal["MusterConfiguration"] = "MusterConfiguration"
    scheduler_name: str = Field(default="muster", pattern=NAME)
    """Pods with this spec.schedulerName are Muster's. At start only."""
    mode: Literal["active", "observe"] = "active"
    """observe: plan and explain, change nothing. For a first look at a cluster. At start only."""
    profile: str = "fifo"
    """Which plugins decide: a named profile, or one of `profiles`."""
    order: Literal["backfill", "strict"] = "backfill"
    """strict: the head of the queue blocks all others. backfill: others pass while they don't delay it. Profiles
    that share GPUs take backfill only: who waits is theirs to say."""
    patience: Duration = 300.0
    """With order backfill: how long a head of the queue of unknown run time waits before freed capacity is reserved
    for it. Shorter helps big gangs and leaves more GPUs idle. Of no effect with order strict; Muster's log and
    `muster doctor` say so."""
    binder: Literal["own", "cluster"] = "own"
    """own: the kube-scheduler in Muster's pod binds. cluster: the cluster's own scheduler binds, and no extender verb
    is called. Pods whose owners ask for scored placement are pinned then; those that the planner does not model are
    nominated (extender/README.md). At start only."""
    cluster_scheduler: str = Field(default="default-scheduler", pattern=NAME)
    """With binder cluster: the schedulerName that admission gives our pods. At start only."""
    preemption: bool = False
    """Whether the head of the queue may send gangs of lower priority back to the gate, each whole. Their pods
    end as at any eviction and come back gated; off, because work since the last checkpoint is lost."""
    namespace_selector: NamespaceSelector = NamespaceSelector()
    """Namespaces whose pods are queued, as admission gates them (the chart writes both); never kube-system, nor the
    Lease's own. Labels other than kubernetes.io/metadata.name need the right to list and watch namespaces. At start
    only."""
    leader: Leader = Leader()
    ports: Ports = Ports()
    tls: Tls | None = None
    """Absent: the service port speaks plain HTTP. At start only."""
    webhook: Webhook | None = None
    """Absent: no webhook is served. At start only."""
    gang: GangSettings = GangSettings()
    health: HealthSettings = HealthSettings()
    readers: Readers = Readers()
    reporting: Reporting = Reporting()
    autoscaler: AutoscalerSettings = AutoscalerSettings()
    devices: DeviceSettings = DeviceSettings()
    resize_cost: bool = True
    """Shares of running jobs change only where that gains more than it costs (plugin resize-cost, last of the chain);
    false: as the profile's own plugins say, however often. Of no effect where the profile shares nothing (`fifo`,
    `specon`); Muster's log and `muster doctor` say so."""
    estimate: str = "reported"
    """Estimate of profiles that share or move jobs and name none: what training reports and owners declare.
    `declared`: annotations only. Refused where the profile in force has an estimate of its own; of no effect where it
    shares and moves nothing (`fifo`); Muster's log and `muster doctor` say so."""
    device_resources: tuple[Annotated[str, Field(pattern=DEVICE)], ...] = Field(
        default=("*/gpu", "nvidia.com/mig-*"), min_length=1, strict=False
    )
    """Resources that count as GPUs, in shares, metrics and picture: names, with a * at one end where it is all that
    begin or end so, e.g. google.com/tpu. Each device counts as one; where a node has nvidia.com/gpu, other names that
    end in /gpu are taken for the same devices. At start only."""
    topology_levels: tuple[Annotated[str, Field(pattern=LABEL)], ...] = Field(default=(), strict=False)
    """Node label keys, narrowest first (rack, block, zone): jobs are kept within as few as possible."""
    profiles: tuple[ProfileSettings, ...] = Field(default=(), strict=False)
    """Profiles of the team's own."""
    plugin_args: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Parameters of plugins by name: the paper's, see each plugin's docstring for units. Only of plugins that the
    profile in force uses, or one of `profiles`."""

    @property
    def own_scheduler(self) -> bool:
        """Whether the kube-scheduler in Muster's pod binds."""
        return self.binder == "own" and not self.leader.own

    @property
    def lets_on(self) -> bool:
        """Whether admission gives pods of ours the toleration of the taint on that scheduler's nodes."""
        return self.mode == "active" and self.own_scheduler

    @model_validator(mode="after")
    def _once(self) -> Settings:
        if self.binder == "own" and self.ports.service == self.ports.extender:
            raise PydanticCustomError(
                "profiles", f"ports: service and extender must differ; both are {self.ports.service}"
            )
        if self.binder == "cluster" and self.autoscaler.ask == "ungate":
            raise PydanticCustomError(
                "profiles",
                "autoscaler.ask: ungate needs binder own: the cluster's scheduler would bind the pods one by one",
            )
        if not self.reporting.enabled:
            for key, value in (("shareLessons", self.reporting.share_lessons), ("url", self.reporting.url)):
                if value:
                    raise PydanticCustomError(
                        "profiles", f"reporting.{key}: needs reporting.enabled; found {value!r}"
                    )
        if self.devices.enabled and not self.reporting.enabled:
            raise PydanticCustomError(
                "profiles",
                "devices.enabled: needs reporting.enabled: agents are known by the token of reports",
            )
        if self.devices.enabled and self.devices.report == "hold" and not self.devices.url:
            raise PydanticCustomError(
                "profiles",
                "devices.url: must be given with report hold: it is where holders say their device",
            )
        if self.devices.enabled and self.mode == "observe":
            raise PydanticCustomError(
                "profiles", "devices.enabled: needs mode active: what only looks on can't give devices"
            )
        if self.devices.enabled and not device_names(self.device_resources).has(GPU):
            raise PydanticCustomError(
                "profiles",
                f"devices.enabled: needs {GPU} among deviceResources: it is what is given in place",
            )
        names = [p.name for p in self.profiles]
        if len(set(names)) < len(names):
            raise PydanticCustomError("profiles", "profiles: two have the same name")
        return self


def load_settings(source: Path | str) -> Settings:
    """The settings of a file (a Path) or of YAML text (a str).

    Raises ConfigurationError: one line a problem, naming field, what is allowed and what was found.
    """
    if isinstance(source, Path):
        try:
            text, where = source.read_text(encoding="utf-8"), str(source)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{source}: can't be read: {error}") from error
    else:
        text, where = source, "configuration"
    try:
        plain = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{where}: is not YAML: {' '.join(str(error).split())}") from error
    if plain is None:
        plain = {}
    if not isinstance(plain, dict):
        raise ConfigurationError(f"{where}: must be a mapping; found {_shown(plain)}")
    try:
        settings = Settings.model_validate(plain)
    except ValidationError as error:
        wrong = {str(problem["loc"][0]) for problem in error.errors() if problem["loc"]}
        lines = [_line(problem) for problem in error.errors()] + _hidden(plain, wrong)
        raise ConfigurationError("\n".join(f"{where}: {line}" for line in lines)) from error
    if unread := _unread(plain, settings):
        lines = unread + _hidden(plain, ())
        raise ConfigurationError("\n".join(f"{where}: {line}" for line in lines))
    return settings


ONLY_WITH: tuple[tuple[str, tuple[str, ...], str, Callable[[Settings], bool]], ...] = (
    ("", ("cluster_scheduler",), "binder cluster", lambda s: s.binder == "cluster"),
    ("ports", ("extender",), "binder own", lambda s: s.binder == "own"),
    ("tls", ("hosts", "life"), "secret", lambda s: s.tls is not None and bool(s.tls.secret)),
    (
        *("autoscaler", ("provisioning_class",), "ask provisioning-request"),
        lambda s: s.autoscaler.ask == "provisioning-request",
    ),
    (
        *("autoscaler", ("after", "limit"), "ask provisioning-request or ungate"),
        lambda s: s.autoscaler.ask != "none",
    ),
    (
        "devices",
        ("lease", "grace", "keep", "namespace", "image", "report", "url", "priority_class"),
        "enabled: true",
        lambda s: s.devices.enabled,
    ),
    ("devices", ("url",), "report hold", lambda s: not s.devices.enabled or s.devices.report == "hold"),
)
"""Settings that nothing looks at without another one: what they are in, their names, what they go with, and whether
that is set. Refused where they are written all the same, since who writes one means something by it. Those that the
chart's users take in and out of effect by one other value, such as `profile`, are said instead (`no_effect`)."""


def _unread(plain: dict[str, Any], settings: Settings) -> list[str]:
    """Faults: settings of the text `plain` that nothing would look at."""
    faults = []
    for where, keys, needed, there in ONLY_WITH:
        whole, given = (getattr(settings, where), plain.get(where)) if where else (settings, plain)
        if whole is None or given is None or there(settings):
            continue
        for key in (key for key in keys if key in whole.model_fields_set):
            name = to_camel(key)
            found = _shown(given.get(name, given.get(key)))
            path = f"{where}.{name}" if where else name
            faults.append(f"{path}: is looked at only with {needed}; leave it out; found {found}")
    return faults


def _hidden(plain: dict[str, Any], wrong: Collection[object]) -> list[str]:
    """What is wrong with profile and plugins, which nobody looks at while a key is wrong: one run tells all."""
    if "profiles" in wrong:
        return []  # what they would have been called is not known
    try:
        profile_of(Settings.model_validate({key: value for key, value in plain.items() if key not in wrong}))
    except ConfigurationError as hidden:
        return str(hidden).splitlines()
    except ValidationError:
        pass  # a rule about several keys
    return []


def profile_of(settings: Settings) -> Profile:
    """The profile that the settings name, with their times and order.

    Raises ConfigurationError where a profile, a plugin or one of its parameters is not known, runs in simulations
    only, or would change nothing, also of the team's own profiles that are not in force: one line a problem.
    """
    own, devices = _own(settings), settings.devices.enabled
    try:
        known = profiles.recipe(settings.profile, own)
    except ConfigurationError as unknown:
        others = [fault for name, one in own.items() for fault in _faults(settings, name, one, {})]
        faults = [str(unknown), *profiles.strangers(settings.plugin_args), *others]
        raise ConfigurationError("\n".join(dict.fromkeys(faults))) from unknown
    every = {settings.profile: known, **own}
    faults = [
        *(fault for name, one in every.items() for fault in _faults(settings, name, one, known.plugins)),
        *profiles.strangers(settings.plugin_args),
        *live_recipes.unused(
            settings.profile,
            own,
            settings.plugin_args,
            resize_cost=settings.resize_cost,
            estimate=settings.estimate,
            devices=devices,
        ),
    ]
    if "estimate" in settings.model_fields_set:
        faults += live_recipes.not_taken(settings.profile, own, settings.estimate)
    if faults:
        raise ConfigurationError("\n".join(dict.fromkeys(faults)))
    built, wrong = {}, []
    for name, one in every.items():
        live = live_recipes.on_a_cluster(one, settings.resize_cost, settings.estimate, devices=devices)
        try:
            built[name] = profiles.assembled(name, live, settings.plugin_args)
        except ConfigurationError as error:
            wrong.append(str(error))
    if wrong:
        raise ConfigurationError("\n".join(dict.fromkeys(wrong)))
    return _with(built[settings.profile], settings)


def _faults(settings: Settings, name: str, one: profiles.Recipe, answered: Collection[str]) -> list[str]:
    """Of a profile by itself. answered: plugins of the one in force, which has the same arguments and was asked."""
    in_force = name == settings.profile
    return profiles.misplaced(name, one) + live_recipes.not_on_a_cluster(
        name,
        one,
        settings.plugin_args,
        devices=settings.devices.enabled,
        order=settings.order if in_force else "backfill",
        estimate=settings.estimate,
        reports=settings.reporting.enabled,
        answered=() if in_force else answered,
    )


def _own(settings: Settings) -> dict[str, profiles.Recipe]:
    """The team's own profiles."""
    return {
        p.name: profiles.Recipe(
            sort=p.sort,
            filters=p.filters,
            scores=tuple((s.name, s.weight) for s in p.scores),
            shares=p.shares,
            rebalance=p.rebalance,
            estimate=p.estimate,
            resize=p.resize,
            round=p.round,
            placement=p.placement,
        )
        for p in settings.profiles
    }


def _with(built: Profile, settings: Settings) -> Profile:
    return replace(
        built,
        order=settings.order,
        preemption=settings.preemption,
        patience=settings.patience,
        timeout=settings.gang.timeout,
        ttl_after_finished=settings.gang.ttl_after_finished,
        owner_pause=settings.gang.owner_pause,
        shared_lessons=settings.reporting.share_lessons,
        incomplete=settings.gang.incomplete,
        binder=settings.binder,
        asking=Asking(
            settings.autoscaler.ask,
            settings.autoscaler.provisioning_class,
            settings.autoscaler.after,
            settings.autoscaler.limit,
        ),
        topology_levels=settings.topology_levels,
        devices=device_names(settings.device_resources),
        namespaces=namespaces_of(settings),
    )


def namespaces_of(settings: Settings) -> Namespaces:
    """Which have opted in."""
    chosen = settings.namespace_selector
    labels = [Requirement(key, "In", (value,)) for key, value in sorted(chosen.match_labels.items())]
    expressions = [Requirement(r.key, r.operator, r.values) for r in chosen.match_expressions]
    left_out = {"kube-system", settings.leader.namespace}
    if settings.devices.enabled:
        left_out.add(settings.devices.namespace)
    return Namespaces((*labels, *expressions), frozenset(left_out))


AT_START = (
    *(
        "scheduler_name",
        "mode",
        "binder",
        "cluster_scheduler",
        "namespace_selector",
        "leader",
        "ports",
        "tls",
    ),
    *("webhook", "health", "readers", "reporting", "devices", "device_resources"),
)
"""Settings that a process reads when it starts, and never again."""


def until_restarted(fresh: Settings, started: Settings) -> tuple[Settings, list[str]]:
    """A changed configuration as it counts for a process that was started with another one, and what of it counts
    from the next start on, by its name in YAML."""
    kept = {name: getattr(started, name) for name in AT_START}
    lessons = {"share_lessons": fresh.reporting.share_lessons}
    kept["reporting"] = started.reporting.model_copy(update=lessons)
    later = [to_camel(name) for name in AT_START if getattr(fresh, name) != kept[name]]
    return fresh.model_copy(update=kept), later


# ---- problems, one line each: field, what is allowed, what was found ----


def _line(problem: ErrorDetails) -> str:
    field = _path(problem["loc"])
    say = WORDS.get(problem["type"])
    context = problem.get("ctx", {})
    allowed = say(context, field) if say else problem["msg"]
    if problem["type"] == "values":
        return f"{field}.{allowed}"
    if problem["type"] == "profiles":
        return allowed
    meant = did_you_mean(field.rpartition(".")[2], _known(field)) if say is _unknown else ""
    return f"{field}: {allowed}; found {_shown(problem['input'])}{meant}"


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path or "configuration"


def _unknown(_: Any, field: str) -> str:
    return f"not a setting; allowed here: {', '.join(_known(field))}"


def _known(field: str) -> list[str]:
    """The settings that may stand where this one does."""
    model: Any = Settings
    for part in re.sub(r"\[\d+\]", "", field).split(".")[:-1]:
        model = _inside(model, part)
    return sorted(f.alias or name for name, f in model.model_fields.items())


def _inside(model: Any, part: str) -> Any:
    """The model of a field by its name in YAML."""
    for name, field in model.model_fields.items():
        if part in (field.alias, name):
            kind = field.annotation
            arguments = getattr(kind, "__args__", ())
            return arguments[0] if arguments else kind
    return model


WORDS: dict[str, Callable[[Any, str], str]] = {
    "extra_forbidden": _unknown,
    "literal_error": lambda c, _: f"must be {c['expected']}",
    "greater_than": lambda c, _: f"must be more than {c['gt']:g}",
    "greater_than_equal": lambda c, _: f"must be at least {c['ge']:g}",
    "less_than_equal": lambda c, _: f"must be at most {c['le']:g}",
    "int_type": lambda *_: "must be a whole number",
    "float_type": lambda *_: "must be a number",
    "string_type": lambda *_: "must be text",
    "tuple_type": lambda *_: "must be a list",
    "dict_type": lambda *_: "must be a mapping",
    "model_type": lambda *_: "must be a mapping",
    "missing": lambda *_: "must be given",
    "too_short": lambda *_: "must name one at least",
    "string_pattern_mismatch": lambda _, field: (
        "must be a label key such as topology.kubernetes.io/rack"
        if field.startswith("topologyLevels")
        else "must be http://host:port or https://host:port, several separated by commas"
        if field == "reporting.url"
        else "must be an extended resource such as google.com/tpu, amd.com/* or */gpu"
        if field.startswith("deviceResources")
        else "must be a Kubernetes name: lower case letters, digits, '-' and '.'"
    ),
}


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."

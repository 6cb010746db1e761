# Over 300 lines: most of it is what each operator needs to run here.
"""Real operators in a lab: controllers from their Go modules, as local processes with their own CRDs and webhooks.

What is theirs is theirs: the CRDs and webhooks are read from the module that the program is built from, where Go
keeps it. Changed is only what a cluster's network and certificates do: webhooks are called by URL (on loopback, from
kind's node at an address of this machine), with a certificate that the cluster's own authority signs, and their rules
on pods get the objectSelector that the operators' kustomize files add. They act with all rights (their own RBAC is
not what is tried here), under a service account's name, so that an audit log tells them apart."""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from e2e.lab import build, credentials, manifests, metrics_server
from e2e.lab.api import Api, ApiError, Json, answers
from e2e.lab.credentials import Authority
from e2e.lab.errors import BadRequestError, LabError
from e2e.lab.limits import CLIENT_BURST, CLIENT_QPS
from e2e.lab.operator_config import LOOPBACK, configuration
from e2e.lab.ports import listens
from e2e.lab.private_etc import with_etc
from e2e.lab.programs import output
from e2e.lab.say import say
from e2e.lab.versions import MODULES, Binary, pinned

ESTABLISHED_WITHIN = 30.0  # seconds; it takes well under one
GONE_WITHIN = 60.0  # seconds for what an operator has to let go of
_VOLCANO_ADMISSION = (  # as its chart has it (values.yaml, custom.enabled_admissions)
    "/jobs/mutate,/jobs/validate,/podgroups/validate,/queues/mutate,/queues/validate,/hypernodes/validate,/cronjobs/validate"
)
# The training operator looks for this file, whatever it is told, before it does anything (its webhooks' certificate
# is read elsewhere: see `environment`). Any file does.
HARD_CODED_MARK = Path("/tmp/k8s-webhook-server/serving-certs/tls.crt")


@dataclass(frozen=True)
class Operator:
    """One that a lab can run; its name is also its process', its program's and its folder's in e2e/binaries."""

    name: str
    path: str  # the Go module
    package: str
    crds: str  # the module's folder with them
    webhooks: str = ""  # the module's file with them; "": it runs without
    pods: str = ""  # the label without which a pod doesn't concern its webhooks
    needs: tuple[str, ...] = ()
    crd_patches: str = ""  # the module's kustomization with conversions between versions of CRDs; "": none
    webhook_patches: str = (
        ""  # the module's kustomization with the namespaces that webhooks leave alone; "": none
    )
    etc: str = ""  # below /etc: where it reads a certificate, and can't be told another place
    of: str = ""  # the operator that it is a part of, whose module it is built from; "": one by itself
    parts: tuple[str, ...] = ()  # other processes of it, which run with it
    health: str = "readyz"  # its own path; "": it is ready when its webhooks are listened for
    scheme: str = "http"  # of that
    version: str = ""  # "v0.10.1", pinned in e2e/binaries/NAME-VERSION; "": the one of e2e/binaries/NAME

    @property
    def module(self) -> str:
        """Its folder in e2e/binaries."""
        name = self.of or self.name
        return f"{name}-{self.version}" if self.version else name

    @property
    def binary(self) -> Binary:
        return Binary(self.name, pinned(self.module, self.path), self.module, self.package)


_JOBSET = "sigs.k8s.io/jobset"
_TRAINER = "github.com/kubeflow/trainer/v2"
_LWS = "sigs.k8s.io/lws"
_KUBERAY = "github.com/ray-project/kuberay/ray-operator"
_TRAINING = "github.com/kubeflow/training-operator"
_KUEUE = "sigs.k8s.io/kueue"
_VOLCANO = "volcano.sh/volcano"
_METRICS = "sigs.k8s.io/metrics-server"

OPERATORS: Mapping[str, Operator] = {
    one.name: one
    for one in (  # in the order of starting
        Operator(
            *("jobset", _JOBSET, _JOBSET, "config/components/crd/bases"),
            webhooks="config/components/webhook/manifests.yaml",
            pods="jobset.sigs.k8s.io/jobset-name",
        ),
        Operator(
            *("trainer", _TRAINER, f"{_TRAINER}/cmd/trainer-controller-manager", "manifests/base/crds"),
            webhooks="manifests/base/webhook/manifests.yaml",
            needs=("jobset",),
        ),
        Operator(
            *("lws", _LWS, f"{_LWS}/cmd", "config/crd/bases"),
            webhooks="config/webhook/manifests.yaml",
            pods="leaderworkerset.sigs.k8s.io/name",
        ),
        Operator("kuberay", _KUBERAY, _KUBERAY, "config/crd/bases"),
        Operator(
            *("training-operator", _TRAINING, f"{_TRAINING}/cmd/training-operator.v1", "manifests/base/crds")
        ),
        Operator(
            *("kueue", _KUEUE, f"{_KUEUE}/cmd/kueue", "config/components/crd/bases"),
            webhooks="config/components/webhook/manifests.yaml",
            crd_patches="config/components/crd/kustomization.yaml",
            webhook_patches="config/components/webhook/kustomization.yaml",
            # Its certificate for metrics is read from there, served or not, unless it makes certificates itself.
            etc="kueue/metrics/certs",
        ),
        # No operator, but one that runs like them; it is `readyz` only when it has read nodes, which are made later.
        Operator(
            *(metrics_server.NAME, _METRICS, f"{_METRICS}/cmd/metrics-server", ""),
            health="livez",
            scheme="https",
        ),
        # Three processes, admission first: the scheduler creates its queues through it.
        Operator(
            *("volcano-admission", _VOLCANO, f"{_VOLCANO}/cmd/webhook-manager", ""),
            webhooks="installer/volcano-development.yaml",
            of="volcano",
            health="",
        ),
        Operator(
            *(
                "volcano-controllers",
                _VOLCANO,
                f"{_VOLCANO}/cmd/controller-manager",
                "config/crd/jobflow/bases",
            ),
            of="volcano",
            health="healthz",
        ),
        Operator(
            *("volcano", _VOLCANO, f"{_VOLCANO}/cmd/scheduler", "config/crd/volcano/bases"),
            parts=("volcano-admission", "volcano-controllers"),
            health="healthz",
        ),
    )
}


def available() -> list[str]:
    """What OPERATORS may name: each operator, and its other versions that are pinned."""
    whole = [name for name, operator in OPERATORS.items() if not operator.of]
    return [one for name in whole for one in (name, *(f"{name}@{version}" for version in _others(name)))]


def _others(name: str) -> list[str]:
    folders = (folder.name.removeprefix(f"{name}-") for folder in MODULES.glob(f"{name}-v*"))
    return sorted(folders)


def chosen(asked: Sequence[str]) -> dict[str, Operator]:
    """These operators by name, in the order of starting, each in the version that is asked for. BadRequestError where
    a lab can't run them."""
    found: dict[str, Operator] = {}
    for one in asked:
        if one not in available():
            raise BadRequestError(f"OPERATORS={one}: this lab can run {', '.join(available())}")
        name, _, version = one.partition("@")
        if name in found:
            raise BadRequestError(f"OPERATORS={','.join(asked)}: {name} is there twice")
        for part in (name, *OPERATORS[name].parts):
            found[part] = replace(OPERATORS[part], version=version)
    for name, operator in found.items():
        for needed in operator.needs:
            if needed not in found:
                raise BadRequestError(
                    f"OPERATORS={name}: it makes objects of {needed}: OPERATORS={needed},{name}"
                )
    return {name: found[name] for name in OPERATORS if name in found}


def binaries(asked: Sequence[str]) -> dict[str, Binary]:
    """The programs of these operators, by name."""
    return {name: operator.binary for name, operator in chosen(asked).items()}


def port_names(asked: Sequence[str]) -> list[str]:
    """What `ports.reserve` is asked for: health, and webhooks."""
    return [port for name in chosen(asked) for port in (name, f"{name}-webhook")]


@dataclass(frozen=True)
class Operators:
    """Those of one lab."""

    folder: Path  # the lab's
    wanted: Sequence[str]  # names, each with @VERSION where it is another than the pinned one
    server: str
    ports: Mapping[str, int]
    programs: Mapping[str, Path]
    host: str = LOOPBACK  # where the API server calls webhooks

    @functools.cached_property
    def _chosen(self) -> dict[str, Operator]:
        return chosen(self.wanted)

    @property
    def names(self) -> tuple[str, ...]:
        """Processes in the order of starting."""
        return tuple(self._chosen)

    def install(self) -> None:
        """CRDs, all Established, and webhooks; files that the processes read. LabError where that fails."""
        if not self.names:
            return
        authority = Authority(self.folder / "pki")
        kinds: list[str] = []
        with Api(self.folder / "kubeconfig" / "admin") as api:
            for name in self.names:
                one = self._chosen[name]
                module = _module(one)
                if not one.crds:
                    continue
                crds = list(manifests.objects(module / one.crds, "CustomResourceDefinition"))
                self._call_conversions(crds, one, authority.certificate)
                for crd in crds:
                    api.apply(f"{_CRDS}/{crd['metadata']['name']}", crd)
                kinds += [crd["metadata"]["name"] for crd in crds]
                say(f"{name} {one.binary.version}: {len(crds)} CRDs")
            for kind in kinds:  # an operator that finds its kinds missing ends
                _established(api, kind)
            for name in self.names:
                self._prepare(self._chosen[name], authority)
                if self._chosen[name].webhooks:
                    self._call_webhooks(api, self._chosen[name], authority.certificate)
                if name == "training-operator":
                    _training_operator_wants(api)
                if name == metrics_server.NAME:
                    module, port = _module(self._chosen[name]), self.ports[name]
                    metrics_server.aggregate(api, module, port, authority.certificate)

    def remove(self) -> None:
        """What `install` has made, from a cluster that stays: CRDs with all their objects, which the operators that
        run let go of, then webhooks. What still has a finalizer after a minute loses it."""
        with Api(self.folder / "kubeconfig" / "admin") as api:
            crds = [
                crd
                for one in self._chosen.values()
                if one.crds
                for crd in manifests.objects(_module(one) / one.crds, "CustomResourceDefinition")
            ]
            for crd in crds:
                delete(api, f"{_CRDS}/{crd['metadata']['name']}")
            _gone(api, crds)
            for one in self._chosen.values():
                for found in self._webhook_configurations(one) if one.webhooks else ():
                    delete(api, _webhooks_path(found))
            if "training-operator" in self._chosen:
                delete(api, f"{_ADMISSION}/validatingwebhookconfigurations/{_TRAINING_VALIDATOR}")
                delete(api, "/api/v1/namespaces/kubeflow")

    def command(self, name: str) -> list[str]:
        """The argv of one operator."""
        health = f"127.0.0.1:{self.ports[name]}"
        webhook = self.ports[f"{name}-webhook"]
        arguments = {
            "jobset": [f"--config={self._config(name)}"],
            "trainer": [f"--config={self._config(name)}"],
            "lws": [f"--config={self._config(name)}"],
            "kuberay": [
                "--metrics-addr=0",
                f"--health-probe-bind-address={health}",
                "--enable-leader-election=false",
                "--feature-gates=RayJobDeletionPolicy=true",  # allows `suspend` of a worker group
            ],
            "training-operator": [
                "--enable-scheme=pytorchjob",
                f"--webhook-server-port={webhook}",
                "--metrics-bind-address=0",
                f"--health-probe-bind-address={health}",
            ],
            metrics_server.NAME: metrics_server.command(
                self.ports[name], self._kubeconfig(name), self._certificates(name)
            ),
            "kueue": [f"--config={self._config(name)}", "--feature-gates=VisibilityOnDemand=false"],
            "volcano-admission": [
                f"--kubeconfig={self._kubeconfig(name)}",
                f"--enabled-admission={_VOLCANO_ADMISSION}",
                *(f"--listen-address={self.host}", f"--port={webhook}"),
                f"--webhook-url={self._webhook_root(self._chosen[name])}",
                f"--tls-cert-file={self._certificates(name) / 'tls.crt'}",
                f"--tls-private-key-file={self._certificates(name) / 'tls.key'}",
                f"--ca-cert-file={self.folder / 'pki' / 'ca.crt'}",
            ],
            "volcano-controllers": self._volcano(name, health),
            # The configuration of its own chart; its cycle of one second is its default.
            "volcano": [*self._volcano(name, health), f"--scheduler-conf={self._config(name)}"],
        }[name]
        command = [str(self.programs[name]), *arguments]
        return with_etc(self._etc(name), command) if self._chosen[name].etc else command

    def _volcano(self, name: str, health: str) -> list[str]:
        """What its scheduler and its controllers have in common; their clients' limits are those of the schedulers
        that they are compared with."""
        return [
            f"--kubeconfig={self._kubeconfig(name)}",
            *("--logtostderr", "-v=2", "--leader-elect=false"),
            *("--enable-healthz=true", f"--healthz-address={health}"),
            *(f"--kube-api-qps={CLIENT_QPS}", f"--kube-api-burst={CLIENT_BURST}"),
        ]

    def environment(self, name: str) -> dict[str, str]:
        """What is added to a process' environment: who it is, and where controller-runtime looks for the
        webhooks' certificate by itself (not every operator can be told)."""
        home = str(self._home(name))
        # The last is Volcano's: without, a socket in /tmp that the processes of all labs would share.
        return {"KUBECONFIG": str(self._kubeconfig(name)), "TMPDIR": home, "DEBUG_SOCKET_DIR": home}

    def ready(self, name: str) -> bool:
        """Its own word, and that its webhooks are listened for (some say so before)."""
        one = self._chosen[name]
        well = not one.health or answers(f"{one.scheme}://127.0.0.1:{self.ports[name]}/{one.health}")
        return well and (not one.webhooks or listens(self.ports[f"{name}-webhook"], self.host))

    # --- files ------------------------------------------------------------------------------------------------

    def _home(self, name: str) -> Path:
        return self.folder / "operators" / name

    def _kubeconfig(self, name: str) -> Path:
        return self.folder / "kubeconfig" / name

    def _config(self, name: str) -> Path:
        return self.folder / "config" / f"{name}.yaml"

    def _certificates(self, name: str) -> Path:
        """As controller-runtime has it below a folder for temporary files."""
        return self._home(name) / "k8s-webhook-server" / "serving-certs"

    def _etc(self, name: str) -> Path:
        """What it has for /etc, where it has its own."""
        return self._home(name) / "etc"

    def _prepare(self, one: Operator, authority: Authority) -> None:
        """Certificate, kubeconfig file and configuration of one operator."""
        name = one.name
        hosts = metrics_server.HOSTS if name == metrics_server.NAME else (self.host,)
        serving = authority.server(name, hosts)
        for folder in [self._certificates(name), *([self._etc(name) / one.etc] if one.etc else [])]:
            credentials.write(folder / "tls.crt", serving.certificate)
            credentials.write(folder / "tls.key", serving.key)
        user = authority.client(f"system:serviceaccount:{one.of or name}-system:{name}", ("system:masters",))
        text = credentials.kubeconfig(self.server, authority.certificate, user)
        credentials.write(self._kubeconfig(name), text)
        ports = self.ports[name], self.ports[f"{name}-webhook"]
        if name == "volcano":
            shipped = _module(one) / "installer/helm/chart/volcano/config/volcano-scheduler.conf"
            credentials.write(self._config(name), shipped.read_text())
            return
        told = configuration(name, self.host, *ports, self._certificates(name), one.version)
        credentials.write(self._config(name), json.dumps(told, indent=1))

    # --- webhooks ---------------------------------------------------------------------------------------------

    def _webhook_root(self, one: Operator) -> str:
        return f"https://{self.host}:{self.ports[f'{one.name}-webhook']}"

    def _call_conversions(self, crds: Sequence[Json], one: Operator, authority: bytes) -> None:
        """Into these CRDs: the operator converts their versions, where it listens."""
        if not one.crd_patches:
            return
        patched = manifests.conversions(_module(one) / one.crd_patches)
        for crd in crds:
            if conversion := patched.get(crd["metadata"]["name"]):
                called = conversion["webhook"]["clientConfig"]["service"]["path"]
                conversion["webhook"]["clientConfig"] = {
                    "url": self._webhook_root(one) + called,
                    "caBundle": credentials.encoded(authority),
                }
                crd["spec"]["conversion"] = conversion

    def _call_webhooks(self, api: Api, one: Operator, authority: bytes) -> None:
        """The operator's webhook configurations, called where it listens."""
        root, bundle = self._webhook_root(one), credentials.encoded(authority)
        selected = (
            manifests.namespace_selectors(_module(one) / one.webhook_patches) if one.webhook_patches else {}
        )
        for found in self._webhook_configurations(one):
            for webhook in found["webhooks"]:
                service = webhook["clientConfig"]["service"]
                webhook["clientConfig"] = {"url": root + service["path"], "caBundle": bundle}
                if webhook["name"] in selected:
                    webhook["namespaceSelector"] = selected[webhook["name"]]
                if one.pods and any("pods" in rule["resources"] for rule in webhook["rules"]):
                    webhook["objectSelector"] = {
                        "matchExpressions": [{"key": one.pods, "operator": "Exists"}]
                    }
            api.apply(_webhooks_path(found), found)

    def _webhook_configurations(self, one: Operator) -> Iterator[Json]:
        """As its module has them, under names that are its own."""
        for found in manifests.objects(_module(one) / one.webhooks):
            if not found["kind"].endswith("WebhookConfiguration"):
                continue  # a file of all objects
            own = found["metadata"]["name"]  # Volcano's looks for its own by their names
            found["metadata"] = {"name": own if own.startswith(one.name) else f"{one.name}-{own}"}
            yield found


_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_TRAINING_VALIDATOR = "validator.training-operator.kubeflow.org"


def _webhooks_path(found: Json) -> str:
    return f"{_ADMISSION}/{found['kind'].lower()}s/{found['metadata']['name']}"


def delete(api: Api, path: str) -> None:
    """That it goes; none there is as good."""
    try:
        api.delete(path)
    except ApiError as refused:
        if refused.status != 404:
            raise


def _gone(api: Api, crds: Sequence[Json]) -> None:
    """Until these CRDs are gone. LabError where they stay, also without their objects' finalizers."""
    began = time.monotonic()
    names = {crd["metadata"]["name"] for crd in crds}
    released = False
    while left := names & {crd["metadata"]["name"] for crd in api.get(_CRDS)["items"]}:
        passed = time.monotonic() - began
        if passed > GONE_WITHIN and not released:
            released = True
            for crd in crds:
                if crd["metadata"]["name"] in left:
                    _release(api, crd)
        if passed > 2 * GONE_WITHIN:
            raise LabError(f"CRDs are still there after {passed:.0f} s: {', '.join(sorted(left))}")
        time.sleep(0.2)


def _release(api: Api, crd: Json) -> None:
    """Every object of the kind loses its finalizers."""
    spec = crd["spec"]
    version = next(one["name"] for one in spec["versions"] if one["storage"])
    root, plural = f"/apis/{spec['group']}/{version}", spec["names"]["plural"]
    for found in api.get(f"{root}/{plural}")["items"]:
        metadata = found["metadata"]
        space = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
        say(f"{plural} {metadata['name']} keeps its finalizers: {metadata.get('finalizers')}")
        with contextlib.suppress(ApiError):
            api.patch(f"{root}{space}/{plural}/{metadata['name']}", {"metadata": {"finalizers": None}})


@functools.cache
def _module(one: Operator) -> Path:
    """Where Go keeps the operator's module, with the checksum that its go.sum has; downloaded where it is not there.

    LabError with Go's own words."""
    command = [*build.go(one.module), "mod", "download", "-json", one.path]
    found = output(command, f"go mod download {one.path}", cwd=MODULES / one.module)
    return Path(json.loads(found)["Dir"])


def _established(api: Api, crd: str) -> None:
    deadline = time.monotonic() + ESTABLISHED_WITHIN
    while True:
        conditions = api.get(f"{_CRDS}/{crd}").get("status", {}).get("conditions") or []
        if any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
            return
        if time.monotonic() > deadline:
            raise LabError(f"CRD {crd} is not Established after {ESTABLISHED_WITHIN:.0f} s: {conditions}")
        time.sleep(0.05)


def _training_operator_wants(api: Api) -> None:
    """Its keeper of certificates is always on: a Secret, a webhook configuration and a file of these names. Its
    webhooks, validation only, are left out."""
    secret = "training-operator-webhook-cert"
    api.apply(
        "/api/v1/namespaces/kubeflow",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow"}},
    )
    api.apply(
        f"/api/v1/namespaces/kubeflow/secrets/{secret}",
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}},
    )
    api.apply(
        f"{_ADMISSION}/validatingwebhookconfigurations/{_TRAINING_VALIDATOR}",
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": _TRAINING_VALIDATOR},
            "webhooks": [],
        },
    )
    HARD_CODED_MARK.parent.mkdir(parents=True, exist_ok=True)
    HARD_CODED_MARK.touch()


def missing(asked: Sequence[str]) -> list[str]:
    """Which of these operators would have to be built first."""
    wanted = {one.partition("@")[0]: one for one in asked}
    absent = [name for name, binary in binaries(asked).items() if not build.is_built(binary)]
    return list(dict.fromkeys(wanted[OPERATORS[name].of or name] for name in absent))

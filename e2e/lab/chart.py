# Over 300 lines: it is the lab's stand-in for one Deployment, from helm to the processes of its pods.
"""Muster in a lab: the chart installed by helm, its pods run as local processes.

The nodes are fake, so the Deployment has no replicas and the lab does what its pods would: it reads the
ConfigMap that the chart made, and runs kube-scheduler and `muster serve` with the chart's service accounts.
All that is added to the chart's configuration is the path of a kubeconfig file."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.lab import credentials, libyaml, places, podnet, rights
from e2e.lab.api import Api, ApiError
from e2e.lab.controlplane import gates, scheduler_serving
from e2e.lab.errors import LabError
from e2e.lab.programs import output
from e2e.lab.shape import Shape

CHART = places.CHECKOUT / "charts" / "muster"
NAMESPACE = "muster-system"
RELEASE = "muster"
GATE = "muster.dev/queue"
ACCOUNT, SCHEDULER_ACCOUNT = "muster", "muster-scheduler"
HOOK_ACCOUNTS = {"pre-delete": "muster-hooks", "post-delete": "muster-uninstalled"}
"""Of the hooks of an uninstall, by helm's name of the moment."""
LEASE = "muster-scheduler"
HOOK_RIGHTS = {
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles",
    "RoleBinding": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings",
}
"""What a hook of the chart has for itself, and where it is made."""
TEN_YEARS = 10 * 365 * 86400


@dataclass(frozen=True)
class Pair:
    """One replica: a kube-scheduler and the muster beside it, under a host name of their own."""

    index: int

    @property
    def muster(self) -> str:
        return f"muster-{self.index}"

    @property
    def scheduler(self) -> str:
        return f"kube-scheduler-{self.index}"

    @property
    def host(self) -> str:
        """What the two see as the pod's host name; muster compares the Lease's holder with it."""
        return f"muster-{self.index}"

    @property
    def ports(self) -> tuple[str, str, str, str]:
        return f"{self.muster}-service", f"{self.muster}-extender", f"{self.muster}-webhook", self.scheduler


def pairs(shape: Shape) -> list[Pair]:
    return [Pair(index) for index in range(shape.replicas)] if shape.chart else []


def processes(shape: Shape, pair: Pair) -> tuple[str, ...]:
    """What runs of a pair, in the order of starting: no kube-scheduler stands beside with binder=cluster or
    scheduler.enabled=false."""
    return (pair.muster, pair.scheduler) if shape.own_scheduler else (pair.muster,)


@dataclass(frozen=True)
class Chart:
    """The chart in one lab."""

    folder: Path
    shape: Shape
    server: str
    ports: Mapping[str, int]
    programs: Mapping[str, Path]

    def kubeconfig(self, account: str) -> Path:
        return self.folder / "kubeconfig" / account

    def install(self, *more: str) -> None:
        """`helm upgrade --install` with the shape's values, then the files that the processes read.

        LabError with helm's own words where it refuses."""
        service, extender, webhook, _ = (self.ports[name] for name in Pair(0).ports)
        values: dict[str, Any] = {
            "replicas": 0,
            "sharedNodes": True,  # the lab's default-scheduler may use them, too
            "ports": {"service": service, "extender": extender, "webhook": webhook},
            "config": {"ports": {"address": "127.0.0.1"}},
            # In admission mode webhook only: no Service can be reached here, so the first muster is called.
            "admission": {"webhook": {"url": f"https://127.0.0.1:{webhook}/mutate"}},
        }
        if self.shape.rack_count:  # the labels that the lab's nodes carry
            values["topologyLevels"] = ["topology.kubernetes.io/rack", "topology.kubernetes.io/zone"]
        if self.shape.real:  # pods that really run send their reports where a Service would be
            services = [self.ports[pair.ports[0]] for pair in pairs(self.shape)]
            hosts = ("127.0.0.1", podnet.SERVICE) if self.shape.pod_network else ("127.0.0.1",)
            urls = [f"http://{host}:{port}" for host in hosts for port in services]
            values["reporting"] = {"url": ",".join(urls)}
        file = credentials.write(self.config("values"), yaml.safe_dump(values))
        arguments = [
            *("upgrade", "--install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--create-namespace"),
            *("--no-hooks", "--values", str(file)),
        ]
        for given in self.shape.values:
            arguments += ["--values", given]
        for setting in self.shape.set_values:
            arguments += ["--set", setting]
        self.helm(*arguments, *more)
        self.configure()

    def configure(self) -> None:
        """Write the configuration that is in the cluster now, and kubeconfigs of the chart's accounts, to
        files."""
        with Api(self.folder / "kubeconfig" / "admin") as api:
            data = api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{RELEASE}")["data"]
            self.write_accounts(api)
            rights.note(api, self.folder)
        for pair in pairs(self.shape):
            service, extender, webhook, _ = (self.ports[name] for name in pair.ports)
            muster = libyaml.load(data["muster.yaml"])
            scheduler = libyaml.load(data.get("scheduler.yaml", "{}"))
            # The one change: in the cluster both find the API by themselves.
            scheduler.setdefault("clientConnection", {})["kubeconfig"] = str(
                self.kubeconfig(SCHEDULER_ACCOUNT)
            )
            if "webhook" in muster:  # what the pod mounts from the Secret
                muster["webhook"]["certificates"] = str(self.folder / "webhook")
            if "certificates" in muster.get("tls", {}):
                muster["tls"]["certificates"] = str(self.folder / "tls")
            if pair.index:  # pods have an address each, the lab's pairs share one
                mine = {"service": service, "extender": extender}
                muster["ports"] |= {name: mine[name] for name in mine if name in muster["ports"]}
                if "webhook" in muster:
                    muster["webhook"]["port"] = webhook
                for verbs in scheduler.get("extenders", []):
                    verbs["urlPrefix"] = f"http://127.0.0.1:{extender}"
            credentials.write(self.config(pair.muster), yaml.safe_dump(muster, sort_keys=False))
            credentials.write(self.config(pair.scheduler), yaml.safe_dump(scheduler, sort_keys=False))
        self.mount()

    def mount(self) -> None:
        """The files of the Secrets that the pod mounts, as they are now."""
        settings = self.muster_configuration()
        secrets = {"webhook": f"{RELEASE}-webhook"} if "webhook" in settings else {}
        if "certificates" in settings.get("tls", {}):
            values = json.loads(
                self.helm("get", "values", RELEASE, "--namespace", NAMESPACE, "--output", "json")
            )
            secrets["tls"] = values["tls"].get("secret") or f"{RELEASE}-tls"
        with Api(self.folder / "kubeconfig" / "admin") as api:
            for folder, name in secrets.items():
                secret = api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}")
                for file, content in secret["data"].items():
                    credentials.write(self.folder / folder / file, base64.b64decode(content))

    @property
    def scheme(self) -> str:
        """What the service port speaks."""
        file = self.config(Pair(0).muster)
        return "https" if file.exists() and "tls" in self.muster_configuration() else "http"

    def config(self, name: str) -> Path:
        return self.folder / "config" / f"{name}.yaml"

    def muster_configuration(self) -> dict[str, Any]:
        loaded: dict[str, Any] = libyaml.load(self.config(Pair(0).muster).read_text())
        return loaded

    def command(self, name: str) -> list[str]:
        """The argv of one of a pair's processes."""
        pair = next(pair for pair in pairs(self.shape) if name in (pair.muster, pair.scheduler))
        if name == pair.scheduler:
            command = [
                str(self.programs["kube-scheduler"]),
                f"--config={self.config(name)}",
                *scheduler_serving(self.ports[name]),
                *gates(self.shape.feature_gates),
                *self.shape.scheduler_args,
            ]
        else:
            command = [str(muster_program()), "serve", f"--config={self.config(name)}"]
            command.append(f"--kubeconfig={self.kubeconfig(ACCOUNT)}")
        return [*_under_host_name(pair.host, needed=self.shape.replicas > 1), *command]

    def gates_pods(self) -> str:
        """ "" when a pod created in namespace default now would get our gate, else what comes back."""
        settings = self.muster_configuration()
        pod = {
            "metadata": {"name": "lab-probe"},
            "spec": {
                "schedulerName": settings.get("schedulerName", "muster"),
                "containers": [{"name": "main", "image": "none"}],
            },
        }
        with Api(self.folder / "kubeconfig" / "admin") as api:
            try:
                answer = api.post("/api/v1/namespaces/default/pods", pod, dryRun="All")
            except ApiError as refused:
                return f"the apiserver refuses a pod of ours: {refused}"
        found = [gate["name"] for gate in answer["spec"].get("schedulingGates", [])]
        return "" if GATE in found else f"a pod of ours comes back with the gates {found}"

    def expects_gate(self) -> bool:
        """Whether a pod in namespace default should be gated at all with these values."""
        values = json.loads(
            self.helm("get", "values", RELEASE, "--namespace", NAMESPACE, "--all", "--output", "json")
        )
        active: bool = values.get("mode", "active") == "active" and not values.get("namespaceSelector")
        return active

    def leader(self) -> str:
        """Who holds the scheduler's Lease, "" for nobody."""
        with Api(self.folder / "kubeconfig" / "admin") as api:
            try:
                lease = api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}")
            except ApiError:
                return ""
        return str(lease["spec"].get("holderIdentity") or "")

    @contextlib.contextmanager
    def hook_rights(self, event: str = "pre-delete") -> Iterator[Path]:
        """The account that a hook of the chart runs with, as helm makes it before the hook and deletes it after: its
        kubeconfig."""
        text = self.helm("get", "hooks", RELEASE, "--namespace", NAMESPACE)
        rights = [
            one
            for one in libyaml.load_all(text)
            if one and one["kind"] in HOOK_RIGHTS and one["metadata"]["annotations"]["helm.sh/hook"] == event
        ]
        paths = [HOOK_RIGHTS[one["kind"]] for one in rights]
        with Api(self.folder / "kubeconfig" / "admin") as api:
            made: list[str] = []
            try:
                for path, one in zip(paths, rights, strict=True):
                    api.post(path, one)
                    made.append(f"{path}/{one['metadata']['name']}")
                self._credentials(api, HOOK_ACCOUNTS[event])
                yield self.kubeconfig(HOOK_ACCOUNTS[event])
            finally:
                for each in reversed(made):
                    api.delete(each)

    def helm(self, *arguments: str) -> str:
        """Run helm against this lab; its stdout. LabError with its stderr."""
        own = {
            f"HELM_{kind}_HOME": str(self.folder / "helm" / kind.lower())
            for kind in ("CACHE", "CONFIG", "DATA")
        }
        program = [str(self.programs["helm"]), "--kubeconfig", str(self.folder / "kubeconfig" / "admin")]
        return output([*program, *arguments], f"helm {arguments[0]}", env=os.environ | own)

    def write_accounts(self, api: Api) -> None:
        """Kubeconfigs of the accounts that it has with these values."""
        self._credentials(api, ACCOUNT)
        if self.shape.own_scheduler:
            self._credentials(api, SCHEDULER_ACCOUNT)

    def _credentials(self, api: Api, account: str) -> None:
        """A kubeconfig file with a token of a service account of the chart's."""
        try:
            answer = api.post(
                f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token",
                {"spec": {"expirationSeconds": TEN_YEARS}},
            )
        except ApiError as refused:
            if refused.status == 404:
                raise LabError(f"the chart made no service account {NAMESPACE}/{account}") from refused
            raise
        authority = (self.folder / "pki" / "ca.crt").read_bytes()
        text = credentials.kubeconfig(self.server, authority, answer["status"]["token"])
        credentials.write(self.kubeconfig(account), text)


def muster_program() -> Path:
    """The `muster` command of the Python that runs the lab. LabError where it is not installed."""
    program = Path(sys.executable).parent / "muster"
    if not program.exists():
        raise LabError(f"{program} is missing: run `make setup`, or leave Muster out with CHART=0")
    return program


def _under_host_name(host: str, needed: bool) -> list[str]:
    """A prefix that runs a command under a host name of its own; nothing where this machine can't and one
    pair runs."""
    if not shutil.which("unshare"):
        flags = None
    else:
        choices = [["--uts"]] if os.geteuid() == 0 else [["--user", "--map-root-user", "--uts"]]
        flags = next((choice for choice in choices if _works(choice)), None)
    if flags is None:
        if needed:
            raise LabError(
                "two replicas need a UTS namespace each: no working `unshare --uts` here (REPLICAS=1 works)"
            )
        return []
    # unshare and sh are replaced by the command: its pid is the one that we record.
    return ["unshare", *flags, "sh", "-c", 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"', host]


def _works(flags: list[str]) -> bool:
    probe = ["unshare", *flags, "sh", "-c", "echo lab-probe > /proc/sys/kernel/hostname"]
    return subprocess.run(probe, capture_output=True, check=False, stdin=subprocess.DEVNULL).returncode == 0

"""Command lines of the control plane: what each process is told, and why where it is not the default."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.lab import audit, credentials, metrics_server, rights
from e2e.lab.credentials import Authority, Signed
from e2e.lab.limits import CLIENT_BURST, CLIENT_QPS
from e2e.lab.metrics_server import USE
from e2e.lab.shape import Shape

STAGES = Path(__file__).resolve().parent.parent / "kwok" / "stages.yaml"
DEFAULT_SCHEDULER = "default-scheduler"
PORTS = ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", DEFAULT_SCHEDULER, "kwok")
CONTROLLERS = "--controllers=*,-ttl-controller,-validatingadmissionpolicy-status-controller"
"""All but two. ttl-controller rewrites every node's annotation each time the cluster passes 100, 500, 1,000 or
2,000 nodes. The other one compiles each of the chart's expressions for each kind that it is about: 6 s of CPU in
every lab, a third of its start, for warnings that one scenario looks at (e2e/test_install.py)."""
LEASE = 20
"""Seconds of a node's Lease in labs with real nodes; it is renewed four times in them."""


@dataclass(frozen=True)
class ControlPlane:
    """The control plane of one lab. `command(name)` is the argv of a process; its files are written by
    `prepare`."""

    folder: Path
    shape: Shape
    ports: Mapping[str, int]
    programs: Mapping[str, Path]

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.ports['kube-apiserver']}"

    @property
    def names(self) -> tuple[str, ...]:
        """Processes in the order of starting."""
        scheduler = (DEFAULT_SCHEDULER,) if self.shape.scheduler else ()
        return ("etcd", "kube-apiserver", "kube-controller-manager", *scheduler, "kwok")

    @property
    def audit_log(self) -> Path:
        return self.folder / "logs" / "audit.json"

    @property
    def _audit_policy(self) -> Path:
        return self.folder / "config" / "audit.yaml"

    def kubeconfig(self, name: str) -> Path:
        return self.folder / "kubeconfig" / name

    def prepare(self) -> None:
        """Certificates, keys, kubeconfig files and the stock scheduler's configuration."""
        pki = self.folder / "pki"
        authority = Authority(pki)
        hosts = ("127.0.0.1", "localhost", "kubernetes.default.svc", "kubernetes.default", "10.96.0.1")
        self._pair("kube-apiserver", authority.server("kube-apiserver", hosts))
        # Aggregated API servers would ask for it, and authentication in kube-scheduler looks for its
        # configuration.
        self._pair("front-proxy", authority.client("front-proxy-client"))
        credentials.write(pki / "service-accounts.key", credentials.signing_key())
        for name, user, groups in (
            ("admin", "kubernetes-admin", ("system:masters",)),
            ("kube-controller-manager", "system:kube-controller-manager", ()),
            (DEFAULT_SCHEDULER, "system:kube-scheduler", ()),
            ("kwok", "kwok", ("system:masters",)),
        ):
            text = credentials.kubeconfig(self.server, authority.certificate, authority.client(user, groups))
            credentials.write(self.kubeconfig(name), text)
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {
                "kubeconfig": str(self.kubeconfig(DEFAULT_SCHEDULER)),
                "qps": CLIENT_QPS,
                "burst": CLIENT_BURST,
            },
        }
        credentials.write(
            self.folder / "config" / f"{DEFAULT_SCHEDULER}.yaml", json.dumps(configuration, indent=1)
        )
        credentials.write(self._audit_policy, json.dumps(audit.policy(writes=self.shape.audit), indent=1))

    def command(self, name: str) -> list[str]:
        """The argv of one process, for `daemon.start`."""
        arguments = {
            "etcd": self._etcd,
            "kube-apiserver": self._apiserver,
            "kube-controller-manager": self._controller_manager,
            DEFAULT_SCHEDULER: self._default_scheduler,
            "kwok": self._kwok,
        }[name]()
        program = "kube-scheduler" if name == DEFAULT_SCHEDULER else name
        return [str(self.programs[program]), *arguments]

    def environment(self, name: str) -> dict[str, str]:
        """What is added to a process' environment."""
        if name != "kwok":
            return {}
        return {
            # It reads a configuration of the user's from its work folder, if there is one.
            "KWOK_WORKDIR": str(self.folder / "kwok"),
            # kwok 0.8.0 fills a map of its CEL library from several goroutines while it starts, and Go ends
            # the program when two of them meet (seen once in some hundred starts). On one thread they can't
            # meet inside a map operation: the runtime does not preempt itself there.
            "GOMAXPROCS": "1",
        }

    def _etcd(self) -> list[str]:
        url = f"http://127.0.0.1:{self.ports['etcd']}"
        peer = f"http://127.0.0.1:{self.ports['etcd-peer']}"
        return [
            "--name=lab",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=lab={peer}",
            # The data is thrown away, and a killed process loses nothing (only a killed machine would).
            "--unsafe-no-fsync",
            "--quota-backend-bytes=8589934592",
            "--auto-compaction-mode=periodic",
            "--auto-compaction-retention=5m",
            "--snapshot-count=10000",
            "--log-level=warn",
        ]

    def _apiserver(self) -> list[str]:
        pki = self.folder / "pki"
        return [
            f"--etcd-servers=http://127.0.0.1:{self.ports['etcd']}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.ports['kube-apiserver']}",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",  # a loopback address is refused as an endpoint
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged=true",
            f"--tls-cert-file={pki / 'kube-apiserver.crt'}",
            f"--tls-private-key-file={pki / 'kube-apiserver.key'}",
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--requestheader-client-ca-file={pki / 'ca.crt'}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={pki / 'front-proxy.crt'}",
            f"--proxy-client-key-file={pki / 'front-proxy.key'}",
            "--authorization-mode=Node,RBAC",
            "--delete-collection-workers=4",  # the pods of a namespace that ends: one after another takes seconds
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
            f"--service-account-key-file={pki / 'service-accounts.key'}",
            # Its not-ready taint at birth and the controller's removal are two writes a node before 5,000
            # nodes can be used.
            "--disable-admission-plugins=TaintNodesByCondition",
            *(audit.flags(self._audit_policy, self.audit_log) if self.shape.audit or rights.WANTED else ()),
            *self._gates(),
            *self.shape.apiserver_args,
        ]

    def _controller_manager(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig('kube-controller-manager')}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.ports['kube-controller-manager']}",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self.folder / 'pki' / 'service-accounts.key'}",
            f"--root-ca-file={self.folder / 'pki' / 'ca.crt'}",
            *(
                ()
                if any(one.startswith("--controllers=") for one in self.shape.controller_args)
                else (CONTROLLERS,)
            ),
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            f"--node-monitor-grace-period={self._grace}",
            "--horizontal-pod-autoscaler-sync-period=3s",  # 15 s: nobody who tries something has so much time
            *self._gates(),
            *self.shape.controller_args,
        ]

    def _default_scheduler(self) -> list[str]:
        return [
            f"--config={self.folder / 'config' / (DEFAULT_SCHEDULER + '.yaml')}",
            *scheduler_serving(self.ports[DEFAULT_SCHEDULER]),
            *self._gates(),
            *self.shape.scheduler_args,
        ]

    def _kwok(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig('kwok')}",
            f"--config={STAGES}",
            *([f"--config={USE}"] if metrics_server.NAME in self.shape.operators else ()),
            # Real nodes have a kubelet, and are Ready through it alone.
            "--manage-nodes-with-label-selector=type!=real" if self.shape.real else "--manage-all-nodes=true",
            f"--node-lease-duration-seconds={LEASE if self.shape.real else 0}",
            "--cidr=10.128.0.0/9",
            f"--server-address=127.0.0.1:{self.ports['kwok']}",
        ]

    @property
    def _grace(self) -> str:
        """For how long a node is Ready without a heartbeat.

        There is one value for all nodes. Where all are fake nobody sends any (5,000 of them would be 500 writes a
        second), and what is Ready stays Ready until somebody says otherwise. Beside real nodes, whose kubelets may
        die, kwok renews a Lease for each of the few fake ones."""
        return "40s" if self.shape.real else "8760h"

    def _gates(self) -> list[str]:
        return gates(self.shape.feature_gates)

    def _pair(self, name: str, signed: Signed) -> None:
        credentials.write(self.folder / "pki" / f"{name}.crt", signed.certificate)
        credentials.write(self.folder / "pki" / f"{name}.key", signed.key)


def gates(feature_gates: Sequence[str]) -> list[str]:
    return [f"--feature-gates={','.join(feature_gates)}"] if feature_gates else []


def scheduler_serving(port: int) -> list[str]:
    """Where a kube-scheduler of the lab serves health and metrics, to anybody on loopback."""
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
        "--v=2",  # the chart's default
    ]

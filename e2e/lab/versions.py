"""Which version of which binary a lab runs. The pins are the go.mod files in e2e/binaries: read, not
repeated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from e2e.lab.errors import BadRequestError

MODULES = Path(__file__).resolve().parent.parent / "binaries"
DEFAULT_KUBERNETES = "1.37"  # what CI runs
OLDEST_KUBERNETES = "1.34"


@dataclass(frozen=True)
class Binary:
    """One program of the lab and where it is built from.

    `module` is the folder under e2e/binaries whose go.mod pins it, `package` the Go package, and `ldflags`
    what makes the program know its version (helm's .Capabilities.KubeVersion comes from the apiserver's)."""

    name: str
    version: str  # "v1.37.1"
    module: str
    package: str
    ldflags: tuple[str, ...] = ()

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}"

    @property
    def minor(self) -> str:
        """ "1.37" of "v1.37.1": what makes a program found on PATH the right one."""
        return ".".join(self.version.lstrip("v").split(".")[:2])


@cache
def pinned(module: str, path: str) -> str:
    """The version that e2e/binaries/<module>/go.mod requires of a Go module. KeyError where it does not."""
    text = (MODULES / module / "go.mod").read_text()
    found = re.search(rf"^\s*(?:require )?{re.escape(path)} (v\S+)", text, re.MULTILINE)
    if found is None:
        raise KeyError(f"{module}/go.mod does not require {path}")
    return found[1]


def supported() -> list[str]:
    """Kubernetes minors that have a pinned module, oldest first."""
    minors = [folder.name.removeprefix("kubernetes-") for folder in MODULES.glob("kubernetes-*")]
    return sorted(minors, key=lambda minor: [int(part) for part in minor.split(".")])


def binaries(kubernetes: str = DEFAULT_KUBERNETES) -> dict[str, Binary]:
    """Every program of a lab of this Kubernetes minor, by name, in the order in which they are worth
    building."""
    module = f"kubernetes-{kubernetes}"
    version = pinned(module, "k8s.io/kubernetes")
    major, minor = version.lstrip("v").split(".")[:2]
    stamp = "k8s.io/component-base/version"
    kubernetes_flags = (
        f"-X {stamp}.gitVersion={version}",
        f"-X {stamp}.gitMajor={major}",
        f"-X {stamp}.gitMinor={minor}",
    )
    kwok = pinned("kwok", "sigs.k8s.io/kwok")
    helm = pinned("helm", "helm.sh/helm/v4")
    found = [
        Binary("kube-apiserver", version, module, "k8s.io/kubernetes/cmd/kube-apiserver", kubernetes_flags),
        Binary(
            "kube-controller-manager",
            version,
            module,
            "k8s.io/kubernetes/cmd/kube-controller-manager",
            kubernetes_flags,
        ),
        Binary("kube-scheduler", version, module, "k8s.io/kubernetes/cmd/kube-scheduler", kubernetes_flags),
        Binary("kubectl", version, module, "k8s.io/kubernetes/cmd/kubectl", kubernetes_flags),
        Binary("etcd", pinned("etcd", "go.etcd.io/etcd/server/v3"), "etcd", "go.etcd.io/etcd/server/v3"),
        Binary(
            "kwok",
            kwok,
            "kwok",
            "sigs.k8s.io/kwok/cmd/kwok",
            (f"-X sigs.k8s.io/kwok/pkg/consts.Version={kwok}",),
        ),
        Binary(
            "helm",
            helm,
            "helm",
            "helm.sh/helm/v4/cmd/helm",
            (f"-X helm.sh/helm/v4/internal/version.version={helm}",),
        ),
    ]
    return {binary.name: binary for binary in found}


def real_binaries(kubernetes: str = DEFAULT_KUBERNETES) -> dict[str, Binary]:
    """What a real node needs besides: kubelet from the control plane's own module, containerd, its shim for
    runc, its command, and what a sandbox runs. BadRequestError where that Kubernetes' module pins no kubelet."""
    module = f"kubernetes-{kubernetes}"
    kubelet = "k8s.io/kubernetes/cmd/kubelet"
    if kubelet not in (MODULES / module / "go.mod").read_text():
        raise BadRequestError(
            f"REAL with K8S={kubernetes}: real nodes are there for K8S={DEFAULT_KUBERNETES} only"
        )
    containerd = "github.com/containerd/containerd/v2"
    version = pinned("containerd", containerd)
    scheduler = binaries(kubernetes)["kube-scheduler"]
    found = [
        Binary("kubelet", scheduler.version, module, kubelet, scheduler.ldflags),
        Binary("lab-pause", "v1.0.0", "lab-pause", "."),
    ]
    found += [
        Binary(
            name,
            version,
            "containerd",
            f"{containerd}/cmd/{name}",
            (f"-X {containerd}/version.Version={version}",),
        )
        for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    ]
    return {binary.name: binary for binary in found}


def kind_binaries(kubernetes: str = DEFAULT_KUBERNETES) -> dict[str, Binary]:
    """kind itself, and what its node image is made of where no registry has it (e2e/kind): the node's programs and
    those of its images. BadRequestError where that Kubernetes' module pins no kubeadm."""
    module = f"kubernetes-{kubernetes}"
    if "k8s.io/kubernetes/cmd/kubeadm" not in (MODULES / module / "go.mod").read_text():
        raise BadRequestError(
            f"kind's node image with K8S={kubernetes}: it is built for {DEFAULT_KUBERNETES} only"
        )
    control = binaries(kubernetes)
    stamped = control["kube-scheduler"]
    plugins = "github.com/containernetworking/plugins"
    cni = pinned("cni-plugins", plugins)
    crictl = "sigs.k8s.io/cri-tools"
    found = [
        kind_itself(),
        *(
            Binary(name, stamped.version, module, f"k8s.io/kubernetes/cmd/{name}", stamped.ldflags)
            for name in ("kubeadm", "kube-proxy")
        ),
        *(
            Binary(path.split("/")[1], cni, "cni-plugins", f"{plugins}/plugins/{path}")
            for path in ("main/ptp", "main/loopback", "ipam/host-local", "meta/portmap")
        ),
        Binary("crictl", pinned("crictl", crictl), "crictl", f"{crictl}/cmd/crictl"),
        coredns(),
    ]
    return control | real_binaries(kubernetes) | {binary.name: binary for binary in found}


def kind_itself() -> Binary:
    """The command `kind`."""
    return Binary("kind", pinned("kind", "sigs.k8s.io/kind"), "kind", "sigs.k8s.io/kind")


def helm_3() -> Binary:
    """Helm 3, which many have, and Argo CD renders with: the chart is tried with it, too (`Shape.helm`).

    The version of Kubernetes that it takes where it sees no cluster is given to it, as its own Makefile does it."""
    module, path = "helm-3", "helm.sh/helm/v3"
    version = pinned(module, path)
    minor = pinned(module, "k8s.io/client-go").split(".")[1]
    client = [
        f"-X {path}/pkg/{package}.k8sVersion{part}={number}"
        for package in ("chartutil", "lint/rules")
        for part, number in (("Major", "1"), ("Minor", minor))
    ]
    flags = (f"-X {path}/internal/version.version={version}", *client)
    return Binary("helm", version, module, f"{path}/cmd/helm", flags)


def coredns() -> Binary:
    """What pods ask for names: kind's, and those of real nodes with `Shape.dns`."""
    path = "github.com/coredns/coredns"
    return Binary("coredns", pinned("coredns", path), "coredns", path)


def actionlint() -> Binary:
    """What `make check-workflows` runs."""
    path = "github.com/rhysd/actionlint"
    return Binary("actionlint", pinned("actionlint", path), "actionlint", f"{path}/cmd/actionlint")

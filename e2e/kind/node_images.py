"""kind's own node images: those that the release of kind which is pinned was made with, by digest.

A tag may be built anew for a later kind (its release notes ask for the digest), and not each patch version of
Kubernetes has an image: so these differ from the lab's in the last number. From the notes of the release,
https://github.com/kubernetes-sigs/kind/releases/tag/v0.33.0; that of 1.37 is also the default in kind's module
(pkg/apis/config/defaults/image.go), whose hash is in e2e/binaries/kind/go.sum. A new kind wants a new table."""

from __future__ import annotations

from collections.abc import Mapping

from e2e.kind.engine import docker, pulled
from e2e.lab.say import say

RELEASE = "v0.33.0"
"""The kind that they belong to."""
NODE_IMAGES: Mapping[str, str] = {
    "1.37": "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5",
    "1.36": "kindest/node:v1.36.4@sha256:099e049362a1526b2db71494e1947aae99bd16290d7c895f2b7ea312e3cbfaed",
    "1.35": "kindest/node:v1.35.8@sha256:07b2536e30b803ed61d1677a79df6115f798ce64c80f9e22f6ed45afd09323c0",
    "1.34": "kindest/node:v1.34.11@sha256:44e222ee2132dab25ff87301682f89eb82c7880ea3a1bf543bfe9708fd08d67d",
}
"""By Kubernetes minor."""
NO_CGROUP_V1_FROM = (1, 35)
"""A kubelet refuses cgroup v1 by default from here on; the image that is built here tells it not to."""


def public(kubernetes: str) -> str:
    """kind's own image, which is with Docker now; "" where its registry does not answer, or Docker is on cgroup v1
    and the image's kubelet does not run there."""
    name = NODE_IMAGES[kubernetes]
    minor = tuple(int(part) for part in kubernetes.split("."))
    if minor >= NO_CGROUP_V1_FROM and docker("info", "--format", "{{.CgroupVersion}}").strip() == "1":
        say(f"{name} needs cgroup v2, and Docker is on v1 here")
        return ""
    return name if pulled(name) else ""

"""What to do where the API server answered, and not with what was asked for: by its status and the command.

Nothing is imported: `muster --help` must not feel numpy.
"""

from __future__ import annotations

LOG_IN = "log in again: the API server does not take these credentials"
NOT_INSTALLED = (
    "Muster is not installed in this cluster, which serves no gangs.muster.dev: config/quickstart.md installs it; "
    "another cluster is chosen by --context or --kubeconfig"
)
ROLES = "kubectl get clusterroles -l app.kubernetes.io/name=muster"
"""Whatever the release is called, and its objects after it."""


def advice(status: int, command: str | None, namespace: str, whoami: str) -> str:
    """ "" where nothing but the answer itself can say. namespace: "" = all. whoami: how to ask who one is."""
    match status, command:
        case 401, _:
            return f"{LOG_IN} ({whoami} asks the same)"
        case 404, "explain" | "top":
            return NOT_INSTALLED
        case 403, "explain" | "top":
            where = f"in namespace {namespace}" if namespace else "in all namespaces"
            kind, of = ("rolebinding", f" -n {namespace}") if namespace else ("clusterrolebinding", "")
            return (
                f"you lack the right to list gangs.muster.dev {where}. An administrator gives it by the chart's "
                f"ClusterRole RELEASE-view ({ROLES} lists it), which the roles view, edit and admin include: "
                f"kubectl create {kind} NAME --clusterrole=RELEASE-view --user=YOU{of}"
            )
        case 403, "release":
            return (
                f"you lack that right. The chart's ClusterRole RELEASE-break-glass ({ROLES} lists it) has all that "
                "it takes, and the group muster:break-glass (the value breakGlassGroup) has that role: where an "
                "administrator lets you impersonate the group, add --as=YOU --as-group=muster:break-glass"
            )
        case 403, "uninstalled":
            return "you lack that right: it takes those of who installs the chart; run it as such: --context"
    return ""

"""What every command that asks a cluster takes: --kubeconfig, --context, and the namespace that they stand for."""

from __future__ import annotations

import os
import re
import shlex
from typing import Any

import click

kubeconfig_option = click.option(
    "--kubeconfig",
    envvar="KUBECONFIG",
    type=click.Path(dir_okay=False),
    help="As for kubectl; default $KUBECONFIG, then ~/.kube/config, then the pod's own account.",
)
context_option = click.option("--context", help="Context of the kubeconfig.")


def context_namespace(kubeconfig: str | None, context: str | None) -> str:
    """The namespace of the context, as kubectl takes it; without a kubeconfig the pod's own."""
    contexts, active = _contexts(kubeconfig)
    if active is None:
        return os.environ.get("POD_NAMESPACE", "default")
    chosen = next((c for c in contexts if c["name"] == context), active) if context else active
    given = chosen.get("context")
    return str((given.get("namespace") if isinstance(given, dict) else "") or "default")


def kubectl(*words: str, given: tuple[str | None, str | None]) -> str:
    """A call of kubectl by the kubeconfig and context that were given; of several files by its KUBECONFIG."""
    file, context = given
    options = [f"--kubeconfig={file}"] if file is not None and os.pathsep not in file else []
    options += [f"--context={context}"] if context is not None else []
    return shlex.join(["kubectl", *words, *options])


def unreachable(host: str, kubeconfig: str | None, context: str | None) -> str:
    """Of whose server, `host`, no answer came: which one it is, who says so, and what to try. The kubeconfig's
    credentials are left alone: a plugin that it names would be run again, and may ask its user to log in."""
    if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return (
            "no answer from the API server of this pod's cluster: does a NetworkPolicy keep this pod off it?"
        )
    file = kubeconfig or "~/.kube/config"
    contexts, active = _contexts(kubeconfig)
    name = context or (str(active["name"]) if active is not None else "")
    version = kubectl("version", given=(kubeconfig, name))
    others = ", ".join(str(one["name"]) for one in contexts if one["name"] != name)
    host = re.sub(r"//[^/@]*@", "//", host)  # whose password may stand before it
    return (
        f"no answer from {host} (kubeconfig {file}, context {name}): is it up, and is there a way to it, by "
        f"a VPN for one? Try: {version}"
        + (
            f"; or another context by --context: {others}"
            if others
            else "; another kubeconfig: --kubeconfig FILE"
        )
    )


def _contexts(kubeconfig: str | None) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The contexts and the current one; none where there is no kubeconfig, none that can be used (`configuration`
    says why), or it has no current one."""
    import kubernetes

    from muster.cluster.credentials import UNUSABLE

    try:
        found: tuple[list[dict[str, Any]], dict[str, Any]] = kubernetes.config.list_kube_config_contexts(
            config_file=kubeconfig
        )  # type: ignore[no-untyped-call]
    except UNUSABLE:
        return [], None
    return found

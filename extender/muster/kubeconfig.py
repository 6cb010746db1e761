"""What every command that asks a cluster takes: --kubeconfig, --context, and the namespace that they stand for."""

from __future__ import annotations

import os

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
    import kubernetes

    try:
        contexts, active = kubernetes.config.list_kube_config_contexts(  # type: ignore[no-untyped-call]
            config_file=kubeconfig
        )
    except kubernetes.config.ConfigException:
        return os.environ.get("POD_NAMESPACE", "default")
    chosen = next((c for c in contexts if c["name"] == context), active) if context else active
    return str(chosen["context"].get("namespace") or "default")

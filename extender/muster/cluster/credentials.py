"""Credentials as the official client finds them: a kubeconfig's or the pod's own; and what is wrong with them."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

import kubernetes
import yaml
from kubernetes.client import Configuration
from kubernetes.config.kube_config import KubeConfigMerger

from muster.errors import ConfigurationError, did_you_mean

UNUSABLE = (
    kubernetes.config.ConfigException,
    OSError,
    yaml.YAMLError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    RecursionError,
)
"""What the official client raises over a kubeconfig that is none: it looks at nothing before it uses it."""
QUOTED = re.compile(r"(['\"])(?!<)(?:(?!\1).){3,}\1", re.DOTALL)
"""What an error of YAML quotes of the file: more than a character, or the name of a token."""
KINDS = {str: "plain text", list: "a list", type(None): "nothing"}


def configuration(kubeconfig: str | None = None, context: str | None = None) -> Configuration:
    """Credentials from a kubeconfig (as kubectl finds it), else from the pod's service account.

    Raises ConfigurationError when there is neither, or none that can be used.
    """
    found, pod = Configuration(), ""
    if kubeconfig is None and context is None:
        try:
            kubernetes.config.load_incluster_config(client_configuration=found)  # type: ignore[no-untyped-call]
            return found
        except (kubernetes.config.ConfigException, OSError) as error:
            pod = str(error)
    try:
        with _what_the_client_logs() as said:
            kubernetes.config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=kubeconfig, context=context, client_configuration=found
            )
    except UNUSABLE as error:
        raise ConfigurationError(_unusable(kubeconfig, context, error, pod)) from error
    if said:
        raise ConfigurationError(_no_credential(kubeconfig, context, said[0]))
    return found


@contextlib.contextmanager
def _what_the_client_logs() -> Iterator[list[str]]:
    """Over a credential plugin that fails the client goes on without one, and writes why to the root logger."""
    said: list[str] = []

    def taken(record: logging.LogRecord) -> bool:
        if record.module == "kube_config":
            said.append(record.getMessage())
        return record.module != "kube_config"

    root, quiet = logging.getLogger(), logging.NullHandler()
    root.addFilter(taken)
    root.addHandler(quiet)  # else the client makes one that stays, and writes to stderr
    try:
        yield said
    finally:
        root.removeHandler(quiet)
        root.removeFilter(taken)


def _files(kubeconfig: str | None) -> list[str]:
    return (kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config").split(os.pathsep)


def _unusable(kubeconfig: str | None, context: str | None, error: Exception, pod: str) -> str:
    """Which option or file it is, what was found there, and what to do. pod: why it isn't the pod's account."""
    files = _files(kubeconfig)
    named = f"kubeconfig {os.pathsep.join(files)}"
    if not any(Path(file).expanduser().is_file() for file in files):
        if pod and "KUBECONFIG" not in os.environ:
            return (
                "no kubeconfig: neither --kubeconfig nor KUBECONFIG is given, there is no ~/.kube/config, and this "
                f"is no pod ({pod}); give --kubeconfig FILE"
            )
        return f"{named}: no such file; give another by --kubeconfig or KUBECONFIG"
    for file in files:
        if fault := _fault(file):
            return f"kubeconfig {file}: is none that can be used: {fault}; correct it, or give another: --kubeconfig"
    try:
        listed, _ = kubernetes.config.list_kube_config_contexts(config_file=kubeconfig)  # type: ignore[no-untyped-call]
        names = [str(one["name"]) for one in listed]
    except UNUSABLE as broken:
        return f"{named}: is none that can be used: {_words(broken)}; kubectl config view shows it"
    if context is not None and context not in names:
        return (
            f"--context {context}: {named} has no such context; it has: {', '.join(names)}"
            f"{did_you_mean(context, names)}"
        )
    return f"{named}: can't be used: {_words(error)}; try it with kubectl version"


def _fault(file: str) -> str:
    """Why a file is no kubeconfig at all, "" where it may be one, or is not there. No word of it is told: who names a
    file of another kind may have named a secret."""
    try:
        found = yaml.safe_load(Path(file).expanduser().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ""
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = QUOTED.sub("...", str(error.problem or error.context))
        return f"line {mark.line + 1 if mark is not None else 1}: {what}"
    except OSError as error:
        return f"it can't be read: {error.strerror or type(error).__name__}"
    except UNUSABLE:
        return "expected text in YAML"
    if not isinstance(found, dict):
        kind = KINDS.get(type(found), "a number")
        return f"expected clusters, contexts and users, found {kind}"
    return ""


def _words(error: Exception) -> str:
    """What the client says of a kubeconfig, without the values of its entries, where tokens may be."""
    if not isinstance(error, (kubernetes.config.ConfigException, OSError)):
        return f"its clusters, contexts and users are not as kubectl writes them ({type(error).__name__})"
    return re.sub(r"/\{('name': '[^']*')?.*", r" in the entry \1", str(error), flags=re.DOTALL).rstrip()


def _no_credential(kubeconfig: str | None, context: str | None, said: str) -> str:
    """said: by the client, of the plugin that it ran. Its arguments may hold a secret and are left out."""
    try:
        merged = KubeConfigMerger(os.pathsep.join(_files(kubeconfig))).config  # type: ignore[no-untyped-call]
        user = merged["contexts"].get_with_name(context or merged["current-context"])["context"]["user"]
        command = merged["users"].get_with_name(user)["user"]["exec"].safe_get("command")
    except UNUSABLE as error:  # what it is to run is not as kubectl writes it
        return _unusable(kubeconfig, context, error, "")
    named = (
        f"kubeconfig {os.pathsep.join(_files(kubeconfig))}, user {user}: its credential plugin {command!r}"
    )
    if said.startswith("[Errno"):
        why = re.sub(r"^\[Errno \d+\] ", "", said)
        return f"{named} could not be run: {why}; install it, or put it on PATH: kubectl runs it, too"
    return (
        f"{named} gave no credential: {said.removeprefix('exec: ')}; log in again, then try kubectl version"
    )

"""A kubeconfig that leads nowhere: which file or option, what was expected and found there, and what to do."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from muster.cli import main
from muster.cluster.credentials import configuration
from muster.errors import ConfigurationError
from muster.usage import EXAMPLES

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: one, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: one, user: {}}]
contexts:
- {name: one, context: {cluster: one, user: one}}
"""
NOT_AS_KUBECTL = "is none that can be used: its clusters, contexts and users are not as kubectl writes them"


@pytest.mark.parametrize(
    ("content", "context", "said"),
    [
        (None, None, "no such file; give another by --kubeconfig or KUBECONFIG"),
        ("kind: Config", None, "is none that can be used: "),
        (
            KUBECONFIG,
            "ones",
            "--context ones: kubeconfig FILE has no such context; it has: one; did you mean 'one'?",
        ),
        (KUBECONFIG.replace("cluster: one,", "cluster: two,"), None, "is none that can be used: "),
        ("kind: Config\nclusters: [{", None, "FILE: is none that can be used: line 2: "),
        ("\tkind", None, "FILE: is none that can be used: line 1: found character '\\t' that cannot start"),
        (
            "sesame\n",
            None,
            "FILE: is none that can be used: expected clusters, contexts and users, found plain text;",
        ),
        ("- a\n", None, "expected clusters, contexts and users, found a list;"),
        ("", None, "expected clusters, contexts and users, found nothing;"),
        ("3", None, "expected clusters, contexts and users, found a number;"),
        ("\x00", None, "expected text in YAML;"),
        ("[" * 3000, None, "expected text in YAML;"),
        ("*sesame", None, "FILE: is none that can be used: line 1: found undefined alias ...;"),
        ("!sesame x", None, "line 1: could not determine a constructor for the tag ...;"),
        ("!!int sesame", None, "expected text in YAML;"),
        ("!!timestamp sesame", None, "expected text in YAML;"),
        ("!!bool sesame", None, "expected text in YAML;"),
        (
            KUBECONFIG.replace("user: {}", "user: {exec: sesame}"),
            None,
            "can't be used: its clusters, contexts",
        ),
        (KUBECONFIG.replace("{cluster: one, user: one}", "one"), None, NOT_AS_KUBECTL),
        (KUBECONFIG.replace("[{name: one, user: {}}]", "5"), None, NOT_AS_KUBECTL),
        (KUBECONFIG.replace('"https://127.0.0.1:1"', "5"), None, "can't be used: its clusters, contexts"),
    ],
)
@pytest.mark.parametrize("command", [("explain", "a"), ("top", "--once"), ("doctor",), ("release", "a")])
def test_a_kubeconfig_that_leads_nowhere_is_named_with_what_was_found(
    tmp_path: Path, content: str | None, context: str | None, said: str, command: tuple[str, ...]
) -> None:
    file = tmp_path / "config"
    if content is not None:
        file.write_text(content)
    options = ["--kubeconfig", str(file), *(["--context", context] if context else [])]
    found = CliRunner().invoke(main, [*command, *options], prog_name="muster")
    assert (found.exit_code, found.stdout) == (2, "")
    assert f"kubeconfig {file}" in found.stderr
    assert said in found.stderr.replace(str(file), "FILE")
    assert "sesame" not in found.stderr, "what is in a file of another kind may be a secret"
    assert found.stderr.endswith(f"For example: {EXAMPLES[command[0]]}\n")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigurationError, match="is none that can be used: expected text in YAML;"):
        configuration(str(file))


def test_of_several_kubeconfigs_the_one_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(KUBECONFIG)
    (tmp_path / "b").write_text("a: [")
    with pytest.raises(ConfigurationError) as told:
        configuration(f"{tmp_path / 'a'}:{tmp_path / 'b'}")
    assert str(told.value).startswith(f"kubeconfig {tmp_path / 'b'}: is none that can be used: line 1: ")


def test_of_an_entry_that_is_incomplete_no_token_is_told(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(KUBECONFIG.replace("{name: one, user: {}}", "{name: one, token: sesame}"))
    with pytest.raises(ConfigurationError) as told:
        configuration(str(file))
    assert str(told.value).startswith(f"kubeconfig {file}: ")
    assert "Expected key user" in str(told.value)
    assert "'name': 'one'" in str(told.value)
    assert "sesame" not in str(told.value)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            None,
            "could not be run: No such file or directory: '{plugin}'; install it, or put it on PATH: kubectl",
        ),
        (
            "echo no ticket >&2; exit 3",
            "gave no credential: process returned 3. no ticket; log in again, then try",
        ),
        ("echo hello", "gave no credential: failed to decode process output: "),
        (
            'echo \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {}}\'',
            "gave no credential: missing token or clientCertificateData field in plugin output; ",
        ),
    ],
)
def test_a_credential_plugin_that_fails_is_named_and_no_network_is_blamed(
    tmp_path: Path, script: str | None, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    plugin, file = tmp_path / "get-token", tmp_path / "config"
    if script is not None:
        plugin.write_text(f"#!/bin/sh\n{script}\n")
        plugin.chmod(0o755)
    runs = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(plugin),
        "args": ["--client-secret=sesame"],
    }
    config = yaml.safe_load(KUBECONFIG) | {"users": [{"name": "one", "user": {"exec": runs}}]}
    file.write_text(yaml.safe_dump(config))
    handlers = list(logging.getLogger().handlers)
    found = CliRunner().invoke(main, ["explain", "a", "--kubeconfig", str(file)], prog_name="muster")
    named = f"muster: kubeconfig {file}, user one: its credential plugin '{plugin}' "
    assert found.exit_code == 2
    assert found.stderr.startswith(named + said.format(plugin=plugin))
    assert "sesame" not in found.stderr
    assert "no answer from" not in found.stderr
    assert "ERROR" not in found.stderr + capfd.readouterr().err
    assert logging.getLogger().handlers == handlers

"""What is said to who typed something that can't be understood: which word, what was meant, and an example."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from muster.cli import main
from muster.errors import ConfigurationError
from muster.kubeconfig import unreachable
from muster.settings import load_settings
from muster.usage import EXAMPLES
from muster_report.agent.arguments import main as agent_main
from muster_report.report import main as report_main
from tests.cluster.test_credentials import KUBECONFIG


def muster(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, words, input=stdin, prog_name="muster")


def test_every_command_has_an_example_that_it_understands() -> None:
    context = click.Context(main)
    assert EXAMPLES.keys() - {"main"} == set(main.list_commands(context))
    for name, example in EXAMPLES.items():
        program, command, *words = shlex.split(example)
        assert (program, command) == ("muster", "explain" if name == "main" else name)
        found = main.get_command(context, command)
        assert found is not None
        found.make_context(command, words)


PHILLY = ("simulate", "--preset", "philly-day")


@pytest.mark.parametrize(
    ("words", "said", "example"),
    [
        (("simulat",), "No such command 'simulat'; did you mean 'simulate'?", "main"),
        (("simulat",), "'simulate'? Commands: agent, doctor, explain", "main"),
        (("zzzzz",), "No such command 'zzzzz'. Commands: agent, doctor, explain", "main"),
        (("get",), "No such command 'get'; did you mean 'kubectl get gangs'? Commands: ", "main"),
        (("--vers",), "Did you mean '--version'?", "main"),
        (("--version=3",), "Option '--version' does not take a value", "main"),
        (("explain",), "Missing argument 'JOB'", "explain"),
        (("explain", "a", "--stroy"), "Did you mean '--story'?", "explain"),
        (("replay", "x", "--profil", "fifo"), "Did you mean '--profile'?", "replay"),
        (("top", "--sort-by", "age2"), "'age2' is not one of", "top"),
        (("explain", "job-x", "-n"), "Option '-n' requires an argument", "explain"),
        (("explain", "a", "--story=3"), "Option '--story' does not take a value", "explain"),
        (("top", "--interval"), "Option '--interval' requires an argument", "top"),
        (("top", "--interval", "x"), "'--interval': expected a number from 0.2 on, found 'x'", "top"),
        (("top", "--interval", "0"), "'--interval': expected a number from 0.2 on, found '0'", "top"),
        (("top", "--interval", "nan"), "'--interval': expected a number from 0.2 on, found 'nan'", "top"),
        (("doctor", "-n"), "Option '-n' requires an argument", "doctor"),
        (("hold", "--x"), "No such option '--x'", "hold"),
        (("serve", "--config"), "Option '--config' requires an argument", "serve"),
        (("simulate", "--profile"), "Option '--profile' requires an argument", "simulate"),
        (("simulate", "--gpus", "x"), "'--gpus': expected a whole number from 1 on, found 'x'", "simulate"),
        (("simulate", "--gpus", "0"), "'--gpus': expected a whole number from 1 on, found '0'", "simulate"),
        (("simulate", "--seed", "1.5"), "expected a whole number from 0 on, found '1.5'", "simulate"),
        (("simulate", "--release-spread", "2"), "expected a number from 0 to 1, found '2'", "simulate"),
        (("replay", "--profile"), "Option '--profile' requires an argument", "replay"),
        (("uninstalled", "-n"), "Option '-n' requires an argument", "uninstalled"),
        (("workload", "--sizes"), "Option '--sizes' requires an argument", "workload"),
        (("workload", "philly"), "PRESET: must be one of ", "workload"),
        (("workload", "philly"), "; found 'philly'; did you mean 'philly-day'?", "workload"),
        (("release",), "give the name of one JOB, or --all; found neither", "release"),
        (
            ("release", "--all", "job-x"),
            "give the name of one JOB, or --all; found both, job-x and --all",
            "release",
        ),
        (
            ("release", "a", "--timeout", "-1"),
            "'--timeout': expected a number from 0 on, found '-1'",
            "release",
        ),
        (("workload", "--sizes", "1"), "--sizes: must be GPUS=WEIGHT,..., as 1=70,", "workload"),
        (("simulate", "--profile", "fifo"), "give one of --trace and --preset", "simulate"),
        (
            ("simulate", "--profile", "afsl"),
            "give one of --trace and --preset\n--profile: must be",
            "simulate",
        ),
        (("simulate", "--preset", "phily-day"), "did you mean 'philly-day'?", "simulate"),
        (
            (*PHILLY, "--profile", "afsl", "--profile", "zzz"),
            "found 'afsl'; did you mean 'afs-l'?; found 'zzz'\n",
            "simulate",
        ),
        (("simulate", "--preset", "philly-day:laod=1", "--profile", "fifo"), "mean 'load'?", "simulate"),
        (("agent", "--sizess"), "No such option '--sizess'", "agent"),
        (("agent", "--grce=3", "--", "true"), "No such option '--grce'; did you mean '--grace'?", "agent"),
        (("agent",), "COMMAND: expected the command to run, found none", "agent"),
        ((*PHILLY, "--profile", "afsl"), "found 'afsl'; did you mean 'afs-l'?", "simulate"),
        ((*PHILLY, "--profile", "afs-p:quantm=1"), "did you mean 'quantum'?", "simulate"),
        (
            (*PHILLY, "--profile", "afs-p:quantum=ten"),
            "quantum must be a finite number; found 'ten'",
            "simulate",
        ),
        ((*PHILLY, "--profile", "afs-p:quantum"), "afs-p:quantum", "simulate"),
        (
            ("simulate", "--preset", "philly-dey", "--profile", "fifo"),
            "--preset: must be one of ",
            "simulate",
        ),
        (("simulate", "--trace", "no.csv", "--profile", "fifo"), "File 'no.csv' does not exist", "simulate"),
        (("workload", "--arrivals", "often"), "--arrivals", "workload"),
        (("replay", "nowhere.json"), "nowhere.json", "replay"),
        (("replay", "-"), "is empty", "replay"),
        (("serve", "--config", "nowhere.yaml"), "nowhere.yaml", "serve"),
        (("explain", "a", "--kubeconfig", "/nowhere"), "kubeconfig /nowhere: no such file", "explain"),
        (("top", "--once", "--kubeconfig", "/nowhere"), "kubeconfig /nowhere: no such file", "top"),
        (("release", "a", "--kubeconfig", "/nowhere"), "kubeconfig /nowhere: no such file", "release"),
        (("release", "a", "--as-group", "g"), "--as-group needs --as", "release"),
        (("hold", "--seconds"), "No such option '--seconds'", "hold"),
        (("doctor", "--kubeconfig", "/nowhere"), "kubeconfig /nowhere: no such file", "doctor"),
    ],
)
def test_a_usage_error_says_what_was_meant_and_gives_an_example(
    words: tuple[str, ...], said: str, example: str
) -> None:
    found = muster(*words)
    assert found.exit_code == 2
    assert said in found.stderr
    assert "?." not in found.stderr
    assert found.stderr.startswith(("Usage: muster", "muster: "))
    assert found.stderr.endswith(f"For example: {EXAMPLES[example]}\n")
    assert found.stdout == ""


@pytest.mark.parametrize(
    ("program", "words", "said"),
    [
        (
            "muster-agent",
            ["--foo"],
            "Usage: muster-agent [OPTIONS] [--] COMMAND...\nTry 'muster-agent --help' for help.\n\n"
            "Error: No such option '--foo'\nFor example: muster-agent -- python train.py\n",
        ),
        (
            "muster-report",
            ["--lsos=3", "--foo"],
            "Usage: muster-report [OPTIONS]\nTry 'muster-report --help' for help.\n\n"
            "Error: No such option '--lsos'; did you mean '--loss'? No such option '--foo'\n"
            "For example: muster-report --step 300 --total 1000 --loss 0.21\n",
        ),
    ],
)
def test_commands_that_need_no_click_answer_as_the_others_do(
    program: str,
    words: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", [program])
    with pytest.raises(SystemExit) as ended:
        agent_main(words) if program == "muster-agent" else report_main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err == said


def test_in_a_pod_it_is_its_own_cluster_that_gave_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    assert "of this pod's cluster" in unreachable("https://10.96.0.1:443", None, None)
    assert "no answer from https://other:6443 " in unreachable("https://other:6443", "file", None)


COMMANDS = [("explain", "a"), ("top", "--once"), ("doctor",), ("release", "a")]


@pytest.mark.parametrize("words", COMMANDS)
def test_who_gets_no_answer_is_told_whose_server_it_was_and_what_to_try(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "config"
    file.write_text(KUBECONFIG + "- {name: two, context: {cluster: one, user: one}}\n")
    found = muster(*words, "--kubeconfig", str(file))
    assert found.exit_code == 1
    assert found.stderr.endswith(
        f"no answer from https://127.0.0.1:1 (kubeconfig {file}, context one): is it up, and is there a way to it, "
        f"by a VPN for one? Try: kubectl version --kubeconfig={file} --context=one; or another context by "
        "--context: two\n"
    )


def test_a_kubeconfig_without_a_current_context_is_no_pod_of_a_cluster(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG.replace("current-context", "other"))
    found = muster("explain", "job-x", "--kubeconfig", str(file), "--context", "one")
    assert f"no answer from https://127.0.0.1:1 (kubeconfig {file}, context one)" in found.stderr


def test_of_several_kubeconfigs_kubectl_is_given_none(tmp_path: Path) -> None:
    """Its option takes one file."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(KUBECONFIG)
    said = unreachable("https://127.0.0.1:1", f"{tmp_path / 'a'}{os.pathsep}{tmp_path / 'b'}", None)
    assert "Try: kubectl version --context=one;" in said


@pytest.mark.parametrize("words", COMMANDS)
def test_a_credential_plugin_is_run_once_where_no_answer_comes(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    """It may open a browser, and wait until its user has logged in."""
    plugin, file, runs = tmp_path / "get-token", tmp_path / "config", tmp_path / "runs"
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "sesame"},
    }
    plugin.write_text(f"#!/bin/sh\necho run >> {runs}\necho '{json.dumps(credential)}'\n")
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": credential["apiVersion"], "command": str(plugin)}}
    config = yaml.safe_load(KUBECONFIG) | {"users": [{"name": "one", "user": user}]}
    file.write_text(yaml.safe_dump(config))
    found = muster(*words, "--kubeconfig", str(file))
    assert f"no answer from https://127.0.0.1:1 (kubeconfig {file}, context one)" in found.stderr
    assert runs.read_text() == "run\n"


def test_all_that_is_wrong_with_a_configuration_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as told:
        load_settings(
            "{profile: afsl, ordr: strict, gang: {timeot: 2m}, pluginArgs: {resizecost: {cost: 1}}}"
        )
    lines = str(told.value).splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "gang.timeot",
        "ordr",
        "profile",
        "pluginArgs.resizecost",
    ]
    for line, meant in zip(lines, ("timeout", "order", "afs-l", "resize-cost"), strict=True):
        assert f"did you mean {meant!r}?" in line


def test_a_profile_of_the_teams_own_is_not_called_unknown_while_it_has_a_fault() -> None:
    with pytest.raises(ConfigurationError) as told:
        load_settings("{profile: mine, profiles: [{name: mine, sorts: gang}]}")
    assert [line.split(": ")[1] for line in str(told.value).splitlines()] == ["profiles[0].sorts"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            '{"kind": "Status", "code": 403, "message": "services is forbidden"}',
            "is no snapshot but an answer that says: services is forbidden. `muster replay --help`",
        ),
        ('{"error": "no token"}', "is no snapshot but an answer that says: no token. `muster replay --help`"),
        ("", "is empty: was the answer refused? `muster replay --help`"),
        ('{"kind": "Pod"}', "is no snapshot but an object of kind"),
    ],
)
def test_what_a_refused_reader_saved_is_not_taken_for_an_old_snapshot(content: str, said: str) -> None:
    found = muster("replay", "-", stdin=content)
    assert found.exit_code == 2
    assert said in found.stderr


def test_the_help_of_replay_brings_the_token_that_the_service_asks_for() -> None:
    told = muster("replay", "--help").stdout
    assert "kubectl create token READER --audience=muster.dev" in told
    assert 'curl -sSf -H "Authorization: Bearer $TOKEN"' in told

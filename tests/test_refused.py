"""What a command says where the API server answers, and not with what was asked for: the answer, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.cli import main
from muster.kubeconfig import kubectl
from muster.refused import NOT_INSTALLED, ROLES
from tests.api_fake import Server
from tests.chart.test_chart import IMAGE, named, rendered

GANGS = "/apis/muster.dev/v1alpha1/gangs"
OWN = "/apis/muster.dev/v1alpha1/namespaces/team/gangs"
PODS = "/api/v1/namespaces/team/pods"
READS = [("explain", "job-x"), ("top", "--once")]
GIVES = (
    "An administrator gives it by the chart's ClusterRole RELEASE-view (kubectl get clusterroles -l "
    "app.kubernetes.io/name=muster lists it), which the roles view, edit and admin include: "
)


def asked(status: int, folder: Path, *words: str) -> Result:
    """The command's words, before a server that answers so."""
    server = Server()
    server.answers = dict.fromkeys((GANGS, OWN, PODS), status)
    try:
        done = CliRunner().invoke(
            main, [*words, "--kubeconfig", server.kubeconfig(folder)], prog_name="muster"
        )
    finally:
        server.http.shutdown()
        server.http.server_close()
    assert (done.exit_code, done.stdout) == (1, "")
    return done


@pytest.mark.parametrize("command", READS)
def test_where_no_gangs_are_served_muster_is_not_installed(command: tuple[str, ...], tmp_path: Path) -> None:
    done = asked(404, tmp_path, *command)
    assert (
        done.stderr
        == f"muster: GET {GANGS}{'?resourceVersion=0' if 'top' in command else ''}: 404 no\n"
        + (f"{NOT_INSTALLED}\n")
    )


@pytest.mark.parametrize("command", [*READS, ("release", "job-x")])
def test_who_is_not_known_is_told_to_log_in_again(command: tuple[str, ...], tmp_path: Path) -> None:
    done = asked(401, tmp_path, *command)
    assert done.stderr.endswith(
        "401 no\nlog in again: the API server does not take these credentials (kubectl auth whoami "
        f"--kubeconfig={tmp_path / 'kubeconfig'} asks the same)\n"
    )


@pytest.mark.parametrize("command", READS)
def test_who_may_not_read_gangs_is_told_which_right_it_is_and_how_it_is_given(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    done = asked(403, tmp_path, *command)
    assert done.stderr.endswith(
        f"403 no\nyou lack the right to list gangs.muster.dev in namespace team. {GIVES}"
        "kubectl create rolebinding NAME --clusterrole=RELEASE-view --user=YOU -n team\n"
    )


def test_of_all_namespaces_the_binding_is_of_the_cluster(tmp_path: Path) -> None:
    done = asked(403, tmp_path, "top", "-A")
    assert done.stderr.endswith(
        f"403 no\nyou lack the right to list gangs.muster.dev in all namespaces. {GIVES}"
        "kubectl create clusterrolebinding NAME --clusterrole=RELEASE-view --user=YOU\n"
    )


@pytest.mark.parametrize("role", ["view", "break-glass"])
def test_the_roles_that_are_given_are_listed_whatever_the_release_is_called(role: str) -> None:
    found = named(rendered(IMAGE, "nameOverride=other"), "ClusterRole", f"other-{role}")
    label, _, value = ROLES.rpartition(" ")[2].partition("=")
    assert found["metadata"]["labels"][label] == value


def test_who_may_not_break_the_glass_is_told_which_group_may(tmp_path: Path) -> None:
    done = asked(403, tmp_path, "release", "job-x")
    assert done.stderr.startswith(f"muster: GET {PODS}: 403 no\nyou lack that right. ")
    assert done.stderr.endswith("group, add --as=YOU --as-group=muster:break-glass\n")


def test_of_an_error_of_the_server_only_its_own_words_are_told(tmp_path: Path) -> None:
    assert asked(500, tmp_path, "explain", "job-x").stderr == f"muster: GET {GANGS}: 500 no\n"


def test_kubectl_is_given_what_muster_was() -> None:
    assert kubectl("auth", "whoami", given=(None, None)) == "kubectl auth whoami"
    assert kubectl("version", given=("my file", "c")) == "kubectl version '--kubeconfig=my file' --context=c"

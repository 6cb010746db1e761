# Over 300 lines: one real server plays all that a client can meet.
"""The client of training processes, against a real server on this machine: what it sends and when."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import muster_report.report
from muster_report.report import Reporter
from tests.json_server import PATIENT
from tests.report_server import ReportServer, served

CLIENT = Path(muster_report.report.__file__)
CHART = Path(__file__).parents[1] / "charts/muster/templates"
UNHURRIED = f"import muster_report as muster; muster.report.TIMEOUT = muster.report.AT_EXIT = {PATIENT}\n"
"""Begins the code of a process: it gives up no post because this machine is busy."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ReportServer]:
    with served(monkeypatch, tmp_path, token="first\n", every=3600) as running:
        yield running


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def reporter(server: ReportServer, said: list[str]) -> Iterator[Reporter]:
    assert server.url == os.environ["MUSTER_URL"]
    made = Reporter(said.append)
    yield made
    made.close()


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a process of its own, where nothing is imported yet."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=env | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def until(reservations: Callable[[], object], what: str) -> None:
    """Returns when it holds."""
    deadline = time.monotonic() + PATIENT
    while not reservations():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


# --- how it is loaded ---------------------------------------------------------------------------------------


def test_import_muster_and_report_loads_the_one_file_and_the_standard_library_only() -> None:
    done = python(
        "import sys; before = set(sys.modules); import muster_report as muster; muster.report(step=1)\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names\n"
        "print(sorted(new), sorted(name for name in sys.modules if name.startswith('muster')))"
    )
    assert done.stdout == "['muster_report'] ['muster_report', 'muster_report.report']\n"
    assert "MUSTER_URL is not set" in done.stderr


@pytest.mark.parametrize(
    "use",
    [
        "import muster_report as muster; muster.report(step=1)",
        "import muster_report as muster; muster.report.report(step=1); muster.report.flush()",
        "import muster_report as muster; muster.report(step=1); muster.flush()",
        "import muster; muster.report(step=1); muster.flush()",
        "from muster_report.report import report, flush; report(step=1); flush()",
        "from muster_report import report; report(step=1); report(2.5, loss=0.1)",
        "import muster_report.report; muster_report.report(step=1)",
        "import muster; muster.report(step=1)",
        "from muster import report; report(step=1); report(2.5, loss=0.1)",
        "import muster.report, muster_report; muster.report(step=1); assert muster.report is muster_report.report",
    ],
)
def test_every_way_to_call_it_works_and_says_once_where_it_has_nowhere_to_send(use: str) -> None:
    done = python(use + "\n" + use)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("muster: reports are not sent: MUSTER_URL is not set")


def test_the_file_works_alone_beside_a_training(server: ReportServer, tmp_path: Path) -> None:
    shutil.copy(CLIENT, tmp_path / "report.py")
    (tmp_path / "train.py").write_text(
        f"import report\nreport.TIMEOUT = {PATIENT}\nreport.report(step=7)\nassert report.flush({PATIENT})\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert server.bodies == [("/v1/report", {"step": 7.0})]


def test_an_unknown_name_of_the_package_is_the_usual_error() -> None:
    for package in ("muster_report", "muster"):
        done = python(f"import {package}; {package}.nothing")
        assert f"AttributeError: module '{package}' has no attribute 'nothing'" in done.stderr


def test_the_batch_size_is_the_newest_answer_s_then_that_of_the_start_then_the_trainer_s_own(
    server: ReportServer, reporter: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(muster_report.report, "_reporter", reporter)
    assert muster_report.report.batch(32) == 32
    monkeypatch.setenv("MUSTER_BATCH", "")  # as in a pod that started without one
    assert muster_report.report.batch(32) == 32
    monkeypatch.setenv("MUSTER_BATCH", "64")
    assert muster_report.report.batch(32) == 64
    server.answers = [(200, {"accepted": True, "batch": 128}, {})]
    muster_report.report.report(step=1, batch=muster_report.report.batch(32))
    assert reporter.flush(PATIENT)
    assert server.bodies[0][1] == {"step": 1.0, "batch": 64.0}
    assert muster_report.report.batch(32) == 128
    reporter.answer = {"batch": "many"}
    assert muster_report.report.batch(32) == 32


# --- what is sent, and when ---------------------------------------------------------------------------------


def test_the_first_report_goes_at_once_and_the_next_ones_wait_as_long_as_muster_asks(
    server: ReportServer, reporter: Reporter
) -> None:
    server.hold.clear()
    assert reporter.report(step=1, total=100) is None  # it waits for no answer
    server.hold.set()
    server.wait(1)
    assert reporter.flush(PATIENT)
    for step in range(2, 1000):
        answer = reporter.report(step=step, loss=1 / step)
    assert answer == {"accepted": True, "replicas": {"worker": 2}, "every": 3600}
    assert len(server.bodies) == 1  # an hour is not over
    assert reporter.flush(PATIENT)  # with the newest values, and what was told before and holds
    assert server.wait(2) == [{"step": 1.0, "total": 100.0}, {"step": 999.0, "total": 100.0, "loss": 1 / 999}]
    reporter.report(step=1000)
    assert reporter.flush(PATIENT)
    assert server.wait(3)[2] == {"step": 1000.0, "total": 100.0}  # a loss is of its moment


def test_a_flush_that_waits_for_a_post_that_is_under_way_hurries_no_later_report(
    server: ReportServer, reporter: Reporter
) -> None:
    server.hold.clear()
    reporter.report(step=1)
    assert server.asked.wait(PATIENT)
    assert not reporter.flush(0.01)
    server.hold.set()
    assert reporter.flush(PATIENT)
    reporter.report(step=2)
    pause = reporter._pause(time.monotonic())  # what its thread waits for
    assert pause is not None
    assert pause > 1800.0


def test_a_boundary_is_told_at_once(server: ReportServer, reporter: Reporter) -> None:
    reporter.report(step=1)
    server.wait(1)
    assert reporter.flush(PATIENT)
    reporter.report(step=2, boundary=True)
    assert server.wait(2)[1] == {"step": 2.0, "boundary": True}


def test_every_post_reads_the_token_again(server: ReportServer, reporter: Reporter, tmp_path: Path) -> None:
    reporter.report(step=1)
    assert reporter.flush(PATIENT)
    (tmp_path / "token").write_text("second\n")
    reporter.report(step=2)
    assert reporter.flush(PATIENT)
    assert server.tokens == ["Bearer first", "Bearer second"]


def test_what_was_reported_last_is_sent_when_the_process_ends(server: ReportServer) -> None:
    code = "import muster_report as muster\nfor step in range(500): muster.report(step=step)"
    url = {name: os.environ[name] for name in ("MUSTER_URL", "MUSTER_TOKEN_FILE")}
    assert python(UNHURRIED + code, **url).stderr == ""
    assert server.bodies[-1][1] == {"step": 499.0}


def test_a_child_that_was_forked_reports_for_itself(server: ReportServer) -> None:
    code = (
        "import os, muster\n"
        f"muster.report(step=1); assert muster.report.flush({PATIENT})\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        f"    muster.report(samples=5); os._exit(0 if muster.report.flush({PATIENT}) else 1)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
    )
    done = python(
        UNHURRIED + code, **{name: os.environ[name] for name in ("MUSTER_URL", "MUSTER_TOKEN_FILE")}
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [body for _, body in server.bodies] == [{"step": 1.0}, {"samples": 5.0}]


# --- what goes wrong ----------------------------------------------------------------------------------------


class Tensor:
    """As a framework's scalar: a number when it is asked."""

    def __float__(self) -> float:
        return 0.25


def test_values_that_are_no_numbers_are_left_out_and_said_once(
    server: ReportServer, reporter: Reporter, said: list[str]
) -> None:
    for _ in range(3):
        reporter.report(step=3, loss=float("nan"), total="many", samples=object(), target=Tensor())
    assert reporter.flush(PATIENT)
    assert server.wait(1)[0] == {"step": 3.0, "target": 0.25}
    assert [text.split(":")[0] for text in said] == [
        "loss is left out",
        "total is left out",
        "samples is left out",
    ]


def test_a_server_that_hangs_holds_nobody_up(server: ReportServer, reporter: Reporter) -> None:
    server.hold.clear()
    for step in range(1000):
        reporter.report(step=step)
    assert not reporter.flush(0.05)
    server.hold.set()
    assert reporter.flush(PATIENT)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("MUSTER_URL", "http://127.0.0.1:1", "Connection refused"),
        (
            "MUSTER_URL",
            "nonsense",
            "MUSTER_URL: expected http://host:port or https://host:port, found 'nonsense'",
        ),
        ("MUSTER_URL", "http://[", "MUSTER_URL: expected http://host:port"),
        ("MUSTER_TOKEN_FILE", "/nowhere/token", "MUSTER_TOKEN_FILE: /nowhere/token can't be read"),
    ],
)
def test_what_is_wrong_is_said_once_and_training_goes_on(
    reporter: Reporter, said: list[str], monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    for step in range(5):
        assert reporter.report(step=step) is None

    def tried() -> bool:
        assert not reporter.flush(0.2)
        return reporter._failures >= 3

    until(tried, "it is tried three times")
    assert len(said) == 1
    assert says in said[0]


def test_a_report_that_is_refused_is_not_sent_again_and_the_reason_is_said(
    server: ReportServer, reporter: Reporter, said: list[str]
) -> None:
    server.answers = [(400, {"error": "step: expected a finite number from 0 to 1e+15, found -1"}, {})]
    reporter.report(step=-1)
    assert reporter.flush(PATIENT)
    assert len(server.bodies) == 1
    assert said == [
        f"a report was not accepted: {server.url} answered 400: "
        "step: expected a finite number from 0 to 1e+15, found -1"
    ]


def test_a_replica_that_does_not_lead_is_asked_again_on_another_connection(
    server: ReportServer, reporter: Reporter, said: list[str]
) -> None:
    elsewhere = (421, {"error": "this replica of Muster does not lead"}, {})
    server.answers = [elsewhere, elsewhere, server.answers[0]]
    reporter.report(step=1)
    assert reporter.flush(PATIENT)
    assert len(server.bodies) == 3
    assert said == []


def test_of_several_urls_the_one_that_answers_is_remembered(
    server: ReportServer, reporter: Reporter, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setenv("MUSTER_URL", f"http://127.0.0.1:1, {server.url}/base/")
    for step in (1, 2):
        reporter.report(step=step)
        assert reporter.flush(PATIENT)
    assert said == []
    assert server.bodies == [("/base/v1/report", {"step": 1.0}), ("/base/v1/report", {"step": 2.0})]


def test_after_a_flood_the_client_waits_as_it_is_asked(server: ReportServer, reporter: Reporter) -> None:
    server.answers = [(429, {"error": "too often"}, {"Retry-After": "3600"}), server.answers[0]]
    reporter.report(step=1)
    server.wait(1)
    assert not reporter.flush(0.3)
    assert len(server.bodies) == 1


def test_a_redirect_is_not_followed(server: ReportServer, reporter: Reporter) -> None:
    server.answers = [(307, {}, {"Location": server.url})]
    reporter.report(step=1)
    assert not reporter.flush(0.1)
    server.wait(1)
    assert reporter.answer is None


def test_over_https_the_server_s_certificate_is_checked_against_the_ca_of_the_pod(
    server: ReportServer, said: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "muster")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "ca.crt").write_bytes(made.public_bytes(Encoding.PEM))
    (tmp_path / "both").write_bytes(key.private_bytes(*plain) + made.public_bytes(Encoding.PEM))
    server.encrypt(tmp_path / "both")
    monkeypatch.setenv("MUSTER_URL", server.url)
    trusting, doubting = Reporter(said.append), Reporter(said.append)
    doubting.report(step=1)
    until(lambda: doubting.flush(0.2) or said, "the doubting one says why")
    doubting.close()
    assert doubting._thread is not None
    doubting._thread.join(PATIENT)  # it reads MUSTER_CA_FILE for each post
    assert "certificate verify failed" in said[0]
    assert doubting.answer is None
    monkeypatch.setenv("MUSTER_CA", "somebody else")  # the file counts more
    monkeypatch.setenv("MUSTER_CA_FILE", str(tmp_path / "ca.crt"))
    trusting.report(step=2)
    assert trusting.flush(PATIENT)
    trusting.close()
    monkeypatch.delenv("MUSTER_CA_FILE")
    monkeypatch.setenv("MUSTER_CA", (tmp_path / "ca.crt").read_text())
    told = Reporter(said.append)
    told.report(step=3)
    assert told.flush(PATIENT)
    told.close()
    assert server.bodies == [("/v1/report", {"step": 2.0}), ("/v1/report", {"step": 3.0})]


@pytest.mark.parametrize("answer", [["a", "list"], "text", None, {"every": "often"}, {"every": -5}])
def test_an_answer_that_is_not_muster_s_harms_nothing(
    server: ReportServer, reporter: Reporter, answer: Any
) -> None:
    server.answers = [(200, answer, {})]
    for step in range(3):
        reporter.report(step=step)
    assert reporter.flush(PATIENT if isinstance(answer, dict) else 0.3) is isinstance(answer, dict)


# --- the command line ---------------------------------------------------------------------------------------


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`muster-report`, which waits for a busy machine's answer."""
    return _run("-c", f"{UNHURRIED}import sys; sys.exit(muster.report.main())", *arguments)


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_command_sends_one_report_and_prints_the_answer(server: ReportServer) -> None:
    done = run("--step=3", "--total", "100", "--steps-per-epoch=10", "--boundary")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["replicas"] == {"worker": 2}
    assert server.bodies == [
        ("/v1/report", {"step": 3.0, "total": 100.0, "steps_per_epoch": 10.0, "boundary": True})
    ]


def test_the_command_says_what_is_wrong(server: ReportServer) -> None:
    module = _run("-m", "muster_report.report")
    assert module.returncode == 2
    assert "such as --step 3" in module.stderr
    assert run("--step", "nan").returncode == 2
    assert run("--step", "many").returncode == 2
    server.answers = [(401, {"error": "the API server does not know this token"}, {})]
    done = run("--step=3")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == f"muster: not accepted: {server.url} answered 401: the API server does not know this token\n"
    )


def test_its_help_names_as_set_by_the_annotation_what_admission_sets() -> None:
    told = " ".join(run("--help").stdout.split())
    by_the_pod, _, by_hand = told.partition("the pod's annotation")
    policy = (CHART / "admission-report.yaml").read_text()
    sets = set(re.findall(r'name: "(MUSTER_\w+)"', policy))
    assert set(re.findall(r"MUSTER_\w+", by_the_pod)) == sets == {"MUSTER_URL", "MUSTER_CA"}
    assert set(re.findall(r"MUSTER_\w+", by_hand)) == {"MUSTER_TOKEN_FILE", "MUSTER_CA_FILE"}

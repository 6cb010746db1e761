# Over 300 lines: signals, outputs and ends of a child are tried with real processes.
"""`muster agent` with real processes: what the process is to the outside is as without it, and reports are found."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import muster_report.report
from muster_report.agent.lines import NAMES, Lines, Tail
from tests.json_server import PATIENT
from tests.report_server import ReportServer, served

AGENT = (str(Path(sys.executable).parent / "muster"), "agent")
PYTHON = (sys.executable, "-u", "-c")
LONG = 120.0
"""Seconds for a command to its end, on a machine that is busy with something else."""


def agent(**constants: float) -> tuple[str, ...]:
    """The command, with other constants of reports: a busy machine takes more than a second for a post."""
    changed = "".join(f"muster_report.report.{name} = {value}; " for name, value in constants.items())
    return (
        sys.executable,
        "-c",
        f"import muster_report.report; {changed}from muster.cli import main; main()",
        "agent",
    )


UNHURRIED = agent(TIMEOUT=PATIENT, AT_EXIT=PATIENT)
"""Its last report arrives, however long that takes."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ReportServer]:
    with served(monkeypatch, tmp_path, token="t", every=10) as running:
        yield running


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports go nowhere unless a scenario has a server."""
    monkeypatch.delenv("MUSTER_URL", raising=False)


def run(
    *command: str,
    stdin: bytes | None = None,
    options: tuple[str, ...] = (),
    by: tuple[str, ...] = AGENT,
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*by, *options, "--", *command], input=stdin, capture_output=True, timeout=LONG, check=False
    )


def started(*command: str, options: tuple[str, ...] = (), **how: Any) -> subprocess.Popen[bytes]:
    """A process behind the agent, when it has said `ready`."""
    process = subprocess.Popen([*AGENT, *options, "--", *command], stdout=subprocess.PIPE, **how)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


# --- what it is to the outside ------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 3, 42, 255])
def test_the_exit_code_is_the_process_s(code: int) -> None:
    done = run("sh", "-c", f"echo out; echo err >&2; exit {code}")
    assert (done.returncode, done.stdout, done.stderr) == (code, b"out\n", b"err\n")


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT", "SIGSEGV", "SIGABRT", "SIGHUP", "SIGUSR1"])
def test_a_process_that_a_signal_ended_ends_the_agent_by_that_signal(name: str) -> None:
    done = run(*PYTHON, f"import os, signal, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); "
               f"signal.signal(signal.{name}, signal.SIG_DFL) if '{name}' != 'SIGKILL' else 0; "
               f"os.kill(os.getpid(), signal.{name})")  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (-getattr(signal, name), b"", b"")


def test_a_command_that_cannot_be_started_has_a_shell_s_exit_codes(tmp_path: Path) -> None:
    done = run("no-such-command")
    assert (done.returncode, done.stderr) == (
        127,
        b"muster agent: no-such-command: No such file or directory\n",
    )
    (tmp_path / "file").write_text("")
    done = run(str(tmp_path / "file"))
    assert done.returncode == 126
    assert b"Permission denied" in done.stderr


COUNTS = """
import os, signal
def note(number, frame):
    os.write(1, signal.Signals(number).name.encode() + b"\\n")
    if number == signal.SIGTERM:
        os._exit(9)
for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGALRM", "SIGWINCH", "SIGCONT"):
    signal.signal(getattr(signal, name), note)
come, told = os.pipe()
os.set_blocking(told, False)
signal.set_wakeup_fd(told)
print("ready", flush=True)
while True: os.read(come, 512)
"""
"""It waits on a pipe that each signal writes to: one that comes just before a sleep begins would be slept over."""


def test_every_signal_reaches_the_process_once() -> None:
    # These tests may themselves run under nohup, or behind a shell: what is ignored is inherited, and stays ignored.
    ours = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    before = [signal.signal(number, signal.SIG_DFL) for number in ours]
    sent = [
        "SIGINT",
        "SIGHUP",
        "SIGUSR1",
        "SIGUSR2",
        "SIGQUIT",
        "SIGALRM",
        "SIGWINCH",
        "SIGCONT",
        "SIGINT",
        "SIGTERM",
    ]
    try:
        process = started(*PYTHON, COUNTS)
    finally:
        for number, handler in zip(ours, before, strict=True):
            signal.signal(number, handler)
    assert process.stdout is not None
    seen = []
    for name in sent:
        process.send_signal(getattr(signal, name))
        # Signals that come together have no order, and of one kind they are one, with or without an agent.
        seen.append(process.stdout.readline().decode().strip())
    out, _ = process.communicate(timeout=LONG)
    assert seen == sent
    assert (out, process.returncode) == (b"", 9)


def test_sigterm_right_after_the_start_is_not_lost() -> None:
    for pause in (0.0, 0.02, 0.05, 0.1, 0.2):
        process = subprocess.Popen([*AGENT, "--", "sleep", "600"])
        time.sleep(pause)
        process.terminate()
        assert process.wait(timeout=LONG) == -signal.SIGTERM


def test_signals_pass_while_nobody_reads_the_output() -> None:
    """The process fills the pipe, the agent waits for its reader, and the end of the pod must not."""
    code = (
        "import signal, sys, os\n"
        "signal.signal(signal.SIGTERM, lambda *_: os._exit(5))\n"
        "print('ready', flush=True)\n"
        "while True: sys.stdout.buffer.write(b'x' * 65536)\n"
    )
    process = started(*PYTHON, code)
    time.sleep(0.5)
    process.terminate()
    process.communicate(timeout=LONG)
    assert process.returncode == 5


def test_output_passes_byte_for_byte_and_in_order() -> None:
    noise = os.urandom(3_000_000)
    assert run("cat", stdin=noise).stdout == noise
    both = "import os\nfor n in range(2000): os.write(1 + n % 2, b'%d\\n' % n)"
    together = subprocess.run(
        [*AGENT, "--", *PYTHON, both],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LONG,
        check=False,
    )
    assert together.stdout == b"".join(b"%d\n" % n for n in range(2000))


def test_output_is_passed_on_as_it_comes_and_not_by_the_line() -> None:
    process = subprocess.Popen(
        [*AGENT, "--", "sh", "-c", "printf 50%%; read answer; echo $answer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.read(3) == b"50%"  # without a line's end, while the process waits
    process.stdin.write(b"on\n")
    assert process.stdout.read(100) == b"on\n"
    process.communicate(timeout=LONG)


def test_a_terminal_stays_one() -> None:
    code = "import os; print(*map(os.isatty, (0, 1, 2)), os.get_terminal_size().columns)"
    ours, theirs = pty.openpty()
    subprocess.run(["stty", "cols", "93"], stdin=theirs, check=True)
    process = subprocess.Popen(
        [*AGENT, "--", *PYTHON, code], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    text = b""
    while b"\n" not in text:
        text += os.read(ours, 4096)
    assert process.wait(timeout=LONG) == 0
    os.close(ours)
    assert text == b"True True True 93\r\n"


def test_the_key_that_interrupts_does_so_once() -> None:
    """In a session whose terminal is ours: ctrl-C is for the process, which is the foreground group."""
    child, ours = pty.fork()
    if child == 0:
        os.execv(AGENT[0], [*AGENT, "--", *PYTHON, COUNTS])
    text = b""
    while b"ready" not in text:
        text += os.read(ours, 4096)
    for times in (1, 2):
        os.write(ours, b"\x03")
        while text.count(b"SIGINT") < times:  # two that come together are one
            text += os.read(ours, 4096)
    os.kill(child, signal.SIGTERM)
    while b"SIGTERM" not in text:
        text += os.read(ours, 4096)
    _, status = os.waitpid(child, 0)
    os.close(ours)
    assert os.waitstatus_to_exitcode(status) == 9
    assert re.findall(rb"SIG[A-Z]+", text) == [b"SIGINT", b"SIGINT", b"SIGTERM"]


def test_a_reader_that_leaves_is_felt_by_the_process() -> None:
    process = subprocess.Popen([*AGENT, "--", "yes"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(2) == b"y\n"
    process.stdout.close()
    assert process.wait(timeout=LONG) == -signal.SIGPIPE


def test_what_the_process_leaves_behind_is_not_waited_for() -> None:
    done = run("sh", "-c", "sleep 600 & echo $!; exit 3")  # within LONG
    assert done.returncode == 3
    os.kill(int(done.stdout), signal.SIGKILL)  # ours to end, and it still runs


def test_the_environment_and_open_files_are_the_process_s(tmp_path: Path) -> None:
    with open(tmp_path / "held", "w") as held:
        os.set_inheritable(held.fileno(), True)
        environment = {"PATH": os.environ["PATH"], "A": "b"}
        code = f"import os; print(sorted(os.environ.items()), os.write({held.fileno()}, b'x'))"
        done = subprocess.run(
            [*AGENT, "--", sys.executable, "-c", code],
            env=environment,
            pass_fds=(held.fileno(),),
            capture_output=True,
            timeout=LONG,
            check=False,
        )
    found = {name: value for name, value in eval(done.stdout.rsplit(b" ", 1)[0]) if name != "LC_CTYPE"}
    assert found == environment
    assert (tmp_path / "held").read_text() == "x"


def test_a_signal_that_is_ignored_stays_so() -> None:
    code = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, signal.getsignal(signal.SIGPIPE))"
    done = subprocess.run(
        ["nohup", *AGENT, "--", *PYTHON, code],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=LONG,
        check=False,
    )
    # python itself ignores SIGPIPE; what counts is what it found, and a shell shows that below
    assert done.stdout.startswith(b"True ")
    assert run("sh", "-c", "kill -PIPE $$; echo survived").returncode == -signal.SIGPIPE


needs_namespaces = pytest.mark.skipif(
    subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False).returncode != 0,
    reason="needs a PID namespace: root",
)


@needs_namespaces
def test_as_pid_1_it_reaps_what_it_inherits_and_says_137_for_a_kill() -> None:
    def inside(script: str) -> subprocess.CompletedProcess[bytes]:
        command = ["unshare", "--pid", "--fork", "--mount-proc", *AGENT, "--", "sh", "-c", script]
        return subprocess.run(command, capture_output=True, timeout=LONG, check=False)

    # an orphan whose parent has gone: its new parent is the agent, whose one child is in the end the script
    alone = "test $(ps --ppid 1 -o pid= | wc -l) = 1"
    orphans = "for n in 1 2 3; do (sleep 0.1 &) ; done"
    reaped = f"for n in $(seq 600); do {alone} && break; sleep 0.1; done"
    done = inside(f"{orphans}; {reaped}; ps -A -o stat= | grep -c Z; exit 6")
    assert (done.stdout.strip(), done.returncode) == (b"0", 6)
    assert inside("kill -9 $$").returncode == 137
    assert inside("kill -TERM $$").returncode == 143


# --- reports ------------------------------------------------------------------------------------------------


def test_reports_are_found_in_the_output_and_sent(server: ReportServer) -> None:
    script = "echo starting; echo '2026-11-21 INFO muster: step=3 loss=0.25 total=100'; echo done >&2; exit 4"
    done = run("sh", "-c", script, by=UNHURRIED)
    assert (done.returncode, done.stderr) == (4, b"done\n")
    assert done.stdout.count(b"\n") == 2
    assert server.bodies == [("/v1/report", {"step": 3.0, "loss": 0.25, "total": 100.0})]


def test_a_bar_without_line_ends_on_stderr_hides_no_report(server: ReportServer) -> None:
    script = (
        r"printf '\r 30%%|###   | 3/10' >&2; sleep 0.2; echo 'muster: step=3 loss=0.25'; printf '\r 40%%' >&2"
    )
    done = run("sh", "-c", script, by=UNHURRIED)
    assert done.stderr == b"\r 30%|###   | 3/10\r 40%"
    assert server.bodies == [("/v1/report", {"step": 3.0, "loss": 0.25})]


def test_reports_by_pattern_json_and_file(server: ReportServer, tmp_path: Path) -> None:
    pattern = ("--pattern", r"epoch (?P<epoch>\d+): loss (?P<loss>[\d.]+)")
    run("echo", "epoch 3: loss 0.5", options=pattern, by=UNHURRIED)
    run("echo", '{"msg": "x", "muster": {"step": 9, "boundary": true}}', by=UNHURRIED)
    file = tmp_path / "progress"
    script = f"echo 'step=11 total=20' > {file}; echo muster: step=1"
    run("sh", "-c", script, options=("--file", str(file)), by=UNHURRIED)
    assert [body for _, body in server.bodies] == [
        {"epoch": 3.0, "loss": 0.5},
        {"step": 9.0, "boundary": True},
        {"step": 11.0, "total": 20.0},
    ]


def test_an_endpoint_that_fails_or_hangs_disturbs_nothing(
    server: ReportServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "for n in 1 2 3; do echo muster: step=$n; done; exit 5"
    told = b"muster: step=1\nmuster: step=2\nmuster: step=3\n"
    server.hold.clear()
    done = run(
        "sh", "-c", script, by=agent(TIMEOUT=2 * LONG)
    )  # who waited for an answer would not end within LONG
    assert (done.returncode, done.stdout, done.stderr) == (5, told, b"")
    monkeypatch.setenv("MUSTER_URL", "http://127.0.0.1:1")
    process = subprocess.Popen(
        [*AGENT, "--", "sh", "-c", script.replace("exit", "read over; exit")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert b"Connection refused" in process.stderr.readline()
    assert process.communicate(b"\n", timeout=LONG) == (told, b"")
    assert process.returncode == 5
    assert run("sh", "-c", script, options=("--quiet",)).stderr == b""
    monkeypatch.delenv("MUSTER_URL")
    assert b"MUSTER_URL is not set" in run("sh", "-c", script).stderr
    assert run("sh", "-c", "exit 5").stderr == b""  # who reports nothing hears nothing


def test_the_agent_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, muster_report.agent.arguments\n"
        "print({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names - {'__main__'})"
    )
    # -S: nothing of site-packages can be found
    bare = (sys.executable, "-S")
    top = {"PYTHONPATH": str(Path(muster_report.report.__file__).parents[1])}
    done = subprocess.run([*bare, "-c", code], env=top, capture_output=True, timeout=LONG, check=True)
    assert done.stdout == b"{'muster_report'}\n"
    command = [*bare, "-m", "muster_report.agent", "--", "sh", "-c", "echo out; exit 3"]
    done = subprocess.run(command, env=top, capture_output=True, timeout=LONG, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--pattern", "("), "is no regular expression"),
        (("--pattern", "(?P<lr>.)"), "found lr"),
        (("--pattern", "step"), "found none in 'step'"),
        (("--file", "/"), "is a directory"),
        (("--fiel", "x"), "No such option '--fiel'; did you mean '--file'?"),
    ],
)
def test_bad_options_are_refused_before_anything_runs(options: tuple[str, ...], says: str) -> None:
    done = run("echo", "ran", options=options)
    assert (done.returncode, done.stdout) == (2, b"")
    assert says in done.stderr.decode()


LINES = [
    (b"muster: step=3 loss=0.2 total=100\n", [{"step": 3.0, "loss": 0.2, "total": 100.0}]),
    (b"[rank0] muster:  step=1,200 epoch=2;\n", [{"step": 1.0, "epoch": 2.0}]),
    (b"\x1b[32mmuster: step=7\x1b[0m\n", []),
    (b" muster: step=7\x1b[0m\n", [{"step": 7.0}]),
    (b'{"muster": {"step": 3, "other": 1}, "level": "info"}\n', [{"step": 3}]),
    (b'{"muster": 3}\n{"muster": {"step": 3}\n[{"muster": {}}]\n', []),
    (b"muster: hello\nmusterstep=3\nstep=3\n", []),
    (b"12%\rmuster: step=1\rmuster: step=2\r\n", [{"step": 1.0}, {"step": 2.0}]),
    (b"muster: step=1" + b"x" * 9000 + b"\nmuster: step=2\n", [{"step": 2.0}]),
    (
        b"muster: boundary=true step=1\nmuster: boundary=0\n",
        [{"boundary": True, "step": 1.0}, {"boundary": False}],
    ),
]


@pytest.mark.parametrize(("text", "found"), LINES)
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_lines_are_read_however_they_are_cut(text: bytes, found: list[Any], size: int) -> None:
    lines = Lines([])
    got = [one for at in range(0, len(text), size) for one in lines.feed(text[at : at + size])]
    assert got == [{name: one[name] for name in NAMES if name in one} for one in found]


def test_a_number_with_separators_is_one() -> None:
    lines = Lines([re.compile(rb"step (?P<step>[\d,.]+)")])
    assert lines.feed(b"step 1,234,567\nstep 12\n") == [{"step": 1234567.0}, {"step": 12.0}]


def test_a_file_is_followed_through_everything_that_happens_to_it(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    tail = Tail(str(path), Lines([], bare=True))
    assert tail.look() == []  # not there yet
    path.write_text("step=1\nstep=2\n")
    assert tail.look() == [{"step": 1.0}, {"step": 2.0}]
    assert tail.look() == []
    with path.open("a") as file:
        file.write('{"step": 3}\nstep=4')
    assert tail.look() == [{"step": 3}]
    assert tail.look() == [{"step": 4.0}]  # nothing followed: the line is whole
    assert tail.look() == []
    path.write_text("step=9")  # written again, shorter
    assert [*tail.look(), *tail.look()] == [{"step": 9.0}]
    path.write_text("step=10")  # again and longer
    assert [*tail.look(), *tail.look()] == [{"step": 10.0}]
    other = tmp_path / "next"
    other.write_text(json.dumps({"muster": {"step": 11}}) + "\n")
    other.replace(path)
    assert tail.look() == [{"step": 11}]
    path.unlink()
    assert tail.look() == []

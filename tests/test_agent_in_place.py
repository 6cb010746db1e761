# Over 300 lines: one server that plays Muster, and real processes in a namespace, serve all its stories.
"""`muster agent --devices` with real processes in a PID namespace of their own, and a server that plays Muster."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster_report.agent.poll import boottime
from tests.json_server import PATIENT
from tests.muster_played import PlayedMuster, played, until

NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
pytestmark = pytest.mark.skipif(
    subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode != 0,
    reason="needs a PID namespace: root",
)
TRAINING = """
import os, signal, sys, time
print("start", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
while True: time.sleep(60)
"""


class Agent:
    """One container's process: `muster agent --devices` as PID 1."""

    def __init__(self, *options: str, code: str = TRAINING, command: tuple[str, ...] = ()) -> None:
        command = command or (sys.executable, "-u", "-c", code)
        agent = (sys.executable, "-m", "muster_report.agent", "--devices", *options, "--")
        self.process = subprocess.Popen(
            [*NAMESPACE, *agent, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @property
    def pid(self) -> int:
        """By the machine's own number."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        until(lambda: children.read_text().split(), "the agent starts")
        return int(children.read_text().split()[0])

    def says(self, wanted: str = "") -> str:
        """The next line of output, which begins so."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().rstrip("\n")
        assert line.startswith(wanted), (line, wanted)
        return line

    def complains(self, wanted: str) -> str:
        """The next line on stderr that has this; waits for it."""
        assert self.process.stderr is not None
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if wanted in line:
                return line
        raise AssertionError(f"{wanted}: not in {lines}")

    def end(self) -> tuple[int, str, str]:
        """Exit code and what was left to read, when it has ended by itself."""
        out, err = self.process.communicate(timeout=PATIENT)
        return self.process.returncode, out, err


def inside(agent: Agent) -> list[str]:
    """Command lines of all processes of the agent's namespace, itself left out."""
    space = os.readlink(f"/proc/{agent.pid}/ns/pid")
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(folder / "ns" / "pid") == space and int(folder.name) != agent.pid:
                found.append((folder / "cmdline").read_text())
    return [one for one in found if one]  # others have ended


Start = Callable[..., Agent]


@pytest.fixture
def muster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PlayedMuster]:
    with played(monkeypatch, tmp_path) as running:
        yield running


@pytest.fixture
def agents() -> Iterator[list[Agent]]:
    """Those that a scenario starts; ended with all that is in them."""
    started: list[Agent] = []
    yield started
    for one in started:
        one.process.kill()
        one.process.communicate()


@pytest.fixture
def start(agents: list[Agent]) -> Start:
    def started(*options: str, code: str = TRAINING, command: tuple[str, ...] = ()) -> Agent:
        agents.append(Agent(*options, code=code, command=command))
        return agents[-1]

    return started


# --- orders -------------------------------------------------------------------------------------------------


def test_the_training_is_held_until_it_has_devices_and_started_again_with_others(
    muster: PlayedMuster, start: Start
) -> None:
    agent = start("--gpus", "1-3")
    me = muster.ready()[0]
    assert muster.reports[0] == {
        "incarnation": me,
        "state": "ready",
        "order": 0,
        "devices": [],
        "gpus": [1, 2, 3],
    }
    assert inside(agent) == []  # nothing runs
    number = muster.order(me, ("GPU-a", 1))
    agent.says("start GPU-a")
    assert muster.has(me, number, "GPU-a")["state"] == "running"
    number = muster.order(me, ("GPU-b", 7), ("GPU-a", 1))
    agent.says("start GPU-a,GPU-b")
    assert muster.has(me, number, "GPU-a", "GPU-b")["devices"][1] == {"id": "GPU-b", "epoch": 7}
    number = muster.order(me)
    assert muster.has(me, number)["state"] == "ready"
    assert inside(agent) == []
    number = muster.order(me, ("GPU-c", 9))
    agent.says("start GPU-c")
    agent.process.send_signal(0)
    os.kill(agent.pid, signal.SIGTERM)
    code, out, err = agent.end()
    assert (code, out, err) == (143, "", "")
    muster.wait(
        lambda r: r["state"] == "stopping"
    )  # a report that was given up for a newer one may come after it
    assert muster.wait(lambda r: r["state"] == "ended")["devices"] == []


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 42", 42), ("kill -9 $$", 137)])
def test_the_end_of_the_training_is_the_agent_s(
    muster: PlayedMuster, start: Start, script: str, code: int
) -> None:
    agent = start(command=("sh", "-c", f"echo out; echo err >&2; {script}"))
    me = muster.ready()[0]
    number = muster.order(me, ("GPU-a", 1))
    assert agent.end() == (code, "out\n", "err\n")
    report = muster.wait(lambda r: r["state"] == "ended")
    assert (report["order"], report["devices"]) == (number, [])


def test_an_agent_that_is_no_pid_1_refuses() -> None:
    command = [sys.executable, "-m", "muster_report.agent", "--devices", "--", "echo", "ran"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENT, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--devices: expected to be the container's first process (PID 1), found" in done.stderr


def test_signals_reach_the_training_and_output_passes(muster: PlayedMuster, start: Start) -> None:
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('usr1', flush=True))\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(60)\n"
    )
    agent = start(code=code)
    muster.order(muster.ready()[0], ("GPU-a", 1))
    agent.says("up")
    os.kill(agent.pid, signal.SIGUSR1)
    agent.says("usr1")
    os.kill(agent.pid, signal.SIGTERM)
    assert agent.end() == (5, "", "")


def test_a_pod_that_ends_before_it_had_devices_ends_at_once(muster: PlayedMuster, start: Start) -> None:
    agent = start()
    muster.ready()
    os.kill(agent.pid, signal.SIGTERM)
    assert agent.end() == (143, "", "")


SIGNALLED_AS_IT_STARTS = """
import os, subprocess
started = subprocess.Popen.__init__
def start(self, *args, **kwargs):
    started(self, *args, **kwargs)
    if os.getpid() == 1:
        os.kill(1, 15)
subprocess.Popen.__init__ = start
"""


def test_a_pod_that_ends_while_its_training_is_being_started_ends_with_it(
    muster: PlayedMuster, start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SIGNALLED_AS_IT_STARTS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    agent = start()
    muster.order(muster.ready()[0], ("GPU-a", 1))
    assert agent.end()[0] == 143


def test_orders_that_are_late_replayed_or_another_s_change_nothing(
    muster: PlayedMuster, start: Start
) -> None:
    agent = start()
    me = muster.ready()[0]
    muster.order(me, ("GPU-a", 5), number=10)
    agent.says("start GPU-a")
    muster.has(me, 10, "GPU-a")

    def ignored(**changes: object) -> None:
        """The agent hears this and asks again; it would have begun to stop its child before it asks."""
        with muster.changed:
            order = {"number": 11, "incarnation": me, "devices": [{"id": "GPU-b", "epoch": 1}]}
            seen, muster.hold = len(muster.reports), 0.01
            muster.orders[me] = {**order, **changes}
            muster.changed.notify_all()
        muster.answered_since(me, seen)
        muster.answered_since(me, seen + 1)
        muster.answered_since(me, seen + 2)
        assert {(r["state"], r["order"]) for r in muster.reports[seen:]} == {("running", 10)}

    ignored(incarnation="another")
    ignored(number=10)  # the same again, with other devices
    ignored(number=9)
    ignored(devices=[{"id": "GPU-a", "epoch": 4}, {"id": "GPU-b", "epoch": 9}])  # an old epoch
    muster.term = 0  # of a leader that is over
    ignored()
    muster.term = 2
    muster.order(me, ("GPU-b", 6), number=12)
    agent.says("start GPU-b")


# --- the end of a training ------------------------------------------------------------------------------------


DEAF = """
import os, signal, sys, time
for one in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"): signal.signal(getattr(signal, one), signal.SIG_IGN)
print("start", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
while True: time.sleep(60)
"""


@pytest.mark.parametrize("options", [(), ("--checkpoint-signal", "USR1")])
def test_a_training_that_ignores_signals_or_hangs_at_its_checkpoint_is_killed(
    muster: PlayedMuster, start: Start, options: tuple[str, ...]
) -> None:
    agent = start("--grace", "0.5", *options, code=DEAF)
    me = muster.ready()[0]
    number = muster.order(me, ("GPU-a", 1))
    muster.has(me, number, "GPU-a")
    agent.says("start GPU-a")
    number = muster.order(me, ("GPU-b", 2))
    agent.says("start GPU-b")
    muster.has(me, number, "GPU-b")


def test_a_checkpoint_is_waited_for_and_then_comes_term(muster: PlayedMuster, start: Start) -> None:
    code = (
        "import os, signal, sys, time\n"
        "def saved(*_): print('saved'); print('muster: boundary=true', flush=True)\n"
        "def ended(*_): print('term', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGUSR1, saved); signal.signal(signal.SIGTERM, ended)\n"
        "print('start', os.environ['CUDA_VISIBLE_DEVICES'], flush=True)\n"
        "while True: time.sleep(60)\n"
    )
    agent = start("--grace", "600", "--checkpoint-signal", "usr1", code=code)  # what hangs would, for long
    me = muster.ready()[0]
    muster.order(me, ("GPU-a", 1))
    agent.says("start GPU-a")
    muster.order(me, ("GPU-b", 2))
    for line in ("saved", "muster: boundary=true", "term", "start GPU-b"):
        agent.says(line)


DAEMONS = """
import os, signal, subprocess, sys, time
def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for one in ("SIGTERM", "SIGHUP"): signal.signal(getattr(signal, one), signal.SIG_IGN)
            while True: time.sleep(60)
        os._exit(0)
daemon()
subprocess.Popen(["setsid", "sleep", "600"], start_new_session=True)
print("start", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
while True: time.sleep(60)
"""


def test_what_the_training_left_behind_has_ended_before_its_device_is_released(
    muster: PlayedMuster, start: Start
) -> None:
    agent = start(code=DAEMONS)
    me = muster.ready()[0]
    muster.order(me, ("GPU-a", 1))
    agent.says("start GPU-a")
    until(lambda: len(inside(agent)) == 3, "the training, a daemon and a session of its own")
    number = muster.order(me)
    muster.has(me, number)
    assert inside(agent) == []


def test_the_end_of_the_agent_is_the_end_of_all_that_it_started(muster: PlayedMuster, start: Start) -> None:
    agent = start(code=DAEMONS)
    muster.order(muster.ready()[0], ("GPU-a", 1))
    agent.says("start GPU-a")
    children = [int(one) for one in Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()]
    os.kill(agent.pid, signal.SIGKILL)
    agent.process.wait(timeout=PATIENT)
    until(lambda: not any(Path(f"/proc/{one}").exists() for one in children), "the training has ended")


def test_without_an_answer_a_deaf_training_has_ended_when_the_lease_does(
    muster: PlayedMuster, start: Start
) -> None:
    muster.lease, muster.hold = 2.0, 0.2
    agent = start("--grace", "3600", code=DEAF)
    me = muster.ready()[0]
    muster.has(me, muster.order(me, ("GPU-a", 1)), "GPU-a")
    agent.says("start GPU-a")
    with muster.changed:
        muster.away = True
    agent.complains("no answer from Muster: the training is stopped")
    until(lambda: inside(agent) == [], "the training has ended")


def test_a_pod_that_is_asked_to_end_keeps_its_devices_until_the_training_has_ended(
    muster: PlayedMuster, start: Start
) -> None:
    agent = start("--grace", "3600", code=DEAF)
    me = muster.ready()[0]
    number = muster.order(me, ("GPU-a", 1))
    agent.says("start GPU-a")
    os.kill(agent.pid, signal.SIGTERM)
    report = muster.wait(lambda r: r["state"] == "stopping")
    assert (report["order"], [one["id"] for one in report["devices"]]) == (number, ["GPU-a"])
    assert "ended" not in {one["state"] for one in muster.reports}
    (child,) = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    assert agent.end()[0] == 137
    assert muster.wait(lambda r: r["state"] == "ended")["devices"] == []


def test_without_an_answer_for_its_lease_the_agent_stops_the_training_and_goes_on(
    muster: PlayedMuster, start: Start
) -> None:
    muster.lease, muster.hold = 1.0, 0.2
    agent = start()
    me = muster.ready()[0]
    number = muster.order(me, ("GPU-a", 1))
    agent.says("start GPU-a")
    muster.has(me, number, "GPU-a")
    with muster.changed:
        muster.away = True
    agent.complains("no answer from Muster: the training is stopped")
    until(lambda: inside(agent) == [], "the training has ended")
    with muster.changed:
        muster.away = False
        muster.changed.notify_all()
    assert muster.has(me, number)["state"] == "ready"
    muster.order(me, ("GPU-a", 2))
    agent.says("start GPU-a")


def test_a_frozen_agent_s_device_waits_for_the_end_of_its_training(
    muster: PlayedMuster, start: Start, tmp_path: Path
) -> None:
    muster.lease, muster.hold = 2.0, 0.2
    locks = tmp_path / "locks"
    locks.mkdir()
    first = start("--lock-dir", str(locks))
    a = muster.ready()[0]
    muster.order(a, ("GPU-a", 1))
    first.says("start GPU-a")
    os.kill(first.pid, signal.SIGSTOP)
    frozen = boottime()
    second = start("--lock-dir", str(locks))
    b = muster.ready(2)[1]
    muster.order(b, ("GPU-a", 2))  # as a Muster that has waited for A's lease does
    second.complains("device GPU-a: another training still holds its lock")
    assert inside(second) == []
    until(lambda: boottime() > frozen + muster.lease, "A's lease is over")
    os.kill(first.pid, signal.SIGCONT)
    first.complains("no answer from Muster: the training is stopped")
    second.says("start GPU-a")
    assert inside(first) == []


# --- muster.devices() ----------------------------------------------------------------------------------------


COOPERATIVE = """
import os, subprocess, sys, time, muster
workers = {}
def change(devices):
    for one in set(workers) - set(devices):
        process = workers.pop(one); process.kill(); process.wait()
    for one in set(devices) - set(workers):
        workers[one] = subprocess.Popen(["sleep", "600"], env={**os.environ, "CUDA_VISIBLE_DEVICES": one})
    print("has", *devices, flush=True)
print("start", os.getpid(), flush=True)
for step, devices in enumerate(muster.devices(HOW)):  # from the first step on the agent knows
    if step == 0: change(devices)
    WITHOUT
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("how", "without"), [("change", "pass"), ("", "set(devices) ^ set(workers) and change(devices)")]
)
def test_a_training_changes_its_devices_without_a_restart(
    muster: PlayedMuster, start: Start, how: str, without: str
) -> None:
    agent = start(code=COOPERATIVE.replace("HOW", how).replace("WITHOUT", without))
    me = muster.ready()[0]
    muster.order(me, ("GPU-a", 1))
    agent.says("start")
    agent.says("has GPU-a")
    for devices in (("GPU-a", "GPU-b"), ("GPU-b",), ("GPU-b", "GPU-c", "GPU-d")):
        number = muster.order(me, *((one, 1) for one in devices))
        agent.says(f"has {' '.join(devices)}")  # and no "start"
        muster.has(me, number, *devices)
    assert "stopping" not in {one["state"] for one in muster.reports}
    number = muster.order(me)  # all of them: the training is stopped
    muster.has(me, number)
    assert inside(agent) == []
    muster.order(me, ("GPU-z", 1))
    agent.says("start")


def test_released_waits_for_the_worker_whatever_the_training_says(muster: PlayedMuster, start: Start) -> None:
    hasty = (
        COOPERATIVE.replace("HOW", "change")
        .replace("WITHOUT", "pass")
        .replace("process.kill(); process.wait()", "pass")
    )
    agent = start("--grace", "1", code=hasty)
    me = muster.ready()[0]
    muster.order(me, ("GPU-a", 1), ("GPU-b", 1))
    agent.says("start")
    agent.says("has GPU-a GPU-b")
    number = muster.order(me, ("GPU-a", 1))
    agent.says("has GPU-a")
    agent.says("start")  # its worker of GPU-b stayed: the training is started again
    muster.has(me, number, "GPU-a")
    agent.complains("within --grace")
    assert [r for r in muster.reports if r["order"] == number and "stopping" in r["state"]] == []


def test_a_training_whose_agent_is_away_has_what_it_was_started_with() -> None:
    code = "import muster_report; d = muster_report.devices(); print(next(d), next(d))"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "0,1", "MUSTER_DEVICES_FD": "977"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert done.stdout == b"('0', '1') ('0', '1')\n"


# --- --preload -----------------------------------------------------------------------------------------------


@pytest.fixture
def heavy(tmp_path: Path) -> Path:
    """A script, and beside it a module that writes down each import of it."""
    (tmp_path / "heavy.py").write_text(
        "import os\n"
        f"with open({str(tmp_path / 'imports')!r}, 'a') as file:\n"
        "    file.write(os.environ['CUDA_VISIBLE_DEVICES'] + '\\n')\n"
    )
    (tmp_path / "threads.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    script = tmp_path / "train.py"
    script.write_text(
        "import heavy, os, sys, time, random\n"
        "import multiprocessing\n"
        "def work(): print('worker', __name__, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    print('start', os.environ['CUDA_VISIBLE_DEVICES'], os.getppid(), *sys.argv[1:], flush=True)\n"
        "    one = multiprocessing.get_context('spawn').Process(target=work); one.start(); one.join()\n"
        "    if os.environ['CUDA_VISIBLE_DEVICES'] == 'GPU-z': sys.exit(7)\n"
        "    print('number', random.random(), flush=True)\n"
        "    while True: time.sleep(60)\n"
    )
    return script


def imports(heavy: Path) -> list[str]:
    return (heavy.parent / "imports").read_text().splitlines()


def test_a_preloaded_training_imports_once_for_all_its_starts(
    muster: PlayedMuster, start: Start, heavy: Path
) -> None:
    agent = start("--preload", "heavy", command=(sys.executable, "-u", str(heavy), "--epochs", "3"))
    me = muster.ready()[0]
    assert imports(heavy) == [""]  # before there is a device, and on none
    numbers = set()
    for device in ("GPU-a", "GPU-b"):
        number = muster.order(me, (device, 1))
        agent.says(f"start {device} 1 --epochs 3")  # its parent is the agent
        agent.says("worker __mp_main__")
        numbers.add(agent.says("number"))
        muster.has(me, number, device)
    assert imports(heavy).count("") == 1
    assert imports(heavy).count("GPU-a") == 1  # the worker that was spawned, a process of its own
    assert len(numbers) == 2
    muster.order(me, ("GPU-z", 1))
    agent.says("start GPU-z")
    code, _, err = agent.end()
    assert (code, err) == (7, "")


def test_a_module_is_run_from_what_was_preloaded(
    muster: PlayedMuster, start: Start, heavy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(heavy.parent)
    agent = start("--preload", "heavy", command=(sys.executable, "-u", "-m", "train", "x"))
    muster.order(muster.ready()[0], ("GPU-a", 1))
    agent.says("start GPU-a 1 x")
    assert imports(heavy)[0] == ""


@pytest.mark.parametrize(
    ("module", "why"), [("threads", "left 2 threads"), ("no_such_module", "No module named")]
)
def test_a_preload_that_cannot_be_forked_is_said_and_left_out(
    muster: PlayedMuster, start: Start, heavy: Path, module: str, why: str
) -> None:
    agent = start("--preload", f"heavy,{module}", command=(sys.executable, "-u", str(heavy)))
    assert "the training starts without it" in agent.complains(why)
    muster.order(muster.ready()[0], ("GPU-a", 1))
    agent.says("start GPU-a 1")
    assert imports(heavy) == ["", "GPU-a"]


def test_imports_may_print_more_than_a_pipe_holds(muster: PlayedMuster, start: Start, heavy: Path) -> None:
    (heavy.parent / "talks.py").write_text("import sys\nsys.stderr.write('x' * 200_000 + '\\n')\n")
    agent = start("--preload", "talks", command=(sys.executable, "-u", str(heavy)))
    agent.complains("xxx")
    muster.order(muster.ready()[0], ("GPU-a", 1))
    agent.says("start GPU-a 1")


def test_a_preloaded_training_that_shares_its_device_has_the_same_limit_of_memory(
    muster: PlayedMuster, start: Start, heavy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heavy.write_text(
        "import os, time\nprint(os.environ.get('CUDA_MPS_PINNED_DEVICE_MEM_LIMIT'), flush=True)\ntime.sleep(60)\n"
    )
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps")
    monkeypatch.setenv("MUSTER_GPU_MEMORY", "20480")
    agent = start("--preload", "json", command=(sys.executable, "-u", str(heavy)))
    muster.order(muster.ready()[0], ("GPU-a", 1))
    agent.says("0=20480M")


def test_what_was_preloaded_is_gone_and_the_training_starts_all_the_same(
    muster: PlayedMuster, start: Start, heavy: Path
) -> None:
    agent = start("--preload", "heavy", command=(sys.executable, "-u", str(heavy)))
    me = muster.ready()[0]
    (child,) = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    muster.order(me, ("GPU-a", 1))
    agent.complains("has ended; the training starts without it")
    agent.says("start GPU-a 1")


# --- the command line ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--grace", "5"), "--grace: expected --devices with it"),
        (("--lock-dir", "/no"), "expected a folder, and /no is none"),
        (("--devices", "--checkpoint-signal", "KILL"), "expected a signal such as USR1, found 'KILL'"),
        (("--devices", "--gpus", "0,2"), "expected numbers from 1 to 128"),
        (("--devices", "--gpus", "2-1"), "expected numbers from 1 to 128"),
        (("--devices", "--gpus", "1,,2"), "expected numbers from 1 to 128"),
        (("--devices", "--grace", "-1"), "expected seconds, above 0"),
        (("--devices", "--preload", "a b"), "expected names of modules"),
    ],
)
def test_bad_options_are_refused(options: tuple[str, ...], says: str) -> None:
    command = [sys.executable, "-m", "muster_report.agent", *options, "--", "echo", "ran"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENT, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in " ".join(done.stderr.split())


def test_preload_of_what_is_no_python_is_refused() -> None:
    agent = [
        sys.executable,
        "-m",
        "muster_report.agent",
        "--devices",
        "--preload",
        "torch",
        "--",
        "./train.sh",
    ]
    done = subprocess.run([*NAMESPACE, *agent], capture_output=True, text=True, timeout=PATIENT, check=False)
    assert done.returncode == 2
    assert "expected a command that is python SCRIPT or python -m MODULE, found ./train.sh" in " ".join(
        done.stderr.split()
    )

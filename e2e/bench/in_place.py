# Over 300 lines: the training that is started and what is read from its words belong together.
"""One GPU handed from a job to another and back, on a real node: in place, with and without --preload, at the next
step of a (`muster_report.devices`), and by evict and gate. How long GPUs idle, and if a step of training is lost.

Job a has both devices of the node. Job b comes and gets one of them; it goes, and a gets it back. In place a is a
pod whose devices change; else it is two replicas of a device each, of which one is evicted. Trainings import a module
that takes IMPORTS seconds, take a step each STEP seconds, save when they are asked to end, and tell of each first and
last step. A device idles from the last step of who had it to the first of who has it next; both jobs' devices count.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from e2e.bench.course import lab_of
from e2e.bench.figures import median, percentile
from e2e.bench.report import Progress, Result
from e2e.cluster import Cluster
from e2e.in_place import FOLDERS, VALUES, holders, trains
from e2e.lab import Lab, Shape
from e2e.lab.errors import LabError
from e2e.lab.realnode import PYTHON
from e2e.scenario import delete_job, job, wait_until

DEVICES = 2
ROW = 8
"""Devices of the node on which many hand-overs follow each other."""
IMPORTS, STEP = 2.0, 0.02
WITHIN = 180.0
PRELOAD = ("--preload", "imports")
KINDS: Sequence[tuple[str, Sequence[str] | None]] = (
    ("evict", None), ("in place", ()), ("preload", PRELOAD), ("next step", PRELOAD),
)  # fmt: skip
"""With the options of their agents; None: without agents."""
TOLD, STOOD = "told.log", "stood.log"
TRAINING = f"""
import os, signal, time
from pathlib import Path
import imports

name, index = os.environ["NAME"], os.environ.get("JOB_COMPLETION_INDEX", "")
devices = os.environ.get("CUDA_VISIBLE_DEVICES") or os.environ["NVIDIA_VISIBLE_DEVICES"]
saved, told = Path(f"/state/{{name}}-{{index}}"), Path("/state/{TOLD}")
step, weight = saved.read_text().split() if saved.exists() else (0, 1.0)
step, weight, ending = int(step), float(weight), False

def end(*_):
    global ending
    ending = True

def tell(what, at, age):
    with told.open("a") as file:
        file.write(f"{{at:.6f}} {{what}} {{name}}-{{index}} {{step}} {{devices}} {{age:.3f}} {{weight * weight}}\\n")

def age():
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")

signal.signal(signal.SIGTERM, end)
first = True
while not ending:
    time.sleep({STEP})
    step += 1
    weight *= 0.9999  # gradient descent to 0
    at = time.time()
    if first:
        tell("first", at, age())
        first = False
saved.write_text(f"{{step}} {{weight}}")
tell("last", at, 0)
raise SystemExit(143)
"""
NEXT_STEP = f"""
import multiprocessing, os, time
from pathlib import Path
import muster_report

SPAWN = multiprocessing.get_context("spawn")
workers, ready, last = {{}}, set(), {{}}

def work(pipe):
    import imports
    pipe.send("ready")
    try:
        while pipe.recv():
            time.sleep({STEP})
            pipe.send("done")
    except EOFError:
        return

def tell(what, at, device):
    with Path("/state/{TOLD}").open("a") as file:
        file.write(f"{{at:.6f}} {{what}} {{os.environ['NAME']}}-0 {{step}} {{device}} 0 {{1 / (1 + step)}}\\n")

def change(devices):
    global changed
    changed = True
    for device in workers.keys() - set(devices):
        process, pipe = workers.pop(device)
        pipe.close()
        process.join()
        if device in ready:
            ready.remove(device)
            tell("last", last[device], device)
    for device in sorted(set(devices) - workers.keys()):
        ours, theirs = SPAWN.Pipe()
        os.environ["CUDA_VISIBLE_DEVICES"] = device
        workers[device] = SPAWN.Process(target=work, args=(theirs,), daemon=True), ours
        workers[device][0].start()
        theirs.close()
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(devices)

if __name__ == "__main__":
    step, before, changed = 0, 0.0, False
    for devices in muster_report.devices(change):
        if not workers:
            change(devices)
        known = [device for device in workers if device in ready]
        come = [device for device in workers if device not in ready and workers[device][1].poll()]
        for device in come:
            workers[device][1].recv()
        if not known + come:
            time.sleep(0.005)
            continue
        for device in known + come:
            workers[device][1].send("step")
        for device in known + come:
            workers[device][1].recv()
        step += 1
        at = time.time()
        last |= dict.fromkeys(known + come, at)
        for device in come:
            ready.add(device)
            tell("first", at, device)
        if (changed or come) and before:
            with Path("/state/{STOOD}").open("a") as file:
                file.write(f"{{at - before - {STEP}:.6f}}\\n")
        before, changed = at, False
"""
"""Job a that changes at its next step: the others go on while a worker that is new imports. It tells how much longer
than others each step was before which its devices changed, or a worker joined."""


@dataclass(frozen=True)
class Span:
    """A start of a training on a device. last: of its last step, None while it runs; age: of its process at its first
    step, s; loss, last_loss: at those steps."""

    training: str
    device: str
    first: float
    step: int
    age: float
    last: float | None = None
    last_step: int = 0
    loss: float = 0.0
    last_loss: float = 0.0


def spans(text: str) -> list[Span]:
    """Every start on every device, in the order of the first steps. text: what trainings have told."""
    found: list[Span] = []
    for line in text.splitlines():
        at, what, training, step, devices, age, loss = line.split(" ")
        for device in devices.split(","):
            if what == "first":
                found.append(Span(training, device, float(at), int(step), float(age), loss=float(loss)))
            else:
                which = max(
                    i for i, one in enumerate(found) if (one.training, one.device) == (training, device)
                )
                found[which] = replace(
                    found[which], last=float(at), last_step=int(step), last_loss=float(loss)
                )
    return sorted(found, key=lambda one: (one.first, one.device))


@dataclass(frozen=True)
class HandOver:
    """What became of one. idle: of the devices that b gets, the longest, s; both: of all devices, device-seconds;
    started: from b's submission to its first step; own: age of b's process then."""

    idle: float
    both: float
    started: float
    own: float


def hand_over(found: Sequence[Span], submitted: float, training: str) -> HandOver:
    """That to a training which was submitted then: from the last steps before its first one."""
    mine = [one for one in found if one.training == training and one.first > submitted]
    both = 0.0
    for device in {one.device for one in found}:
        on = [one for one in found if one.device == device]
        both += sum(
            after.first - before.last
            for before, after in itertools.pairwise(on)
            if before.last is not None and submitted < before.last <= after.first
        )
    idle = [
        one.first - max(o.last for o in found if o.device == one.device and o.last and o.last < one.first)
        for one in mine
    ]
    return HandOver(max(idle), both, mine[0].first - submitted, mine[0].age)


def lost(found: Sequence[Span]) -> int:
    """Steps that trainings took and took again. Raises LabError where one ended and did not save."""
    steps = 0
    for training in {one.training for one in found}:
        starts = {one.first: one for one in found if one.training == training}
        mine = [starts[at] for at in sorted(starts)]
        if any(one.last is None for one in mine[:-1]):
            raise LabError(f"{training} was killed: it has not told of its last step")
        steps += sum(max(0, before.last_step + 1 - after.step) for before, after in itertools.pairwise(mine))
    return steps


def rises(found: Sequence[Span]) -> int:
    """Starts of trainings whose loss was not below that of their last step before."""
    count = 0
    for training in {one.training for one in found}:
        starts = {one.first: one for one in found if one.training == training}
        mine = [starts[at] for at in sorted(starts)]
        count += sum(after.loss >= before.last_loss for before, after in itertools.pairwise(mine))
    return count


def measure(
    progress: Progress, *, hand_overs: int = 20, in_a_row: int = 0, only_row: bool = False, keep: bool = False
) -> Result:
    """`hand_overs` of each kind, and as many back; then `in_a_row` of half of a node's devices at once."""
    result = Result("inplace", "GPUs from a job to another on a real node")
    if not only_row:
        _each(result, progress, hand_overs, keep)
    if in_a_row:
        _row(result, progress, in_a_row, keep)
    return result


def _row(result: Result, progress: Progress, count: int, keep: bool) -> None:
    """Half of 8 devices at once, in place; imports take a tenth of what they take elsewhere."""
    wanted = Shape(groups=(), racks=0, real=1, real_gpus=ROW, pod_network=True, set_values=VALUES)
    with (
        lab_of("bench-in-a-row", wanted, keep) as lab,
        tempfile.TemporaryDirectory(prefix="muster-in-place-") as state,
    ):
        kind = _Kind(lab, Path(state), (), has=ROW, gives=ROW // 2, imports=IMPORTS / 10)
        found, again, changes = kind.run(progress, f"{ROW // 2} devices at once", count)
        result.data["in a row"] = {"hand_overs": [vars(one) for one in found], "steps_lost": again}
        idle = [one.idle for one in found]
        result.row(f"{ROW // 2} devices at once, {count} in a row: they idle, p50 (p90)", _seconds(idle))
        lost_text = f"{again} in {changes}"
        result.row(
            "    steps lost beyond the last checkpoint, in so many changes of a", lost_text, "0", again == 0
        )
        result.row(
            "    starts at which the loss was not lower than before", str(kind.rises), "0", kind.rises == 0
        )


def _each(result: Result, progress: Progress, hand_overs: int, keep: bool) -> None:
    """One device, in place and by evict and gate."""
    result.data["arguments"] = {"hand_overs": hand_overs, "imports_s": IMPORTS, "step_s": STEP}
    wanted = Shape(groups=(), racks=0, real=1, real_gpus=DEVICES, pod_network=True, set_values=VALUES)
    found: dict[str, list[HandOver]] = {}
    with lab_of("bench-in-place", wanted, keep) as lab:
        for name, options in KINDS:
            with tempfile.TemporaryDirectory(prefix="muster-in-place-") as state:
                kind = _Kind(lab, Path(state), options, next_step=name == "next step")
                found[name], again, changes = kind.run(progress, name, hand_overs)
            result.data[name] = {
                "hand_overs": [vars(one) for one in found[name]],
                "steps_lost": again,
                "changes_of_a": changes,
                "stood_s": kind.stood,
            }
    _rows(result, found)


class _Kind:
    """Hand-overs of one kind. options: of the agents; None: by evict and gate. has, gives: devices of a, and those of
    them that b gets; imports: s; next_step: a goes on while its devices change."""

    def __init__(
        self,
        lab: Lab,
        state: Path,
        options: Sequence[str] | None,
        *,
        has: int = DEVICES,
        gives: int = 1,
        imports: float = IMPORTS,
        next_step: bool = False,
    ) -> None:
        self._cluster, self._state, self._options = Cluster(lab.kubeconfig), state, options
        self._whole, self._gives, self.rises, self._next_step = has, gives, 0, next_step
        self.stood: list[float] = []
        self._told = state / TOLD
        self._told.touch()
        (state / "train.py").write_text(TRAINING)
        (state / "next_step.py").write_text(NEXT_STEP)
        (state / "imports.py").write_text(f"import time\ntime.sleep({imports})\n")

    def run(self, progress: Progress, name: str, count: int) -> tuple[list[HandOver], int, int]:
        """The hand-overs, steps lost in them and on the way back, and how often a's devices changed."""
        found = []
        every, given = self._whole, self._gives
        self._submit("a", f"{every - given},{every}")
        self._has({"a": every})
        with progress.reading(f"hand-overs, {name}", count) as reading:
            for number in range(count):
                submitted = time.time()
                self._submit(f"b{number}", f"{given}")
                self._has({"a": every - given, f"b{number}": given})
                found.append(hand_over(self._spans(), submitted, f"b{number}-0"))
                delete_job(self._cluster, "default", f"b{number}")
                self._has({"a": every})
                reading(number + 1)
        starts = self._spans()
        if self._next_step:
            self.stood = [float(line) for line in (self._state / STOOD).read_text().split()]
            devices = {one.device for one in starts}
            again = sum(lost([one for one in starts if one.device == each]) for each in devices)
        else:
            again, self.rises = lost(starts), rises(starts)
        changes = len({one.first for one in starts if one.training.startswith("a-")}) - 1
        delete_job(self._cluster, "default", "a")
        wait_until(
            lambda: not self._cluster.pods("default") and not holders(self._cluster),
            within=WITHIN,
            what="nothing is left",
        )
        return found, again, changes

    def _spans(self) -> list[Span]:
        return spans(self._told.read_text())

    def _has(self, counts: dict[str, int]) -> None:
        def now() -> dict[str, int]:
            running = [one.training.split("-")[0] for one in self._spans() if one.last is None]
            return {name: running.count(name) for name in sorted(set(running))}

        wait_until(lambda: now() == counts, within=WITHIN, what=f"devices in use: {counts}", also=now)

    def _submit(self, name: str, gpus: str) -> None:
        environment = {"NAME": name, "PYTHONPATH": "/muster:/state"}
        if self._options is not None:
            goes_on = self._next_step and name == "a"
            trains(
                self._cluster,
                name,
                gpus,
                self._state,
                *(() if goes_on else self._options),
                script="/state/next_step.py" if goes_on else "/state/train.py",
                **environment,
            )
        else:
            most = int(gpus.rpartition(",")[2])
            self._cluster.submit(_replicas(name, most, self._state, environment))


def _replicas(name: str, most: int, state: Path, environment: dict[str, str]) -> dict[str, Any]:
    """An elastic Job whose replicas have a device each."""
    made = job(
        name, most, gpus=1, cpu="10m", memory="128Mi", success_on="0", min_replicas=1, max_replicas=most
    )
    folders = {**FOLDERS, "/state": state}
    spec = made["spec"]["template"]["spec"]
    del spec["containers"][0]["resources"]["limits"]["cpu"]
    spec["hostNetwork"] = True
    spec["volumes"] = [
        {"name": f"v{at}", "hostPath": {"path": str(path)}} for at, path in enumerate(folders.values())
    ]
    spec["containers"][0] |= {
        "image": PYTHON,
        "command": ["python", "-u", "/state/train.py"],
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "volumeMounts": [{"name": f"v{at}", "mountPath": where} for at, where in enumerate(folders)],
    }
    return made


def _rows(result: Result, found: dict[str, list[HandOver]]) -> None:
    def of(what: Callable[[HandOver], float]) -> dict[str, list[float]]:
        return {name: [what(one) for one in each] for name, each in found.items()}

    idle, both, own = of(lambda one: one.idle), of(lambda one: one.both), of(lambda one: one.own)
    started = of(lambda one: one.started)
    for name in found:
        result.row(f"{name}: the device idles, p50 (p90)", _seconds(idle[name]))
        result.row("    all devices of both jobs idle, device-seconds", _seconds(both[name]))
        result.row("    from submission to the first step", _seconds(started[name]))
        result.row("    of it the training's own start", _seconds(own[name]))
        if result.data[name]["stood_s"]:  # one process, which takes no step again
            continue
        result.row(
            "    steps lost beyond the last checkpoint, in so many changes of a",
            f"{result.data[name]['steps_lost']} in {result.data[name]['changes_of_a']}",
            "0",
            result.data[name]["steps_lost"] == 0,
        )
    stood = result.data["next step"]["stood_s"]
    worst = max(stood) / STEP
    result.row("next step: a's step at a change takes longer by, p50 (p90)", _seconds(stood))
    result.row("    at most, in steps", f"{worst:.1f}", "1", worst <= 1.0)
    over = median(i - o for i, o in zip(idle["in place"], own["in place"], strict=True))
    result.row("in place: idle beyond the training's own start, p50", f"{over:.2f} s", "0.3 s", over <= 0.3)
    part = median(idle["preload"]) / median(idle["evict"])
    result.row("preload: idle, as a part of evict's, p50", f"{part:.2f}", "0.1", part <= 0.1)
    for what, times in (("idle", idle), ("all devices' idling", both)):
        part = median(times["next step"]) / median(times["evict"])
        result.row(f"next step: {what}, as a part of evict's, p50", f"{part:.2f}")
    part = median(idle["in place"]) / median(idle["evict"])
    result.row("in place: idle, as a part of evict's, p50", f"{part:.2f}")
    part = median(both["preload"]) / median(both["evict"])
    result.row("preload: all devices' idling, as a part of evict's, p50", f"{part:.2f}")
    part = median(both["in place"]) / median(both["evict"])
    result.row("in place: all devices' idling, as a part of evict's, p50", f"{part:.2f}")


def _seconds(values: Sequence[float]) -> str:
    return f"{median(values):.2f} s ({percentile(values, 0.9):.2f} s)"

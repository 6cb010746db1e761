"""Real peers on the same lab, nodes, jobs and client limits: Kueue, Volcano, native gangs, the stock scheduler and
Muster (`peer.py`), one after another, each with a lab of its own.

(a) many gangs submitted at once: pods/s, first and last bind, CPU by process
(b) one gang on an idle cluster: POST to all bound
(c) one gang on a full cluster: POST until somebody says that it has to wait, and what
(d) the jobs of `elastic`: average JCT, p99, makespan, GPU-hours idle (peer_jobs.py); here Kueue's partial admission
    is a peer, too
(e) a big gang behind a stream of small ones
(f) a node dies under a gang (said by the out-of-service taint, as an operator of nodes says it; no kubelet ends)

Everything runs all the time, controllers and kwok included: the clock is a user's, from the first POST.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from e2e.bench import peer_jobs
from e2e.bench import peer_parts as parts_of
from e2e.bench.course import Course, lab_of
from e2e.bench.drawn import Drawing, draw
from e2e.bench.elastic import LOAD, measured
from e2e.bench.figures import median
from e2e.bench.live import APART, Going
from e2e.bench.peer import PEERS, Peer, turn
from e2e.bench.peer_parts import GPUS, WHOLE_WITHIN, Found, On
from e2e.bench.predicted import GPUS_A_NODE
from e2e.bench.report import OUT, Progress, Result
from e2e.cluster import Cluster, Refused
from e2e.lab import end_orphans
from e2e.lab.errors import LabError

LARGE, SMALL, TRAINS = ("b", "a"), ("c", "e", "f"), ("d",)
"""Parts by the lab that they run on, in this order: (a) leaves its pods behind."""
PARTS = tuple(sorted((*LARGE, *SMALL, *TRAINS)))
NOT_RUN = "not run"
FAILURES = (LabError, Refused, AssertionError)
"""What ends a part, not the measure: what is not built or not up, refused, or waited for in vain."""


def measure(
    progress: Progress,
    *,
    nodes: int = 1000,
    gangs: int = 1000,
    size: int = 3,
    tries: int = 5,
    small: int = 8,
    stream: float = 60.0,
    jobs: int = 60,
    speed: float = 20.0,
    rounds: int = 3,
    peers: Sequence[str] = tuple(PEERS),
    parts: Sequence[str] = PARTS,
    beside: int = 1,
    results: Path | None = None,
) -> Result:
    """`rounds` times all peers in turn; who can't be run, or gives up, says why. What is in `results` (JSON lines)
    with the same arguments is not run again.

    beside: so many peers at a time in (d), whose labs wait most of the time; all else has the machine for itself.

    nodes: of the lab of (a) and (b); small: of that of (c), (e) and (f); stream: s of (e); jobs, speed: of (d), trace
    seconds in one of the lab's. LabError where (d) is asked for and its curves are missing."""
    end_orphans("peers")
    drawing = Drawing(jobs, speed=speed, load=LOAD)
    drawn = draw(drawing, measured()) if "d" in parts else []

    over = threading.Event()

    def trains(on: On) -> Found:
        with progress.reading(f"jobs done under {on.peer.name}", jobs) as reading:
            try:
                return peer_jobs.run(on, Going(reading, over), drawn, drawing)
            except LabError:
                if over.is_set():
                    raise CancelledError from None  # cut off: nothing that the peer did, so nothing to keep
                raise

    told: dict[str, Callable[[On], Found]] = {
        "a": lambda on: parts_of.many(on, gangs, size),
        "b": lambda on: parts_of.idle(on, tries),
        "c": lambda on: parts_of.full(on, tries),
        "d": trains,
        "e": lambda on: parts_of.stream(on, stream),
        "f": lambda on: parts_of.dead(on),
    }
    arguments = {
        "nodes": nodes, "gangs": gangs, "size": size, "tries": tries, "small": small, "stream": stream, "jobs": jobs,
        "speed": speed,
    }  # fmt: skip
    kept = Kept(results or OUT / "peers.jsonl", arguments)

    def on_a_lab(peer: Peer, number: int, size: tuple[int, int], lab_parts: Sequence[str]) -> None:
        wanted = [
            part
            for part in lab_parts
            if part in parts
            and (part in TRAINS or not peer.partial)
            and not kept.has(peer.name, number, part)
        ]
        if wanted:
            _on_a_lab(progress, kept, peer, number, size, {part: told[part] for part in wanted})

    def trained(place: int, peer: Peer, number: int) -> None:
        over.wait(place * APART if place < beside else 0.0)
        if not over.is_set():
            on_a_lab(replace(peer, hurried=speed), number, (peer_jobs.nodes(drawing), GPUS_A_NODE), TRAINS)

    for number in range(rounds):
        all_of_them = turn([PEERS[one] for one in peers], number)
        for peer in all_of_them:
            on_a_lab(peer, number, (nodes, GPUS), LARGE)
            on_a_lab(peer, number, (small, GPUS), SMALL)
        with ThreadPoolExecutor(beside) as several:
            done = [several.submit(trained, place, peer, number) for place, peer in enumerate(all_of_them)]
            try:
                for one in done:
                    one.result()
            except BaseException:
                over.set()
                several.shutdown(cancel_futures=True)
                raise
    found = [
        one for one in kept.found if one["peer"] in peers and one["part"] in parts and one["round"] < rounds
    ]
    result = Result(
        "peers",
        f"peers side by side, {rounds} rounds; (a) {gangs} gangs of {size}; (a), (b) {nodes} nodes, others {small}; "
        f"(d) {jobs} jobs, {speed:g}x compressed, each as large as it asks for but under afs-l and partial admission",
        data={
            "arguments": arguments | {"rounds": rounds, "parts": list(parts)},
            "peers": {one: {"says": PEERS[one].says, "sources": PEERS[one].sources} for one in peers},
            "runs": found,
        },
    )
    rows(result, found, peers)
    return result


class Kept:
    """What was found, a line of a file each, so that a run that was cut off goes on. Another lab may do what none
    could be had for: "not run" is not kept."""

    def __init__(self, path: Path, arguments: Found) -> None:
        self._path, self._arguments, self._one = path, arguments, threading.Lock()
        lines = path.read_text().splitlines() if path.is_file() else []
        self.found: list[Found] = [
            one["found"] for one in map(json.loads, lines) if one["arguments"] == arguments
        ]

    def has(self, peer: str, number: int, part: str) -> bool:
        return any((one["peer"], one["round"], one["part"]) == (peer, number, part) for one in self.found)

    def add(self, found: Found) -> None:
        self.found.append(found)
        if not str(found.get("no_figure", "")).startswith(NOT_RUN):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._one, self._path.open("a") as file:
                file.write(json.dumps({"arguments": self._arguments, "found": found}) + "\n")


def _on_a_lab(
    progress: Progress,
    kept: Kept,
    peer: Peer,
    number: int,
    size: tuple[int, int],
    parts: Mapping[str, Callable[[On], Found]],
) -> None:
    """These parts of one peer in one round, on a lab of this size (nodes, GPUs of each)."""
    nodes, gpus = size

    def add(part: str, what: Found) -> None:
        about = {"peer": peer.name, "round": number, "part": part, "load": round(os.getloadavg()[0], 1)}
        kept.add(about | what)
        progress.say(f"  round {number + 1} ({part}) {peer.name}: {_short(what)}")

    name = f"peers-{os.getpid()}-{peer.name.replace(' ', '-')}-{nodes}x{gpus}"
    try:
        with lab_of(name, peer.shape(nodes, gpus)) as lab:
            cluster = Cluster(lab.kubeconfig)
            course = Course(lab, progress, kwok=True)
            with peer.configured(lab, cluster, nodes * gpus):
                course.settle(seconds=30.0)
                on = On(peer, course, cluster, nodes)
                for part, run in parts.items():
                    try:
                        add(part, run(on))
                    except FAILURES as problem:
                        add(part, {"no_figure": f"gave up: {_first(problem)}"})
    except FAILURES as problem:
        for part in parts:
            if not kept.has(peer.name, number, part):
                add(part, {"no_figure": f"{NOT_RUN}: {_first(problem)}"})


def _first(problem: BaseException) -> str:
    return str(problem).partition("\n")[0]


def _short(what: Found) -> str:
    return json.dumps({key: value for key, value in what.items() if key not in ("cpu_ms", "times")})[:200]


# --- what is said -------------------------------------------------------------------------------------------


def rows(result: Result, found: Sequence[Found], peers: Sequence[str]) -> None:
    """A row for each part and peer: the median of its rounds, and each of them."""
    for part, title, told in (
        ("a", "gangs at once: pods/s; first, last bind", _said_many),
        ("a", "CPU ms a pod", _said_cpu),
        ("b", "a gang on an idle cluster, median (worst)", _said_times),
        ("c", "can't fit is said, median (worst)", _said_times),
        ("c", "what is said", lambda some: f"“{some[-1]['words']}”"),
        ("d", "average JCT, p99, makespan (trace s); GPU-hours idle, held in vain", _said_jobs),
        ("e", "a big gang behind a stream of small jobs", _said_stream),
        ("f", "a node dies: whole again; healthy pods ended", _said_dead),
    ):
        for peer in peers:
            some = [one for one in found if one["peer"] == peer and one["part"] == part]
            good = [one for one in some if "no_figure" not in one]
            if not some or (not good and title in ("CPU ms a pod", "what is said")):
                continue
            why = sorted({one["no_figure"] for one in some if "no_figure" in one})
            said = [told(good)] if good else []
            said += why
            result.row(f"({part}) {peer}: {title}", "; ".join(said))


def _each(values: Sequence[float]) -> str:
    """The median, and all where there are several."""
    text = f"{median(values):g}"
    return text if len(values) == 1 else f"{text} ({', '.join(f'{one:g}' for one in values)})"


def _said_many(some: Sequence[Found]) -> str:
    rate, first, last = (_each([one[key] for one in some]) for key in ("pods_per_s", "first_s", "last_s"))
    return f"{rate} pods/s; {first} s, {last} s"


def _said_cpu(some: Sequence[Found]) -> str:
    names = dict.fromkeys(name for one in some for name in one["cpu_ms"])
    spent = {name: median(one["cpu_ms"].get(name, 0.0) for one in some) for name in names}
    total = sum(value for name, value in spent.items() if name != "bench")
    return f"{total:.1f}: " + ", ".join(
        f"{name} {value:.1f}" for name, value in spent.items() if value >= 0.05
    )


def _said_times(some: Sequence[Found]) -> str:
    return f"{_each([one['median_s'] for one in some])} s ({max(one['worst_s'] for one in some):g} s)"


def _said_jobs(some: Sequence[Found]) -> str:
    lengths = ", ".join(_each([one[key] for one in some]) for key in ("jct_s", "p99_s", "makespan_s"))
    return f"{lengths} s; " + ", ".join(
        _each([one[key] for one in some]) for key in ("idle_gpu_h", "in_vain_gpu_h")
    )


def _said_stream(some: Sequence[Found]) -> str:
    started = [one["started_s"] for one in some if one["started_s"] is not None]
    never = [one for one in some if one["started_s"] is None]
    said = []
    if started:
        said.append(f"started after {_each(started)} s in {len(started)} of {len(some)}")
    if never:
        bound = _each([one["bound"] for one in never])
        said.append(
            f"not in {_each([one['stream_s'] for one in never])} s of it in {len(never)} of {len(some)}, "
            f"{bound} of {never[0]['of']} pods bound"
        )
    said.append(f"held in part: {_each([one['held_in_part_gpu_s'] for one in some])} GPU-s")
    return "; ".join(said)


def _said_dead(some: Sequence[Found]) -> str:
    whole = [one["whole_again_s"] for one in some if one["whole_again_s"] is not None]
    said = f"{_each(whole)} s" if whole else ""
    if len(whole) < len(some):
        said += " and " if whole else ""
        said += f"not within {WHOLE_WITHIN:.0f} s in {len(some) - len(whole)} of {len(some)}"
    return f"{said}; {_each([one['healthy_ended'] for one in some])} of {some[0]['of'] - 1}"

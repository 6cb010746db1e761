"""The agent's command line."""

from __future__ import annotations

import argparse
import os
import re
import signal
from typing import NoReturn

from muster_report.agent.in_place import InPlace, Settings
from muster_report.agent.lines import NAMES, Lines, Tail
from muster_report.agent.preload import split
from muster_report.agent.run import Run
from muster_report.report import CommandLine, Reporter

SAYS = r"""
PROGRAM -- python train.py
PROGRAM --pattern 'epoch (?P<epoch>\d+), loss (?P<loss>[0-9.]+)' -- ./train.sh
PROGRAM --file /tmp/progress -- torchrun train.py
PROGRAM --devices --checkpoint-signal USR1 --preload torch -- python train.py

Reports are lines of its output such as "muster: step=3 loss=0.2 total=100", or JSON:
{"muster": {"step": 3}}. Signals, exit code and output are the command's, untouched; nothing that goes wrong
with reports disturbs it. Where they go is set by the pod's annotation muster.dev/report: "true".
"""


def main(arguments: list[str] | None = None, program: str = "muster-agent") -> NoReturn:
    """Run the command of the arguments (default: this process'), and end as it does. Exit code 2: bad usage."""
    parser = _parser(program)
    found = parser.parse_args(arguments)
    command = found.command[1:] if found.command[:1] == ["--"] else found.command
    if not command:
        parser.error("COMMAND: expected the command to run, found none")
    reporter = Reporter((lambda _: None) if found.quiet else None)
    sought = None if found.file and not found.pattern else Lines(found.pattern)
    watched = Tail(found.file, Lines([], bare=True)) if found.file else None
    if not found.devices:
        for name in ("grace", "checkpoint_signal", "lock_dir", "preload"):
            if getattr(found, name) != parser.get_default(name):
                parser.error(f"--{name.replace('_', '-')}: expected --devices with it, found none")
        Run(command, reporter, sought, watched).to_the_end()
    if os.getpid() != 1:
        parser.error(
            f"--devices: expected to be the container's first process (PID 1), found {os.getpid()}: what the "
            "training leaves behind would keep its devices. Make the agent the container's command itself, without "
            "sh -c or another init, and don't share the pod's process namespace"
        )
    if found.preload and split(command) is None:
        parser.error(
            f"--preload: expected a command that is python SCRIPT or python -m MODULE, found {command[0]}"
        )
    settings = Settings(found.grace, found.checkpoint_signal, found.lock_dir, found.preload, found.gpus)
    InPlace(command, settings, reporter, sought, watched).to_the_end()


def _parser(program: str) -> argparse.ArgumentParser:
    parser = CommandLine(
        prog=program,
        usage=f"{program} [OPTIONS] [--] COMMAND...",
        description="Run COMMAND, report its progress to Muster, and change its devices in place.",
        epilog=SAYS.replace("PROGRAM", program),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.example = "-- python train.py"
    parser.add_argument(
        "--pattern",
        action="append",
        default=[],
        type=_pattern,
        metavar="REGEX",
        help=f"searched in each line of output; its named groups are values: {', '.join(NAMES)}; may be repeated",
    )
    parser.add_argument(
        "--file",
        type=_file,
        help="follow this file for reports, and leave the output alone (unless --pattern is given, too); a line is "
        '"step=3 loss=0.2" or JSON; it need not exist yet, and may be rewritten',
    )
    parser.add_argument(
        "--quiet", action="store_true", help="don't say on stderr, once, why reports are not accepted"
    )
    devices = parser.add_argument_group("devices that change in place")
    devices.add_argument(
        "--devices",
        action="store_true",
        help="hold COMMAND until Muster gives it devices, and start it again with others when it says so; their ids "
        "are in CUDA_VISIBLE_DEVICES; the agent must be the container's first process",
    )
    devices.add_argument(
        "--gpus",
        type=_sizes,
        default=os.environ.get("MUSTER_GPUS", ""),
        metavar="1,2,4",
        help="numbers of GPUs that it can train on (default: MUSTER_GPUS, which admission sets)",
    )
    devices.add_argument(
        "--grace",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="from the first signal to SIGKILL when it is to stop (default: 30)",
    )
    devices.add_argument(
        "--checkpoint-signal",
        type=_signal,
        metavar="USR1",
        help="sent before SIGTERM, which follows when it says `muster: boundary=true`, or after half of the grace",
    )
    devices.add_argument(
        "--lock-dir",
        type=_folder,
        metavar="FOLDER",
        help="a folder of the node with a lock for each device, the same for all pods: a frozen agent keeps the next "
        "training out",
    )
    devices.add_argument(
        "--preload",
        type=_modules,
        default=(),
        metavar="torch,torchvision",
        help="modules that are imported before there are devices, once; COMMAND is forked from that process",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _pattern(text: str) -> re.Pattern[bytes]:
    try:
        found = re.compile(text.encode())
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error
    unknown = sorted(set(found.groupindex) - set(NAMES))
    if unknown or not found.groupindex:
        has = f"found {', '.join(unknown)}" if unknown else f"found none in {text!r}"
        raise argparse.ArgumentTypeError(
            f"expected named groups (?P<step>...) out of {', '.join(NAMES)}; {has}"
        )
    return found


def _file(text: str) -> str:
    if os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"expected a file, and {text} is a directory")
    return text


def _sizes(text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.split(",") if text.strip() else ():  # as muster.dev/gpus, from which it comes
        ends = [end.strip() for end in part.split("-")]
        numbers = [int(end) for end in ends if re.fullmatch("[0-9]{1,3}", end)]
        if not (len(numbers) == len(ends) <= 2 and 1 <= numbers[0] <= numbers[-1] <= 128):
            raise argparse.ArgumentTypeError(
                f'expected numbers from 1 to 128, "1,2,4" or "1-8", found {text!r}'
            )
        found.update(range(numbers[0], numbers[-1] + 1))
    return tuple(sorted(found))


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0.0 < found <= 3600.0:
        raise argparse.ArgumentTypeError(f"expected seconds, above 0 and at most 3600, found {text!r}")
    return found


def _signal(text: str) -> int:
    name = f"SIG{text.upper().removeprefix('SIG')}"
    if name not in signal.Signals.__members__ or name in ("SIGKILL", "SIGSTOP"):
        raise argparse.ArgumentTypeError(f"expected a signal such as USR1, found {text!r}")
    return signal.Signals[name].value


def _folder(text: str) -> str:
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"expected a folder, and {text} is none")
    return text


def _modules(text: str) -> tuple[str, ...]:
    found = tuple(one.strip() for one in text.split(","))
    if not all(part.isidentifier() for one in found for part in one.split(".")):
        raise argparse.ArgumentTypeError(f"expected names of modules, torch,torchvision, found {text!r}")
    return found

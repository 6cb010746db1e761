"""Processes of a container, as its node sees them."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass

from e2e.kind import cluster
from e2e.kind.engine import docker


@dataclass(frozen=True)
class Process:
    """pid, parent: numbers of the node; name: of its program, as the kernel has it."""

    pid: int
    parent: int
    name: str

    def signal(self, number: signal.Signals) -> bool:
        """False where it is gone."""
        told = docker(
            "exec",
            cluster.NODE,
            "sh",
            "-c",
            f"kill -{int(number)} {self.pid} 2> /dev/null && echo sent; true",
        )
        return bool(told)


def of_container(container: str, namespace: str) -> list[Process]:
    """Of all running containers of this name in pods of the namespace: the first process of each first."""
    script = (
        f"for id in $(crictl ps -q --label io.kubernetes.container.name={container} "
        f"--label io.kubernetes.pod.namespace={namespace}); do "
        "pid=$(crictl inspect -o go-template --template '{{.info.pid}}' $id) && "
        'ps -o pid=,ppid=,comm= -p "$(pgrep -d, --ns $pid --nslist pid)"; '
        "done; true"
    )
    return parsed(docker("exec", cluster.NODE, "sh", "-c", script))


def parsed(listed: str) -> list[Process]:
    """Lines of a pid, its parent's and a name each."""
    rows = (line.split(None, 2) for line in listed.splitlines() if line.strip())
    found = [Process(int(pid), int(parent), name.strip()) for pid, parent, name in rows]
    return sorted(found, key=lambda one: (_has_parent(one, found), one.pid))


def _has_parent(process: Process, among: Iterable[Process]) -> bool:
    return process.parent in {one.pid for one in among}


def send(processes: Iterable[Process], number: signal.Signals) -> None:
    """To all of them; who is gone meanwhile is let be."""
    if numbers := " ".join(str(one.pid) for one in processes):
        docker("exec", cluster.NODE, "sh", "-c", f"kill -{int(number)} {numbers} 2> /dev/null; true")

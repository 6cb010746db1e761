"""Two jobs on the same GPUs: who shares whose. While the host is there the guest uses none of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from muster.sim.running_job import Training
from muster.sim.sim_nodes import Site
from muster.types import Grant, JobKey


class Pairs:
    """rides: by guest, its host. A pair has two jobs; when one leaves, the GPUs are the other's. Who is granted a
    place beside another and has none yet (`restart_on`) rides nowhere, and keeps that grant."""

    def __init__(self, active: Mapping[JobKey, Training]) -> None:
        self.active = active
        self.rides: dict[Training, Training] = {}

    def after(self, trainings: Iterable[Training]) -> tuple[dict[Training, None], list[Training]]:
        """Once these are placed as planned: jobs whose neighbour came or went; and those that no longer share."""
        result: dict[Training, None] = {}
        alone: list[Training] = []
        looked = dict.fromkeys(trainings)
        looked |= {rider: None for rider, owner in self.rides.items() if owner in looked}
        for training in looked:
            key = training.want.beside if training.want is not None else None
            owner = self.active.get(key) if key is not None else None
            nodes = {node for _, node in training.placed.values()}
            if owner is not None and not any(node in nodes for _, node in owner.placed.values()):
                owner = None
            if key is not None and owner is None and not training.restart_on:
                training.want = replace(training.want or Grant(), beside=None)
                if training.key in self.active:
                    alone.append(training)
            before = self.rides.get(training)
            if before is owner:
                continue
            if owner is None:
                del self.rides[training]
            else:
                self.rides[training] = owner
            for each in (training, before, owner):
                if each is not None and each.key in self.active:
                    result[each] = None
        return result, alone

    def beside(self, training: Training) -> Training | None:
        """The job that really is on the same GPUs."""
        other = self.rides.get(training)
        if other is None and self.rides:
            other = next((rider for rider, owner in self.rides.items() if owner is training), None)
        if other is None or not other.at.gpus.keys() & training.at.gpus.keys():
            return None
        return other

    def recharge(self, site: Site, trainings: Iterable[Training]) -> None:
        """Capacity as planned: all is given back first, since places are handed over from one to another."""
        listed = [training for training in trainings if training.key in self.active]
        for training in listed:
            site.charge(training.charged, -1)
            training.charged = []
        for training in listed:
            owner = self.rides.get(training)
            shared: dict[str, int] = {}
            if owner is not None:
                for _, node in owner.placed.values():
                    shared[node] = shared.get(node, 0) + 1
            counts: dict[tuple[str, str, bool], int] = {}
            for role, node in training.placed.values():
                rides = shared.get(node, 0) > 0
                if rides:
                    shared[node] -= 1
                counts[role, node, rides] = counts.get((role, node, rides), 0) + 1
            training.charged = [
                (site.nodes.index[node], training.shape_of(role, rides=rides), count)
                for (role, node, rides), count in counts.items()
            ]
            site.charge(training.charged)

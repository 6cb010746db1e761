"""A node's devices and the pods that are to have them: who sits where, with whom, and what each is short of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.core.devices.charged import pods_of
from muster.core.devices.coordinator import Coordinator, HeldDevice
from muster.core.devices.granted import Grants, Sizes
from muster.core.devices.pairs import Pairs
from muster.core.devices.transitions import DeviceState
from muster.types import Job, JobKey


@dataclass(frozen=True, slots=True)
class Want:
    """Devices that the plan grants a pod on its node. sizes: numbers that it can train on; pods: of the job, each of
    which has a want of its own once it has a place; beside: the pod with which it shares them, "" = it has them
    alone; kept: more devices that are nobody else's meanwhile, since it is to have them again."""

    job: JobKey
    pod: str
    node: str
    count: int
    sizes: tuple[int, ...]
    pods: int = 1
    beside: str = ""
    kept: int = 0


class OnNode:
    """wants: in the plan's order, then pods that the plan does not name and that use something. Devices that are lost
    are not among those that are asked about here."""

    def __init__(self, memory: Coordinator, devices: Sequence[HeldDevice], wants: Sequence[Want]) -> None:
        self._memory = memory
        self._keys = sorted(device.key for device in devices if device.usable)
        pods = {user.pod for device in devices for user in device.users}
        strangers = sorted(pods - {want.pod for want in wants})
        self.wants = [*wants, *(Want(JobKey("", ""), pod, "", 0, ()) for pod in strangers)]
        self._place = {want.pod: at for at, want in enumerate(wants) if want.count}
        self._partners: dict[str, set[str]] = {}
        for want in wants:
            if want.beside:
                self._partners.setdefault(want.pod, set()).add(want.beside)
                self._partners.setdefault(want.beside, set()).add(want.pod)

    @property
    def devices(self) -> list[HeldDevice]:
        """Their seats, by key."""
        return [self._memory.devices[key] for key in self._keys]

    def idle(self) -> list[HeldDevice]:
        """First seats of devices that are nobody's, nor kept for anybody."""
        found = [
            d for d in self.devices if not d.second and d.state is DeviceState.IDLE and self._other_is_idle(d)
        ]
        return found[: max(0, len(found) - sum(self._lets_idle(want) for want in self.wants))]

    def _lets_idle(self, want: Want) -> int:
        """Devices that idle and are kept for it."""
        return min(want.kept, max(0, want.count + want.kept - self.held(want)))

    def of(self, want: Want) -> list[HeldDevice]:
        """Seats that are a pod's, or on their way to it."""
        return [device for device in self.devices if device.of_pod(want.pod)]

    def held(self, want: Want) -> int:
        """How many these are."""
        return len(self.of(want))

    def surplus(self, want: Want) -> int:
        """Those beyond what it is to have."""
        return max(0, self.held(want) - want.count)

    def freed(self, want: Want) -> int:
        """Devices of its surplus that are nobody's once it has given them, nor kept for it."""
        over = max(0, self.surplus(want) - want.kept)
        return min(over, sum(self._other_is_idle(device) for device in self.of(want)))

    def coming_free(self) -> int:
        """Devices that are nobody's once all have given their surplus."""
        shared = sum(
            not d.second
            and bool(d.pods)
            and not self._other_is_idle(d)
            and not any(pod in self._place for pod in self._both(d))
            for d in self.devices
        )
        return shared + sum(self.freed(want) for want in self.wants)

    def short(self, want: Want) -> int:
        """Devices that it lacks, those on which it can't stay counted as if it had them not."""
        return max(0, want.count - sum(self.fits(want, device) for device in self.of(want)))

    def fits(self, want: Want, device: HeldDevice) -> bool:
        """Whether it may stay where it sits: alone or with its partner, and not alone where it sits or could sit
        beside the partner elsewhere. Of two that are no pair (any more) the earlier in the plan's order stays."""
        others = self._others(want, device)
        if not others and want.beside:
            joined = sum(want.beside in self._others(want, one) for one in self.of(want))
            return joined < want.count and not self.beside(want)
        strangers = others - self._partners.get(want.pod, set())
        mine = self._place.get(want.pod, len(self.wants))
        return all(self._place.get(pod, len(self.wants)) > mine for pod in strangers)

    def beside(self, want: Want) -> list[HeldDevice]:
        """Seats of its partner's whose other one is nobody's."""
        partners = self._partners.get(want.pod, set())
        return [
            d
            for d in self.devices
            if d.users and d.recording is None and d.pods <= partners and self._other_is_idle(d)
        ]

    def sit_down(self, want: Want, most: int, now: float) -> list[HeldDevice]:
        """At most so many seats beside its partner."""
        seats = [self._memory.seat_beside(device, now) for device in self.beside(want)[:most]]
        self._keys = sorted({*self._keys, *(seat.key for seat in seats)})
        return seats

    def _both(self, device: HeldDevice) -> frozenset[str]:
        other = self._memory.other(device)
        return device.pods | (other.pods if other is not None else frozenset())

    def _others(self, want: Want, device: HeldDevice) -> frozenset[str]:
        """Whose the other seat is, or is to be."""
        other = self._memory.other(device)
        return other.pods - {want.pod} if other is not None else frozenset()

    def _other_is_idle(self, device: HeldDevice) -> bool:
        other = self._memory.other(device)
        return other is None or other.state is DeviceState.IDLE


def short_of(wants: Sequence[Want], node: str, used: Mapping[tuple[str, str], int]) -> JobKey:
    """The first job on the node with fewer devices of its own than it is to have. used: devices, by pod and node."""
    here = [want for want in wants if want.node == node and not want.beside]
    return next((want.job for want in here if used.get((want.pod, node), 0) < want.count), here[0].job)


def wants(jobs: Mapping[JobKey, Job], sizes: Sizes, granted: Grants, beside: Pairs) -> list[Want]:
    """What the Coordinator is to see to, the earliest submission first; of two that share the one whose GPUs they are
    counts as the earlier."""
    order = sorted(granted, key=lambda key: (key in beside, jobs[key].submitted, key))
    return [
        Want(
            key,
            one.pod,
            one.node,
            one.uses,
            sizes[key],
            pods_of(jobs[key], granted[key]),
            granted[beside[key]][0].pod if key in beside else "",
            one.count - one.uses,
        )
        for key in order
        for one in granted[key]
    ]

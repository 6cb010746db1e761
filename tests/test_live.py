"""When the live driver acts."""

from __future__ import annotations

import socket
import time
from typing import cast

from muster.cluster.api import Api
from muster.cluster.lease import Holder
from muster.core.view import Board, empty_view
from muster.live import Driver, Settled
from muster.points import Profile


def test_it_does_not_lead_before_its_verbs_can_be_called() -> None:
    """kube-scheduler would refuse each pod whose gate came off until then, and try it again a second later."""
    settled = Settled(scheduler="muster", observe=False, lease_namespace="n", lease_name="l")
    driver = Driver(cast(Api, None), Board(empty_view(Profile())), settled, Profile())
    driver._holder = Holder(f"{socket.gethostname()}_1", time.time() + 3600)
    driver.opened = lambda: False
    assert not driver._leads()
    driver.opened = lambda: True
    assert driver._leads()
    driver._holder = Holder("another_1", time.time() + 3600)
    assert not driver._leads()

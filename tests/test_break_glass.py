"""`muster release` of a pod that carries a gate of somebody else's, too."""

from __future__ import annotations

import json
from typing import Any, cast

from muster import release
from muster.cluster import decode_pods
from muster.cluster.api import Api

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "a", "uid": "u", "resourceVersion": "1"},
    "spec": {
        "schedulerName": "muster",
        "containers": [{"name": "c"}],
        "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}, {"name": "muster.dev/queue"}],
    },
    "status": {"phase": "Pending"},
}


class Server:
    """It takes our gate off."""

    def __init__(self) -> None:
        self.pod = json.loads(json.dumps(POD))
        self.asked = 0

    def request(self, verb: str, *_: Any) -> tuple[int, bytes]:
        self.asked += 1
        if verb == "PATCH":
            gates = self.pod["spec"]["schedulingGates"]
            self.pod["spec"]["schedulingGates"] = [
                gate for gate in gates if gate["name"] != "muster.dev/queue"
            ]
        return 200, json.dumps(self.pod).encode()


def test_it_says_that_another_gate_holds_the_pod_and_does_not_wait_for_it() -> None:
    server = Server()
    pod = decode_pods.pod(json.dumps(POD).encode(), "muster")
    done = release.release(cast(Api, server), [pod], "muster", 60.0, lambda _: None)
    assert done == release.Released((), (("a/p", release.HELD),))
    assert server.asked == 2, "a patch and a look"

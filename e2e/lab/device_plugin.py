"""A device plugin of a real node, as a vendor's is: devices by id, told to the kubelet over its v1beta1 API.

    python -m e2e.lab.device_plugin DEVICES-FILE

Devices and their health are what the file says now, {"GPU-6a...": "Healthy"}; whoever writes it changes them. A
kubelet that starts again has forgotten all plugins and removed their sockets: the plugin registers again. A container
gets its devices as NVIDIA's plugin gives them with the strategy `envvar`: their ids in NVIDIA_VISIBLE_DEVICES."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from e2e.lab.device_api import PLUGIN, REGISTRATION, VERSION, message
from e2e.lab.devices import HEALTHY, Devices

FOLDER = Path("/var/lib/kubelet/device-plugins")
"""Built into the kubelet, whatever its root folder is."""
RESOURCE = "nvidia.com/gpu"
ENDPOINT = "muster-lab.sock"
LOOK = 0.1
"""Seconds between looks at the file and at the kubelet's socket."""


class Plugin:
    """Serves one kubelet's calls. changed: notified where the devices are others than before."""

    def __init__(self, file: Devices) -> None:
        self._file = file
        self.changed = threading.Condition()
        self.devices: dict[str, str] = {}  # health by id
        self.over = False
        self.look()

    def look(self) -> None:
        """Take in what the file says."""
        try:
            devices = self._file.read()
        except (FileNotFoundError, ValueError):  # being written
            return
        if devices != self.devices:
            with self.changed:
                self.devices = devices
                self.changed.notify_all()
            healthy = sum(health == HEALTHY for health in devices.values())
            say(f"{len(devices)} devices, {healthy} of them healthy")

    def end(self) -> None:
        with self.changed:
            self.over = True
            self.changed.notify_all()

    # ---- the API ----

    def options(self, _request: Any, _context: grpc.ServicerContext) -> Any:
        return message("DevicePluginOptions")()

    def list_and_watch(self, _request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """All devices, at once and after each change."""
        told: dict[str, str] | None = None
        while True:
            with self.changed:
                self.changed.wait_for(lambda told=told: self.over or self.devices != told, LOOK * 10)
                if self.over or not context.is_active():
                    return
                if self.devices == told:
                    continue
                told = dict(self.devices)
            kind = message("Device")
            devices = [kind(ID=one, health=health) for one, health in told.items()]
            yield message("ListAndWatchResponse")(devices=devices)
            # Asked for the next one: this one is on its way.
            self._file.told.write_text(json.dumps({"pid": os.getpid(), "devices": told}))

    def allocate(self, request: Any, _context: grpc.ServicerContext) -> Any:
        """What a container with these devices finds in its environment."""
        answer = message("AllocateResponse")()
        for one in request.container_requests:
            ids = ",".join(one.devices_ids)
            answer.container_responses.add().envs["NVIDIA_VISIBLE_DEVICES"] = ids
            say(f"allocated {ids}")
        return answer

    def handler(self) -> grpc.GenericRpcHandler:
        """The service, by the methods' names."""

        def one(method: Any, request: str, answer: str, made: Any) -> Any:
            return made(
                method,
                request_deserializer=message(request).FromString,
                response_serializer=message(answer).SerializeToString,
            )

        plain, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        methods = {
            "GetDevicePluginOptions": one(self.options, "Empty", "DevicePluginOptions", plain),
            "ListAndWatch": one(self.list_and_watch, "Empty", "ListAndWatchResponse", stream),
            "Allocate": one(self.allocate, "AllocateRequest", "AllocateResponse", plain),
        }
        return grpc.method_handlers_generic_handler(PLUGIN, methods)


def register(kubelet: Path) -> None:
    """Tell the kubelet where we are. Raises grpc.RpcError."""
    request = message("RegisterRequest")(version=VERSION, endpoint=ENDPOINT, resource_name=RESOURCE)
    with grpc.insecure_channel(f"unix://{kubelet}") as channel:
        call = channel.unary_unary(
            f"/{REGISTRATION}/Register",
            request_serializer=message("RegisterRequest").SerializeToString,
            response_deserializer=message("Empty").FromString,
        )
        call(request, timeout=5.0)
    say("registered")


def serve(file: Devices, over: threading.Event) -> None:
    """Until `over`: be registered with the kubelet that is there now."""
    kubelet, ours = FOLDER / "kubelet.sock", FOLDER / ENDPOINT
    plugin: Plugin | None = None
    server: grpc.Server | None = None
    known = 0  # the kubelet's socket that we are registered with
    while not over.wait(LOOK):
        there = kubelet.stat().st_ino if kubelet.exists() else 0
        if plugin is not None:
            plugin.look()
        if not there or (there == known and ours.exists()):
            continue
        if plugin is not None and server is not None:
            plugin.end()
            server.stop(None).wait()
        ours.unlink(missing_ok=True)
        plugin = Plugin(file)
        server = grpc.server(ThreadPoolExecutor(8), handlers=(plugin.handler(),))
        server.add_insecure_port(f"unix://{ours}")
        server.start()
        try:
            register(kubelet)
            known = there
        except grpc.RpcError as error:  # it has only just begun: at the next look
            say(f"not registered: {error}")
            known = 0
    if plugin is not None and server is not None:
        plugin.end()
        server.stop(None).wait()


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    serve(Devices(Path(sys.argv[1])), ended)

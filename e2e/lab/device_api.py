"""The kubelet's device plugin API, v1beta1, as far as a plugin needs it: messages by the names and numbers of
k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto, made without generated code."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

VERSION = "v1beta1"
PLUGIN, REGISTRATION = f"{VERSION}.DevicePlugin", f"{VERSION}.Registration"

# message: its fields, in the order of their numbers; [] repeated, {} a map of texts
_MESSAGES: dict[str, dict[str, str]] = {
    "Empty": {},
    "DevicePluginOptions": {"pre_start_required": "bool", "get_preferred_allocation_available": "bool"},
    "RegisterRequest": {
        "version": "string",
        "endpoint": "string",
        "resource_name": "string",
        "options": "DevicePluginOptions",
    },
    "Device": {"ID": "string", "health": "string"},
    "ListAndWatchResponse": {"devices": "[]Device"},
    "ContainerAllocateRequest": {"devices_ids": "[]string"},
    "AllocateRequest": {"container_requests": "[]ContainerAllocateRequest"},
    "ContainerAllocateResponse": {"envs": "{}string"},
    "AllocateResponse": {"container_responses": "[]ContainerAllocateResponse"},
}
_F = descriptor_pb2.FieldDescriptorProto
_KINDS = {"bool": _F.TYPE_BOOL, "string": _F.TYPE_STRING}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="api.proto", package=VERSION, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), start=1):
            label = _F.LABEL_REPEATED if kind[:2] in ("[]", "{}") else _F.LABEL_OPTIONAL
            plain = kind.removeprefix("[]")
            if kind.startswith("{}"):
                plain = f"{name}.{field.capitalize()}Entry"
                entry = message.nested_type.add(name=plain.rpartition(".")[2])
                entry.options.map_entry = True
                for at, part in enumerate(("key", "value"), start=1):
                    entry.field.add(name=part, number=at, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
            added = message.field.add(name=field, number=number, label=label)
            added.type = _KINDS.get(plain, _F.TYPE_MESSAGE)
            if added.type == _F.TYPE_MESSAGE:
                added.type_name = f".{VERSION}.{plain}"
    return file


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_file())


def message(name: str) -> Any:
    """The class of a message: message("Device")(ID="GPU-1", health="Healthy")."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{VERSION}.{name}"))

"""Kubelet's gRPC messages and services, declared from their published field numbers.

    k8s.io/kubelet/pkg/apis/pluginregistration/v1     how a plugin introduces itself
    k8s.io/kubelet/pkg/apis/dra/v1                    preparing the devices of claims
    k8s.io/kubelet/pkg/apis/dra-health/v1alpha1       how the devices are
    k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1      extended resources, for clusters without DRA

The declarations become protobuf's descriptors when this is imported: nothing is generated. A test compares them with
Kubernetes' own .proto files where these are at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Fields = dict[str, tuple[int, str]]

# A field is its number and type: a scalar, a message of the package, "repeated TYPE" or "map TYPE" (from strings).
REGISTRATION: dict[str, Fields] = {
    "InfoRequest": {},
    "PluginInfo": {
        "type": (1, "string"),
        "name": (2, "string"),
        "endpoint": (3, "string"),
        "supported_versions": (4, "repeated string"),
    },
    "RegistrationStatus": {"plugin_registered": (1, "bool"), "error": (2, "string")},
    "RegistrationStatusResponse": {},
}
DRA: dict[str, Fields] = {
    "Claim": {"namespace": (1, "string"), "uid": (2, "string"), "name": (3, "string")},
    "Device": {
        "request_names": (1, "repeated string"),
        "pool_name": (2, "string"),
        "device_name": (3, "string"),
        "cdi_device_ids": (4, "repeated string"),
        "share_id": (5, "optional string"),
    },
    "NodePrepareResourceResponse": {"devices": (1, "repeated Device"), "error": (2, "string")},
    "NodePrepareResourcesRequest": {"claims": (1, "repeated Claim")},
    "NodePrepareResourcesResponse": {"claims": (1, "map NodePrepareResourceResponse")},
    "NodeUnprepareResourceResponse": {"error": (1, "string")},
    "NodeUnprepareResourcesRequest": {"claims": (1, "repeated Claim")},
    "NodeUnprepareResourcesResponse": {"claims": (1, "map NodeUnprepareResourceResponse")},
}
HEALTH: dict[str, Fields] = {
    "NodeWatchResourcesRequest": {},
    "DeviceIdentifier": {"pool_name": (1, "string"), "device_name": (2, "string")},
    "DeviceHealth": {
        "device": (1, "DeviceIdentifier"),
        "health": (2, "HealthStatus"),
        "last_updated_time": (3, "int64"),
        "health_check_timeout_seconds": (4, "int64"),
        "message": (5, "string"),
    },
    "NodeWatchResourcesResponse": {"devices": (1, "repeated DeviceHealth")},
}
HEALTH_STATUS = {"UNKNOWN": 0, "HEALTHY": 1, "UNHEALTHY": 2}
DEVICE_PLUGIN: dict[str, Fields] = {
    "Empty": {},
    "DevicePluginOptions": {
        "pre_start_required": (1, "bool"),
        "get_preferred_allocation_available": (2, "bool"),
    },
    "RegisterRequest": {
        "version": (1, "string"),
        "endpoint": (2, "string"),
        "resource_name": (3, "string"),
        "options": (4, "DevicePluginOptions"),
    },
    "NUMANode": {"ID": (1, "int64")},
    "TopologyInfo": {"nodes": (1, "repeated NUMANode")},
    "Device": {"ID": (1, "string"), "health": (2, "string"), "topology": (3, "TopologyInfo")},
    "ListAndWatchResponse": {"devices": (1, "repeated Device")},
    "ContainerPreferredAllocationRequest": {
        "available_deviceIDs": (1, "repeated string"),
        "must_include_deviceIDs": (2, "repeated string"),
        "allocation_size": (3, "int32"),
    },
    "PreferredAllocationRequest": {"container_requests": (1, "repeated ContainerPreferredAllocationRequest")},
    "ContainerPreferredAllocationResponse": {"deviceIDs": (1, "repeated string")},
    "PreferredAllocationResponse": {
        "container_responses": (1, "repeated ContainerPreferredAllocationResponse")
    },
    "PreStartContainerRequest": {"devices_ids": (1, "repeated string")},
    "PreStartContainerResponse": {},
    "Mount": {"container_path": (1, "string"), "host_path": (2, "string"), "read_only": (3, "bool")},
    "DeviceSpec": {"container_path": (1, "string"), "host_path": (2, "string"), "permissions": (3, "string")},
    "CDIDevice": {"name": (1, "string")},
    "ContainerAllocateRequest": {"devices_ids": (1, "repeated string")},
    "ContainerAllocateResponse": {
        "envs": (1, "map string"),
        "mounts": (2, "repeated Mount"),
        "devices": (3, "repeated DeviceSpec"),
        "annotations": (4, "map string"),
        "cdi_devices": (5, "repeated CDIDevice"),
    },
    "AllocateRequest": {"container_requests": (1, "repeated ContainerAllocateRequest")},
    "AllocateResponse": {"container_responses": (1, "repeated ContainerAllocateResponse")},
}

KIND = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "string": KIND.TYPE_STRING,
    "bool": KIND.TYPE_BOOL,
    "int32": KIND.TYPE_INT32,
    "int64": KIND.TYPE_INT64,
}


class Package:
    """The message classes of one of kubelet's packages, as attributes."""

    def __init__(self, name: str, messages: dict[str, Fields], enums: dict[str, dict[str, int]]) -> None:
        self._messages, self._enums, self._name = messages, enums, name
        file = descriptor_pb2.FileDescriptorProto(
            name=f"cotenant/{name}.proto", package=name, syntax="proto3"
        )
        for enum, values in enums.items():
            made = file.enum_type.add(name=enum)
            for word, number in values.items():
                made.value.add(name=word, number=number)
        for message, fields in messages.items():
            self._declare(file.message_type.add(name=message), fields)
        # A pool of its own: the process may have loaded Kubernetes' own declarations as well.
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        for message in messages:
            found = pool.FindMessageTypeByName(f"{name}.{message}")
            setattr(self, message, message_factory.GetMessageClass(found))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self._name} has no message {name}")

    def _declare(self, message: Any, fields: Fields) -> None:
        for name, (number, words) in fields.items():
            *labels, kind = words.split()
            field = message.field.add(name=name, number=number, label=KIND.LABEL_OPTIONAL)
            if labels == ["map"]:
                entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
                entry.options.map_entry = True
                self._declare(entry, {"key": (1, "string"), "value": (2, kind)})
                field.label, field.type = KIND.LABEL_REPEATED, KIND.TYPE_MESSAGE
                field.type_name = f".{self._name}.{message.name}.{entry.name}"
                continue
            if labels == ["repeated"]:
                field.label = KIND.LABEL_REPEATED
            if labels == ["optional"]:
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{name}")
            if kind in SCALARS:
                field.type = SCALARS[kind]
            else:
                field.type = KIND.TYPE_ENUM if kind in self._enums else KIND.TYPE_MESSAGE
                field.type_name = f".{self._name}.{kind}"


registration = Package("pluginregistration", REGISTRATION, {})
dra = Package("k8s.io.kubelet.pkg.apis.dra.v1", DRA, {})
health = Package("v1alpha1", HEALTH, {"HealthStatus": HEALTH_STATUS})
device_plugin = Package("v1beta1", DEVICE_PLUGIN, {})


@dataclass(frozen=True)
class Method:
    request: Any
    response: Any
    streams: bool = False


@dataclass(frozen=True)
class Service:
    name: str
    methods: dict[str, Method]


REGISTRATION_SERVICE = Service(
    "pluginregistration.Registration",
    {
        "GetInfo": Method(registration.InfoRequest, registration.PluginInfo),
        "NotifyRegistrationStatus": Method(
            registration.RegistrationStatus, registration.RegistrationStatusResponse
        ),
    },
)
DRA_SERVICE = Service(
    "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
    {
        "NodePrepareResources": Method(dra.NodePrepareResourcesRequest, dra.NodePrepareResourcesResponse),
        "NodeUnprepareResources": Method(
            dra.NodeUnprepareResourcesRequest, dra.NodeUnprepareResourcesResponse
        ),
    },
)
HEALTH_SERVICE = Service(
    "v1alpha1.DRAResourceHealth",
    {
        "NodeWatchResources": Method(
            health.NodeWatchResourcesRequest, health.NodeWatchResourcesResponse, streams=True
        )
    },
)
DEVICE_PLUGIN_SERVICE = Service(
    "v1beta1.DevicePlugin",
    {
        "GetDevicePluginOptions": Method(device_plugin.Empty, device_plugin.DevicePluginOptions),
        "ListAndWatch": Method(device_plugin.Empty, device_plugin.ListAndWatchResponse, streams=True),
        "GetPreferredAllocation": Method(
            device_plugin.PreferredAllocationRequest, device_plugin.PreferredAllocationResponse
        ),
        "Allocate": Method(device_plugin.AllocateRequest, device_plugin.AllocateResponse),
        "PreStartContainer": Method(
            device_plugin.PreStartContainerRequest, device_plugin.PreStartContainerResponse
        ),
    },
)
DEVICE_PLUGIN_REGISTRATION = Service(
    "v1beta1.Registration", {"Register": Method(device_plugin.RegisterRequest, device_plugin.Empty)}
)

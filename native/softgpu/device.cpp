// cuDevice*: what a device is. Nothing here talks to it.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "softgpu/driver.h"
#include "softgpu/identity.h"
#include "softgpu/machine.h"
#include "softgpu/mps_client.h"

namespace softgpu {

int device_attribute(CUdevice device, CUdevice_attribute attribute) {
    const model::DeviceSpec& spec = *device_spec(device);
    switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
            return spec.sms;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
            return spec.compute_major;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
            return spec.compute_minor;
        case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
            return pci_bus(gpu_of(machine_index(device)));
        case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
        case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
            return 0;
        case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
            return mps_client().server != 0;
        default:
            break;
    }
    const auto found = spec.attributes.find(static_cast<int>(attribute));
    return found == spec.attributes.end() ? 0 : found->second;
}

namespace {

CUresult check_device(CUdevice device) { return device_spec(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; }

CUresult copy_text(const std::string& text, char* out, int length) {
    if (!out || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    const size_t bytes = std::min(text.size(), static_cast<size_t>(length) - 1);
    std::memcpy(out, text.data(), bytes);
    out[bytes] = '\0';
    return CUDA_SUCCESS;
}

// Of the whole GPU, or of the MIG instance that the device is.
CUresult uuid_of(CUuuid* out, CUdevice device, bool of_instance) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    TRY(check_device(device));
    const int index = machine_index(device);
    const bool whole = of_instance || device_spec(device)->mig.empty();
    const Uuid uuid = whole ? device_uuid(*device_spec(device), index) : gpu_uuid(gpu_of(index));
    std::memcpy(out->bytes, uuid.data(), uuid.size());
    return CUDA_SUCCESS;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

DRIVER_API cuDeviceGet(CUdevice* device, int ordinal) {
    return entry([&] {
        if (!device) return CUDA_ERROR_INVALID_VALUE;
        TRY(check_device(ordinal));
        *device = ordinal;
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuDeviceGetCount(int* count) {
    return entry([&] {
        if (!count) return CUDA_ERROR_INVALID_VALUE;
        *count = device_count();
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuDeviceGetName(char* name, int length, CUdevice device) {
    return entry([&] {
        TRY(check_device(device));
        return copy_text(device_spec(device)->name, name, length);
    });
}

ENTRY(cuDeviceGetUuid, (CUuuid * uuid, CUdevice device), uuid_of(uuid, device, false))

ENTRY(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device), uuid_of(uuid, device, true))

DRIVER_API cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    return entry([&] {
        if (!value || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
        TRY(check_device(device));
        *value = device_attribute(device, attribute);
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuDeviceCanAccessPeer(int* can_access, CUdevice device, CUdevice peer) {
    return entry([&] {
        if (!can_access) return CUDA_ERROR_INVALID_VALUE;
        TRY(check_device(device));
        TRY(check_device(peer));
        *can_access = 0;
        return CUDA_SUCCESS;
    });
}

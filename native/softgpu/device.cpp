// cuDevice*: what a device is. Nothing here talks to it.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "softgpu/driver.h"
#include "softgpu/identity.h"

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
            return pci_bus(machine_index(device));
        case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
        case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
            return 0;
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

CUresult uuid_of(CUuuid* out, CUdevice device) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    TRY(check_device(device));
    const Uuid uuid = device_uuid(*device_spec(device), machine_index(device));
    std::memcpy(out->bytes, uuid.data(), uuid.size());
    return CUDA_SUCCESS;
}

// "domain:bus:device.function", the domain and the function being optional.
bool parse_pci_bus_id(const char* text, unsigned* domain, unsigned* bus, unsigned* slot) {
    unsigned function = 0;
    if (std::sscanf(text, "%x:%x:%x.%x", domain, bus, slot, &function) >= 3) return true;
    *domain = 0;
    return std::sscanf(text, "%x:%x.%x", bus, slot, &function) >= 2;
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

DRIVER_API cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
    return entry([&] { return uuid_of(uuid, device); });
}

DRIVER_API cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
    return entry([&] { return uuid_of(uuid, device); });
}

DRIVER_API cuDeviceGetLuid(char*, unsigned int*, CUdevice) {
    return entry([] { return CUDA_ERROR_NOT_SUPPORTED; });
}

DRIVER_API cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    return entry([&] {
        if (!value || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
        TRY(check_device(device));
        *value = device_attribute(device, attribute);
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
    return entry([&] {
        if (!major || !minor) return CUDA_ERROR_INVALID_VALUE;
        TRY(check_device(device));
        *major = device_spec(device)->compute_major;
        *minor = device_spec(device)->compute_minor;
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuDeviceGetProperties(CUdevprop* properties, CUdevice device) {
    return entry([&] {
        if (!properties) return CUDA_ERROR_INVALID_VALUE;
        TRY(check_device(device));
        const auto attribute = [device](CUdevice_attribute which) { return device_attribute(device, which); };
        properties->maxThreadsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
        properties->maxThreadsDim[0] = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
        properties->maxThreadsDim[1] = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
        properties->maxThreadsDim[2] = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
        properties->maxGridSize[0] = attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
        properties->maxGridSize[1] = attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
        properties->maxGridSize[2] = attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
        properties->sharedMemPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
        properties->totalConstantMemory = attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
        properties->SIMDWidth = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
        properties->memPitch = attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
        properties->regsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
        properties->clockRate = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
        properties->textureAlign = attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
    return entry([&] {
        TRY(check_device(device));
        return copy_text(pci_bus_id(machine_index(device)), text, length);
    });
}

DRIVER_API cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
    return entry([&] {
        if (!device || !text) return CUDA_ERROR_INVALID_VALUE;
        unsigned domain = 0, bus = 0, slot = 0;
        if (!parse_pci_bus_id(text, &domain, &bus, &slot)) return CUDA_ERROR_INVALID_VALUE;
        for (CUdevice i = 0; i < device_count(); ++i) {
            if (domain == 0 && slot == 0 && static_cast<int>(bus) == pci_bus(machine_index(i))) {
                *device = i;
                return CUDA_SUCCESS;
            }
        }
        return CUDA_ERROR_INVALID_DEVICE;
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

DRIVER_API cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute, CUdevice source, CUdevice destination) {
    return entry([&] {
        if (!value) return CUDA_ERROR_INVALID_VALUE;
        TRY(check_device(source));
        TRY(check_device(destination));
        if (source == destination) return CUDA_ERROR_INVALID_DEVICE;
        *value = 0;
        return CUDA_SUCCESS;
    });
}

DRIVER_API cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType type, CUdevice device) {
    return entry([&] {
        if (!supported || type >= CU_EXEC_AFFINITY_TYPE_MAX) return CUDA_ERROR_INVALID_VALUE;
        TRY(check_device(device));
        *supported = 0;
        return CUDA_SUCCESS;
    });
}

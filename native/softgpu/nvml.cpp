// NVML for the software GPU: what tools ask to find devices, their memory and the processes on them, their clock and
// power. NVML's header is not part of the CUDA headers this builds from, so the few types it takes are declared here.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "softgpu/clock_file.h"
#include "softgpu/engine.h"
#include "softgpu/identity.h"
#include "softgpu/machine.h"

#define NVML_API extern "C" __attribute__((visibility("default")))

namespace {

enum nvmlReturn_t : int {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_UNKNOWN = 999,
};

// A GPU, or an instance of one that is partitioned.
struct Device {
    int gpu;    // its place among the machine's GPUs
    int index;  // in machine(); of a partitioned GPU its first instance's
    bool is_partitioned;
    std::unique_ptr<softgpu::Engine> connection;  // opened when first needed
};
using nvmlDevice_t = Device*;

struct nvmlMemory_t {
    unsigned long long total, free, used;
};

struct nvmlMemory_v2_t {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct nvmlProcessInfo_t {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
};

struct nvmlPciInfo_t {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
};

struct nvmlGpuInstancePlacement_t {
    unsigned start, size;
};

struct nvmlGpuInstanceProfileInfo_v2_t {
    unsigned version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount,
        encoderCount, jpegCount, ofaCount;
    unsigned long long memorySizeMB;
    char name[96];
};

constexpr unsigned instance_profile_v2 = sizeof(nvmlGpuInstanceProfileInfo_v2_t) | 2u << 24;
constexpr unsigned most_instances = 7;
constexpr unsigned memory_v2 = sizeof(nvmlMemory_v2_t) | 2u << 24;
constexpr unsigned clocks = 4;           // nvmlClockType_t: graphics, SM, memory, video
constexpr int attribute_clock_khz = 13;  // CU_DEVICE_ATTRIBUTE_CLOCK_RATE
constexpr unsigned no_instance = 0xffffffff;
constexpr char driver_text[] = "580.00 (software)";

struct State {
    std::mutex mutex;
    int users = 0;
    std::vector<std::unique_ptr<Device>> devices;
};

State& state() {
    static State* const instance = new State;
    return *instance;
}

const model::DeviceSpec& spec_of(const Device& device) {
    return device.is_partitioned ? softgpu::machine_configuration().gpus[static_cast<size_t>(device.gpu)]
                                 : softgpu::machine()[static_cast<size_t>(device.index)];
}

bool is_instance(const Device& device) { return !spec_of(device).mig.empty(); }

// Runs an entry point's body with the lock held, once nvmlInit was called; nothing is thrown out of the library.
template <typename Body>
nvmlReturn_t initialised(Body&& body) noexcept {
    try {
        const std::lock_guard<std::mutex> lock(state().mutex);
        return state().users == 0 ? NVML_ERROR_UNINITIALIZED : body();
    } catch (const std::bad_alloc&) {
        return NVML_ERROR_MEMORY;
    } catch (...) {
        return NVML_ERROR_UNKNOWN;
    }
}

// The same for a device that exists: body(Device&, const DeviceSpec&).
template <typename Body>
nvmlReturn_t with_device(nvmlDevice_t handle, Body&& body) noexcept {
    return initialised([&] {
        for (const auto& device : state().devices) {
            if (device.get() == handle) return body(*device, spec_of(*device));
        }
        return NVML_ERROR_INVALID_ARGUMENT;
    });
}

// The same with what its clock file says, as slow as that says: body(const DeviceSpec&, const ClockFile&).
template <typename Body>
nvmlReturn_t with_clock(nvmlDevice_t handle, Body&& body) noexcept {
    return with_device(handle, [&](Device& device, const model::DeviceSpec& spec) {
        const softgpu::ClockFile said = softgpu::read_clock_file(device.index);
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(said.wait_ms));
        return said.answer ? static_cast<nvmlReturn_t>(said.answer) : body(spec, said);
    });
}

// The same with a connection to the device's process: body(Engine&, const Device&).
template <typename Body>
nvmlReturn_t connected(nvmlDevice_t handle, Body&& body) noexcept {
    return with_device(handle, [&](Device& device, const model::DeviceSpec&) {
        if (device.connection && device.connection->error() != 0) device.connection.reset();
        std::string why;
        if (!device.connection) device.connection = softgpu::Engine::connect(device.index, &why);
        if (!device.connection) return NVML_ERROR_GPU_IS_LOST;
        const nvmlReturn_t result = body(*device.connection, device);
        return device.connection->error() != 0 ? NVML_ERROR_GPU_IS_LOST : result;
    });
}

softgpu::MemoryInfo memory_of(softgpu::Engine& engine, const Device& device) {
    softgpu::MemoryInfo info = engine.memory();
    if (device.is_partitioned) info.total_bytes = info.free_bytes = spec_of(device).memory_bytes;
    return info;
}

nvmlReturn_t say(const std::string& text, char* out, unsigned length) {
    if (!out) return NVML_ERROR_INVALID_ARGUMENT;
    if (length <= text.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
    std::memcpy(out, text.c_str(), text.size() + 1);
    return NVML_SUCCESS;
}

template <typename Value, typename From>
nvmlReturn_t say(Value* out, From value) {
    if (!out) return NVML_ERROR_INVALID_ARGUMENT;
    *out = static_cast<Value>(value);
    return NVML_SUCCESS;
}

std::string uuid_of(const Device& device) {
    return device.is_partitioned ? softgpu::uuid_text(softgpu::gpu_uuid(device.gpu))
                                 : softgpu::device_uuid_text(spec_of(device), device.index);
}

template <typename Predicate>
nvmlReturn_t find_device(nvmlDevice_t* out, Predicate&& is_it) {
    return initialised([&] {
        if (!out) return NVML_ERROR_INVALID_ARGUMENT;
        for (const auto& device : state().devices) {
            if (!is_it(*device)) continue;
            *out = device.get();
            return NVML_SUCCESS;
        }
        return NVML_ERROR_NOT_FOUND;
    });
}

// A partitioned GPU has no processes of its own: its instances have.
nvmlReturn_t list_processes(nvmlDevice_t handle, unsigned* count, nvmlProcessInfo_t* out) {
    return connected(handle, [&](softgpu::Engine& engine, const Device& device) {
        if (!count) return NVML_ERROR_INVALID_ARGUMENT;
        std::vector<softgpu::ProcessUse> processes = engine.processes();
        if (device.is_partitioned) processes.clear();
        // Who only looks on, like this process, is not on the device.
        processes.erase(std::remove_if(processes.begin(), processes.end(), [](const auto& p) { return p.bytes == 0; }),
                        processes.end());
        const unsigned room = *count;
        *count = static_cast<unsigned>(processes.size());
        if (room < processes.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
        if (!out && !processes.empty()) return NVML_ERROR_INVALID_ARGUMENT;
        for (size_t i = 0; i < processes.size(); ++i) {
            out[i] = {static_cast<unsigned>(processes[i].pid), processes[i].bytes, no_instance, no_instance};
        }
        return NVML_SUCCESS;
    });
}

// The GPUs, then the instances.
void list_devices(std::vector<std::unique_ptr<Device>>& devices) {
    const auto& of = softgpu::machine_configuration().gpu_of;
    const auto add = [&](int index, bool is_partitioned) {
        devices.push_back(
            std::make_unique<Device>(Device{of[static_cast<size_t>(index)], index, is_partitioned, nullptr}));
    };
    const int count = static_cast<int>(of.size());
    for (int i = 0; i < count; ++i) {
        if (i > 0 && of[static_cast<size_t>(i)] == of[static_cast<size_t>(i) - 1]) continue;
        add(i, !softgpu::machine()[static_cast<size_t>(i)].mig.empty());
    }
    for (int i = 0; i < count; ++i) {
        if (!softgpu::machine()[static_cast<size_t>(i)].mig.empty()) add(i, false);
    }
}

nvmlReturn_t initialise() noexcept {
    try {
        const std::lock_guard<std::mutex> lock(state().mutex);
        if (softgpu::machine().empty()) return NVML_ERROR_DRIVER_NOT_LOADED;
        if (state().devices.empty()) list_devices(state().devices);
        ++state().users;
        return NVML_SUCCESS;
    } catch (...) {
        return NVML_ERROR_UNKNOWN;
    }
}

}  // namespace

NVML_API nvmlReturn_t nvmlInit_v2() { return initialise(); }

NVML_API nvmlReturn_t nvmlInitWithFlags(unsigned) { return initialise(); }

NVML_API nvmlReturn_t nvmlShutdown() {
    return initialised([] {
        if (--state().users == 0) {
            for (const auto& device : state().devices) device->connection.reset();
        }
        return NVML_SUCCESS;
    });
}

NVML_API nvmlReturn_t nvmlSystemGetDriverVersion(char* out, unsigned length) {
    return initialised([&] { return say(driver_text, out, length); });
}

NVML_API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* out) {
    return initialised([&] { return say(out, softgpu::machine_configuration().gpus.size()); });
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* out) {
    const nvmlReturn_t result = find_device(
        out, [&](const Device& device) { return !is_instance(device) && static_cast<unsigned>(device.gpu) == index; });
    return result == NVML_ERROR_NOT_FOUND ? NVML_ERROR_INVALID_ARGUMENT : result;
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* out) {
    return find_device(out, [&](const Device& device) { return uuid && uuid_of(device) == uuid; });
}

NVML_API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char* out, unsigned length) {
    return with_device(handle, [&](Device&, const model::DeviceSpec& spec) { return say(spec.name, out, length); });
}

NVML_API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char* out, unsigned length) {
    return with_device(handle,
                       [&](Device& device, const model::DeviceSpec&) { return say(uuid_of(device), out, length); });
}

NVML_API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t* out) {
    return with_device(handle, [&](Device& device, const model::DeviceSpec&) {
        if (!out) return NVML_ERROR_INVALID_ARGUMENT;
        *out = {};
        out->bus = static_cast<unsigned>(softgpu::pci_bus(device.gpu));
        const std::string place = softgpu::pci_bus_id(device.gpu);
        say(place, out->busIdLegacy, sizeof out->busIdLegacy);
        return say("0000" + place, out->busId, sizeof out->busId);
    });
}

NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t* out) {
    return connected(handle, [&](softgpu::Engine& engine, const Device& device) {
        if (!out) return NVML_ERROR_INVALID_ARGUMENT;
        const softgpu::MemoryInfo info = memory_of(engine, device);
        *out = {info.total_bytes, info.free_bytes, info.total_bytes - info.free_bytes};
        return NVML_SUCCESS;
    });
}

NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t* out) {
    return connected(handle, [&](softgpu::Engine& engine, const Device& device) {
        if (!out || out->version != memory_v2) return NVML_ERROR_INVALID_ARGUMENT;
        const softgpu::MemoryInfo info = memory_of(engine, device);
        *out = {memory_v2, info.total_bytes, 0, info.free_bytes, info.total_bytes - info.free_bytes};
        return NVML_SUCCESS;
    });
}

NVML_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned* count,
                                                              nvmlProcessInfo_t* out) {
    return list_processes(handle, count, out);
}

// MIG.

NVML_API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned* current, unsigned* pending) {
    return with_device(handle, [&](Device& device, const model::DeviceSpec&) {
        const nvmlReturn_t result = say(current, device.is_partitioned);
        return result == NVML_SUCCESS ? say(pending, device.is_partitioned) : result;
    });
}

NVML_API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t handle, unsigned* out) {
    return with_device(handle, [&](Device&, const model::DeviceSpec& spec) {
        return say(out, spec.mig_profiles.empty() ? 0 : most_instances);
    });
}

NVML_API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t handle, unsigned number, nvmlDevice_t* out) {
    return with_device(handle, [&](Device& gpu, const model::DeviceSpec&) {
        if (!out) return NVML_ERROR_INVALID_ARGUMENT;
        unsigned before = 0;
        for (const auto& device : state().devices) {
            if (!is_instance(*device) || device->gpu != gpu.gpu || before++ != number) continue;
            *out = device.get();
            return NVML_SUCCESS;
        }
        return NVML_ERROR_NOT_FOUND;
    });
}

NVML_API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t handle, nvmlDevice_t* out) {
    return with_device(handle, [&](Device& instance, const model::DeviceSpec&) {
        if (!out || !is_instance(instance)) return NVML_ERROR_INVALID_ARGUMENT;
        for (const auto& device : state().devices) {
            if (device->gpu == instance.gpu && !is_instance(*device)) *out = device.get();
        }
        return NVML_SUCCESS;
    });
}

// Here the profiles are numbered as the device file lists them. As a driver, it tells them in MIG mode only.
NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t handle, unsigned number,
                                                           nvmlGpuInstanceProfileInfo_v2_t* out) {
    return with_device(handle, [&](Device& device, const model::DeviceSpec& spec) {
        if (!out || out->version != instance_profile_v2) return NVML_ERROR_INVALID_ARGUMENT;
        if (!device.is_partitioned || number >= spec.mig_profiles.size()) return NVML_ERROR_NOT_SUPPORTED;
        const model::MigProfile& profile = spec.mig_profiles[number];
        *out = {};
        out->version = instance_profile_v2;
        out->id = static_cast<unsigned>(profile.id);
        out->sliceCount = static_cast<unsigned>(std::atoi(profile.name.c_str()));
        out->instanceCount = static_cast<unsigned>(profile.starts.size());
        out->multiprocessorCount = static_cast<unsigned>(profile.sms);
        out->memorySizeMB = profile.memory_bytes >> 20;
        return say("MIG " + profile.name, out->name, sizeof out->name);
    });
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t handle, unsigned id,
                                                                    nvmlGpuInstancePlacement_t* out, unsigned* count) {
    return with_device(handle, [&](Device& device, const model::DeviceSpec& spec) {
        if (!count) return NVML_ERROR_INVALID_ARGUMENT;
        for (const model::MigProfile& profile : spec.mig_profiles) {
            if (!device.is_partitioned || static_cast<unsigned>(profile.id) != id) continue;
            const unsigned room = *count;
            *count = static_cast<unsigned>(profile.starts.size());
            if (!out) return NVML_SUCCESS;
            if (room < *count) return NVML_ERROR_INSUFFICIENT_SIZE;
            for (unsigned i = 0; i < *count; ++i)
                out[i] = {static_cast<unsigned>(profile.starts[i]), static_cast<unsigned>(profile.size)};
            return NVML_SUCCESS;
        }
        return NVML_ERROR_NOT_SUPPORTED;
    });
}

// Clock and power. All kinds of clock are one.

NVML_API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t handle, unsigned type, unsigned* out) {
    return with_clock(handle, [&](const model::DeviceSpec& spec, const softgpu::ClockFile&) {
        if (type >= clocks) return NVML_ERROR_INVALID_ARGUMENT;
        return say(out, spec.attributes.at(attribute_clock_khz) / 1000);
    });
}

NVML_API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t handle, unsigned type, unsigned* out) {
    return with_clock(handle, [&](const model::DeviceSpec& spec, const softgpu::ClockFile& said) {
        if (type >= clocks) return NVML_ERROR_INVALID_ARGUMENT;
        return say(out, said.clock_mhz > 0 ? said.clock_mhz : spec.attributes.at(attribute_clock_khz) / 1000);
    });
}

NVML_API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t handle, unsigned* out) {
    return with_clock(handle, [&](const model::DeviceSpec&, const softgpu::ClockFile& said) {
        return said.power_w > 0 ? say(out, said.power_w * 1000) : NVML_ERROR_NOT_SUPPORTED;
    });
}

NVML_API nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t handle, unsigned* out) {
    return with_clock(handle, [&](const model::DeviceSpec& spec, const softgpu::ClockFile&) {
        return spec.power_limit_w > 0 ? say(out, spec.power_limit_w * 1000) : NVML_ERROR_NOT_SUPPORTED;
    });
}

NVML_API nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t handle, unsigned long long* out) {
    return with_clock(handle,
                      [&](const model::DeviceSpec&, const softgpu::ClockFile& said) { return say(out, said.reasons); });
}

NVML_API nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t handle, unsigned long long* out) {
    return nvmlDeviceGetCurrentClocksEventReasons(handle, out);
}

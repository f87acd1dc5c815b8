// How a device is told from the others: the same answers from the driver library and from NVML.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

#include "model/device_model.h"

namespace softgpu {

using Uuid = std::array<uint8_t, 16>;

// Depends on the device's name and its place in the machine, so that every process sees the same one.
inline Uuid device_uuid(const model::DeviceSpec& spec, int machine_index) {
    uint64_t hash = 0xcbf29ce484222325u;
    const auto mix = [&hash](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3u; };
    for (const char c : spec.name) mix(static_cast<uint8_t>(c));
    Uuid uuid{};
    for (size_t i = 0; i < uuid.size(); ++i) {
        mix(static_cast<uint8_t>(machine_index));
        uuid[i] = static_cast<uint8_t>(hash >> 56);
    }
    return uuid;
}

// As nvidia-smi and CUDA_VISIBLE_DEVICES write it.
inline std::string uuid_text(const Uuid& uuid, const char* kind = "GPU-") {
    std::string text = kind;
    for (size_t i = 0; i < uuid.size(); ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", uuid[i]);
        text += digits;
    }
    return text;
}

// Of a device of the machine, which may be a MIG instance.
inline std::string device_uuid_text(const model::DeviceSpec& spec, int machine_index) {
    return uuid_text(device_uuid(spec, machine_index), spec.mig.empty() ? "GPU-" : "MIG-");
}

inline int pci_bus(int machine_index) { return machine_index + 1; }

inline std::string pci_bus_id(int machine_index) {
    char text[16];
    std::snprintf(text, sizeof text, "0000:%02X:00.0", static_cast<unsigned>(pci_bus(machine_index)) & 0xffu);
    return text;
}

}  // namespace softgpu

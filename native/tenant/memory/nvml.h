#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace tenant {

using Uuid = std::array<uint8_t, 16>;

// What NVML says this process has on a GPU. Nothing: there is no NVML, or it does not say.
std::optional<uint64_t> nvml_bytes_of_this_process(const Uuid& gpu);

// "GPU-00010203-0405-..." and back.
void uuid_text(const uint8_t uuid[16], const char* prefix, char out[48]);
bool uuid_from_text(const char* text, uint8_t out[16]);

}  // namespace tenant

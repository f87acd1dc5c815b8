#pragma once

#include <cstdint>

namespace tenant {

// What NVML says this process has on a GPU; false: there is no NVML, or it does not say.
bool nvml_bytes_of_this_process(const uint8_t uuid[16], uint64_t* bytes);

// "GPU-00010203-0405-..." and back.
void uuid_text(const uint8_t uuid[16], const char* prefix, char out[48]);
bool uuid_from_text(const char* text, uint8_t out[16]);

}  // namespace tenant

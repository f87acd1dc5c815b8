#include "softgpu/proc_address.h"

#include <algorithm>
#include <cstring>

#include "softgpu/driver.h"

namespace softgpu {
namespace {

struct Answer {
    void* address;
    CUdriverProcAddressQueryResult status;
};

Answer look_up(const char* name, int version, bool per_thread) {
    const ProcAddress* const end = proc_addresses + proc_address_count;
    const ProcAddress* entry = std::lower_bound(
        proc_addresses, end, name, [](const ProcAddress& a, const char* b) { return std::strcmp(a.name, b) < 0; });
    Answer answer{nullptr, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND};
    for (; entry != end && std::strcmp(entry->name, name) == 0; ++entry) {
        if (entry->per_thread != per_thread) continue;
        if (entry->since <= version) {
            answer = {entry->address, CU_GET_PROC_ADDRESS_SUCCESS};
        } else if (!answer.address) {
            answer.status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        }
    }
    return answer;
}

bool valid(const char* symbol, void** address, int version, cuuint64_t flags) {
    return symbol && address && version <= driver_version &&
           (flags == CU_GET_PROC_ADDRESS_DEFAULT || flags == CU_GET_PROC_ADDRESS_LEGACY_STREAM ||
            flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

// Both may be called before cuInit.

DRIVER_API cuGetProcAddress_v2(const char* symbol, void** address, int version, cuuint64_t flags,
                               CUdriverProcAddressQueryResult* status) {
    if (!valid(symbol, address, version, flags)) return CUDA_ERROR_INVALID_VALUE;
    const Answer answer = look_up(symbol, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    *address = answer.address;
    if (status) *status = answer.status;
    return CUDA_SUCCESS;
}

DRIVER_API cuGetProcAddress(const char* symbol, void** address, int version, cuuint64_t flags) {
    if (!valid(symbol, address, version, flags)) return CUDA_ERROR_INVALID_VALUE;
    const Answer answer = look_up(symbol, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    *address = answer.address;
    return answer.address ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// NVIDIA's private tables are not here. One of our own begins with its size, as they do.
DRIVER_API cuGetExportTable(const void** table, const CUuuid* id) {
    static const struct {
        size_t bytes;
        CUresult (*driver_version)(int*);
    } ours{sizeof ours, cuDriverGetVersion};
    if (!table || !id) return CUDA_ERROR_INVALID_VALUE;
    const bool known = std::memcmp(id->bytes, "softgpu's table ", sizeof id->bytes) == 0;
    *table = known ? &ours : nullptr;
    return known ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

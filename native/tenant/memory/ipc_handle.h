// The handle that a program gets for memory that moves, in the place of the driver's own (cuIpcGetMemHandle): which
// process exports the memory, and which export of that process it is. It goes through the program's hands, so nothing
// read from it is trusted: the exporter has the size.
#pragma once

#include <cstdint>
#include <cstring>

#include "tenant/driver_calls.h"

namespace tenant {

struct IpcHandle {
    uint8_t mark[16];
    uint8_t exporter[16];  // by chance, one for each process that exports
    uint64_t key;          // by chance, one for each allocation
    uint32_t pid;          // of the exporter, for people
    uint8_t unused[20];

    static constexpr uint8_t kMark[16] = {0xc0, 0x7e, 0x9a, 0x47, 0x5d, 0x1e, 0xb3, 0x02,
                                          0x8f, 0x61, 0xd4, 0x2c, 0xe9, 0x35, 0x70, 0xab};

    bool same_export(const IpcHandle& other) const {
        return memcmp(exporter, other.exporter, sizeof exporter) == 0 && key == other.key;
    }
};
static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle));

// False: it is the driver's.
inline bool read_ipc_handle(const CUipcMemHandle& handle, IpcHandle* out) {
    memcpy(out, &handle, sizeof *out);
    return memcmp(out->mark, IpcHandle::kMark, sizeof out->mark) == 0;
}

}  // namespace tenant

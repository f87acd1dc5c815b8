// The handle that a program gets for memory that moves, in the place of the driver's own (cuIpcGetMemHandle): which
// process lends the memory, and which loan of that process it is. It goes through the program's hands, so nothing that
// is read from it is taken for true: the lender has the size.
#pragma once

#include <cstdint>
#include <cstring>

#include "tenant/driver_calls.h"

namespace tenant {

struct LoanHandle {
    uint8_t mark[16];
    uint8_t lender[16];  // by chance, one for each process that lends
    uint64_t key;        // by chance, one for each allocation
    uint32_t pid;        // of the lender, for people
    uint8_t unused[20];

    static constexpr uint8_t kMark[16] = {0xc0, 0x7e, 0x9a, 0x47, 0x5d, 0x1e, 0xb3, 0x02,
                                          0x8f, 0x61, 0xd4, 0x2c, 0xe9, 0x35, 0x70, 0xab};

    bool same_loan(const LoanHandle& other) const {
        return memcmp(lender, other.lender, sizeof lender) == 0 && key == other.key;
    }
};
static_assert(sizeof(LoanHandle) == sizeof(CUipcMemHandle));

// False: it is the driver's.
inline bool read_loan(const CUipcMemHandle& handle, LoanHandle* out) {
    memcpy(out, &handle, sizeof *out);
    return memcmp(out->mark, LoanHandle::kMark, sizeof out->mark) == 0;
}

}  // namespace tenant

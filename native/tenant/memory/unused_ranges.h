// Ranges of memory that the program holds but does not use now, such as those that a framework's allocator keeps free
// for later: an eviction need not save them. Only the program knows them: the mover asks a helper inside the program,
// which has 200 ms to answer.
#pragma once

#include "tenant/memory/eviction.h"

namespace tenant {

// None where there is no helper, or it is not quick enough. Valid until the next call.
UnusedRanges ask_for_unused_ranges();

// For the helper (src/cotenant/guest/torch.py).
extern "C" {
// Waits until the next question; its number, or 0 after `timeout_ms`.
__attribute__((visibility("default"))) uint32_t cotenant_memory_question(uint32_t timeout_ms);
// The answer: `count` pairs of address and bytes.
__attribute__((visibility("default"))) void cotenant_memory_unused(uint32_t question, const uint64_t* ranges,
                                                                   uint32_t count);
}

}  // namespace tenant

// Pinned host memory for what leaves the GPU: taken in blocks, kept for the next time, and never more than the budget
// that all tenants share. The budget is held as quotas are (memory_quota.h): each adds what it takes to its own slot,
// then sums up all live slots, and takes its addition back where that is too much.
//
// Pages are touched before the driver is asked to pin them: pinning untouched pages would hold its lock for long. To
// get them from the kernel takes longer than to pin them. So blocks are kept ready, whose pages the kernel has back as
// soon as anybody needs them; these do not count.
#pragma once

#include <cstdint>

#include "tenant/memory/fresh_blocks.h"
#include "wire/wire.h"

// A multiple of 2 MiB. Tests have smaller ones.
#ifndef HOST_BLOCK_BYTES
#define HOST_BLOCK_BYTES (uint64_t{32} << 20)
#endif

namespace tenant {

class HostPool {
 public:
    static constexpr uint64_t kBlock = HOST_BLOCK_BYTES;
    static constexpr uint64_t kBetweenLooksNs = 1000000000;

    void use(wire::Segment* segment, wire::Slot* slot) {
        segment_ = segment;
        slot_ = slot;
    }

    // For a leave: claims so much of the budget, all or nothing, and says why not; then has more and more of it as it
    // is needed; `settle` gives back what was not. A context is current.
    bool claim(uint64_t bytes, wire::Refusal* why);
    bool have(uint64_t bytes);
    void settle();

    // For later leaves: gets the pages of one block more ready, which takes a while and calls no driver, if there are
    // less than `bytes` so far. False: nothing to do, or not to be had.
    bool ready(uint64_t bytes);
    // Likewise, but only what nobody will miss; for some programs there is no such memory.
    bool ready_spare(uint64_t bytes);
    void keep_none_ready() { keeps_ready_ = false; }
    // Those that the kernel has needed are ready no more.
    void forget_what_was_taken();
    // And has one more of them, which takes least after its pages were touched.
    void touch_next();
    bool prepare(uint64_t bytes);
    // Keeps no more than so much.
    void shrink_to(uint64_t bytes);

    // Whether the budget has room for so much of one's own.
    bool fits(uint64_t bytes) const;
    uint64_t bytes() const { return count_ * kBlock; }
    uint64_t ready_bytes() const { return ready_ * kBlock; }
    uint64_t kept() const { return bytes() + ready_bytes(); }
    char* at(uint64_t offset) const { return blocks_[offset / kBlock] + offset % kBlock; }
    // How much from there on lies in one piece: a copy must not cross from one block to the next.
    static uint64_t piece(uint64_t offset) { return kBlock - offset % kBlock; }

    void forget_in_child();

 private:
    bool take_from_budget(uint64_t blocks);
    bool make_room(uint64_t blocks);
    uint64_t spare_bytes();
    char* next_block();
    bool add_block();

    wire::Segment* segment_ = nullptr;
    wire::Slot* slot_ = nullptr;
    char** blocks_ = nullptr;  // those that are pinned, then those that are ready
    uint64_t count_ = 0, ready_ = 0, claimed_ = 0, room_ = 0;
    bool keeps_ready_ = true;
    uint64_t spare_bytes_ = 0, looked_ns_ = 0;  // what there was when it last looked
    FreshBlocks fresh_{kBlock};
};

// What all tenants may pin together: the knob, else a quarter of the machine's memory.
uint64_t host_budget(const wire::Segment& segment);

}  // namespace tenant

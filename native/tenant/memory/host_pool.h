// Pinned host memory for what is evicted: taken in blocks, kept for the next time, and never more than the budget
// that all tenants share. The budget is held as quotas are (quota.h): each adds what it takes to its own slot,
// then sums up all live slots, and takes its addition back where that is too much.
//
// Pages are touched before the driver is asked to pin them: pinning untouched pages would hold its lock for long.
#pragma once

#include <cstdint>

#include "tenant/driver_calls.h"
#include "tenant/growing_array.h"
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

    void use(wire::Segment* segment, wire::Slot* slot) {
        segment_ = segment;
        slot_ = slot;
    }

    // For an eviction: claims so much of the budget, all or nothing, and says why not; then has more and more of it as
    // it is needed; `settle` gives back what was not. A context is current.
    bool claim(uint64_t bytes, wire::Refusal* why);
    bool have(uint64_t bytes);
    void settle();

    // For later evictions: touches the pages of one block more, which takes a while and calls no driver,
    void touch_block();
    // and has that one, if all is less than `bytes` so far. False: nothing to do, or not to be had.
    bool prepare(uint64_t bytes);
    // Gives one block back where it has more than so much, and has others to give.
    bool give_back_one(uint64_t bytes);
    // The blocks that were pinned in it, in which nothing is: the driver has let them go.
    void forget_context(CUcontext context);

    // Whether the budget, and the machine, have space for so much of one's own.
    bool fits(uint64_t bytes) const;
    uint64_t bytes() const { return blocks_.count() * kBlock; }
    char* at(uint64_t offset) const { return blocks_[offset / kBlock].pages + offset % kBlock; }
    // How much from there on lies in one piece: a copy must not cross from one block to the next.
    static uint64_t piece(uint64_t offset) { return kBlock - offset % kBlock; }

    void forget_in_child();

 private:
    struct Block {
        char* pages;
        CUcontext context;  // that it was pinned in
    };

    bool take_from_budget(uint64_t blocks);
    bool add_block();
    void drop(size_t i);

    wire::Segment* segment_ = nullptr;
    wire::Slot* slot_ = nullptr;
    GrowingArray<Block> blocks_;
    char* touched_ = nullptr;  // the next one's pages
    uint64_t claimed_ = 0;     // blocks of the budget that are not had yet
    FreshBlocks fresh_{kBlock};
};

// What all tenants may pin together: the knob, else a quarter of the machine's memory.
uint64_t host_budget(const wire::Segment& segment);

}  // namespace tenant

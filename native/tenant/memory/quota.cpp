#include "tenant/memory/quota.h"

#include <cstring>

#include "tenant/amounts.h"
#include "wire/segment.h"
#include "wire/shared_segment.h"

// A process may be killed between any two stores: tests define this to be killed at each place in turn.
#ifndef FAULT_POINT
#define FAULT_POINT()
#endif

namespace tenant {

namespace {

bool is_no_run(const uint8_t run_id[16]) {
    for (int i = 0; i < 16; ++i)
        if (run_id[i]) return false;
    return true;
}

// The truth about the own slot.
struct Own {
    std::atomic<const wire::Slot*> slot{nullptr};
    std::atomic<uint64_t> limit{0};
    std::atomic<uint64_t> bytes[wire::kGpus]{};
    std::atomic<uint64_t> evicted[wire::kGpus]{};
    // Changes of `bytes` and of what the slot shows, which are made one after the other.
    std::atomic<uint64_t> begun{0}, ended{0};
} own;

bool is_own(const wire::Slot& slot) { return own.slot.load(std::memory_order_relaxed) == &slot; }

uint64_t limit_of(const wire::Slot& slot) {
    return (is_own(slot) ? own.limit : slot.memory_limit).load(std::memory_order_relaxed);
}

uint64_t bytes_of(const wire::Slot& slot, int gpu, uint64_t total) {
    return is_own(slot) ? own.bytes[gpu].load() : credible(slot.gpus[gpu].memory_bytes.load(), total);
}

uint64_t evicted_of_other(const wire::Slot& slot, int gpu, uint64_t total) {
    return is_own(slot) ? 0 : credible(slot.memory[gpu].evicted_bytes.load(), total);
}

template <class Do>
void for_each_live(wire::Segment& segment, Do&& act) {
    uint64_t words[wire::kSlotWords];
    if (wire::is_shared(segment)) wire::look_around(segment);
    wire::members(segment, words);
    for (int word = 0; word < wire::kSlotWords; ++word)
        for (uint64_t bits = words[word]; bits; bits &= bits - 1) {
            wire::Slot& slot = segment.slot(word * 64 + __builtin_ctzll(bits));
            if (wire::is_live(slot)) act(slot);
        }
}

template <class Do>
void for_each_process(wire::Segment& segment, const uint8_t run_id[16], Do&& act) {
    for_each_live(segment, [&](wire::Slot& slot) {
        if (memcmp(slot.run_id, run_id, sizeof slot.run_id) == 0) act(slot);
    });
}

}  // namespace

uint64_t parse_memory_limit(const char* text) {
    uint64_t share = parse_share(text);
    return share ? kShareOfGpu | share : parse_size(text);
}

uint64_t limit_in_bytes(uint64_t limit, uint64_t total) {
    if (limit == 0) return kNoLimit;
    if (!(limit & kShareOfGpu)) return limit;
    return static_cast<uint64_t>(static_cast<double>(total) * static_cast<double>(limit & ~kShareOfGpu) / 1e6);
}

uint64_t memory_limit(const wire::Slot& slot, uint64_t total) { return limit_in_bytes(limit_of(slot), total); }

uint64_t memory_used(wire::Segment& segment, const uint8_t run_id[16], int gpu, uint64_t total) {
    uint64_t used = 0;
    for_each_process(segment, run_id, [&](wire::Slot& slot) { used += bytes_of(slot, gpu, total); });
    return used;
}

uint64_t memory_used(wire::Segment& segment, const wire::Slot& slot, int gpu, uint64_t total) {
    uint64_t used = bytes_of(slot, gpu, total);
    // A process that was not started by `run` is a run by itself.
    if (is_no_run(slot.run_id)) return used;
    for_each_process(segment, slot.run_id, [&](wire::Slot& other) {
        if (&other != &slot) used += bytes_of(other, gpu, total);
    });
    return used;
}

uint64_t memory_allocated(wire::Segment& segment, const wire::Slot& slot, int gpu, uint64_t total) {
    uint64_t allocated = memory_used(segment, slot, gpu, total);
    if (is_no_run(slot.run_id)) return allocated;
    for_each_process(segment, slot.run_id,
                     [&](wire::Slot& other) { allocated += evicted_of_other(other, gpu, total); });
    return allocated;
}

wire::Slot* process_of(wire::Segment& segment, const uint8_t run_id[16], const wire::Slot* but) {
    wire::Slot* found = nullptr;
    if (is_no_run(run_id)) return nullptr;
    for_each_process(segment, run_id, [&](wire::Slot& slot) {
        if (&slot != but) found = &slot;
    });
    return found;
}

uint64_t users_memory_limit(wire::Segment& segment, uint64_t total) {
    const wire::Attached& here = wire::attached(segment);
    if (!wire::is_shared(segment)) return kNoLimit;
    return limit_in_bytes(wire::imposed_memory_limit(segment, here.uid, here.gid), total);
}

uint64_t memory_allocated_by_user(wire::Segment& segment, int gpu, uint64_t total) {
    uint64_t used = 0;
    uid_t user = wire::attached(segment).uid;
    for_each_live(segment, [&](wire::Slot& slot) {
        if (slot.uid == user) used += bytes_of(slot, gpu, total) + evicted_of_other(slot, gpu, total);
    });
    return used;
}

bool has_own_memory_limit(const wire::Slot& slot) { return limit_of(slot) != 0; }

bool has_memory_limit(wire::Segment& segment, const wire::Slot& slot) {
    return has_own_memory_limit(slot) || users_memory_limit(segment, 1) != kNoLimit;
}

bool take_memory(wire::Segment& segment, wire::Slot& slot, int gpu, uint64_t bytes, uint64_t limit,
                 uint64_t users_limit, uint64_t total) {
    if (bytes > limit || bytes > users_limit) return false;
    count_memory(slot, gpu, bytes);
    FAULT_POINT();
    bool fits = (limit == kNoLimit || memory_allocated(segment, slot, gpu, total) <= limit) &&
                (users_limit == kNoLimit || memory_allocated_by_user(segment, gpu, total) <= users_limit);
    if (fits || bytes == 0) return true;
    FAULT_POINT();
    give_memory(slot, gpu, bytes);
    return false;
}

uint64_t memory_of_process(const wire::Slot& slot, int gpu, uint64_t total) { return bytes_of(slot, gpu, total); }

void count_memory(wire::Slot& slot, int gpu, uint64_t bytes) {
    own.begun.fetch_add(1);
    if (is_own(slot)) own.bytes[gpu].fetch_add(bytes);
    FAULT_POINT();
    slot.gpus[gpu].memory_bytes.fetch_add(bytes);
    own.ended.fetch_add(1);
    FAULT_POINT();
}

void give_memory(wire::Slot& slot, int gpu, uint64_t bytes) { count_memory(slot, gpu, 0 - bytes); }

void show_evicted(wire::Slot& slot, int gpu, uint64_t bytes) {
    own.evicted[gpu].store(bytes);
    slot.memory[gpu].evicted_bytes.store(bytes);
}

void own_quota(wire::Slot& slot, uint64_t limit) {
    for (auto& bytes : own.bytes) bytes.store(0);
    for (auto& bytes : own.evicted) bytes.store(0);
    own.begun.store(0);
    own.ended.store(0);
    own.slot.store(&slot);
    change_memory_limit(slot, limit);
}

void change_memory_limit(wire::Slot& slot, uint64_t limit) {
    own.limit.store(limit);
    slot.memory_limit.store(limit);
    slot.limit_check.store(wire::check_of(limit));
}

void mend_quota(wire::Slot& slot) {
    uint64_t limit;
    if (!read_memory_limit(slot, &limit) || limit != own.limit.load()) change_memory_limit(slot, own.limit.load());
    for (int gpu = 0; gpu < wire::kGpus; ++gpu) {
        uint64_t shown = slot.memory[gpu].evicted_bytes.load(), bytes = own.evicted[gpu].load();
        if (shown != bytes) slot.memory[gpu].evicted_bytes.compare_exchange_strong(shown, bytes);
    }
    // While a change is under way the two differ rightly. One that begins after the last look at `begun` does no harm:
    // it has changed the slot, and nothing is exchanged; or it has not, and adds itself to what was put right.
    uint64_t begun = own.begun.load();
    if (begun != own.ended.load()) return;
    for (int gpu = 0; gpu < wire::kGpus; ++gpu) {
        uint64_t bytes = own.bytes[gpu].load(), shown = slot.gpus[gpu].memory_bytes.load();
        if (bytes != shown && own.begun.load() == begun)
            slot.gpus[gpu].memory_bytes.compare_exchange_strong(shown, bytes);
    }
}

bool read_memory_limit(const wire::Slot& slot, uint64_t* limit) {
    *limit = slot.memory_limit.load();
    return slot.limit_check.load() == wire::check_of(*limit);
}

}  // namespace tenant

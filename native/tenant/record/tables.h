// Tables that the launch path of a recorded job writes and the recorder's thread reads: no lock, no allocation.
#pragma once

#include <atomic>
#include <cstdint>

#include "tenant/record/op_timer.h"
#include "tenant/record/trace_file.h"
#include "tenant/word.h"

namespace tenant {

// Many write, one reads, and who finds it full drops what he has.
template <class Item, uint64_t kPlaces>
class Ring {
 public:
    Ring() {
        for (uint64_t i = 0; i < kPlaces; ++i) places_[i].turn.store(i, std::memory_order_relaxed);
    }

    bool put(const Item& item) {
        uint64_t at = tail_.load(std::memory_order_relaxed);
        for (;;) {
            Place& place = places_[at % kPlaces];
            uint64_t turn = place.turn.load(std::memory_order_acquire);
            if (turn == at) {
                if (!tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) continue;
                place.item = item;
                place.turn.store(at + 1, std::memory_order_release);
                return true;
            }
            if (turn < at) return false;
            at = tail_.load(std::memory_order_relaxed);
        }
    }
    // The oldest; null where there is none, or it is still being written.
    const Item* front() const {
        const Place& place = places_[head_ % kPlaces];
        return place.turn.load(std::memory_order_acquire) == head_ + 1 ? &place.item : nullptr;
    }
    void drop_front() {
        places_[head_ % kPlaces].turn.store(head_ + kPlaces, std::memory_order_release);
        ++head_;
    }

 private:
    struct Place {
        std::atomic<uint64_t> turn;
        Item item;
    };
    alignas(64) std::atomic<uint64_t> tail_{0};
    alignas(64) uint64_t head_ = 0;
    Place places_[kPlaces];
};

// Found by key; entered by whoever comes first, who then fills it in and calls it ready. Never removed: an entry whose
// key has come to mean something else is retired, and stays for those that point to it.
template <class Entry, uint32_t kPlaces>
class KeyedTable {
 public:
    struct Found {
        Entry* entry;  // null: the table is full
        bool is_new;
    };

    Found find_or_enter(uint64_t key) {
        key = usable(key);
        for (uint32_t tries = 0; tries < kTries; ++tries) {
            Entry& entry = place(key, tries);
            uint64_t there = entry.key.load(std::memory_order_acquire);
            if (there == 0 && entry.key.compare_exchange_strong(there, key)) return {&entry, true};
            if (there == key) return {&entry, false};
        }
        return {nullptr, false};
    }
    void retire(uint64_t key) {
        key = usable(key);
        for (uint32_t tries = 0; tries < kTries; ++tries)
            if (place(key, tries).key.load() == key) place(key, tries).key.store(kRetired);
    }

 private:
    static constexpr uint64_t kRetired = 1;
    static constexpr uint32_t kTries = 64;
    static uint64_t usable(uint64_t key) { return key > kRetired ? key : key + 2; }
    Entry& place(uint64_t key, uint32_t tries) { return entries_[((key >> 32 ^ key) + tries) % kPlaces]; }

    Entry entries_[kPlaces];
};

struct RecordedShape {
    std::atomic<uint64_t> key{0};
    std::atomic<uint32_t> ready{0};
    std::atomic<uint32_t> operations{0};
    // Filled in before it is ready.
    TraceKind kind{};
    Direction direction{};
    unsigned int grid[3]{}, block[3]{};
    unsigned int shared_bytes = 0, blocks_per_sm = 0, sms = 0, nodes = 0;
    unsigned int registers = 0, static_shared_bytes = 0;  // of a kernel, a thread and a block; 0: not known, or none
    uint64_t bytes = 0;
    const char* name = nullptr;
    uint32_t name_length = 0;
    // The recorder's thread's own.
    uint32_t number = 0;  // 1 + its number in the file; 0: not there yet
    bool has_news = false;
    Timing timing;
};

struct RecordedStream {
    std::atomic<uint64_t> key{0};
    std::atomic<uint32_t> ready{0};
    Word<int> gpu = 0;    // also read by threads that find the stream before it is ready
    uint32_t number = 0;  // as above
};

struct RecordedGpu {
    std::atomic<uint32_t> state{0};  // 1: being filled in, 2: ready
    char name[128] = {};
    uint8_t uuid[16] = {};
    int sms = 0;
    uint64_t memory_bytes = 0;
    unsigned int memory_gbps = 0;  // what its memory's clock and width come to; 0: not known
    bool is_written = false;
};

struct RecordedOperation {
    uint64_t time_ns;
    uint64_t wait_ns;
    uint64_t bytes;
    RecordedShape* shape;
    RecordedStream* stream;
    uint16_t thread;
    TraceKind kind;
    Direction direction;
};

// How much each address holds, so that a free can say what it gives back. Under its owner's lock.
class AllocationSizes {
 public:
    // What has no place is not known.
    void enter(uint64_t address, uint64_t bytes) {
        if (!address || used_ > kPlaces / 4 * 3) return;
        uint32_t at = place_of(address);
        used_ += places_[at].address == 0;
        places_[at] = {address, bytes};
    }
    uint64_t take(uint64_t address) {  // 0: not known
        uint32_t at = place_of(address);
        if (!address || !places_[at].address) return 0;
        uint64_t bytes = places_[at].bytes;
        // What comes behind moves up, unless it is at home or between there and the gap.
        uint32_t gap = at;
        for (uint32_t next = (at + 1) % kPlaces; places_[next].address; next = (next + 1) % kPlaces) {
            uint32_t from_home = (next - home(places_[next].address)) % kPlaces;
            if (from_home < (next - gap) % kPlaces) continue;
            places_[gap] = places_[next];
            gap = next;
        }
        places_[gap] = {};
        --used_;
        return bytes;
    }

 private:
    static constexpr uint32_t kPlaces = 1 << 16;
    struct Place {
        uint64_t address = 0, bytes = 0;
    };
    static uint32_t home(uint64_t address) {
        return static_cast<uint32_t>(address * 0x9e3779b97f4a7c15u >> 40) % kPlaces;
    }
    // Where it is, or where it would be.
    uint32_t place_of(uint64_t address) const {
        uint32_t at = home(address);
        while (places_[at].address && places_[at].address != address) at = (at + 1) % kPlaces;
        return at;
    }
    Place places_[kPlaces];
    uint32_t used_ = 0;
};

}  // namespace tenant

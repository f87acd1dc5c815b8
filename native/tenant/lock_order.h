// Every lock of the tenant, in the order in which a thread takes them: one that holds a lock waits only for locks that
// stand below it here. Trying a lock without waiting is allowed at any time: the watcher, the mover and the recorder
// only try those whose holder may be in the driver. The one lock of wire/ (shared_segment.cpp) stands below them all.
//
// A build with COTENANT_CHECK_LOCKS ends the program where a thread takes one out of order.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

// LOCK(name, what is done while it is held)
#define TENANT_LOCKS(LOCK)                                                                                        \
    LOCK(opening_driver, "the first CUDA call opens the driver, whose own start-up makes ioctls")                 \
    LOCK(recorder_start, "the first recorded call starts the recorder's thread")                                  \
    LOCK(joining, "the first work joins the segment and waits for the watcher to have a slot")                    \
    LOCK(recorded_events, "a context of a recorded job ends, as below")                                           \
    LOCK(residence, "movable memory is allocated, freed and moved; a context ends, which takes the locks below")  \
    LOCK(gated_graphs, "an exec is updated, for which its gates are mapped")                                      \
    LOCK(membership, "streams, captures and gates change; a primary context is released, and its memory counted") \
    LOCK(meeting_device, "the first use of a device measures what the driver has taken of it")                    \
    LOCK(driver_memory, "NVML is asked and compared with the ledger")                                             \
    LOCK(ledger, "an allocation is entered or leaves")                                                            \
    LOCK(lanes, "a lane is opened: for a moment")                                                                 \
    LOCK(ipc_import, "for a moment; also around a fork, before ipc_export")                                       \
    LOCK(ipc_export, "for a moment; also around a fork")                                                          \
    LOCK(unused_ranges, "for a moment")                                                                           \
    LOCK(recorded_sizes, "for a moment")                                                                          \
    LOCK(fresh_blocks, "host memory is handed from the threads that touch it to the mover")                       \
    LOCK(detour, "a kernel is launched, or streams come home (detour.h)")                                         \
    LOCK(time_slices, "taken in ioctl, which the driver and NVML call under any of the above")

namespace tenant {

enum class Rank : uint8_t {
#define LOCK(name, what) name,
    TENANT_LOCKS(LOCK)
#undef LOCK
};

#ifdef COTENANT_CHECK_LOCKS

// What this thread holds.
class HeldLocks {
 public:
    // It is about to wait for this one.
    static void waits_for(const void* lock, Rank rank, bool recursive) {
        for (int i = 0; i < count_; ++i)
            if (held_[i].lock == lock && recursive) return;
        for (int i = 0; i < count_; ++i) {
            if (held_[i].rank < rank) continue;
            fprintf(stderr, "cotenant: lock order: %s is taken while %s is held (native/tenant/lock_order.h)\n",
                    name_of(rank), name_of(held_[i].rank));
            abort();
        }
    }
    static void has(const void* lock, Rank rank) {
        if (count_ == kMost) abort();
        held_[count_++] = {lock, rank};
    }
    static void gives(const void* lock) {
        if (!take(lock)) abort();
    }
    // In a forked child it is held by nobody.
    static void forgets(const void* lock) {
        while (take(lock)) continue;
    }

 private:
    static bool take(const void* lock) {
        for (int i = count_; i-- > 0;) {
            if (held_[i].lock != lock) continue;
            for (--count_; i < count_; ++i) held_[i] = held_[i + 1];
            return true;
        }
        return false;
    }
    static const char* name_of(Rank rank) {
        static const char* const names[] = {
#define LOCK(name, what) #name " (" what ")",
            TENANT_LOCKS(LOCK)
#undef LOCK
        };
        return names[static_cast<int>(rank)];
    }

    struct Held {
        const void* lock;
        Rank rank;
    };
    static constexpr int kMost = 32;
    static inline thread_local Held held_[kMost] = {};
    static inline thread_local int count_ = 0;
};

#else

struct HeldLocks {
    static void waits_for(const void*, Rank, bool) {}
    static void has(const void*, Rank) {}
    static void gives(const void*) {}
    static void forgets(const void*) {}
};

#endif

}  // namespace tenant

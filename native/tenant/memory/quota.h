// What a tenant may take of each GPU's memory, and the taking itself, on shared memory alone.
//
// Every process adds what it takes to its own slot and then sums up the live slots of its tenant; if that is over the
// limit it takes its addition back. So of two that race for the last bytes one sees the other: both may be refused, but
// never do both go over. There is no lock to be left held, and what a killed process had added goes with its slot.
#pragma once

#include "wire/wire.h"

namespace tenant {

// As a limit stands in a slot: bytes or, with this bit, millionths of each GPU's memory. 0: none.
constexpr uint64_t kShareOfGpu = uint64_t{1} << 63;
constexpr uint64_t kNoLimit = UINT64_MAX;

// A size or a share (amounts.h); 0 for nothing said, "none", and what is neither.
uint64_t parse_memory_limit(const char* text);

// The limit that holds for a slot's owner on a GPU with `total` bytes: all that decides about memory asks here.
uint64_t memory_limit(const wire::Slot& slot, uint64_t total);
bool has_own_memory_limit(const wire::Slot& slot);
uint64_t limit_in_bytes(uint64_t limit, uint64_t total);

// What a slot counts on a GPU with `total` bytes (0: not known), if a process can have as much; else it is garbage, and
// counts as nothing. Managed memory may be several times the GPU's.
inline uint64_t credible(uint64_t bytes, uint64_t total) { return total && bytes / 8 > total ? 0 : bytes; }

// What the tenant of this slot has taken on a GPU with `total` bytes: its live processes together.
uint64_t memory_used(wire::Segment& segment, const wire::Slot& slot, int gpu, uint64_t total);
uint64_t memory_used(wire::Segment& segment, const uint8_t run_id[16], int gpu, uint64_t total);
// Likewise, with what the others of them have evicted: it is allocated, and will be on the GPU again.
uint64_t memory_allocated(wire::Segment& segment, const wire::Slot& slot, int gpu, uint64_t total);
// The limit that an administrator has set (wire/shared_segment.h) for all processes of this process's user together,
// and what they have allocated: with what others than this process have evicted.
uint64_t users_memory_limit(wire::Segment& segment, uint64_t total);
uint64_t memory_allocated_by_user(wire::Segment& segment, int gpu, uint64_t total);
// Whether there is a limit of either kind.
bool has_memory_limit(wire::Segment& segment, const wire::Slot& slot);

// From now on this is the process's own slot. Its limit and what it counts are kept in private memory too, and what
// stands in the slot is only shown: whatever is written there, no allocation fails by it.
void own_quota(wire::Slot& slot, uint64_t limit);
void change_memory_limit(wire::Slot& slot, uint64_t limit);
// Writes again what was overwritten; the watcher's, now and then.
void mend_quota(wire::Slot& slot);
// What another process of the run has in its slot, if it is good.
bool read_memory_limit(const wire::Slot& slot, uint64_t* limit);
// A live process of this tenant, other than `but`; null: none.
wire::Slot* process_of(wire::Segment& segment, const uint8_t run_id[16], const wire::Slot* but);

// False: it would be over a limit, and nothing was taken. `total`: as above.
bool take_memory(wire::Segment& segment, wire::Slot& slot, int gpu, uint64_t bytes, uint64_t limit,
                 uint64_t users_limit = kNoLimit, uint64_t total = 0);
uint64_t memory_of_process(const wire::Slot& slot, int gpu, uint64_t total);
// What the driver has taken already is counted, limit or not.
void count_memory(wire::Slot& slot, int gpu, uint64_t bytes);
void give_memory(wire::Slot& slot, int gpu, uint64_t bytes);
// What of the own memory is evicted now. To be shown before it is given, and until it is counted again.
void show_evicted(wire::Slot& slot, int gpu, uint64_t bytes);

}  // namespace tenant

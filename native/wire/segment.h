// Making, opening and taking part in a segment. All failures are a line of text; nothing here prints or throws.
#pragma once

#include <string>

#include "wire/wire.h"

namespace wire {

// Creates the file if it is missing (whole or not at all) and maps it. Null with `why` set: no such folder, no
// room, not ours, another version.
Segment* create_or_open_segment(const char* path, std::string* why);
Segment* open_segment(const char* path, std::string* why);
void close_segment(Segment* segment);

uint64_t now_ns();
// Whether an owner with this heartbeat has been stopped.
bool is_stale(Segment& segment, uint64_t heartbeat_ns);

// Takes a free or lost slot for the calling thread, which must live as long as the tenant. -1: all are taken.
int take_slot(Segment& segment);
void leave_slot(Segment& segment, int index);
// Frees the slots whose owners died, and opens what they kept closed. Returns how many.
int bury_the_dead(Segment& segment);

// The number of a GPU in this segment, entered on first use. -1: the table is full.
int gpu_number(Segment& segment, const uint8_t uuid[16]);

void join_class(Segment& segment, int index, Class tenant_class);
// Whether any tenant of a class above has work on this GPU.
bool must_yield(Segment& segment, uint32_t tenant_class, int gpu);
// The edge from idle to busy: says so, with a fresh heartbeat, then closes the gates below.
void go_busy(Segment& segment, int index, int gpu);
// Closes the gates below `tenant_class` on this GPU; the caller has set its own `busy` before.
void close_gates_below(Segment& segment, uint32_t tenant_class, int gpu);
// Recomputes the gates below `tenant_class` on this GPU after somebody of it went idle.
void reopen_gates_below(Segment& segment, uint32_t tenant_class, int gpu);
void refresh_gate(Segment& segment, int index, int gpu);

}  // namespace wire

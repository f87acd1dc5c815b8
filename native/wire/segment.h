// Creating, opening and joining a segment. Every failure is a line of text; nothing here prints or throws.
#pragma once

#include <string>

#include "wire/identity.h"
#include "wire/wire.h"

namespace wire {

// Creates the file if it is missing (whole or not at all) and maps it. A folder is an administrator's segment for
// several users (shared_segment.h); there the following functions do what they can without writing another user's slot.
// Null with `why` set: no such folder, no space, not ours, another version.
Segment* create_or_open_segment(const char* path, std::string* why);
Segment* open_segment(const char* path, std::string* why);
void close_segment(Segment* segment);

// Takes a free or lost slot for the calling thread, which must live as long as the tenant. -1: all are taken. A process
// that has several slots opens the segment for each, and signs all but its first as a thread.
int take_slot(Segment& segment, Self signer = Self::process);
void leave_slot(Segment& segment, int index);
// Called by the owner now and then: writes the slot's identity again where it was overwritten. False: the slot was
// given to another process meanwhile, which shares it until it leaves.
bool keep_slot(Segment& segment, int index);
// Reaps the slots whose owners died or that are abandoned, and opens the gates that they kept closed. Returns how many.
int reap_slots(Segment& segment);

// The number of a GPU in this segment, entered on first use. -1: the table is full, or an administrator's without it.
int gpu_number(Segment& segment, const uint8_t uuid[16]);

// Joins this class, or the highest that the administrator grants.
void join_class(Segment& segment, int index, Class wanted);
uint32_t best_class_of_own(Segment& segment);
// Bit i: slot i is a live tenant, of whatever class.
void members(Segment& segment, uint64_t words[kSlotWords]);

}  // namespace wire

// A segment for several users, created by an administrator (docs/two-users.md). Its path names a folder on a tmpfs:
//
//   header      one page; only the administrator writes it: knobs, policy, the GPUs, the grants
//   slots/N     one page: slot N, created and written by the user whose process it is
//
// A process maps the header and its own slot, each at its place in Segment. The pages of the other slots are private
// memory, into which the process copies their files. So no user can write another user's slot, and no user can make
// another user's load fail, as truncating a mapped file would. Each tenant therefore computes its own gate and no
// other. The owner of the slot's file is the slot's user, whatever the slot claims. No symbolic link is followed.
//
// A tenant reads the other slots while it has work that may have to wait for theirs, and when it needs memory; an idle
// tenant reads nothing. A tenant that waits for memory, or has allocated much of it, rings the header's bell to wake
// the tenants that could be evicted.
//
// Order. A tenant that becomes busy stores its own flag and then reads the other slots, with a full fence in between
// (look_at_rivals), since the kernel copies the other pages with plain loads. Of two tenants that become busy at once
// at least one sees the other.
//
// A slot's file lasts for one tenant's life. It appears with its owner in it. A process removes it only while it holds
// a lock (flock) on it, so that a name stays with its file until then.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <string>

#include "wire/attached.h"
#include "wire/wire.h"

namespace wire {

// The default place of an administrator's segment; null: there is none that belongs to root.
const char* default_shared_segment();

// Whether it lies at a default place and belongs neither to the user nor to root. A segment that is named explicitly is
// another matter.
bool is_strangers(const char* path, const struct stat& about);
Segment* open_shared_segment(const char* folder, std::string* why);
// The header's file of a new one; the rest is folders (cotenant.segment.folder).
bool create_shared_header(const char* file, std::string* why);

// As take_slot and leave_slot do it.
// `begin` makes the slot its owner's, before others can find it.
using BeginSlot = void (*)(Segment&, int);
int take_shared_slot(Segment& segment, BeginSlot begin);
void leave_shared_slot(Segment& segment, int index);
// Reads which slots have come, gone and changed, and reaps the slots of dead owners where this user may. Returns how
// many.
int look_around(Segment& segment);
// Reads the slots of the tenants that this one may have to wait for. Sparingly: in an eighth of the time, or once in a
// millisecond.
enum class Look { now, sparing };
void look_at_rivals(Segment& segment, int index, Look how);
// Wakes the waiters at the bell, at most every 5 ms. A tenant that is not waiting just then misses it.
void ring_bell(Segment& segment);
// Whether it rang.
bool wait_at_bell(Segment& segment, uint64_t ns);

// Copies what a controller has written into the copy of a slot into the slot. False: this user may not.
bool steer_shared_slot(Segment& segment, int index, int gpu);

// The user's grants: the highest class allowed; the memory limit, 0 for none.
uint32_t best_class(Segment& segment, uid_t uid, gid_t gid);
uint64_t imposed_memory_limit(Segment& segment, uid_t uid, gid_t gid);

}  // namespace wire

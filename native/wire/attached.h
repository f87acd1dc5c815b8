// What a process keeps about a segment that it has open: private memory, right behind the mapping.
#pragma once

#include <pthread.h>
#include <sys/types.h>
#include <time.h>

#include "wire/identity.h"
#include "wire/owner.h"
#include "wire/wire.h"

namespace wire {

struct Attached {
    char folder[3072];           // empty: the segment is one file, of one user
    std::atomic<pid_t> process;  // whose lock it is
    pthread_mutex_t lock;
    Hold hold;      // of its slot
    Identity self;  // that it has signed with
    int own;        // the slot that this process has or had; -1: none
    uid_t uid;
    gid_t gid;
    uint32_t highest_class;               // that an identity file allows this process (native/tenant/identity_file.h)
    ino_t file;                           // of its slot
    uint64_t present[kSlotWords];         // bit i: there is a file for slot i
    uint64_t read_ns[kSlots];             // when it was last read
    timespec changed;                     // when the slots' folder was, before these were listed
    off_t folder_size;                    // then
    Count members[kClasses][kSlotWords];  // as in Header
    uint64_t next_look_ns, next_round_ns;
    std::atomic<uint64_t> rung_ns;  // the bell, by this process
    alignas(
        Slot) char read[sizeof(Slot)];  // under the lock: a slot's file, for which a thread's stack may be too small
};
inline size_t mapped_bytes() {
    return segment_bytes() + (sizeof(Attached) + place_bytes() - 1) / place_bytes() * place_bytes();
}

inline Attached& attached(Segment& segment) {
    return *reinterpret_cast<Attached*>(reinterpret_cast<char*>(&segment) + segment_bytes());
}
inline bool is_shared(Segment& segment) { return attached(segment).folder[0] != 0; }

// Memory for a segment, nothing mapped into it yet. Null: none.
Segment* reserve_segment();

// Which slots are live tenants of which class: in the header, or, where that is an administrator's, as this process has
// found them.
using Members = Count[kClasses][kSlotWords];
inline Members& members_of(Segment& segment) {
    return is_shared(segment) ? attached(segment).members : segment.header.members;
}

}  // namespace wire

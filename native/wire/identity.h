// The process that owns a slot, for readers that can see it: its number, its start time and its PID namespace.
#pragma once

#include "wire/wire.h"

namespace wire {

struct Identity {
    uint32_t pid;
    uint64_t started;  // in clock ticks since boot (field 22 of /proc/PID/stat)
    uint64_t pid_namespace;
};

// Of the calling process; or of the calling thread: its number and start time, which are no other's either, and by
// which /proc and kill find its process.
enum class Self { process, thread };
Identity own_identity(Self self = Self::process);

// The slot's identity, if its check word agrees. False: it is garbage, or not signed yet.
bool read_identity(const Slot& slot, Identity* out);
void write_identity(Slot& slot, const Identity& identity);

// Whether it is certain that there is no such process: it would be in our own PID namespace and is not.
bool is_gone(const Identity& identity);
// Whether a slot only looks live: its heartbeat is old, and its process is gone or never signed.
bool is_abandoned(const Slot& slot);

inline bool operator==(const Identity& a, const Identity& b) {
    return a.pid == b.pid && a.started == b.started && a.pid_namespace == b.pid_namespace;
}

}  // namespace wire

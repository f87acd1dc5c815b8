// CLOCK_MONOTONIC as the machine has it. In a time namespace, which a container may have, that clock is shifted; the
// kernel tells by how much.
#include "wire/clock.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

namespace wire {

namespace {

constexpr int64_t kNotAsked = INT64_MIN;
std::atomic<int64_t> shift_ns{kNotAsked};

// The kernel tells the shift of the namespace that children get. It is not our own after unshare() alone: then we are
// still where we were, which is taken for the machine's own.
bool children_share_ours() {
    char own[64], theirs[64];
    ssize_t own_bytes = readlink("/proc/self/ns/time", own, sizeof own);
    ssize_t their_bytes = readlink("/proc/self/ns/time_for_children", theirs, sizeof theirs);
    return own_bytes > 0 && own_bytes == their_bytes && memcmp(own, theirs, static_cast<size_t>(own_bytes)) == 0;
}

int64_t read_shift_ns() {
    if (!children_share_ours()) return 0;
    char text[256] = "";
    int fd = ::open("/proc/self/timens_offsets", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    const char* line = got > 0 ? strstr(text, "monotonic") : nullptr;
    long long seconds = 0, ns = 0;
    if (!line || sscanf(line, "monotonic %lld %lld", &seconds, &ns) != 2) return 0;
    return seconds * 1000000000 + ns;
}

}  // namespace

uint64_t now_ns() {
    int64_t shift = shift_ns.load(std::memory_order_relaxed);
    if (shift == kNotAsked) shift_ns.store(shift = read_shift_ns(), std::memory_order_relaxed);
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec) -
           static_cast<uint64_t>(shift);
}

void ask_clock_again_in_child() { shift_ns.store(kNotAsked, std::memory_order_relaxed); }

}  // namespace wire

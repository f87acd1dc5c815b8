// Sleeping: for a while, or until a word changes. Each is one system call and takes no lock, so it may be done in a
// forked child too.
#pragma once

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace wire {

constexpr uint64_t kForEver = UINT64_MAX;

inline timespec length_of(uint64_t ns) {
    return {static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
}

inline void nap(uint64_t ns) {
    timespec length = length_of(ns);
    // Not the C library's: a thread that is cancelled there would take locks of ours with it.
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &length, nullptr);
}

// 0: woken; else why not, as errno has it.
inline int wait_by(int operation, const std::atomic<uint32_t>& word, uint32_t while_equal, uint64_t ns) {
    timespec length = length_of(ns);
    return syscall(SYS_futex, &word, operation, while_equal, ns == kForEver ? nullptr : &length, nullptr, 0) ? errno
                                                                                                             : 0;
}

// At a word of this process's own memory.
inline void wait_here(const std::atomic<uint32_t>& word, uint32_t while_equal, uint64_t ns) {
    wait_by(FUTEX_WAIT_PRIVATE, word, while_equal, ns);
}
inline void wake_here(const std::atomic<uint32_t>& word) {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// At a word that other processes have too. It need not be writable here, neither to wait nor to wake.
inline int wait_shared(const std::atomic<uint32_t>& word, uint32_t while_equal, uint64_t ns) {
    return wait_by(FUTEX_WAIT, word, while_equal, ns);
}
inline void wake_shared(const std::atomic<uint32_t>& word) {
    syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace wire

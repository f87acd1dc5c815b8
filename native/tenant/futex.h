// Waiting for a word of this process's memory to change.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace tenant {

inline void wait_on(std::atomic<uint32_t>& word, uint32_t while_equal, uint64_t ns) {
    timespec length{static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, while_equal, &length, nullptr, 0);
}

inline void wake_all(std::atomic<uint32_t>& word) {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace tenant

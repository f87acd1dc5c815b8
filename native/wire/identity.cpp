#include "wire/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "wire/clock.h"

namespace wire {

namespace {

constexpr uint64_t kAbandonedNs = 2000000000;  // an owner shows itself at least every 500 ms

// 0: it cannot be read.
uint64_t start_time(const char* stat_file) {
    char text[1024];
    int fd = ::open(stat_file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    ::close(fd);
    if (got <= 0) return 0;
    text[got] = 0;
    const char* at = strrchr(text, ')');  // the name before it may hold anything
    for (int field = 2; at && field < 22; ++field) at = strchr(at + 1, ' ');
    return at ? strtoull(at, nullptr, 10) : 0;
}

// As other processes find it. The first name is that of the first thread, which began with the process: of
// /proc/self/stat qemu's emulation of a process (qemu-user) makes up its own.
uint64_t own_start_time() {
    char path[48];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", static_cast<int>(getpid()));
    uint64_t started = start_time(path);
    return started ? started : start_time("/proc/self/stat");  // where /proc is another namespace's
}

uint64_t own_pid_namespace() {
    struct stat about;
    return stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
}

}  // namespace

Identity own_identity(Self self) {
    bool is_thread = self == Self::thread;
    auto number = static_cast<uint32_t>(is_thread ? syscall(SYS_gettid) : getpid());
    return {number, is_thread ? start_time("/proc/thread-self/stat") : own_start_time(), own_pid_namespace()};
}

bool read_identity(const Slot& slot, Identity* out) {
    *out = {__atomic_load_n(&slot.pid, __ATOMIC_RELAXED), __atomic_load_n(&slot.started, __ATOMIC_RELAXED),
            __atomic_load_n(&slot.pid_namespace, __ATOMIC_RELAXED)};
    return slot.identity_check.load() == check_of(out->pid, out->started, out->pid_namespace);
}

void write_identity(Slot& slot, const Identity& identity) {
    __atomic_store_n(&slot.pid, identity.pid, __ATOMIC_RELAXED);
    __atomic_store_n(&slot.started, identity.started, __ATOMIC_RELAXED);
    __atomic_store_n(&slot.pid_namespace, identity.pid_namespace, __ATOMIC_RELAXED);
    slot.identity_check.store(check_of(identity.pid, identity.started, identity.pid_namespace));
}

bool is_gone(const Identity& identity) {
    int saved = errno;
    bool gone = false;
    if (identity.pid_namespace && identity.pid_namespace == own_pid_namespace() && identity.pid <= INT32_MAX) {
        // Not by /proc alone, where an administrator may hide the processes of other users.
        gone = identity.pid == 0 || (kill(static_cast<pid_t>(identity.pid), 0) != 0 && errno == ESRCH);
        char path[32];
        snprintf(path, sizeof path, "/proc/%u/stat", identity.pid);
        uint64_t started = gone ? 0 : start_time(path);
        gone = gone || (started && identity.started && started != identity.started);
    }
    errno = saved;
    return gone;
}

bool is_abandoned(const Slot& slot) {
    Identity identity;
    if (is_within(slot.heartbeat_ns.load(), kAbandonedNs)) return false;
    return !read_identity(slot, &identity) || is_gone(identity);
}

}  // namespace wire

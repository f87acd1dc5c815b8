// clock: a forked child whose clock is shifted has the machine's time all the same. Status 77: no such clock here.
#include "wire/clock.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../require.h"

namespace {

constexpr int kNewTime = 0x80;  // CLONE_NEWTIME, which older headers do not have
constexpr char kShift[] = "monotonic 100000 0\n";
constexpr uint64_t kHourNs = 3600u * 1000000000ull;

bool shift_childrens_clock() {
    if (unshare(kNewTime) != 0 && unshare(CLONE_NEWUSER | kNewTime) != 0) return false;
    int fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, kShift, sizeof kShift - 1) == static_cast<ssize_t>(sizeof kShift - 1);
    if (fd >= 0) close(fd);
    return done;
}

}  // namespace

int main() {
    uint64_t before = wire::now_ns();
    if (!shift_childrens_clock()) return 77;
    pid_t child = fork();
    if (child == 0) {
        wire::ask_clock_again_in_child();
        uint64_t now = wire::now_ns();
        REQUIRE(now >= before && now - before < kHourNs);
        _exit(0);
    }
    int status = 1;
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    return WEXITSTATUS(status);
}

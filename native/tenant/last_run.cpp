// Keeps what this run was like for the next one of the same job: a line at the end of the file COTENANT_LAST_RUN
// (cotenant.mps.last_runs), written when the process exits by itself.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "tenant/membership.h"
#include "tenant/membership_events.h"
#include "tenant/quiet_write.h"

namespace tenant {

namespace {

void keep() {
    Membership* membership = Membership::current_if_joined();
    const char* path = getenv("COTENANT_LAST_RUN");
    if (!membership || !path || *path != '/') return;
    // Of the GPU on which it worked most: how long it was at work, and for how much of that its streams were not empty.
    uint64_t worked = 0, filled = 0;
    for (const wire::OnGpu& gpu : membership->slot().gpus) {
        uint64_t busy = gpu.busy_ns.load();
        if (busy < worked) continue;
        worked = busy;
        filled = busy - std::min(busy, gpu.gap_ns.load());
    }
    char line[160];
    int used = snprintf(line, sizeof line, "run ");
    for (uint8_t byte : membership->terms.run_id) used += snprintf(line + used, sizeof line - used, "%02x", byte);
    used += snprintf(line + used, sizeof line - used, " %.3f %.3f %.1f\n", static_cast<double>(worked) / 1e9,
                     static_cast<double>(filled) / 1e9, static_cast<double>(membership->rest_us.load()));
    int saved = errno;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd >= 0) {
        quiet_write(fd, line, static_cast<size_t>(used));
        close(fd);
    }
    errno = saved;
}
LISTEN(AtExit, MembershipStep::last_run, keep)

}  // namespace

}  // namespace tenant

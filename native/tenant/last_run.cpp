// Keeps what this run was like for the next one of the same job: a line at the end of the file COTENANT_LAST_RUN
// (cotenant.mps.last_runs), written when the process exits by itself.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "tenant/membership.h"
#include "tenant/membership_events.h"
#include "wire/clock.h"

namespace tenant {

namespace {

std::atomic<uint64_t> joined_ns{0};

void note_beginning(wire::Segment&, wire::Slot&) { joined_ns.store(wire::now_ns()); }
LISTEN(AtJoin, MembershipStep::last_run, note_beginning)

// With work on the GPU; behind a closed gate it has none there.
uint64_t at_work_ns(const wire::OnGpu& gpu, bool is_gated) {
    if (is_gated) return gpu.used_ns.load();
    uint64_t busy = gpu.busy_ns.load();
    return busy - std::min(busy, gpu.gap_ns.load());
}

void keep() {
    Membership* membership = Membership::current_if_joined();
    const char* path = getenv("COTENANT_LAST_RUN");
    if (!membership || !path || *path != '/') return;
    bool is_gated = membership->terms.tenant_class != wire::production;
    uint64_t most = 0, lasted = wire::now_ns() - joined_ns.load();
    for (const wire::OnGpu& gpu : membership->slot().gpus) most = std::max(most, at_work_ns(gpu, is_gated));
    char line[160];
    int used = snprintf(line, sizeof line, "run ");
    for (uint8_t byte : membership->terms.run_id) used += snprintf(line + used, sizeof line - used, "%02x", byte);
    used += snprintf(line + used, sizeof line - used, " %.3f %.3f\n", static_cast<double>(lasted) / 1e9,
                     static_cast<double>(most) / 1e9);
    int saved = errno;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd >= 0) {
        if (write(fd, line, static_cast<size_t>(used)) < 0) errno = 0;
        close(fd);
    }
    errno = saved;
}
LISTEN(AtExit, MembershipStep::last_run, keep)

}  // namespace

}  // namespace tenant

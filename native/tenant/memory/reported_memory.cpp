#include "tenant/memory/reported_memory.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "tenant/identity_file.h"
#include "tenant/lazy.h"
#include "tenant/membership.h"
#include "tenant/memory/ledger.h"
#include "tenant/memory/pools.h"
#include "tenant/memory/quota.h"
#include "tenant/settings.h"

namespace tenant {

namespace {

// For a process that has no slot (yet): a monitor that a tenant started, or a program that has not begun its work.
wire::Segment* segment_of_others() {
    static Lazy<wire::Segment*> found;
    return found.get([] {
        std::string why;
        const char* path = segment_from_environment();
        return path ? wire::open_segment(path, &why) : nullptr;
    });
}

int known_gpu(wire::Segment& segment, const uint8_t uuid[16]) {
    for (int i = 0; i < wire::kGpus; ++i)
        if (segment.header.gpus[i].known.load() == wire::kGpuValid && !memcmp(segment.header.gpus[i].uuid, uuid, 16))
            return i;
    return -1;
}

struct Allowance {
    uint64_t limit = kNoLimit;
    uint64_t used = 0;

    uint64_t left() const { return limit - std::min(limit, used); }
};

// Of two limits: the smaller one, and what both of them leave. `used` of a user includes the run's.
Allowance both(const Allowance& run, const Allowance& user) {
    uint64_t limit = std::min(run.limit, user.limit);
    return {limit, std::max(run.used, limit - std::min(run.left(), user.left()))};
}

Allowance allowance(wire::Segment& segment, const wire::Slot& slot, const uint8_t uuid[16], uint64_t total) {
    int gpu = known_gpu(segment, uuid);
    return both({memory_limit(slot, total), gpu < 0 ? 0 : memory_allocated(segment, slot, gpu, total)},
                {users_memory_limit(segment, total), gpu < 0 ? 0 : memory_allocated_by_user(segment, gpu, total)});
}

Allowance allowance(const uint8_t uuid[16], uint64_t total) {
    if (Membership* membership = Membership::current_if_joined()) {
        if (!has_memory_limit(membership->segment(), membership->slot())) return {};
        settle_pools(*membership);
        return allowance(membership->segment(), membership->slot(), uuid, total);
    }
    Allowance run{limit_in_bytes(parse_memory_limit(setting("COTENANT_MEMORY")), total), 0};
    wire::Segment* segment = segment_of_others();
    if (!segment) return run;
    uint8_t run_id[16] = {};
    run_id_from_environment(run_id);
    if (wire::Slot* process = process_of(*segment, run_id, nullptr)) return allowance(*segment, *process, uuid, total);
    int gpu = known_gpu(*segment, uuid);
    return both(run,
                {users_memory_limit(*segment, total), gpu < 0 ? 0 : memory_allocated_by_user(*segment, gpu, total)});
}

}  // namespace

bool limit_report(const uint8_t uuid[16], ReportedMemory* report) {
    Allowance allowed = allowance(uuid, report->total);
    if (allowed.limit == kNoLimit) return false;
    report->used = allowed.used;
    report->total = std::min(report->total, allowed.limit);
    report->free = std::min(report->free, allowed.limit - std::min(allowed.limit, allowed.used));
    return true;
}

bool limit_report(CUdevice device, ReportedMemory* report) {
    CUuuid uuid;
    return driver.cuDeviceGetUuid_v2(&uuid, device) == CUDA_SUCCESS &&
           limit_report(reinterpret_cast<const uint8_t*>(uuid.bytes), report);
}

bool limit_report_here(ReportedMemory* report) {
    CUdevice device = 0;
    // What its context has taken is no longer free, also before the first allocation.
    place_of_current_context();
    return driver.cuCtxGetDevice(&device) == CUDA_SUCCESS && limit_report(device, report);
}

}  // namespace tenant

// The memory that the driver takes by itself, and the tenant's limit.
//
// Contexts, modules, printf buffers and the like are the driver's own allocations; no call reports how large they are.
// NVML reports what the process has on the GPU altogether, so the rest is the driver's. The process asks NVML when it
// first uses a GPU, and then once a second, but only in a tenant with a limit. Where NVML does not know the process,
// the driver's memory counts as nothing.
#include <cstring>
#include <optional>

#include "tenant/fork.h"
#include "tenant/identity_file.h"
#include "tenant/locked.h"
#include "tenant/membership.h"
#include "tenant/membership_events.h"
#include "tenant/memory/ledger.h"
#include "tenant/memory/nvml.h"
#include "tenant/memory/pools.h"
#include "tenant/memory/quota.h"
#include "tenant/own_thread.h"

namespace tenant {

namespace {

constexpr uint64_t kMeasureEveryNs = 1000000000;

std::atomic<uint32_t> measured_gpus{0};
uint64_t limit_then = 0, last_measured_ns = 0;  // the watcher's
uint64_t drivers_bytes[wire::kGpus];            // as shown in the slot; under the lock
Lock lock{Rank::driver_memory};

void forget_in_child() {
    lock.renew();
    measured_gpus.store(0);
    last_measured_ns = 0;
}
LISTEN(AtFork, ForkStep::driver_memory, forget_in_child)

enum class When { now, if_quiet };

// `now` is a thread of the program.
std::optional<uint64_t> ask_nvml(Membership& membership, int gpu, When when) {
    Uuid uuid;
    memcpy(uuid.data(), membership.segment().header.gpus[gpu].uuid, uuid.size());
    auto ask = [uuid] { return nvml_bytes_of_this_process(uuid); };
    return when == When::now ? find_on_own_thread(ask) : ask();
}

// False: something was being allocated meanwhile, so that the two figures are not of one moment.
bool measure(Membership& membership, int gpu, When when) {
    wire::Slot& slot = membership.slot();
    settle_pools(membership);
    uint64_t before = UnderWay::moment();
    std::optional<uint64_t> bytes = ask_nvml(membership, gpu, when);
    if (!bytes) return true;
    uint64_t known = drivers_bytes[gpu];
    uint64_t counted = memory_of_process(slot, gpu, 0) - known - unseen_by_nvml(gpu);
    bool quiet = settle_pools(membership) == Change::none && before % 2 == 0 && UnderWay::moment() == before;
    if (when == When::if_quiet && !quiet) return false;
    uint64_t rest = *bytes > counted ? *bytes - counted : 0;
    drivers_bytes[gpu] = rest;
    slot.memory[gpu].driver_bytes.store(rest);
    correct({&membership, 0, gpu}, known, rest);
    return true;
}

// An administrator's identity file has the last word: nothing raises a limit that stands there, and a share of the GPU
// is taken for as much as the file allows.
uint64_t within_identity(uint64_t limit) {
    uint64_t most = has_identity_file() ? parse_memory_limit(setting("COTENANT_MEMORY")) : 0;
    bool is_smaller = limit && !((limit | most) & kShareOfGpu) && limit < most;
    return most && !is_smaller ? most : limit;
}

// The limit that this tenant has by now, or that COTENANT_MEMORY says.
void begin(wire::Segment& segment, wire::Slot& slot) {
    // What `cotenant ctl` has set holds for processes that come later, too.
    wire::Slot* other = process_of(segment, slot.run_id, &slot);
    uint64_t limit;
    if (!other || !read_memory_limit(*other, &limit)) limit = parse_memory_limit(setting("COTENANT_MEMORY"));
    own_quota(slot, within_identity(limit));
    for (uint64_t& bytes : drivers_bytes) bytes = 0;
}
LISTEN(AtJoin, MembershipStep::driver_memory, begin)

void measure_first(Membership& membership, int gpu) {
    bool first = !(measured_gpus.fetch_or(1u << gpu) >> gpu & 1);
    if (!first || !has_memory_limit(membership.segment(), membership.slot())) return;
    Locked locked(lock);
    measure(membership, gpu, When::now);
}
LISTEN(AtFirstUse, FirstUseStep::driver_memory, measure_first)

void look(Membership& membership, uint64_t now_ns) {
    wire::Slot& slot = membership.slot();
    mend_quota(slot);
    if (uint64_t limit = memory_limit(slot, 1 << 20); limit != limit_then) {
        limit_then = limit;
        last_measured_ns = 0;
    }
    settle_pools(membership);
    if (!has_memory_limit(membership.segment(), slot) || now_ns - last_measured_ns < kMeasureEveryNs) return;
    if (!lock.try_lock()) return;
    bool done = true;
    for (uint32_t gpus = measured_gpus.load(); gpus; gpus &= gpus - 1)
        done &= measure(membership, __builtin_ctz(gpus), When::if_quiet);
    lock.unlock();
    if (done) last_measured_ns = now_ns;
}
LISTEN(AtLook, MembershipStep::driver_memory, look)

void take_request(Membership& membership, const wire::Asked& asked) {
    if (asked.memory) change_memory_limit(membership.slot(), within_identity(asked.memory - 1));
}
LISTEN(AtRequest, MembershipStep::driver_memory, take_request)

}  // namespace

}  // namespace tenant

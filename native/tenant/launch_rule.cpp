#include "tenant/launch_rule.h"

#include <algorithm>

#include "admission/rules.h"
#include "tenant/driver_calls.h"
#include "tenant/relaxed.h"
#include "tenant/timeline.h"
#include "wire/border.h"
#include "wire/clock.h"
#include "wire/launched.h"
#include "wire/sleep.h"

namespace tenant {

namespace {

// Of an operation that was never timed, which may end after anything of production's; and what it counts for among what
// is outstanding.
constexpr float kLongUs = 2 * wire::kLongestLeftNs / 1000, kUncountedUs = 100;
constexpr uint64_t kNapNs = 20000;
// A launch is held no longer: production may wait for what this very program does, in ways that nobody sees.
constexpr uint64_t kLongestNs = 10000000000;

using Launched = wire::Slot::Launched;

uint32_t sms_of(CUdevice device) {
    static std::atomic<uint32_t> known[wire::kGpus];
    std::atomic<uint32_t>* place = device >= 0 && device < wire::kGpus ? &known[device] : nullptr;
    if (uint32_t sms = place ? place->load(std::memory_order_relaxed) : 0) return sms;
    int sms = 0;
    if (driver.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) != CUDA_SUCCESS) return 1;
    if (place) place->store(static_cast<uint32_t>(std::max(sms, 1)), std::memory_order_relaxed);
    return static_cast<uint32_t>(std::max(sms, 1));
}

// The driver and the profile are asked once for a shape.
Durations::Fill fill_of(Membership& membership, Shape shape, const KernelSize& size, CUdevice device, uint32_t sms) {
    Durations& durations = membership.durations;
    Durations::Fill known = durations.fill_of(shape);
    if (known.sms) return known;
    Durations::Fill found{sms, 0};
    KernelProfile profile = profile_of(device, size);
    if (size.function) {
        int fit = 0;
        auto* function = static_cast<CUfunction>(const_cast<void*>(size.function));
        Relaxed relaxed;
        bool is_told = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                           &fit, function, static_cast<int>(size.threads()), size.shared_bytes) == CUDA_SUCCESS;
        uint64_t blocks_per_sm = is_told && fit > 0 ? static_cast<uint64_t>(fit) : 1;
        found.sms =
            static_cast<uint32_t>(std::clamp<uint64_t>((size.blocks() + blocks_per_sm - 1) / blocks_per_sm, 1, sms));
        found.bound = profile.bound;
        wire::Slot& slot = membership.slot();
        (profile.is_there ? slot.profiled_kernels : slot.unprofiled_kernels).fetch_add(1, std::memory_order_relaxed);
    }
    durations.note_fill(shape, found);
    if (durations.estimate(shape) < 0) durations.learn(shape, profile.us);
    return found;
}

void announce(Launched& own, const admission::Operation& operation, uint64_t now) {
    own.bound.store(static_cast<uint32_t>(operation.bound), std::memory_order_relaxed);
    own.sms.store(static_cast<uint32_t>(operation.sms), std::memory_order_relaxed);
    own.launched_ns.store(now, std::memory_order_relaxed);
    float us = operation.us < kLongUs ? operation.us : kUncountedUs;
    uint64_t before = own.ends_ns.load(std::memory_order_relaxed);
    own.ends_ns.store(std::max(before, now) + static_cast<uint64_t>(us * 1000), std::memory_order_relaxed);
}

void subtract(wire::Flag& word, uint32_t part) {
    uint32_t before = word.load(std::memory_order_relaxed);
    while (!word.compare_exchange_weak(before, before - std::min(before, part), std::memory_order_relaxed)) {
    }
}

// The stream's part of what the tenant has on the GPU, once all of it is done.
void settle(Membership& membership, StreamState& state, Launched& own) {
    if (!state.progress_word || membership.progress.in_flight_us(state) > 0) return;
    subtract(own.operations, state.launched.operations.exchange(0));
    subtract(own.sms, state.launched.sms.exchange(0));
    subtract(own.outstanding_us, state.launched.us.exchange(0));
}

void count(StreamState& state, Launched& own, const admission::Operation& operation) {
    auto us = static_cast<uint32_t>(std::max(operation.us < kLongUs ? operation.us : kUncountedUs, 1.0f));
    auto sms = static_cast<uint32_t>(operation.sms);
    state.launched.operations.fetch_add(1);
    state.launched.sms.fetch_add(sms);
    state.launched.us.fetch_add(us);
    own.operations.fetch_add(1);
    own.sms.fetch_add(sms);
    own.outstanding_us.fetch_add(us);
    state.queued_ns.fetch_add(uint64_t{us} * 1000, std::memory_order_relaxed);
}

bool may_go(Membership& membership, int gpu, uint32_t sms, const admission::Operation& operation) {
    wire::Segment& segment = membership.segment();
    uint32_t rule = wire::rule_of(segment.header);
    // Another policy may have come meanwhile, and what is queued must end before the tenant's memory can go.
    if (!admission::is_asked_live(rule) || membership.slot().residence.where.load() == wire::evicting) return true;
    wire::Sides sides = wire::sides_of(segment, membership.index(), gpu, wire::now_ns());
    admission::Moment moment;
    moment.operation = operation;
    moment.tenant.tenant_class = wire::class_of(membership.slot());
    moment.gpu.sms = static_cast<float>(sms);
    moment.gpu.production = sides.production;
    moment.gpu.below = sides.below;
    moment.gpu.production.copies = sides.production.with_work && membership.bus.has(gpu);
    moment.gpu.free_sms = std::max(moment.gpu.sms - sides.production.sms - sides.below.sms, 0.0f);
    float parameters[admission::kParameters];
    wire::parameters_of(segment.header, parameters);
    // A policy does not know how many SMs this GPU has.
    if (rule == admission::orion)
        parameters[admission::modelled::orion::kSmThreshold] =
            std::min(parameters[admission::modelled::orion::kSmThreshold], moment.gpu.sms);
    return admission::decide(rule, moment, parameters) == admission::Verdict::go;
}

}  // namespace

void LaunchRule::ask(Membership& membership, StreamState& state, bool is_copy, Shape shape, const KernelSize& size,
                     float us) {
    CUdevice device = -1;
    uint32_t sms = driver.cuCtxGetDevice(&device) == CUDA_SUCCESS ? sms_of(device) : 1;
    Durations::Fill fill = is_copy ? Durations::Fill{0, 0} : fill_of(membership, shape, size, device, sms);
    if (us < 0) us = membership.durations.estimate(shape);
    admission::Operation operation;
    operation.kind = is_copy         ? admission::Kind::copy_to_device
                     : size.function ? admission::Kind::kernel
                                     : admission::Kind::graph;
    operation.bound = static_cast<admission::Bound>(fill.bound);
    operation.us = us < 0 ? kLongUs : us;
    operation.sms = static_cast<float>(fill.sms);
    Launched& own = membership.slot().launched[state.gpu];
    if (wire::class_of(membership.slot()) == wire::production) {
        if (!is_copy) announce(own, operation, wire::now_ns());
        return;
    }
    membership.gate_of(state);  // with it come the words in which streams report how far they are
    settle(membership, state, own);
    if (!may_go(membership, state.gpu, sms, operation)) {
        timeline::Interval waiting(timeline::Event::launch_wait, state.gpu);
        uint64_t began = wire::now_ns();
        do {
            if (state.progress_word && !membership.progress.mark_is_ahead(state)) Progress::put_mark(state);
            wire::nap(kNapNs);
            settle(membership, state, own);
            if (wire::now_ns() - began > kLongestNs) {
                membership.slot().gpus[state.gpu].figures.escaped.fetch_add(1, std::memory_order_relaxed);
                break;
            }
        } while (!membership.is_leaving() && !may_go(membership, state.gpu, sms, operation));
    }
    if (!is_copy) count(state, own, operation);
}

void LaunchRule::saw_empty(Membership& membership, int gpu) {
    Launched& own = membership.slot().launched[gpu];
    own.operations.store(0, std::memory_order_relaxed);
    own.outstanding_us.store(0, std::memory_order_relaxed);
    own.sms.store(0, std::memory_order_relaxed);
    own.ends_ns.store(0, std::memory_order_relaxed);
}

}  // namespace tenant

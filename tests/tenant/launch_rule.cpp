// launch_rule CASE: what a tenant says of its launches, and which of them wait, with the other tenants as a table here
// (native/tenant/launch_rule.h).
#include "tenant/launch_rule.h"

#include <cstring>

#include "../require.h"
#include "admission/rules.h"
#include "membership_inside.h"
#include "wire/launched.h"

namespace {

using namespace tenant;

CUdevice device = 0;
int asked_device = 0, asks = 0;
wire::Sides sides;
float parameters[admission::kParameters];
KernelProfile profile;

}  // namespace

// What the rooms around would say. Whoever asks a second time has waited, and may go.
namespace tenant {

DriverCalls driver;
Membership* Membership::join() { return nullptr; }
CUdeviceptr Membership::map_gate_of(StreamState& state) { return state.gate; }
KernelProfile profile_of(CUdevice, const KernelSize&) { return profile; }

}  // namespace tenant
wire::Sides wire::sides_of(Segment&, int, int, uint64_t) {
    if (asks++) sides = {};
    return sides;
}
void wire::parameters_of(const Header&, float out[admission::kParameters]) {
    memcpy(out, parameters, sizeof parameters);
}

namespace {

using admission::Bound;
using Launched = wire::Slot::Launched;

constexpr uint64_t kMs = 1000000;
constexpr float kMuch = 1e9;
constexpr float kLongUs = 16384000;  // nothing that follows comes so late

Membership membership;
wire::Slot slot;
alignas(wire::Segment) char memory[sizeof(wire::Segment)];
auto& segment = *new (memory) wire::Segment;
StreamState *first, *second;  // on GPU 0 and 1

StreamState* enter(uintptr_t number, int gpu) {
    auto* state = membership.streams.enter(number, reinterpret_cast<CUstream>(number), nullptr, gpu);
    state->gate = 1 << 20;
    state->progress_word = 2 << 20;
    return state;
}

// GPU 0 has 132 SMs, and GPU 1 has 16.
void begin(wire::Class tenant_class, uint32_t rule) {
    driver.cuCtxGetDevice = [](CUdevice* out) { return *out = device, CUDA_SUCCESS; };
    driver.cuDeviceGetAttribute = [](int* out, CUdevice_attribute, CUdevice of) {
        ++asked_device;
        return *out = of ? 16 : 132, CUDA_SUCCESS;
    };
    driver.cuOccupancyMaxActiveBlocksPerMultiprocessor = [](int* out, CUfunction, int, size_t) {
        return *out = 2, CUDA_SUCCESS;
    };
    driver.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
    driver.cuStreamBatchMemOp_v2 = [](CUstream, unsigned int, CUstreamBatchMemOpParams*, unsigned int) {
        return CUDA_SUCCESS;
    };
    MembershipInside::give_slot(membership, slot, &segment);
    slot.tenant_class.store(tenant_class);
    segment.header.knobs.rule.store(rule);
    first = enter(16, 0);
    second = enter(32, 1);
}

Shape shape = 1;
// A kernel of so many blocks, of which an SM has two at once; on the GPU of its stream. Whether it waited.
bool launch(StreamState& state, unsigned int blocks, float us, bool is_copy = false, bool again = false) {
    device = state.gpu;
    asks = 0;
    KernelSize size;
    if (!is_copy) size = {&state, {blocks, 1, 1}, {32, 1, 1}, 0};
    // Each but those that come again has a shape of its own, so that nothing is remembered.
    if (!again) ++shape;
    LaunchRule::ask(membership, state, is_copy, shape << 32, size, us);
    return asks > 1;
}
bool copies(StreamState& state) { return launch(state, 0, 100, true); }
void all_is_done(StreamState& state) {
    auto* words = static_cast<std::atomic<uint32_t>*>(membership.progress.words());
    words[state.number].store(Progress::passed(Progress::mark_of(state)));
}
void beside(admission::Side production, admission::Side below = {}) { sides = {production, below}; }
admission::Side busy(float sms, float left_us = 0, Bound bound = Bound::unknown) {
    admission::Side side;
    side.with_work = side.running = 1;
    side.sms = sms;
    side.left_us = left_us;
    side.bound = bound;
    return side;
}

// Production waits for nothing, and says what it has launched last and when all of it will have ended.
void production() {
    begin(wire::production, admission::orion);
    const Launched &here = slot.launched[0], &there = slot.launched[1];
    beside(busy(132), busy(132));
    REQUIRE(!launch(*first, 101, kLongUs) && asks == 0);
    REQUIRE(here.sms.load() == 51 && here.operations.load() == 0 && here.bound.load() == 0 && there.sms.load() == 0);
    uint64_t ends = here.ends_ns.load(), launched = here.launched_ns.load();
    REQUIRE(ends == launched + static_cast<uint64_t>(kLongUs) * 1000);
    profile = {true, static_cast<uint32_t>(Bound::memory), 2000};
    launch(*first, 1000, -1);
    profile = {};
    REQUIRE(here.sms.load() == 132 && here.ends_ns.load() == ends + 2 * kMs);
    REQUIRE(here.bound.load() == static_cast<uint32_t>(Bound::memory));
    // What was never timed counts for little. A copy is no kernel.
    ends = here.ends_ns.load(), launched = here.launched_ns.load();
    copies(*first);
    REQUIRE(here.sms.load() == 132 && here.ends_ns.load() == ends && here.launched_ns.load() == launched);
    launch(*first, 2, -1);
    REQUIRE(here.sms.load() == 1 && here.ends_ns.load() == ends + kMs / 10 && here.launched_ns.load() >= launched);
    launch(*second, 1000, 10);
    launch(*second, 1000, 10, false, true);
    REQUIRE(there.sms.load() == 16 && here.sms.load() == 1);
    REQUIRE(slot.profiled_kernels.load() == 1 && slot.unprofiled_kernels.load() == 3);
    // The device is asked once.
    REQUIRE(asked_device == 2);
    LaunchRule::saw_empty(membership, 0);
    REQUIRE(here.ends_ns.load() == 0 && here.sms.load() == 0 && there.ends_ns.load() && there.sms.load() == 16);
}

// What has been launched counts until its stream has done all of it.
void outstanding() {
    begin(wire::opportunistic, admission::orion);
    Launched &here = slot.launched[0], &there = slot.launched[1];
    parameters[0] = parameters[1] = kMuch;
    StreamState* other = enter(48, 0);
    launch(*first, 20, 300);
    launch(*first, 20, 300);
    launch(*other, 8, 50);
    launch(*second, 4, 70);
    REQUIRE(here.operations.load() == 3 && here.sms.load() == 24 && here.outstanding_us.load() == 650);
    REQUIRE(there.operations.load() == 1 && there.sms.load() == 2 && there.outstanding_us.load() == 70);
    REQUIRE(first->queued_ns.load() == 600000 && other->queued_ns.load() == 50000 && !here.ends_ns.load());
    all_is_done(*first);
    copies(*other);
    REQUIRE(here.operations.load() == 3);
    copies(*first);
    REQUIRE(here.operations.load() == 1 && here.sms.load() == 4 && here.outstanding_us.load() == 50);
    copies(*first);
    REQUIRE(here.operations.load() == 1 && here.sms.load() == 4 && here.outstanding_us.load() == 50);
    REQUIRE(there.operations.load() == 1);
    LaunchRule::saw_empty(membership, 0);
    REQUIRE(!here.operations.load() && !here.sms.load() && !here.outstanding_us.load() && there.sms.load() == 2);
    // What the watcher has seen is not subtracted once more.
    all_is_done(*other);
    copies(*other);
    REQUIRE(!here.operations.load() && !here.sms.load() && !here.outstanding_us.load());
}

void orion() {
    begin(wire::opportunistic, admission::orion);
    parameters[admission::modelled::orion::kSmThreshold] = 60;
    parameters[admission::modelled::orion::kOutstandingUs] = 500;
    beside(busy(10));
    REQUIRE(!launch(*first, 120, 10));
    beside(busy(10));
    REQUIRE(launch(*first, 122, 10));
    beside(busy(10), busy(30));
    REQUIRE(!launch(*first, 60, 10));
    beside(busy(10), busy(30));
    REQUIRE(launch(*first, 62, 10));
    // No GPU has more SMs than it has: a kernel that fills the second one fills the threshold, too.
    beside(busy(10));
    REQUIRE(!launch(*second, 1000, 10));
    beside(busy(10), busy(1));
    REQUIRE(launch(*second, 1000, 10));
    // Copies wait for production's copies on their GPU, while it has work.
    membership.bus.add(0);
    beside(busy(10));
    REQUIRE(copies(*first));
    beside(busy(10));
    REQUIRE(!copies(*second));
    beside({});
    REQUIRE(!copies(*first));
    // The same bound waits, another goes.
    profile = {true, static_cast<uint32_t>(Bound::compute), 10};
    beside(busy(10, 0, Bound::compute));
    REQUIRE(launch(*first, 2, 10));
    beside(busy(10, 0, Bound::memory));
    REQUIRE(!launch(*first, 2, 10));
    // Nobody waits whose memory has to go, nor under another rule.
    beside(busy(10, 0, Bound::compute));
    slot.residence.where.store(wire::evicting);
    REQUIRE(!launch(*first, 2, 10) && asks == 0);
    slot.residence.where.store(wire::resident);
    segment.header.knobs.rule.store(admission::strict);
    REQUIRE(!launch(*first, 2, 10) && asks == 0);
    segment.header.knobs.rule.store(admission::orion);
    REQUIRE(launch(*first, 2, 10));
}

void reef() {
    begin(wire::opportunistic, admission::reef);
    parameters[admission::modelled::reef::kAhead] = 2;
    beside(busy(100, 1000));
    REQUIRE(!launch(*first, 64, 900));
    beside(busy(100, 1000));
    REQUIRE(launch(*first, 64, 1100));
    beside(busy(100, 1000));
    REQUIRE(launch(*first, 128, 900));
    // What runs below has its SMs, too.
    beside(busy(100, 1000), busy(16));
    REQUIRE(launch(*first, 64, 900));
    beside(busy(100, 1000), busy(16));
    REQUIRE(!launch(*first, 32, 900));
    beside(busy(16, 1000));
    REQUIRE(launch(*second, 2, 10));
    // What was never timed may take longer than anything, unless a profile tells.
    beside(busy(100, 1e6));
    REQUIRE(launch(*first, 2, -1));
    profile = {true, 0, 20};
    beside(busy(100, 1000));
    REQUIRE(!launch(*first, 2, -1));
    profile = {};
    admission::Side ahead = busy(1);
    ahead.running = 2;
    beside({}, ahead);
    REQUIRE(launch(*first, 2, 10));
    ahead.running = 1;
    beside({}, ahead);
    REQUIRE(!launch(*first, 2, 10));
    REQUIRE(slot.gpus[0].figures.escaped.load() == 0);
}

}  // namespace

int main(int, char** argv) {
    if (!strcmp(argv[1], "production")) production();
    if (!strcmp(argv[1], "outstanding")) outstanding();
    if (!strcmp(argv[1], "orion")) orion();
    if (!strcmp(argv[1], "reef")) reef();
    return 0;
}

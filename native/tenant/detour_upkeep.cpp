// The watcher's part of the detour: it sees which limit holds, makes green contexts and stand-ins, and begins and ends
// the detours.
#include <algorithm>

#include "tenant/captures.h"
#include "tenant/context.h"
#include "tenant/detour_places.h"
#include "tenant/membership.h"
#include "tenant/membership_events.h"
#include "wire/border.h"
#include "wire/clock.h"

namespace tenant {

namespace detour {

namespace {

// Green contexts have SMs in groups of so many.
constexpr uint32_t kGroup = 8;
constexpr uint32_t kAll = 1000;  // thousandths

// In thousandths: what the job was told, or the policy says, whichever is less; kAll: no limit.
uint32_t limit_of(Membership& membership, int gpu, uint64_t now_ns) {
    if (wire::class_of(membership.slot()) == wire::production) return kAll;
    uint32_t told = membership.terms.sms ? membership.terms.sms : kAll;
    wire::OnGpu& here = membership.slot().gpus[gpu];
    uint32_t policys = wire::holds_until(here.sms_until_ns, now_ns) ? here.sms.load() : 0;
    return std::min({told, policys ? policys : kAll, kAll});
}

// Where the driver does not say, all is taken to fit, and the driver is asked of each kernel.
uint32_t attribute(CUdevice device, CUdevice_attribute which) {
    int value = 0;
    return direct.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS && value > 0
               ? static_cast<uint32_t>(value)
               : 1u << 16;
}

// The number of its green context; -1: there is none, or none can be made now.
int green_for(CUdevice device, uint32_t thousandths) {
    CUdevResource whole{}, part{}, rest{};
    if (direct.cuDeviceGetDevResource(device, &whole, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS) {
        refuse(no_green_contexts);
        return -1;
    }
    uint32_t all = whole.sm.smCount;
    auto wanted = static_cast<uint32_t>(uint64_t{all} * thousandths / kAll) / kGroup * kGroup;
    wanted = std::max(wanted, kGroup);
    if (wanted >= all) return -1;
    Green* spare = nullptr;
    for (Green& one : places.greens) {
        if (one.handle && one.device == device && one.sms == wanted) return static_cast<int>(&one - places.greens);
        if (!one.handle && !spare) spare = &one;
    }
    if (!spare) return -1;
    unsigned int groups = 1;
    CUdevResourceDesc description = nullptr;
    if (direct.cuDevSmResourceSplitByCount(&part, &groups, &whole, &rest, 0, wanted) != CUDA_SUCCESS || groups != 1 ||
        direct.cuDevResourceGenerateDesc(&description, &part, 1) != CUDA_SUCCESS ||
        direct.cuGreenCtxCreate(&spare->handle, description, device, CU_GREEN_CTX_DEFAULT_STREAM) != CUDA_SUCCESS) {
        spare->handle = nullptr;
        refuse(no_green_contexts);
        return -1;
    }
    spare->device = device;
    spare->most_blocks = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
    spare->most_threads = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    spare->sms = part.sm.smCount;
    spare->all = all;
    return static_cast<int>(spare - places.greens);
}

// Only streams of a device's primary context: a green context is a part of that one.
bool can_have_stand_in(const StreamState& state, CUdevice device) {
    CUcontext primary = nullptr, owner = nullptr;
    CUgreenCtx green = nullptr;
    if (driver.cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS) return false;
    direct.cuDevicePrimaryCtxRelease_v2(device);
    if (primary != state.context) return false;
    return state.is_legacy() ||
           (driver.cuStreamGetCtx_v2(state.handle, &owner, &green) == CUDA_SUCCESS && owner == primary && !green);
}

Place* make_place(const StreamState& state, CUdevice device) {
    StreamKey key = state.key.load();
    if (Place* known = places.find(key)) return known;
    auto* end = places.all + kMostStreams;
    Place* place = std::find_if(places.all, end, [](const Place& one) { return one.key.load() == kNoStream; });
    if (place == end || !can_have_stand_in(state, device)) return nullptr;
    unsigned int flags = 0;
    place->in_legacy_order = state.is_legacy() || direct.cuStreamGetFlags(state.handle, &flags) != CUDA_SUCCESS ||
                             !(flags & CU_STREAM_NON_BLOCKING);
    if (driver.cuEventCreate(&place->there, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return nullptr;
    if (driver.cuEventCreate(&place->back, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        direct.cuEventDestroy_v2(place->there);
        return nullptr;
    }
    place->home = state.handle;
    place->context = state.context;
    place->device = device;
    place->gpu = state.gpu;
    std::fill(std::begin(place->streams), std::end(place->streams), nullptr);
    place->key.store(key, std::memory_order_release);
    return place;
}

void make_stand_in(Place& place, int green) {
    if (place.streams[green]) return;
    int priority = 0;
    if (direct.cuStreamGetPriority(place.home, &priority) != CUDA_SUCCESS) priority = 0;
    if (direct.cuGreenCtxStreamCreate(&place.streams[green], places.greens[green].handle, CU_STREAM_NON_BLOCKING,
                                      priority) != CUDA_SUCCESS)
        place.streams[green] = nullptr;
}

// Under both locks. Whether any kernel shall take a detour.
bool prepare(Membership& membership, uint64_t now_ns) {
    int greens[wire::kGpus];
    bool any = false;
    std::fill(std::begin(greens), std::end(greens), -1);
    CUcontext before = current_context();
    membership.streams.for_each([&](StreamState& state) {
        int gpu = state.gpu;
        uint32_t limit = limit_of(membership, gpu, now_ns);
        CUdevice device = -1;
        if (limit >= kAll || state.is_known_by_event() || refusal()) return;
        if (current_context() != state.context && driver.cuCtxSetCurrent(state.context) != CUDA_SUCCESS) return;
        if (driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) return;
        Place* place = make_place(state, device);
        if (!place) return;
        if (greens[gpu] < 0) greens[gpu] = green_for(device, limit);
        if (greens[gpu] < 0) return;
        make_stand_in(*place, greens[gpu]);
        any = true;
    });
    if (current_context() != before) driver.cuCtxSetCurrent(before);
    for (int gpu = 0; gpu < wire::kGpus; ++gpu) {
        places.green_of[gpu].store(greens[gpu] + 1);
        uint32_t sms = greens[gpu] < 0 ? 0 : places.greens[greens[gpu]].sms;
        wire::Flag& shown = membership.slot().gpus[gpu].sms_now;
        if (shown.load(std::memory_order_relaxed) != sms) shown.store(sms);
    }
    return any;
}

// Launches that were in the driver when the first limit came know nothing of it.
void note_calls() {
    Membership::for_each([](Membership& one) {
        one.streams.for_each([](StreamState& state) { state.entered_before = state.entered.load(); });
    });
}
bool those_have_ended() {
    bool ended = true;
    Membership::for_each([&](Membership& one) {
        one.streams.for_each([&](StreamState& state) { ended &= state.issued.load() >= state.entered_before; });
    });
    return ended;
}

// Under both locks.
void step(bool wanted) {
    uint32_t now = phase.load();
    if (wanted && now == off) {
        phase.store(settling);
        note_calls();
    } else if (wanted && now == settling && those_have_ended()) {
        phase.store(on);
    } else if (!wanted && now == on) {
        phase.store(settling);
    } else if (!wanted && now == settling && !away.load()) {
        // The program's own next call brings its streams home. The watcher does not: behind a closed gate the driver
        // may have room for no more, and the watcher must not wait for a gate that it opens itself.
        phase.store(off);
    }
}

bool is_limited(Membership& membership, uint64_t now_ns) {
    bool any = false;
    membership.used_gpus.each([&](int gpu) { any |= limit_of(membership, gpu, now_ns) < kAll; });
    return any;
}

void look(Membership& membership, uint64_t now_ns) {
    wire::Flag& shown = membership.slot().sms_refused;
    if (shown.load(std::memory_order_relaxed) != refusal()) shown.store(refusal());
    if (!is_installed.load()) return;
    if (phase.load() == off && (refusal() || !is_limited(membership, now_ns))) return;
    if (captures.load() || !membership.try_lock()) return;
    if (!captures.load() && lock.try_lock()) {
        step(prepare(membership, now_ns));
        lock.unlock();
    }
    membership.unlock();
}
LISTEN(AtLook, MembershipStep::detour, look)

// Where MPS was told a share, the device has no more SMs to this process, and the driver makes no parts of those.
void begin(wire::Segment&, wire::Slot& slot) {
    if (slot.sms.load())
        refuse(by_mps);
    else if (!is_installed.load())
        refuse(began_as_production);
    slot.sms_refused.store(refusal());
}
LISTEN(AtJoin, MembershipStep::detour, begin)

void take_request(Membership& membership, const wire::Asked& asked) {
    if (!asked.sms || refusal() == by_mps) return;
    membership.terms.sms = std::min(asked.sms - 1, kAll);
    membership.slot().sms.store(membership.terms.sms);
    look(membership, wire::now_ns());
}
LISTEN(AtRequest, MembershipStep::detour, take_request)

}  // namespace

}  // namespace detour

}  // namespace tenant

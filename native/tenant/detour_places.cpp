#include "tenant/detour_places.h"

#include "tenant/context.h"
#include "tenant/fork.h"

namespace tenant {

namespace detour {

Direct direct;
Places places;
Lock lock{Rank::detour};
std::atomic<uint32_t> phase{off}, others{0}, away{0};
std::atomic<bool> is_installed{false};

namespace {

std::atomic<uint32_t> refused{not_refused};

void forget_in_child() {
    lock.renew();
    phase.store(off);
    others.store(0);
    away.store(0);
    refused.store(not_refused);
    for (Place& one : places.all) one.key.store(kNoStream);
    for (Green& one : places.greens) one = {};
    for (std::atomic<int>& one : places.green_of) one.store(0);
}
LISTEN(AtFork, ForkStep::detour, forget_in_child)

// It is the current context's.
bool is_default(const Place& one) { return reinterpret_cast<uintptr_t>(one.home) <= 2; }

}  // namespace

uint32_t bit_of(const Place& one) { return 1u << (&one - places.all); }
bool is_away(const Place& one) { return away.load() & bit_of(one); }

CUresult order(CUstream first, CUevent event, CUstream second) {
    CUresult result = direct.cuEventRecord(event, first);
    return result == CUDA_SUCCESS ? direct.cuStreamWaitEvent(second, event, 0) : result;
}

void return_home(Place& one) {
    CUstream stand_in = one.streams[one.at.load()];
    CUresult result;
    if (is_default(one)) {
        InContext there(one.context);
        result = order(stand_in, one.back, one.home);
    } else {
        result = order(stand_in, one.back, one.home);
    }
    // Whatever the reason: what follows in the stream must not pass it.
    if (result != CUDA_SUCCESS) direct.cuStreamSynchronize(stand_in);
    // Only now: a query of ours looks into the stand-in until the stream itself is not empty (query).
    away.fetch_and(~bit_of(one));
}

void return_all() {
    for (Place& one : places.all)
        if (is_away(one)) return_home(one);
}

void refuse(Refusal why) {
    uint32_t none = not_refused;
    refused.compare_exchange_strong(none, why);
}

uint32_t refusal() { return refused.load(); }

}  // namespace detour

}  // namespace tenant

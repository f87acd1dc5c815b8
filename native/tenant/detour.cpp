#include "tenant/detour.h"

#include <algorithm>

#include "tenant/captures.h"
#include "tenant/context.h"
#include "tenant/membership.h"

namespace tenant {

namespace detour {

namespace {

StreamKey key_of(CUstream stream, bool per_thread_default) {
    if (reinterpret_cast<uintptr_t>(stream) > 2) return key_of_stream(stream);
    // A thread's own default stream can be asked for by nobody else, so that nobody else could bring it home.
    if (stream == CU_STREAM_PER_THREAD || (!stream && per_thread_default)) return kNoStream;
    CUcontext context = current_context();
    return context ? key_of_default_stream(context, 1) : kNoStream;
}

// The stream's own context is current where it is a default stream: the program launches into it.
bool leave_home(Place& one, int green) {
    one.at.store(green);
    away.fetch_or(bit_of(one));
    if (others.load() == 0 && order(one.home, one.there, one.streams[green]) == CUDA_SUCCESS) return true;
    away.fetch_and(~bit_of(one));
    return false;
}

// Launched with clusters, the blocks of the whole GPU and of the green context.
bool fits_with_clusters(const KernelSize& size, const CUlaunchConfig& config, CUstream stand_in) {
    CUlaunchConfig there = config;
    there.hStream = stand_in;
    uint64_t width = 1;
    for (unsigned int i = 0; i < config.numAttrs; ++i)
        if (config.attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
            const auto& shape = config.attrs[i].value.clusterDim;
            width = uint64_t{shape.x} * shape.y * shape.z;
        }
    auto function = const_cast<CUfunction>(static_cast<const CUfunc_st*>(size.function));
    int in_part = 0, in_all = 0;
    if (direct.cuOccupancyMaxActiveClusters(&in_part, function, &there) != CUDA_SUCCESS || in_part <= 0) return false;
    if (direct.cuOccupancyMaxActiveClusters(&in_all, function, &config) != CUDA_SUCCESS) return false;
    uint64_t blocks = size.blocks();
    return blocks <= width * static_cast<uint64_t>(in_part) || blocks > width * static_cast<uint64_t>(in_all);
}

// Whether its blocks are on the green context's SMs all at once, as on the whole GPU, or on neither. The driver is
// asked only where simple bounds do not tell.
bool is_free_to_leave(const KernelSize& size, const CUlaunchConfig* config, const Green& green, CUstream stand_in) {
    uint64_t blocks = size.blocks();
    if (!size.function || !blocks || !size.threads()) return false;
    if (config)
        for (unsigned int i = 0; i < config->numAttrs; ++i)
            if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
                return fits_with_clusters(size, *config, stand_in);
    if (blocks > uint64_t{green.all} * std::min(green.most_blocks, green.most_threads / size.threads())) return true;
    // Of a kernel that is built with clusters, 5 of 8 SMs may have a block, where one cluster has 5.
    if (blocks * 2 <= green.sms) return true;
    auto function = const_cast<CUfunction>(static_cast<const CUfunc_st*>(size.function));
    int each = 0, width = 1;
    if (direct.cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, function, static_cast<int>(size.threads()),
                                                           size.shared_bytes) != CUDA_SUCCESS ||
        each <= 0)
        return false;
    if (direct.cuFuncGetAttribute(&width, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, function) != CUDA_SUCCESS)
        width = 2;
    uint64_t in_part = uint64_t{green.sms} * static_cast<uint32_t>(each) / (width > 1 ? 2 : 1);
    return blocks <= in_part || blocks > uint64_t{green.all} * static_cast<uint32_t>(each);
}

wire::OnGpu* figures_of(int gpu) {
    Membership* membership = Membership::current_if_joined();
    return membership && gpu >= 0 ? &membership->slot().gpus[gpu] : nullptr;
}

}  // namespace

void give_up(Refusal why) {
    refuse(why);
    if (!is_installed.load()) return;
    Locked locked(lock);
    if (phase.load() == on) phase.store(settling);
    return_all();
}

void bring_home() {
    Locked locked(lock);
    return_all();
}

Departure::Departure(CUstream stream, bool per_thread_default, const KernelSize& size, const CUlaunchConfig* config,
                     bool may_leave) {
    lock.lock();
    Place* place = places.find(key_of(stream, per_thread_default));
    int green = place && phase.load() == on ? places.green_of[place->gpu].load() - 1 : -1;
    if (green >= 0) gpu_ = place->gpu;
    bool leaves = green >= 0 && place->streams[green] && may_leave && !captures.load() &&
                  is_free_to_leave(size, config, places.greens[green], place->streams[green]);
    if (!leaves) {
        return_all();
        return;
    }
    if (is_away(*place) && place->at.load() != green) return_home(*place);
    // Of the streams that the legacy stream has in order, one at a time is away.
    if (place->in_legacy_order)
        for (Place& other : places.all)
            if (&other != place && other.in_legacy_order && is_away(other)) return_home(other);
    if (!is_away(*place) && !leave_home(*place, green)) return;
    place_ = static_cast<int>(place - places.all);
    stand_in_ = place->streams[green];
}

void Departure::fails() {
    return_home(places.all[place_]);
    stand_in_ = nullptr;
}

Departure::~Departure() {
    lock.unlock();
    wire::OnGpu* here = figures_of(gpu_);
    if (here) (stand_in_ ? here->detours : here->undetoured).fetch_add(1, std::memory_order_relaxed);
}

void forget(CUstream stream) {
    if (reinterpret_cast<uintptr_t>(stream) <= 2) return;
    Locked locked(lock);
    Place* place = places.find(key_of_stream(stream));
    if (!place) return;
    if (is_away(*place)) return_home(*place);
    place->key.store(kNoStream);
    for (CUstream& one : place->streams) {
        if (one) direct.cuStreamDestroy_v2(one);
        one = nullptr;
    }
    direct.cuEventDestroy_v2(place->there);
    direct.cuEventDestroy_v2(place->back);
}

// The green contexts would keep the primary context, which the program gives back.
void forget(CUdevice device) {
    Locked locked(lock);
    return_all();
    for (Place& place : places.all) {
        if (place.key.load() == kNoStream || place.device != device) continue;
        place.key.store(kNoStream);
        for (CUstream& one : place.streams) {
            if (one) direct.cuStreamDestroy_v2(one);
            one = nullptr;
        }
        InContext there(place.context);
        direct.cuEventDestroy_v2(place.there);
        direct.cuEventDestroy_v2(place.back);
        places.green_of[place.gpu].store(0);
    }
    for (Green& green : places.greens) {
        if (!green.handle || green.device != device) continue;
        direct.cuGreenCtxDestroy(green.handle);
        green = {};
    }
}

// What is known to be in flight was launched before, and is in the stand-in until the stream itself waits for it.
CUresult CUDAAPI query(CUstream stream) {
    if (away.load()) {
        Place* place = places.find(key_of(stream, false));
        if (place && is_away(*place)) {
            CUresult result = direct.cuStreamQuery(place->streams[place->at.load()]);
            if (result != CUDA_SUCCESS) return result;
        }
    }
    return direct.cuStreamQuery(stream);
}

}  // namespace detour

}  // namespace tenant

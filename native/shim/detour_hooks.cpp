#include "shim/detour_hooks.h"

#include <type_traits>

#include "shim/driver.h"
#include "tenant/detour.h"
#include "tenant/driver_calls.h"
#include "tenant/settings.h"

namespace shim {

namespace {

namespace detour = tenant::detour;

void* direct[Index::count];  // the driver's

template <int index, class... Arguments>
CUresult call_direct(Arguments... arguments) {
    return reinterpret_cast<CUresult (*)(Arguments...)>(direct[index])(arguments...);
}

// Attributes that mean the same in another stream.
bool may_leave(const CUlaunchConfig& config) {
    for (unsigned int i = 0; i < config.numAttrs; ++i) switch (config.attrs[i].id) {
            case CU_LAUNCH_ATTRIBUTE_IGNORE:
            case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
            case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
            case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
            case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
            case CU_LAUNCH_ATTRIBUTE_PRIORITY:
            case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
            case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
            case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
                break;
            default:
                return false;
        }
    return true;
}

template <int index, bool per_thread, class Function>
struct Launch;
template <int index, bool per_thread>
struct Launch<index, per_thread, decltype(::cuLaunchKernel)> {
    static CUresult call(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                         unsigned int by, unsigned int bz, unsigned int shared_bytes, CUstream stream,
                         void** parameters, void** extra) {
        if (__builtin_expect(detour::phase.load() == detour::off, 1))
            return call_direct<index>(function, gx, gy, gz, bx, by, bz, shared_bytes, stream, parameters, extra);
        detour::Departure leaves(stream, per_thread, {function, {gx, gy, gz}, {bx, by, bz}, shared_bytes}, nullptr,
                                 true);
        if (leaves.stand_in()) {
            CUresult result = call_direct<index>(function, gx, gy, gz, bx, by, bz, shared_bytes, leaves.stand_in(),
                                                 parameters, extra);
            if (result == CUDA_SUCCESS) return result;
            leaves.fails();
        }
        return call_direct<index>(function, gx, gy, gz, bx, by, bz, shared_bytes, stream, parameters, extra);
    }
};
template <int index, bool per_thread>
struct Launch<index, per_thread, decltype(::cuLaunchKernelEx)> {
    static CUresult call(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
        bool is_complete = config && (!config->numAttrs || config->attrs);
        if (__builtin_expect(detour::phase.load() == detour::off || !is_complete, 1))
            return call_direct<index>(config, function, parameters, extra);
        detour::Departure leaves(config->hStream, per_thread,
                                 {function,
                                  {config->gridDimX, config->gridDimY, config->gridDimZ},
                                  {config->blockDimX, config->blockDimY, config->blockDimZ},
                                  config->sharedMemBytes},
                                 config, may_leave(*config));
        if (leaves.stand_in()) {
            CUlaunchConfig there = *config;
            there.hStream = leaves.stand_in();
            CUresult result =
                call_direct<index>(const_cast<const CUlaunchConfig*>(&there), function, parameters, extra);
            if (result == CUDA_SUCCESS) return result;
            leaves.fails();
        }
        return call_direct<index>(config, function, parameters, extra);
    }
};

template <int index, bool per_thread, class Function>
struct InOrder;
template <int index, bool per_thread, class... Arguments>
struct InOrder<index, per_thread, CUresult(Arguments...)> {
    static CUresult call(Arguments... arguments) {
        detour::AtHome at_home;
        return call_direct<index>(arguments...);
    }
};

// Puts nothing into a stream, and may take long: detours go on meanwhile.
template <int index, bool per_thread, class Function>
struct Asks;
template <int index, bool per_thread, class... Arguments>
struct Asks<index, per_thread, CUresult(Arguments...)> {
    static CUresult call(Arguments... arguments) {
        if (detour::away.load()) detour::bring_home();
        return call_direct<index>(arguments...);
    }
};

// Of a stream, or of a device's primary context.
template <int index, bool per_thread, class Function>
struct Ends;
template <int index, bool per_thread, class Handle>
struct Ends<index, per_thread, CUresult(Handle)> {
    static CUresult call(Handle handle) {
        detour::AtHome at_home;
        detour::forget(handle);
        return call_direct<index>(handle);
    }
};

struct Layer {
    int index;
    void* function;
};
#define DETOUR(handler, function, per_thread) \
    {Index::function, reinterpret_cast<void*>(&handler<Index::function, per_thread, decltype(::function)>::call)},
const Layer layers[] = {
#include "detour.inc"
};
#undef DETOUR

}  // namespace

void* driver_function(int index) { return direct[index] ? direct[index] : real[index]; }

void install_detours() {
#define CALL(function) detour::direct.function = reinterpret_cast<decltype(&::function)>(real[Index::function]);
    TENANT_DETOUR_CALLS(CALL)
#undef CALL
    if (tenant::class_from_environment() == wire::production || !driver_has(Index::cuGreenCtxCreate)) return;
    for (const Layer& layer : layers) {
        if (!driver_has(layer.index)) continue;
        direct[layer.index] = real[layer.index];
        real[layer.index] = layer.function;
    }
    detour::is_installed.store(true);
}

void keep_own_calls_direct() {
    if (!detour::is_installed.load()) return;
    tenant::driver.cuStreamQuery = detour::query;
    tenant::driver.cuDevicePrimaryCtxRelease_v2 = detour::direct.cuDevicePrimaryCtxRelease_v2;
}

}  // namespace shim

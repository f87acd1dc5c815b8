// What programs may ask of the interposer itself: lanes; and for measurement and tests, what stands behind a function
// that a program holds.
#include <string.h>

#include "shim/detour_hooks.h"
#include "shim/hooks.h"
#include "shim/resolve.h"
#include "tenant/lanes.h"
#include "tenant/time_slice.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT const char* cotenant_interposer_version() { return COTENANT_VERSION; }

// The driver's own function of this name, past our hook.
EXPORT void* cotenant_driver_function(const char* name) {
    for (int i = 0; i < shim::Index::count; ++i)
        if (!strcmp(shim::names[i], name)) return shim::driver_function(i);
    return nullptr;
}

// Where a program gets that has the symbol of this name.
EXPORT void* cotenant_symbol_target(const char* name) {
    for (int i = 0; i < shim::Index::count; ++i)
        if (!strcmp(shim::names[i], name)) return __atomic_load_n(&shim_slots[i], __ATOMIC_ACQUIRE);
    return nullptr;
}

// The name of the driver function whose hook this is; null: not a hook of ours.
EXPORT const char* cotenant_hook_name(const void* function) {
    for (int i = 0; i < shim::Index::count; ++i)
        if (shim::hook_for(i) && shim::hook_for(i) == function) return shim::names[i];
    return nullptr;
}

// Lanes (tenant/lanes.h), for cotenant.api.lane. Shares are thousandths.
EXPORT int cotenant_lane_open(const char* name, uint32_t tenant_class, uint32_t weight, uint32_t slowdown,
                              uint32_t floor) {
    tenant::LaneTerms terms{tenant_class, weight, slowdown, floor, {}};
    strncpy(terms.name, name, sizeof terms.name - 1);
    return tenant::open_lane(terms);
}
EXPORT int cotenant_lane_enter(int lane) { return tenant::enter_lane(lane); }
EXPORT int64_t cotenant_lane_escaped(int lane) { return tenant::escaped_from(lane); }

// The time slice of this process in microseconds: asked for, granted; and 1: it was refused.
EXPORT void cotenant_time_slice(uint32_t out[3]) {
    tenant::TimeSlice slice = tenant::time_slice();
    out[0] = slice.asked_us;
    out[1] = slice.granted_us;
    out[2] = slice.refused;
}

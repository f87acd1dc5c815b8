// The end of a context: its objects are gone, and every room that keeps state of the context forgets it.
#pragma once

#include <cstdint>

#include "tenant/driver_calls.h"
#include "tenant/listeners.h"

namespace tenant {

// A free that is deferred asks what it is a free of: it goes before that does.
enum class ContextEndStep : uint8_t {
    attached,
    graphs,
    ipc_import,
    used_contexts,
    deferred_free,
    residence,
    pools,
    ledger,
    kSteps
};

struct AtContextEnd {
    ContextEndStep step;
    void (*act)(CUcontext context);
};
LISTENERS(AtContextEnd)

// After the driver has ended it; meanwhile nobody uses memory that moves (residence.h: MemoryOfEndingContext).
inline void context_ended(CUcontext context) {
    if (context) tell<AtContextEnd>([&](const AtContextEnd& one) { one.act(context); });
}

}  // namespace tenant

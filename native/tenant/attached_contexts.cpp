#include "tenant/attached_contexts.h"

#include <atomic>

#include "tenant/context_end.h"

namespace tenant {

namespace {

constexpr uint32_t kMost = 64;  // of more at once nothing is known

struct Attached {
    std::atomic<CUcontext> context{nullptr};
    std::atomic<uint32_t> count{0};
} all[kMost];

Attached* find(CUcontext context) {
    for (Attached& one : all)
        if (context && one.context.load() == context) return &one;
    return nullptr;
}

void forget(CUcontext context) {
    Attached* one = find(context);
    if (!one) return;
    one->count.store(0);
    one->context.store(nullptr);
}
LISTEN(AtContextEnd, ContextEndStep::attached, forget)

}  // namespace

void note_attached(CUcontext context) {
    Attached* one = find(context);
    for (uint32_t i = 0; i < kMost && !one; ++i) {
        CUcontext none = nullptr;
        if (all[i].context.compare_exchange_strong(none, context)) one = &all[i];
    }
    if (one) one->count.fetch_add(1);
}

void note_detached(CUcontext context) {
    if (Attached* one = find(context)) one->count.fetch_sub(1);
}

bool is_attached(CUcontext context) {
    const Attached* one = find(context);
    return one && one->count.load() > 0;
}

}  // namespace tenant

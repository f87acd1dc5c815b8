#pragma once

#include <atomic>
#include <cstdint>

namespace tenant {

// Whether a signal's handler waits for a tenant's work to end (leave_in_order.h). The tenant's watcher may see the
// signal before the handler has seen the tenant, or be one of a lane that joins just then, for which the handler does
// not wait.
class Draining {
 public:
    // False: it has drained already.
    bool begin_wait() {
        uint32_t goes_on = kGoesOn;
        return state_.compare_exchange_strong(goes_on, kIsAwaited);
    }
    // Whether the handler waits for it.
    bool end() { return state_.exchange(kHasDrained) == kIsAwaited; }

 private:
    static constexpr uint32_t kGoesOn = 0, kIsAwaited = 1, kHasDrained = 2;
    std::atomic<uint32_t> state_{kGoesOn};
};

}  // namespace tenant

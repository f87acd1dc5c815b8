// Space in a GPU's memory, which all its tenants share: how much there is, and how a tenant asks others to make some
// (native/admission/arbiter.h decides who). It works on shared memory alone: no daemon is needed.
#pragma once

#include <memory>

#include "admission/arbiter.h"
#include "tenant/memory/ledger.h"
#include "tenant/memory/move_barrier.h"
#include "wire/border.h"

namespace tenant {

struct Crowd {
    arbiter::Gpu gpu{};
    arbiter::Tenant tenants[wire::kSlots];
    uint32_t count = 0;

    // `total`: of the GPU's memory, as the driver says.
    Crowd(wire::Segment& segment, int gpu_number, uint64_t total);
    const arbiter::Tenant* find(uint32_t number) const;
    uint64_t usable_by(const arbiter::Tenant& who) const {
        return arbiter::usable(gpu, tenants, count, who.tenant_class);
    }
    uint64_t taken() const { return arbiter::taken(tenants, count); }
    bool is_next(const arbiter::Tenant& who) const { return arbiter::is_first_in_line(gpu, tenants, count, who); }
    bool has_hope(const arbiter::Tenant& who) const { return arbiter::has_hope(gpu, tenants, count, who); }
    uint64_t missing(const arbiter::Tenant& who) const { return arbiter::missing(gpu, tenants, count, who); }
    // Wakes the tenants who have to make space for `who`: they need not wait for their next look.
    void wake_chosen(wire::Segment& segment, const arbiter::Tenant& who) const;
};
// Not on the stack: a thread of the program may have little. Null: there is no memory for it.
std::unique_ptr<Crowd> see_crowd(wire::Segment& segment, int gpu, uint64_t total);

uint32_t number_of(wire::Segment& segment, const wire::Slot& slot);

// Bytes that were counted in the slot just now: whether all tenants together are within the GPU's capacity.
bool is_within_capacity(const Place& place);
// Likewise: whether they are, but only with what is kept free for the classes above this tenant.
bool takes_headroom(const Place& place);

// One allocation that does not fit. Between two tries nothing of it is counted or held.
class Need {
 public:
    Need(const Place& place, uint64_t bytes) : place_(place), bytes_(bytes) {}
    ~Need() { withdraw(); }
    Need(const Need&) = delete;
    Need& operator=(const Need&) = delete;

    // Asks other tenants for space and waits a little; while its own memory is evicted, until it is restored. False:
    // nobody can make any.
    // `by_driver`: the driver has none, whatever we have counted.
    bool wait(bool by_driver);

 private:
    bool goes_on(bool by_driver);
    void withdraw();

    Place place_;
    uint64_t bytes_;
    uint64_t began_ns_ = 0, looked_ns_ = 0, hopeless_since_ns_ = 0;
    bool may_try_ = false, had_hope_ = false;
};

// What threads of this process wait for in an allocation.
uint64_t needed_bytes(int gpu);

}  // namespace tenant

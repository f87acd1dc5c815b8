#include "tenant/wait_for_all.h"

#include "tenant/membership.h"
#include "wire/clock.h"

namespace tenant {

WaitForAll::WaitForAll() {
    Hold::waiting_for_all.fetch_add(1);
    if (Membership* own = Membership::current_if_joined())
        own->used_gpus.each([&](int gpu) { own->holds[gpu].release(); });
}

WaitForAll::~WaitForAll() {
    Hold::waited_for_all_ns.store(wire::now_ns());
    Hold::waiting_for_all.fetch_sub(1);
}

}  // namespace tenant

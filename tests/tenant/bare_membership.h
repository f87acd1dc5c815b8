// A membership without its watcher: a slot of this segment, and nothing else.
#pragma once

#include <cstdlib>
#include <cstring>

#include "../require.h"
#include "tenant/membership.h"

namespace {

wire::Segment* all = nullptr;
wire::Class own_class = wire::opportunistic;

}  // namespace

namespace tenant {

Membership* Membership::join() {
    void* bare = nullptr;
    REQUIRE(posix_memalign(&bare, alignof(Membership), sizeof(Membership)) == 0);
    auto* self = static_cast<Membership*>(memset(bare, 0, sizeof(Membership)));
    self->segment_ = all;
    self->index_ = wire::take_slot(*all);
    REQUIRE(self->index_ >= 0);
    self->slot_ = &all->slot(self->index_);
    wire::join_class(*all, self->index_, own_class);
    not_inherited.joined.store(self);
    return self;
}

}  // namespace tenant

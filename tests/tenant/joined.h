// For programs that test a part of the memory that moves: the process has joined, as far as anybody asks, and the
// driver has only the calls that the program gives it.
#pragma once

#include "tenant/membership.h"
#include "tenant/memory/move_barrier.h"

namespace {

alignas(16) char nobody[16];  // stands for a membership: only its address is used

}  // namespace

namespace tenant {

DriverCalls driver;
[[maybe_unused]] const bool has_joined = (not_inherited.joined.store(reinterpret_cast<Membership*>(nobody)), true);
Membership* Membership::join() { return nullptr; }
std::atomic<bool> Still::memory_moves{true};
void Still::enter() { entered_ = true; }
void Still::leave() {}

}  // namespace tenant

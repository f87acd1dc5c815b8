// A client of MPS that is killed in the middle of a kernel can take the server's other clients with it. So where
// SIGINT, SIGTERM or SIGHUP would end this process at once, a handler of ours first lets what runs come to its end:
//
//   handler    asks the watchers, of lanes too, waits for them, then gives the signal its default action back and
//   raises it again threads    stand aside at their next launch, for good: every launch comes by Membership::join then
//   watchers   close the gates and wait until nothing runs; what stands at a gate does not begin
//
// The process then dies of the same signal, after kPatienceNs at the latest; a second signal ends it at once. A program
// that handles or ignores a signal by itself keeps that: its handler is not replaced.
#pragma once

#include <atomic>
#include <cstdint>

#include "tenant/draining.h"

namespace tenant {

namespace leave_in_order {

constexpr uint64_t kPatienceNs = 3000000000;

extern std::atomic<uint32_t> ending;  // the signal

inline bool is_ending() { return ending.load(std::memory_order_relaxed) != 0; }
void stand_aside();
inline void stand_aside_if_ending() {
    if (__builtin_expect(is_ending(), 0)) stand_aside();
}
// A watcher's, once: nothing of its tenant runs any more, or not in time.
void note_drained(Draining& one);

}  // namespace leave_in_order

}  // namespace tenant

#include "wire/launched.h"

#include <algorithm>
#include <cstring>

#include "wire/border.h"
#include "wire/gates.h"
#include "wire/segment.h"

namespace wire {

namespace {

constexpr uint32_t kMostSms = 1 << 16, kMostOperations = 1 << 16, kMostUs = 1000000000;

}  // namespace

Sides sides_of(Segment& segment, int index, int gpu, uint64_t now) {
    Sides sides;
    uint64_t words[kSlotWords], last_ns = 0;
    members(segment, words);
    for (int word = 0; word < kSlotWords; ++word)
        for (uint64_t bits = words[word]; bits; bits &= bits - 1) {
            int other = word * 64 + __builtin_ctzll(bits);
            if (other != index && !has_work(segment, other, gpu)) continue;
            const Slot& slot = segment.slot(other);
            const Slot::Launched& there = slot.launched[gpu];
            bool is_production = class_of(slot) == production;
            admission::Side& side = is_production ? sides.production : sides.below;
            ++side.with_work;
            side.running += within(there.operations, 0, kMostOperations);
            side.sms += static_cast<float>(within(there.sms, 0, kMostSms));
            side.outstanding_us += static_cast<float>(within(there.outstanding_us, 0, kMostUs));
            if (!is_production) continue;
            uint64_t launched_ns = there.launched_ns.load(std::memory_order_relaxed);
            if (launched_ns >= last_ns) {
                last_ns = launched_ns;
                side.bound = static_cast<admission::Bound>(within(there.bound, 0, 2));
            }
            uint64_t ends_ns = there.ends_ns.load(std::memory_order_relaxed);
            uint64_t left_ns = ends_ns > now ? std::min(ends_ns - now, kLongestLeftNs) : 0;
            side.left_us = std::max(side.left_us, static_cast<float>(left_ns) / 1000);
        }
    return sides;
}

void parameters_of(const Header& header, float out[admission::kParameters]) {
    for (int i = 0; i < admission::kParameters; ++i) {
        uint32_t bits = header.parameters[i].load(std::memory_order_relaxed);
        memcpy(&out[i], &bits, sizeof bits);
    }
}

}  // namespace wire

// The key by which equals are ordered (turns.h), pure: GPU time executed for a tenant, divided by its weight. Who waits
// with the least key is next. The tenants and the simulator call the same functions.
//
//   charged     key + executed / weight
//   takes turn  key + kWorthSwitches switches / weight, in advance: as much of what it then executes is paid for. So a
//               tenant that runs empty after each kernel does not have the GPU switched to it ever again for the price
//               of these kernels
//   gets work   least <= key <= least + kLargestDebtNs, where `least` is of its equals that have work: one that was
//               idle, or comes from another class or rule, has neither a right to the time that the others have used
//               meanwhile, nor a debt from when it had the GPU to itself
//   is ready    key >= most - kLargestClaimNs, where `most` is of its equals that use the GPU: what it could not use
//               while it was empty it has no claim to; so nobody's key is ever far behind another's, whoever has work
//               at the moment, and nobody waits for long
//   runs empty  key > least, where `least` is of its equals that are ready: one of them goes next
//
// In nanoseconds at a weight of 1. kNoKey stands for the least where there is no such equal. Keys come out of shared
// memory: any value is taken, and what no tenant can have used counts for nobody else (key_for_others).
#pragma once

#include <algorithm>
#include <cstdint>

#include "admission/turns.h"

namespace admission {

constexpr uint64_t kLargestDebtNs = 20000000, kLargestClaimNs = 50000000;
constexpr uint64_t kNoKey = UINT64_MAX;
constexpr uint64_t kLargestKey = uint64_t{1} << 62;  // a larger one is garbage

// Since the machine started a key has grown by at most 1000 in each nanosecond, at the least weight. The others would
// follow a larger one up to where theirs are garbage too, and stay there.
inline uint64_t key_for_others(uint64_t key, uint64_t now_ns) {
    return key < std::min(now_ns, kLargestKey / 1000) * 1000 ? key : kNoKey;
}

// By how much the key grows; `weight` in thousandths.
inline uint64_t charged_ns(uint64_t executed_ns, uint32_t weight) { return executed_ns * 1000 / std::max(weight, 1u); }

// What one turn is charged: at least what makes it worth its switch.
class TurnCharge {
 public:
    // By how much the key grows as the turn begins, at a weight of 1.
    uint64_t begin(uint64_t switch_ns) { return paid_ns_ = kWorthSwitches * std::min(switch_ns, kLongestTurnNs); }
    // And for what was executed since.
    uint64_t owed_ns(uint64_t executed_ns) {
        uint64_t paid = std::min(paid_ns_, executed_ns);
        paid_ns_ -= paid;
        return executed_ns - paid;
    }

 private:
    uint64_t paid_ns_ = 0;  // in advance
};

inline uint64_t key_with_work(uint64_t key, uint64_t least) {
    if (least >= kLargestKey) return key;
    return std::clamp(key, least, least + kLargestDebtNs);
}

inline uint64_t key_when_ready(uint64_t key, uint64_t most) {
    return std::max(key, most - std::min(most, kLargestClaimNs));
}

inline uint64_t key_when_empty(uint64_t key, uint64_t least) {
    return least >= kLargestKey ? key : std::max(key, least + 1);
}

}  // namespace admission

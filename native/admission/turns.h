// Turns among equals, pure. The tenants and the simulator call the same functions.
//
//   next        of the ready tenants: the one that holds the turn, else the one that has executed least for its weight
//   may start   the next tenant, once no other is on. So equals never cut each other's kernels. A tenant that does not
//               drain (a kernel of seconds, a stream that waits for a host function) is waited for `kDrainNs`, then
//               passed
//   a turn ends when its tenant has executed `turn_ns` in it and another is ready, or when its streams have run empty:
//               others get the GPU instead of leaving it idle, and meanwhile the tenant queues work that it runs
//               densely in its next turn. A turn that has not been worth its switch yet is kept through gaps that
//               together are shorter than a switch
//   turn_ns     follows from the measured cost of a switch: switching takes at most kSwitchPart of the time, and of ten
//               tenants each has a turn within a second. Where a ready tenant is brief, kBriefTurnNs, or what that one
//               executes in a turn if that is more
//   brief       is a tenant that leaves the GPU by itself, and then has something to do beside the kernels of the next.
//               It copies, which takes no turn; or it waits for its CPU for so long that others get more out of its
//               absence than the switches to all who are ready cost them: where it waits a whole turn for each of its
//               own, it does a fraction of what it could, and nobody gains as much by that
//   beside      whoever has the turn runs one that returns from its CPU, where nobody above uses the GPU: there the
//               hardware's time slices cut nobody for a class above, and a switch by them costs half of one by turns.
//               One at a time, for kBriefTurnNs, and only if it has executed at most kBriefTurnNs more than the others
//
// Executed is GPU time that a tenant's operations took: not the time in which its kernel was cut, in which a higher
// class ran, or in which its streams waited for the CPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "admission/admission.h"

namespace admission {

constexpr uint64_t kDrainNs = 100000000;
constexpr double kSwitchPart = 0.02;
constexpr uint64_t kShortestTurnNs = 5000000, kLongestTurnNs = 100000000, kRoundNs = 1000000000;
constexpr uint64_t kWorthSwitches = 5;      // a shorter turn may have gaps
constexpr uint64_t kBriefTurnNs = 2000000;  // as long as the driver's own time slice
constexpr uint64_t kNotBrief = UINT64_MAX;
constexpr uint64_t kLeastAwayNs = 280000;      // two switches by the hardware, on an H200
constexpr uint32_t kMostForBeside = 4;         // with more the others' turns would come too late
constexpr uint64_t kLongestGapNs = 100000;     // in a turn, for which the GPU may idle though another tenant is ready
constexpr uint64_t kAssumedSwitchNs = 200000;  // until one was measured

// The classes whose tenants take turns with one of `tenant_class`; none where it takes no turns.
struct Classes {
    uint32_t first, last;
    bool have(uint32_t tenant_class) const { return first <= tenant_class && tenant_class <= last; }
};
inline Classes equals_of(uint32_t rule, uint32_t tenant_class) {
    if (rule == fair) return {kProduction, kOpportunistic};
    if (is_gated(rule, tenant_class)) return {tenant_class, tenant_class};
    return {1, 0};
}

struct Equal {
    uint64_t turn_key_ns;  // executed, divided by weight
    uint32_t number;
    bool is_ready;    // it has work, and nothing but its turn keeps it from running
    bool holds_turn;  // it has been given the turn, and the turn has not ended
    bool is_on;       // what it has started may still be on the GPU, and it is not below its floor: such a tenant runs
                      // beside the holder of the turn, and nobody waits for it
    bool is_overdue;  // and should have ended more than kDrainNs ago
    uint64_t brief_ns = kNotBrief;  // what it executed in its last turn, where it is brief
};

inline bool goes_before(const Equal& a, const Equal& b) {
    if (a.is_ready != b.is_ready) return a.is_ready;
    if (a.holds_turn != b.holds_turn) return a.holds_turn;
    return a.turn_key_ns != b.turn_key_ns ? a.turn_key_ns < b.turn_key_ns : a.number < b.number;
}

// Whether `self` waits because of `other`. A tenant that holds the turn and is on stays, whichever other is on; so of
// two that started at the same instant one stays.
inline bool waits_for(const Equal& self, const Equal& other) {
    if (other.is_on && !other.is_overdue && !(self.holds_turn && self.is_on)) return true;
    return other.is_ready && goes_before(other, self);
}

// Whether a turn, over now, has been worth its switch.
inline bool was_worth_it(uint64_t executed_ns, uint64_t switch_ns) { return executed_ns >= kWorthSwitches * switch_ns; }

// Of one that left the GPU by itself after it had executed so much, and is ready again after a while; `ready`: how many
// tenants take turns, with it.
inline uint64_t brief_ns(uint64_t executed_ns, uint64_t away_ns, uint64_t switch_ns, uint32_t ready) {
    return away_ns / std::max(ready, 1u) >= switch_ns ? executed_ns : kNotBrief;
}

struct Returning {
    uint64_t executed_ns, away_ns;  // as above
    uint64_t key_ns, least_key_ns;  // its turn key, and the least of its equals that take turns
    bool has_above;                 // somebody of a higher class uses the GPU
    bool any_beside;                // another runs so now
    uint32_t ready;                 // as above
};

inline bool runs_beside(const Returning& tenant) {
    if (tenant.has_above || tenant.any_beside || tenant.ready > kMostForBeside) return false;
    if (tenant.least_key_ns >= UINT64_MAX - kBriefTurnNs) return false;
    return tenant.executed_ns <= kBriefTurnNs && tenant.away_ns >= kLeastAwayNs &&
           tenant.key_ns <= tenant.least_key_ns + kBriefTurnNs;
}

// `ready`: as above; `brief_ns`: the least of all others than the one whose turn it is.
inline uint64_t turn_ns(uint64_t switch_ns, uint32_t ready, uint64_t brief_ns) {
    uint64_t longest = std::min(kLongestTurnNs, kRoundNs / std::max(ready, 1u));
    auto cheap = static_cast<uint64_t>(static_cast<double>(switch_ns) / kSwitchPart);
    uint64_t usual = std::clamp(cheap, std::min(kShortestTurnNs, longest), longest);
    if (brief_ns == kNotBrief) return usual;
    return std::min(std::max({kWorthSwitches * switch_ns, kBriefTurnNs, brief_ns}), usual);
}

struct Turn {
    uint64_t executed_ns;  // in it
    uint64_t turn_ns, switch_ns;
    bool is_empty;        // nothing is in its streams
    uint64_t empty_ns;    // in it, all gaps together
    bool leaves = false;  // it is brief, and has gone on to copy
};

// Where another is ready, or may be soon.
inline bool is_over(const Turn& turn) {
    if (turn.executed_ns >= turn.turn_ns) return true;
    if (!turn.is_empty) return false;
    return turn.leaves || was_worth_it(turn.executed_ns, turn.switch_ns) ||
           turn.empty_ns >= std::min(turn.switch_ns, kLongestGapNs);
}

}  // namespace admission

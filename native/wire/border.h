// Reads from shared memory, brought into range: any word there may hold anything at any moment.
//
// A knob out of range counts as the nearest valid value. A value that could make a guest fail or wait for ever (a
// limit, a capacity, a request to pause) counts only if the check word beside it agrees; otherwise it counts as not
// set. While a writer changes a value, the check word does not agree either: so a reader gets the value whole or not at
// all, in whatever order the writer's stores arrive.
#pragma once

#include "wire/wire.h"

namespace wire {

// An unknown rule lets every tenant go, as `none` does.
inline uint32_t rule_of(const Header& header) { return header.knobs.rule.load(std::memory_order_relaxed); }

inline uint32_t within(const Flag& word, uint32_t least, uint32_t most) {
    return std::clamp(word.load(std::memory_order_relaxed), least, most);
}
inline uint32_t grace_us(const Knobs& knobs) { return within(knobs.grace_us, 0, 1000000); }
inline uint32_t gate_every_us(const Knobs& knobs) { return within(knobs.gate_every_us, 0, 1000000); }
inline uint32_t stale_ms(const Knobs& knobs) { return within(knobs.stale_ms, 0, 60000); }
inline uint32_t in_flight_us(const Knobs& knobs) { return within(knobs.in_flight_us, 1, 10000000); }
inline uint32_t turn_us(const Knobs& knobs) { return within(knobs.turn_us, 0, 10000000); }  // 0: learned
inline uint32_t patience_ms(const Knobs& knobs) { return within(knobs.patience_ms, 0, 10000); }

// An invalid class counts as the lowest: it keeps nobody waiting.
inline uint32_t class_of(const Slot& slot) { return within(slot.tenant_class, 0, kClasses - 1); }
inline uint32_t weight_of(const Slot& slot) { return within(slot.weight, 1, 1000000); }

// What a controller holds runs out within a fraction of a second; what would hold for longer than this is garbage.
constexpr uint64_t kLongestHoldNs = 60ull * 1000000000;
inline bool holds_until(const Count& until, uint64_t now_ns) {
    uint64_t moment = until.load(std::memory_order_relaxed);
    return moment > now_ns && moment - now_ns <= kLongestHoldNs;
}

// Thousandths of the GPU's time that a controller lets a tenant use; 0: no limit.
inline uint32_t rate_of(const OnGpu& here, uint64_t now_ns) {
    return holds_until(here.rate_until_ns, now_ns) ? std::min(here.rate.load(), 1000u) : 0;
}

// Settings with a check word. 0: nothing is said, or it is garbage.
uint64_t capacity_of(const Header& header, int gpu);
void set_capacity(Header& header, int gpu, uint64_t bytes);
struct MemoryKnobs {
    uint64_t headroom;  // 1 + bytes
    uint64_t host_memory;
    uint32_t stay_ms;
};
MemoryKnobs memory_knobs_of(const Header& header);
void set_memory_knobs(Header& header, const MemoryKnobs& knobs);
// An entry that is no grant has subject_kind == nobody.
struct Granted {
    uint32_t subject_kind, subject_id, best_class;
    uint64_t memory_limit;
};
Granted granted_by(const Grant& grant);
// Puts the check words to what a header says, after a tool has written it.
void seal(Header& header);

// What others have asked a tenant to change to: 1 + each value, 0 for what they did not ask.
struct Asked {
    uint32_t tenant_class, weight, slowdown, floor, time_slice_us, pause, sms;
    uint64_t memory;

    bool is_nothing() const {
        return !(tenant_class | weight | slowdown | floor | time_slice_us | pause | sms | memory);
    }
};
enum class Request { none, garbage, good };
// Takes a good one out of the slot; garbage stays until forget_requests.
Request take_requests(Slot& slot, Asked* out);
void forget_requests(Slot& slot);
void seal_requests(Slot& slot);

}  // namespace wire

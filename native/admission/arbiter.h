// Which tenants' memory is on the GPU when not all of it fits: the rules, pure. A tenant whose memory can move is
// resident or evicted as a whole. A tenant that needs space has others evicted:
//
//   displaced   by a higher class: at once. By an equal: when the stay is over, which lasts at least ten times as long
//               as the tenant's own eviction and restore take, so that moving takes less than a tenth of the time.
//   who first   the least valuable: lowest class, then lowest weight, idle before busy, longest resident, largest. As
//               few as needed: a tenant whose bytes turn out not to be needed is spared.
//   restored    when there is space for all of the tenant's memory, apart from the headroom for the higher classes.
//               Waiting tenants queue by class, then by how long they have waited; a tenant that could not be served
//               even if all others that can be evicted were, lets the others pass.
//
// No tenant is told to evict: each writes into its own slot what it waits for, and each tenant that could be evicted
// asks these rules whether it has to. A tenant takes bytes by counting them in its own slot and looking at the sum
// again.
#pragma once

#include <algorithm>
#include <cstdint>

namespace arbiter {

constexpr uint32_t kProduction = 0;
constexpr uint64_t kStayForTransfers = 10;
constexpr uint64_t kShortestStayNs = 100000000;
constexpr uint64_t kBytesPerSecond = 20000000000;  // of a transfer that was never measured

// How long a tenant that has to evict may run on, if it is about to reach a better point for it (the end of a step).
constexpr uint64_t kPatienceNs = 1000000000;
constexpr uint64_t kHurriedPatienceNs = 100000000;  // while it is pressed

struct Gpu {
    uint64_t capacity;
    uint64_t headroom;
};

struct Tenant {
    uint32_t number;
    uint32_t tenant_class;
    uint32_t weight;
    uint64_t bytes;          // on the GPU
    uint64_t movable;        // of these, what an eviction would free; 0: it cannot be evicted, or not now
    uint64_t movable_later;  // likewise, once it is restored, or its capture has ended
    uint64_t wanted;         // more that it waits for; 0: it does not wait
    bool wanted_hard;        // the driver itself does not have so much, whatever seems free
    uint64_t waiting_since_ns;
    uint64_t resident_since_ns;
    uint64_t stay_ns;
    bool busy;
    bool evicting;  // its eviction is under way: its movable bytes will be free
};

inline uint64_t default_headroom(uint64_t capacity) { return std::min(capacity / 20, uint64_t{1} << 30); }

// How long a restored tenant stays, whatever its equals want.
inline uint64_t stay_ns(uint64_t transfer_ns, uint64_t movable, uint64_t knob_ms) {
    if (knob_ms) return knob_ms * 1000000;
    if (!transfer_ns)
        transfer_ns = static_cast<uint64_t>(2e9 * static_cast<double>(movable) / static_cast<double>(kBytesPerSecond));
    return std::max(kStayForTransfers * transfer_ns, kShortestStayNs);
}

// How much of the GPU tenants of this class may fill.
inline uint64_t usable(const Gpu& gpu, const Tenant* tenants, uint32_t count, uint32_t tenant_class) {
    for (uint32_t i = 0; i < count; ++i)
        if (tenants[i].tenant_class < tenant_class) return gpu.capacity - std::min(gpu.capacity, gpu.headroom);
    return gpu.capacity;
}

inline uint64_t taken(const Tenant* tenants, uint32_t count) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; ++i) sum += tenants[i].bytes;
    return sum;
}

// Whether a tenant may have to evict soon: a tenant waits for space, or less than a quarter is free. A tenant that is
// alone makes space for nobody.
inline bool is_crowded(const Gpu& gpu, const Tenant* tenants, uint32_t count) {
    if (count < 2) return false;
    return std::any_of(tenants, tenants + count, [](const Tenant& one) { return one.wanted != 0; }) ||
           (gpu.capacity && taken(tenants, count) > gpu.capacity - gpu.capacity / 4);
}

// Whether `other` may have to evict for `needy`, as far as their classes are concerned.
inline bool is_below(const Tenant& other, const Tenant& needy) {
    if (other.number == needy.number) return false;
    return other.tenant_class > needy.tenant_class ||
           (other.tenant_class == needy.tenant_class && needy.tenant_class != kProduction);
}
inline bool yields_later(const Tenant& other, const Tenant& needy) {
    return other.movable_later && is_below(other, needy);
}
inline bool yields_now(const Tenant& other, const Tenant& needy, uint64_t now_ns) {
    if (!other.movable || !is_below(other, needy)) return false;
    return other.tenant_class > needy.tenant_class || now_ns >= other.resident_since_ns + other.stay_ns;
}

inline bool is_less_valuable(const Tenant& a, const Tenant& b) {
    if (a.tenant_class != b.tenant_class) return a.tenant_class > b.tenant_class;
    if (a.weight != b.weight) return a.weight < b.weight;
    if (a.busy != b.busy) return b.busy;
    if (a.resident_since_ns != b.resident_since_ns) return a.resident_since_ns < b.resident_since_ns;
    if (a.movable != b.movable) return a.movable > b.movable;
    return a.number < b.number;
}

// The tenants that shall evict so that `bytes` more become free for `needy`: their numbers go into `out`, which has
// space for `count`. None where the evictions under way are enough, or where all together would not be.
inline uint32_t choose(const Tenant* tenants, uint32_t count, const Tenant& needy, uint64_t bytes, uint64_t now_ns,
                       uint32_t* out) {
    uint64_t coming = 0, chosen_bytes = 0;
    for (uint32_t i = 0; i < count; ++i)
        if (tenants[i].evicting) coming += tenants[i].movable;
    if (coming >= bytes) return 0;
    uint64_t missing = bytes - coming;
    uint32_t chosen = 0;
    auto movable = [&](uint32_t number) {
        for (uint32_t i = 0; i < count; ++i)
            if (tenants[i].number == number) return tenants[i].movable;
        return uint64_t{0};
    };
    for (const Tenant* last = nullptr; chosen_bytes < missing;) {
        const Tenant* next = nullptr;
        for (uint32_t i = 0; i < count; ++i) {
            const Tenant& one = tenants[i];
            if (one.evicting || !yields_now(one, needy, now_ns)) continue;
            if (last && !is_less_valuable(*last, one)) continue;
            if (!next || is_less_valuable(one, *next)) next = &one;
        }
        if (!next) return 0;
        out[chosen++] = next->number;
        chosen_bytes += next->movable;
        last = next;
    }
    for (uint32_t i = chosen; i-- > 0;) {
        uint64_t without = chosen_bytes - movable(out[i]);
        if (without < missing) continue;
        chosen_bytes = without;
        std::copy(out + i + 1, out + chosen, out + i);
        --chosen;
    }
    return chosen;
}

// Whether there could be enough space for `who`, if every tenant that may have to evict had done so.
inline bool has_hope(const Gpu& gpu, const Tenant* tenants, uint32_t count, const Tenant& who) {
    if (who.wanted_hard)
        return std::any_of(tenants, tenants + count,
                           [&](const Tenant& one) { return one.evicting || yields_later(one, who); });
    uint64_t least = who.bytes + who.wanted;
    for (uint32_t i = 0; i < count; ++i) {
        const Tenant& one = tenants[i];
        if (one.number == who.number) continue;
        least += one.bytes - (yields_later(one, who) || one.evicting ? std::min(one.bytes, one.movable_later) : 0);
    }
    return least <= usable(gpu, tenants, count, who.tenant_class);
}

// How much must become free for a tenant that waits. Where the driver has less than it seems, one more tenant evicts at
// a time.
inline uint64_t missing(const Gpu& gpu, const Tenant* tenants, uint32_t count, const Tenant& who) {
    uint64_t wanted = taken(tenants, count) + who.wanted, there = usable(gpu, tenants, count, who.tenant_class);
    if (wanted > there) return wanted - there;
    return who.wanted_hard ? 1 : 0;
}

inline bool is_first_in_line(const Gpu& gpu, const Tenant* tenants, uint32_t count, const Tenant& who) {
    for (uint32_t i = 0; i < count; ++i) {
        const Tenant& one = tenants[i];
        if (one.number == who.number || one.wanted == 0 || one.tenant_class > who.tenant_class) continue;
        bool earlier = one.waiting_since_ns != who.waiting_since_ns ? one.waiting_since_ns < who.waiting_since_ns
                                                                    : one.number < who.number;
        if ((one.tenant_class < who.tenant_class || earlier) && has_hope(gpu, tenants, count, one)) return false;
    }
    return true;
}

inline uint64_t taken_above(const Tenant* tenants, uint32_t count, const Tenant& self) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; ++i)
        if (tenants[i].tenant_class < self.tenant_class) sum += tenants[i].bytes;
    return sum;
}

// Whether a higher class waits for memory, or has grown from `above` bytes into its headroom and may want more soon.
// Then a tenant that is about to evict does not wait for a better point, and a tenant whose restore is under way
// abandons it, which is free: all of its memory is still on the host. What equals count for a moment, to see whether
// there is space, presses nobody.
inline bool is_pressed(const Gpu& gpu, const Tenant* tenants, uint32_t count, const Tenant& self, uint64_t above) {
    bool is_over = gpu.capacity && taken(tenants, count) > usable(gpu, tenants, count, self.tenant_class);
    if (is_over && taken_above(tenants, count, self) > above) return true;
    return std::any_of(tenants, tenants + count, [&](const Tenant& one) {
        return one.wanted && one.tenant_class < self.tenant_class && has_hope(gpu, tenants, count, one);
    });
}

// Whether this tenant has to evict: the next tenant in the queue waits for its space, or the headroom of the higher
// classes is used.
inline bool must_evict(const Gpu& gpu, const Tenant* tenants, uint32_t count, const Tenant& self, uint64_t now_ns,
                       uint32_t* out) {
    auto is_chosen = [&](const Tenant& needy, uint64_t bytes) {
        uint32_t chosen = bytes ? choose(tenants, count, needy, bytes, now_ns, out) : 0;
        return std::find(out, out + chosen, self.number) != out + chosen;
    };
    for (uint32_t i = 0; i < count; ++i) {
        const Tenant& one = tenants[i];
        if (one.wanted && one.number != self.number && has_hope(gpu, tenants, count, one) &&
            is_first_in_line(gpu, tenants, count, one) && is_chosen(one, missing(gpu, tenants, count, one)))
            return true;
    }
    uint64_t all = taken(tenants, count), there = usable(gpu, tenants, count, self.tenant_class);
    if (all <= there || self.tenant_class == kProduction) return false;
    Tenant above{};
    above.number = UINT32_MAX;
    above.tenant_class = self.tenant_class - 1;
    return is_chosen(above, all - there);
}

}  // namespace arbiter

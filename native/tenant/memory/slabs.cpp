#include "tenant/memory/slabs.h"

#include <algorithm>

namespace tenant {

uint32_t Slab::next_free(uint32_t unit) const {
    while (unit < kUnits) {
        uint64_t free = ~taken_[unit / 64] >> (unit % 64);
        if (free) return unit + static_cast<uint32_t>(__builtin_ctzll(free));
        unit = (unit / 64 + 1) * 64;
    }
    return kUnits;
}

// Where the gap that `unit` lies in ends, looking no further than `most`.
uint32_t Slab::end_of_gap(uint32_t unit, uint32_t most) const {
    while (unit < most) {
        uint64_t taken = taken_[unit / 64] >> (unit % 64);
        if (taken) return std::min(most, unit + static_cast<uint32_t>(__builtin_ctzll(taken)));
        unit = (unit / 64 + 1) * 64;
    }
    return most;
}

uint32_t Slab::end_of_piece(uint32_t start) const {
    uint32_t unit = start + 1;
    while (unit < kUnits && is_taken(unit) && !is_start(unit)) ++unit;
    return unit;
}

void Slab::mark(uint32_t first, uint32_t end, bool taken) {
    for (uint32_t unit = first; unit < end; ++unit) {
        uint64_t bit = uint64_t{1} << (unit % 64);
        taken_[unit / 64] = taken ? taken_[unit / 64] | bit : taken_[unit / 64] & ~bit;
    }
    used_ = taken ? used_ + (end - first) : used_ - (end - first);
}

uint64_t Slab::take(uint64_t bytes) {
    if (bytes == 0 || bytes > kMostBytes) return 0;
    auto units = static_cast<uint32_t>((bytes + kUnit - 1) / kUnit);
    if (units > longest_) return 0;
    uint32_t longest = 0;
    first_free_ = next_free(first_free_);
    for (uint32_t at = first_free_; at < kUnits; at = next_free(at)) {
        uint32_t end = end_of_gap(at, kUnits);
        if (end - at >= units) {
            mark(at, at + units, true);
            starts_[at / 64] |= uint64_t{1} << (at % 64);
            over_[at] = static_cast<uint16_t>(units * kUnit - bytes);
            return base_ + at * kUnit;
        }
        longest = std::max(longest, end - at);
        at = end;
    }
    longest_ = longest;
    return 0;
}

bool Slab::give(uint64_t address) {
    uint64_t base = 0, bytes = 0;
    if (!piece_around(address, &base, &bytes) || base != address) return false;
    auto start = static_cast<uint32_t>((address - base_) / kUnit);
    uint32_t end = end_of_piece(start);
    mark(start, end, false);
    starts_[start / 64] &= ~(uint64_t{1} << (start % 64));
    longest_ = kUnits;
    first_free_ = std::min(first_free_, start);
    return true;
}

bool Slab::piece_around(uint64_t address, uint64_t* base, uint64_t* bytes) const {
    if (address - base_ >= kBytes) return false;
    auto start = static_cast<uint32_t>((address - base_) / kUnit);
    if (!is_taken(start)) return false;
    while (!is_start(start)) --start;
    uint64_t asked = (end_of_piece(start) - start) * kUnit - over_[start];
    *base = base_ + start * kUnit;
    *bytes = asked;
    return address - *base < asked;
}

}  // namespace tenant

// Disjoint address ranges in ascending order, each with what is known about it. Pure: addresses are only numbers here.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

namespace softgpu {

template <typename Value>
class RangeTable {
 public:
    struct Entry {
        uint64_t base;
        uint64_t size;
        Value value;
        uint64_t end() const { return base + size; }
        bool contains(uint64_t address) const { return address >= base && address < end(); }
    };
    using Map = std::map<uint64_t, Entry>;

    bool overlaps(uint64_t base, uint64_t size) const {
        auto next = entries_.lower_bound(base);
        if (next != entries_.end() && next->first - base < size) return true;
        return next != entries_.begin() && std::prev(next)->second.end() > base;
    }

    // Null, and nothing changed, where it would overlap.
    Entry* insert(uint64_t base, uint64_t size, Value value) {
        if (size == 0 || base + size < base || overlaps(base, size)) return nullptr;
        return &entries_.emplace(base, Entry{base, size, std::move(value)}).first->second;
    }

    Entry* starting_at(uint64_t base) {
        auto found = entries_.find(base);
        return found == entries_.end() ? nullptr : &found->second;
    }

    Entry* containing(uint64_t address) {
        auto next = entries_.upper_bound(address);
        if (next == entries_.begin()) return nullptr;
        Entry& entry = std::prev(next)->second;
        return entry.contains(address) ? &entry : nullptr;
    }

    // Removes the range that starts at `base` and hands its value over.
    Value take(uint64_t base) {
        auto found = entries_.find(base);
        Value value = std::move(found->second.value);
        entries_.erase(found);
        return value;
    }

    // Whether every byte of [base, base + size) lies in ranges that `allows` accepts; neighbours join.
    template <typename Predicate>
    bool covered(uint64_t base, uint64_t size, Predicate allows) {
        if (base + size < base) return false;
        for (uint64_t at = base; at < base + size;) {
            Entry* entry = containing(at);
            if (!entry || !allows(*entry)) return false;
            at = entry->end();
        }
        return true;
    }

    bool covered(uint64_t base, uint64_t size) {
        return covered(base, size, [](const Entry&) { return true; });
    }

    Map& entries() { return entries_; }

 private:
    Map entries_;
};

}  // namespace softgpu

// A hash table of plain values by a number, for what a process holds. It never throws: where there is no memory for it,
// an entry is not made. The caller has the lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace tenant {

template <class Value>
class MemoryTable {
 public:
    // Null: none. What it points to stays until the next `enter`.
    Value* find(uint64_t key) {
        for (uint64_t i = hash(key), tries = 0; tries < capacity_; ++i, ++tries) {
            Place& place = places_[i & (capacity_ - 1)];
            if (place.state == empty) return nullptr;
            if (place.state == taken && place.key == key) return &place.value;
        }
        return nullptr;
    }

    // The value under this key, new or replaced; null where there is no memory.
    Value* enter(uint64_t key, const Value& value) {
        if (Value* there = find(key)) {
            *there = value;
            return there;
        }
        if ((used_ + 1) * 2 > capacity_ && !grow()) return nullptr;
        uint64_t i = hash(key);
        while (places_[i & (capacity_ - 1)].state == taken) ++i;
        Place& place = places_[i & (capacity_ - 1)];
        used_ += place.state == empty;
        ++count_;
        place = {key, value, taken};
        return &place.value;
    }

    bool take(uint64_t key, Value* out) {
        Value* there = find(key);
        if (!there) return false;
        *out = *there;
        remove(there);
        return true;
    }

    // act(key, value) -> whether it goes.
    template <class Goes>
    void remove_if(Goes&& goes) {
        for (uint64_t i = 0; i < capacity_; ++i)
            if (places_[i].state == taken && goes(places_[i].key, places_[i].value)) remove(&places_[i].value);
    }

    // act(key, value)
    template <class Act>
    void each(Act&& act) {
        for (uint64_t i = 0; i < capacity_; ++i)
            if (places_[i].state == taken) act(places_[i].key, places_[i].value);
    }

    uint64_t count() const { return count_; }
    void discard() {
        free(places_);
        *this = MemoryTable();
    }
    // In a forked child, where another thread may have been in the middle of a change: what was there is left alone.
    void abandon() { *this = MemoryTable(); }

 private:
    enum State : uint8_t { empty, taken, removed };
    struct Place {
        uint64_t key;
        Value value;
        State state;
    };

    static uint64_t hash(uint64_t key) {
        key *= 0x9e3779b97f4a7c15u;
        return key ^ key >> 32;
    }

    void remove(Value* value) {
        auto* place = reinterpret_cast<Place*>(reinterpret_cast<char*>(value) - offsetof(Place, value));
        place->state = removed;
        --count_;
    }

    // For twice as many as there are, without the removed ones.
    bool grow() {
        uint64_t capacity = 64;
        while (capacity < count_ * 4) capacity *= 2;
        auto* places = static_cast<Place*>(calloc(capacity, sizeof(Place)));
        if (!places) return used_ + 1 < capacity_;
        Place* before = places_;
        uint64_t places_before = capacity_;
        places_ = places;
        capacity_ = capacity;
        used_ = count_ = 0;
        for (uint64_t i = 0; i < places_before; ++i)
            if (before[i].state == taken) enter(before[i].key, before[i].value);
        free(before);
        return true;
    }

    Place* places_ = nullptr;
    uint64_t capacity_ = 0;  // a power of two, or none
    uint64_t used_ = 0;      // places that are not empty
    uint64_t count_ = 0;     // entries
};

}  // namespace tenant

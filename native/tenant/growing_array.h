// An array of plain values that grows. It never throws: without memory nothing is added. It has no destructor, since
// globals must not end while threads of the guest still run. The caller holds the lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace tenant {

template <class Value>
class GrowingArray {
    static_assert(std::is_trivially_copyable_v<Value>);

 public:
    size_t count() const { return count_; }
    const Value* data() const { return values_; }
    Value& operator[](size_t i) { return values_[i]; }
    const Value& operator[](size_t i) const { return values_[i]; }
    Value* begin() { return values_; }
    Value* end() { return values_ + count_; }

    // Room for so many. False, here and below: there is no memory, and all is as before.
    bool reserve(size_t wanted) {
        if (wanted <= room_) return true;
        size_t room = std::max({wanted, 2 * room_, size_t{64}});
        auto* values = static_cast<Value*>(realloc(values_, room * sizeof(Value)));
        if (!values) return false;
        values_ = values;
        room_ = room;
        return true;
    }
    bool insert(size_t at, const Value& value) {
        if (!reserve(count_ + 1)) return false;
        memmove(values_ + at + 1, values_ + at, (count_ - at) * sizeof(Value));
        values_[at] = value;
        ++count_;
        return true;
    }
    bool add(const Value& value) { return insert(count_, value); }
    bool add(const Value* values, size_t count) {
        if (!reserve(count_ + count)) return false;
        if (count) memcpy(values_ + count_, values, count * sizeof(Value));
        count_ += count;
        return true;
    }

    void remove(size_t at) {
        --count_;
        memmove(values_ + at, values_ + at + 1, (count_ - at) * sizeof(Value));
    }
    void clear() { count_ = 0; }
    void discard() {
        free(values_);
        *this = GrowingArray();
    }
    // In a forked child, where another thread may have been in the middle of a change: what was there is left alone.
    void abandon() { *this = GrowingArray(); }

 private:
    Value* values_ = nullptr;
    size_t count_ = 0, room_ = 0;
};

}  // namespace tenant

// The objects that callers hold handles of. A handle is a number, never an address, and never given out twice: what was
// destroyed stays unknown, and a handle of one kind is not taken for one of another.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace softgpu {

template <class Object, class Handle>
class Registry {
 public:
    using Ref = std::shared_ptr<Object>;

    explicit Registry(uint64_t kind) : first_(kind << 40 | 1u << 12), next_(first_) {}

    Handle issue() {
        const std::lock_guard<std::mutex> lock(mutex_);
        next_ += step;
        return reinterpret_cast<Handle>(next_);
    }
    // Whether there is, or was, an object of this kind with this handle.
    bool was_issued(Handle handle) const {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto number = reinterpret_cast<uintptr_t>(handle);
        return number > first_ && number <= next_ && (number - first_) % step == 0;
    }
    void put(Handle handle, Ref object) {
        const std::lock_guard<std::mutex> lock(mutex_);
        objects_[handle] = std::move(object);
    }
    Ref find(Handle handle) const {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = objects_.find(handle);
        return found == objects_.end() ? nullptr : found->second;
    }
    template <class Predicate>
    Ref find_if(Predicate&& condition) const {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (const auto& [handle, object] : objects_)
            if (condition(*object)) return object;
        return nullptr;
    }
    // The object is returned so that its destructor runs outside the lock.
    Ref remove(Handle handle) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = objects_.find(handle);
        if (found == objects_.end()) return nullptr;
        Ref object = std::move(found->second);
        objects_.erase(found);
        return object;
    }
    template <class Predicate>
    std::vector<Ref> remove_if(Predicate&& condition) {
        std::vector<Ref> removed;
        const std::lock_guard<std::mutex> lock(mutex_);
        for (auto it = objects_.begin(); it != objects_.end();) {
            if (condition(*it->second)) {
                removed.push_back(std::move(it->second));
                it = objects_.erase(it);
            } else {
                ++it;
            }
        }
        return removed;
    }

 private:
    static constexpr uintptr_t step = 16;

    mutable std::mutex mutex_;
    const uintptr_t first_;
    uintptr_t next_;
    std::unordered_map<Handle, Ref> objects_;
};

}  // namespace softgpu

// A child that a bare clone() or _Fork() has made: no handler of fork.h ran there, so it has its parent's state without
// its parent's threads. What stands in NotInherited is zero in it, as the kernel has wiped its page (MADV_WIPEONFORK).
// A child that shares its parent's memory (vfork, CLONE_VM) finds it as it is, and is one more thread to us.
//
// The launch path looks for nothing: it finds that it has not joined. Whoever waits for another thread looks first.
#pragma once

#include <atomic>
#include <cstddef>

namespace tenant {

class Membership;

class NotInherited {
    // So that nothing else of the library is on that page, wherever the linker and the loader put it.
    static constexpr size_t kLargestPage = 65536;
    char before_[kLargestPage] = {};

 public:
    alignas(2 * sizeof(void*)) std::atomic<Membership*> joined{nullptr};
    std::atomic<bool> is_known{false};  // fork.h has seen this process begin

 private:
    char behind_[kLargestPage] = {};
};
inline NotInherited not_inherited;

// What makes an ordinary forked child of it; null where the kernel does not wipe, or nothing is to be forgotten yet.
inline std::atomic<void (*)()> forget_in_raw_child{nullptr};

inline void look_for_raw_child() {
    void (*forget)() = forget_in_raw_child.load(std::memory_order_acquire);
    if (__builtin_expect(forget && !not_inherited.is_known.load(std::memory_order_relaxed), 0)) forget();
}

}  // namespace tenant

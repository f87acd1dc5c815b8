// What a thread does between two waits for the GPU: it works, or it sleeps until there is something to do. Of a request
// the first is a part and the second is not, and whoever spins until the next request comes never sleeps.
//
// To ask the kernel takes half a microsecond, before a wait and after it. So OwnTime looks at only some of the times
// between two waits where a thread waits often. It draws them at random, and each counts for those that it left out.
#pragma once

#include <cstdint>

namespace tenant {

class OwnTime {
 public:
    static constexpr uint64_t kLookEveryNs = 250'000;  // in the mean, at most so often

    struct Spent {
        uint64_t cpu_ns = 0, asleep_ns = 0;
    };
    // After a wait.
    void begin(uint64_t now_ns);
    // Before the next. Nothing, where it has not begun or is not looked at.
    Spent end(uint64_t now_ns) { return since_ns_ ? spent(now_ns) : Spent{}; }
    // In a call whose time counts as a wait.
    void leave_out(uint64_t ns) { left_out_ns_ += ns; }

 private:
    struct Usage {
        uint64_t cpu_ns = 0;
        int64_t sleeps = 0;
    };
    static Usage usage();
    bool is_drawn(uint64_t now_ns);
    Spent spent(uint64_t now_ns);

    uint64_t since_ns_ = 0, left_out_ns_ = 0;  // the first 0: it has not begun, or is not looked at
    Usage then_;
    uint64_t began_ns_ = 0;          // whether it is looked at or not
    float every_ns_ = kLookEveryNs;  // a running mean
    float counts_for_ = 1;
    uint32_t random_ = 1;
};

inline thread_local OwnTime own_time;

}  // namespace tenant

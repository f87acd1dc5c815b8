// What a thread does between two waits for the GPU: it works, or it sleeps until there is something to do. Of a request
// the first is a part and the second is not, and whoever spins until the next request comes never sleeps.
#pragma once

#include <cstdint>

namespace tenant {

class OwnTime {
 public:
    struct Spent {
        uint64_t cpu_ns = 0, asleep_ns = 0;
    };
    void begin(uint64_t now_ns);
    // Nothing, where it has not begun.
    Spent end(uint64_t now_ns) { return since_ns_ ? spent(now_ns) : Spent{}; }
    // In a call whose time counts as a wait.
    void leave_out(uint64_t ns) { left_out_ns_ += ns; }

 private:
    struct Usage {
        uint64_t cpu_ns = 0;
        int64_t sleeps = 0;
    };
    static Usage usage();
    Spent spent(uint64_t now_ns);

    uint64_t since_ns_ = 0, left_out_ns_ = 0;  // the first 0: it has not begun
    Usage then_;
};

inline thread_local OwnTime own_time;

}  // namespace tenant

// What is due at the next launch of a tenant that passes no gates, GPU by GPU: rarely anything, so that the launch path
// looks at one word. Any thread may note something; the thread that launches next takes all of it.
#pragma once

#include "tenant/gpu_set.h"

namespace tenant {

class Due {
 public:
    struct Taken {
        bool starts;  // it is the first launch of a burst
        bool gap;     // a thread has waited for the GPU since the last launch of this burst
    };

    void begin_burst(int gpu) {
        starts_.add(gpu);
        any_.add(gpu);
    }
    void saw_wait(int gpu) {
        waits_.add(gpu);
        any_.add(gpu);
    }
    void look_again(int gpu) { any_.add(gpu); }

    bool has(int gpu) const { return any_.has(gpu); }
    Taken take(int gpu) {
        any_.take(gpu);
        bool starts = starts_.take(gpu), waited = waits_.take(gpu);
        return {starts, waited && !starts};
    }

 private:
    GpuSet any_, starts_, waits_;
};

}  // namespace tenant

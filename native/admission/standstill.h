// Whether a kernel that is cut stands still, pure. Beside a process that is no tenant, which has the driver's slice, a
// slice of 30 us is over before the hardware has put a cut kernel back onto the GPU: the kernel never ends. NVML's list
// of processes does not tell: it is seconds old, and in a container it may leave others out. So the tenant looks at its
// own work.
//
//   stands still   free for 50 ms and four times the expected rest of its kernels (cut.h), and nothing ended; free:
//                  its kernels are on the GPU, nobody above is at work, and no equal is on it
//   then           longer slices are tried. What ends meanwhile shows that they help: they stay for 2 s. Where nothing
//                  ends (a kernel of seconds of which nothing is known yet, a stream that waits for the CPU) the next
//                  try comes later: longer slices make production wait, and are tried an eighth of the time in the end
#pragma once

#include <algorithm>

namespace admission {

class Standstill {
 public:
    // Since the last look so much time has passed, and the tenant was free for all of it or none; whether anything
    // ended; the expected rest. In microseconds.
    void look(float passed_us, bool is_free, bool has_ended, float rest_us) {
        found_for_us_ = std::max(0.0f, found_for_us_ - passed_us);
        if (has_ended) {
            if (is_trying_) found_for_us_ = kFoundUs, patience_us_ = kPatienceUs;
            is_trying_ = false;
            still_us_ = 0;
        }
        if (has_ended || !is_free || found_for_us_ > 0) return;
        still_us_ += passed_us;
        float longest_us = is_trying_ ? std::max(kTryUs, patience_us_ / kPart) : patience_us_;
        if (still_us_ <= longest_us + kRests * rest_us) return;
        if (is_trying_) patience_us_ = std::min(2 * patience_us_, kMostPatienceUs);
        is_trying_ = !is_trying_;
        still_us_ = 0;
    }
    bool is_found() const { return is_trying_ || found_for_us_ > 0; }

 private:
    static constexpr float kPatienceUs = 50e3, kMostPatienceUs = 16e6, kTryUs = 200e3, kFoundUs = 2e6;
    static constexpr float kPart = 8, kRests = 4;

    float still_us_ = 0, patience_us_ = kPatienceUs;
    float found_for_us_ = 0;  // for which the longer slices stay
    bool is_trying_ = false;
};

}  // namespace admission

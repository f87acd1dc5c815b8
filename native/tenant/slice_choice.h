// The watcher chooses the time slices that this tenant asks the hardware for (time_slice.h): by the tenant's class, by
// who else uses its GPUs, by how long its kernels are, and by what a cut was seen to cost production.
#pragma once

#include <utility>

#include "admission/cut.h"
#include "tenant/membership.h"
#include "tenant/settings.h"
#include "tenant/time_slice.h"
#include "wire/gates.h"

namespace tenant {

class SliceChoice {
 public:
    explicit SliceChoice(Membership& membership) : membership_(membership) {}

    // `has_above`: somebody of a class above uses one of its GPUs.
    void mind(bool has_above);
    // What an administrator wants; 0: by class.
    void ask(uint32_t us) { asked_us_ = us; }
    // Whether an equal was on the GPU with this tenant lately. True: that has changed.
    bool note_overlap(bool overlaps);
    // The expected rest of the kernel that runs.
    float rest_us() const { return cutting_.rest_us(); }
    // A look at who is below a floor: this tenant, or of production anybody. True: other slices are to be had.
    bool note_floors(int gpu, uint64_t now_ns);
    // Whether a kernel that is cut stands still. True: that has changed.
    bool note_standstill(int gpu, bool stands_still) {
        return std::exchange(seen_[gpu].stands_still, stands_still) != stands_still;
    }
    // A look at whether the classes above rest beside processes that are no tenants. True: that has changed.
    bool note_rest(int gpu, uint64_t now_ns);
    // Whether somebody was, lately: the slices are such that the floors are kept.
    bool by_floors() const { return by_floors_; }

 private:
    void learn_cost(int gpu);
    void note_graphs(uint64_t now_ns);
    bool is_any_above_awake();
    bool stands_still() const;

    Membership& membership_;
    admission::Cutting cutting_;
    uint64_t graphs_ = 0, graphs_ns_ = 0;   // launched so far; when there was last seen another one
    admission::RecentKernels all_kernels_;  // of the whole run
    admission::CutCost cut_cost_;
    // As of the last look: how long production has waited for a GPU, how much this tenant has executed there, whether
    // a kernel of it stands still, and whether the classes above rest.
    struct {
        wire::Waits waits;
        uint64_t used_ns = 0;
        uint64_t bursts_above = 0, worked_above_ns = 0;  // when a class above last worked, or nobody else was there
        bool stands_still = false, rests = false;
    } seen_[wire::kGpus];
    bool overlaps_ = false;
    uint64_t met_ns_ = 0;    // when another production job was last at work with this one
    uint64_t below_ns_ = 0;  // when somebody was last seen below a floor
    bool by_floors_ = false;
    const float said_cost_us_ = cut_cost_from_environment();
    uint32_t asked_us_ = 0;
    admission::TimeSlices set_ = {};
};

}  // namespace tenant

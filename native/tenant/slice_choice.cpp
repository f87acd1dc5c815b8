#include "tenant/slice_choice.h"

#include "tenant/timeline.h"
#include "wire/border.h"
#include "wire/clock.h"
#include "wire/gates.h"

namespace tenant {

bool SliceChoice::note_overlap(bool overlaps) {
    bool changed = overlaps != overlaps_;
    overlaps_ = overlaps;
    return changed;
}

void SliceChoice::mind(bool has_above) {
    if (membership_.is_lane()) return;  // slices are the process's
    wire::Segment& segment = membership_.segment();
    const Terms& terms = membership_.terms;
    uint32_t tenant_class = terms.tenant_class;
    bool beside_production = false, beside_floor = false;
    if (tenant_class == wire::production)
        membership_.used_gpus.each([&](int gpu) {
            beside_production |=
                wire::anybody_else(segment, membership_.index(), gpu, wire::production, wire::production);
            beside_floor |= wire::any_floor(segment, gpu);
        });
    bool shares = admission::shares_slices(tenant_class, terms.floor != 0, beside_production, beside_floor);
    if (wire::rule_of(segment.header) == admission::none) tenant_class = wire::standard;  // the driver's own
    Durations::Noted noted = membership_.durations.take_noted();
    cutting_.look(static_cast<double>(wire::now_ns()) / 1000, noted.us, noted.squares, cut_cost_us_);
    admission::Slicing slicing{tenant_class, shares, terms.weight, has_above, cutting_.cuts(), overlaps_};
    admission::TimeSlices wanted{asked_us_ ? asked_us_ : admission::time_slice_for(slicing),
                                 admission::copy_slice_for(slicing)};
    timeline::saw_slice(wanted.kernels_us, has_above && slicing.cuts, wire::now_ns());
    if (wanted == set_) return;
    set_ = wanted;
    set_time_slices(wanted);
    wire::Slot& slot = membership_.slot();
    slot.time_slice_us.store(time_slice().granted_us);
    slot.time_slice_refused.store(time_slice().refused);
}

}  // namespace tenant

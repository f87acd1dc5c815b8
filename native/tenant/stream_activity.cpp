#include "tenant/stream_activity.h"

#include <algorithm>

#include "tenant/captures.h"
#include "tenant/context.h"
#include "tenant/graphs.h"
#include "tenant/lanes.h"
#include "tenant/mps.h"

namespace tenant {

namespace {

bool is_empty(StreamState& state) {
    if (state.is_known_by_event()) {
        CUevent last_work = state.last_work.load(std::memory_order_acquire);
        return !last_work || mps::note(driver.cuEventQuery(last_work)) != CUDA_ERROR_NOT_READY;
    }
    if (current_context() != state.context && driver.cuCtxSetCurrent(state.context) != CUDA_SUCCESS) return true;
    // An error (a context that has failed) is an end too.
    return mps::note(driver.cuStreamQuery(state.handle)) != CUDA_ERROR_NOT_READY;
}

}  // namespace

Seen StreamActivity::see(int gpu) {
    Seen seen;
    int standing = standing_graphs(membership_, gpu), running = 0, with_work = 0;
    bool has_legacy = false;
    uint64_t now = wire::now_ns(), moves = 0, ends = 0;
    if (!membership_.try_lock()) {
        seen.unfinished = seen.uses_bus = seen.is_unknown = true;
        seen.running = running_[gpu];
        seen.needs_sms = needs_sms_[gpu];
        return seen;
    }
    // While a graph is captured no stream may be asked.
    bool capturing = captures.load() != 0;
    bool counts = passes_gates(membership_) && !capturing && membership_.linked_streams.is_to_be_counted(gpu, now);
    membership_.streams.for_each([&](StreamState& state) {
        if (state.gpu != gpu) return;
        uint64_t issued = state.issued.load();
        moves += issued + state.finished;
        seen.called |= state.is_being_called();
        seen.calls_for_sms |= state.is_being_called_but_for_copies();
        if (issued != state.finished) {
            seen.changed = true;
            bool copies = membership_.progress.is_among_copies(state);
            if (membership_.progress.stands_at_gate(state)) {
                seen.unfinished = true;
                seen.standing |= !copies;
            } else if (running > standing && !copies && !counts && !membership_.progress.uses_bus(state)) {
                // Whether this one runs too makes no difference.
            } else if (!capturing && is_empty(state)) {
                state.finished = issued;
            } else {
                seen.unfinished = true;
                seen.copying |= copies;
                running += !copies;
            }
            with_work += issued != state.finished;
            has_legacy |= issued != state.finished && state.is_legacy();
        }
        ends += state.finished + (state.progress_word ? membership_.progress.mark_passed(state) : 0);
        seen.uses_bus |= membership_.progress.uses_bus(state);
    });
    // Nobody will put anything into it any more.
    membership_.streams.remove_if([](const StreamState& state) {
        bool goes = state.is_destroyed() && state.finished == state.issued.load();
        if (goes) driver.cuEventDestroy_v2(state.last_work.load(std::memory_order_relaxed));
        return goes;
    });
    if (membership_.is_lane()) Membership::standing_places.free_unused(&membership_);
    membership_.unlock();
    if (!seen.unfinished && !seen.called) forget_what_was_in_flight(membership_, gpu);
    if (counts || has_legacy) membership_.linked_streams.saw(gpu, counts ? with_work : 0, has_legacy, now);
    if (moves != moves_[gpu]) membership_.note_move(gpu, now);
    moves_[gpu] = moves;
    ends_[gpu] = ends;
    // Each graph that stands is in a stream that seems to run.
    seen.running = running_[gpu] = running > standing;
    seen.needs_sms = needs_sms_[gpu] = seen.standing || running || capturing;
    return seen;
}

void StreamActivity::show_in_flight(int gpu) {
    double in_flight = 0;
    if (!membership_.try_lock()) return;
    membership_.streams.for_each([&](StreamState& state) {
        if (state.gpu == gpu) in_flight += membership_.progress.in_flight_us(state);
    });
    membership_.unlock();
    membership_.slot().gpus[gpu].in_flight_us.store(static_cast<uint32_t>(std::min(in_flight, 4e9)));
}

}  // namespace tenant

#include "tenant/record/op_timer.h"

#include "tenant/relaxed.h"
#include "wire/clock.h"

namespace tenant {

void Timing::learn(float sample_us, Trust how) {
    if (samples && how < trust) return;
    if (!samples || how > trust) *this = {0, how, sample_us, sample_us, sample_us};
    ++samples;
    if (how == Trust::backed_up)
        us += (sample_us - us) / samples;
    else
        us = sample_us < us ? sample_us : us + (sample_us - us) / 16;
    min_us = std::min(min_us, sample_us);
    max_us = std::max(max_us, sample_us);
}

OpTimer::Sample* OpTimer::begin(void* owner, CUcontext context, CUstream stream) {
    Relaxed relaxed;
    uint32_t from = next_.fetch_add(1, std::memory_order_relaxed);
    for (uint32_t i = 0; i < kTries; ++i) {
        Sample& sample = samples_[(from + i) % kSamples];
        if (!sample.take(context)) continue;
        sample.owner = owner;
        if (!sample.begin(context, stream)) return nullptr;
        sample.begun_ns = wire::now_ns();
        return &sample;
    }
    return nullptr;
}

void OpTimer::end(Sample* sample, CUstream stream, bool launched, bool is_first, bool is_queued) {
    float host_us = static_cast<float>(wire::now_ns() - sample->begun_ns) / 1000;
    Relaxed relaxed;
    // The end first: a GPU that has waited for the launch waits for this event too.
    bool timed = launched && sample->end(stream);
    bool backed_up = !is_queued || !sample->has_begun();
    sample->host_us = backed_up ? 0 : host_us;
    sample->trust = is_first ? Trust::first : backed_up ? Trust::backed_up : Trust::starved;
    sample->hand_over(timed);
}

bool OpTimer::any_on_its_way() const {
    for (const Sample& sample : samples_)
        if (sample.is_on_its_way()) return true;
    return false;
}

void OpTimer::lend_to(CUcontext context) {
    uint32_t own = 0;
    for (const Sample& sample : samples_) own += sample.is_of(context);
    if (own >= kSamples / kLentEvery) return;
    for (uint32_t i = next_.load(std::memory_order_relaxed) % kLentEvery; i < kSamples; i += kLentEvery)
        if (!samples_[i].is_of(context)) samples_[i].give_up();
}

void OpTimer::forget_context(CUcontext context) {
    for (Sample& sample : samples_) sample.forget_context(context);
}

}  // namespace tenant

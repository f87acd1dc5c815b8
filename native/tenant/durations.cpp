#include "tenant/durations.h"

#include "admission/admission.h"

namespace tenant {

namespace {

constexpr uint32_t kFirstSamples = 4;
constexpr uint32_t kSampleEvery = 128;

}  // namespace

float Durations::estimate(Shape shape) const {
    const Entry& here = entry(shape);
    if (here.shape.load(std::memory_order_acquire) != shape) return admission::kUnknown;
    return here.us.load(std::memory_order_relaxed);
}

bool Durations::wants_sample(Shape shape) {
    Entry& here = entry(shape);
    if (here.shape.load(std::memory_order_relaxed) != shape) {
        here.us.store(admission::kUnknown, std::memory_order_relaxed);
        here.launches.store(0, std::memory_order_relaxed);
        here.shape.store(shape, std::memory_order_release);
    }
    uint32_t launch = here.launches.load(std::memory_order_relaxed);
    here.launches.store(launch + 1, std::memory_order_relaxed);
    return launch < kFirstSamples || launch % kSampleEvery == 0 ||
           (here.us.load(std::memory_order_relaxed) < 0 && launch % kFirstSamples == 0);
}

void Durations::learn(Shape shape, float us) {
    Entry& here = entry(shape);
    if (here.shape.load(std::memory_order_relaxed) != shape || us < 0) return;
    // A sample that was interrupted by another process is too long, none is too short: fall at once, rise slowly.
    float known = here.us.load(std::memory_order_relaxed);
    here.us.store(known < 0 || us < known ? us : known + (us - known) / 16, std::memory_order_relaxed);
}

Samples::Sample* Samples::begin(Shape shape, CUcontext context, CUstream stream) {
    for (Sample& sample : samples_) {
        if (!sample.take(context)) continue;
        sample.shape = shape;
        return sample.begin(context, stream) ? &sample : nullptr;
    }
    return nullptr;
}

void Samples::end(Sample* sample, CUstream stream, bool launched) {
    sample->hand_over(launched && sample->end(stream));
}

bool Samples::any_on_its_way() const {
    for (const Sample& sample : samples_)
        if (sample.is_on_its_way()) return true;
    return false;
}

void Samples::collect(Durations& durations) {
    for (Sample& sample : samples_) {
        float us = 0;
        if (!sample.is_on_its_way() || !sample.is_over(&us)) continue;
        durations.learn(sample.shape, us);
        sample.free();
    }
}

void Samples::forget_context(CUcontext context) {
    for (Sample& sample : samples_) sample.forget_context(context);
}

}  // namespace tenant

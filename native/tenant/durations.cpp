#include "tenant/durations.h"

#include "admission/admission.h"

namespace tenant {

namespace {

constexpr uint32_t kFirstSamples = 4;
constexpr uint32_t kSampleEvery = 128;

}  // namespace

float Durations::estimate(Shape shape) const {
    const Entry& here = entry(shape);
    if (here.shape.load(std::memory_order_relaxed) != shape) return admission::kUnknown;
    return here.us.load(std::memory_order_relaxed);
}

bool Durations::wants_sample(Shape shape) {
    Entry& here = entry(shape);
    if (here.shape.load(std::memory_order_relaxed) != shape) {
        here.us.store(admission::kUnknown, std::memory_order_relaxed);
        here.launches.store(0, std::memory_order_relaxed);
        here.shape.store(shape, std::memory_order_relaxed);
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
        uint32_t unused = Sample::unused;
        if (sample.context != context && sample.context) continue;
        if (!sample.state.compare_exchange_strong(unused, Sample::being_taken)) continue;
        bool made = sample.context == context;
        if (!made && driver.cuEventCreate(&sample.begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS) {
            made = driver.cuEventCreate(&sample.end, CU_EVENT_DEFAULT) == CUDA_SUCCESS;
            if (!made) driver.cuEventDestroy_v2(sample.begin);
        }
        if (made) sample.context = context;
        sample.shape = shape;
        if (made && driver.cuEventRecord(sample.begin, stream) == CUDA_SUCCESS) return &sample;
        sample.state.store(Sample::unused);
        return nullptr;
    }
    return nullptr;
}

void Samples::end(Sample* sample, CUstream stream, bool launched) {
    bool timed = launched && driver.cuEventRecord(sample->end, stream) == CUDA_SUCCESS;
    sample->state.store(timed ? Sample::on_its_way : Sample::unused, std::memory_order_release);
}

bool Samples::any_on_its_way() const {
    for (const Sample& sample : samples_)
        if (sample.state.load(std::memory_order_relaxed) == Sample::on_its_way) return true;
    return false;
}

void Samples::collect(Durations& durations) {
    for (Sample& sample : samples_) {
        if (sample.state.load(std::memory_order_acquire) != Sample::on_its_way) continue;
        CUresult done = driver.cuEventQuery(sample.end);
        if (done == CUDA_ERROR_NOT_READY) continue;
        float ms = 0;
        if (done == CUDA_SUCCESS && driver.cuEventElapsedTime(&ms, sample.begin, sample.end) == CUDA_SUCCESS)
            durations.learn(sample.shape, ms * 1000);
        sample.state.store(Sample::unused, std::memory_order_release);
    }
}

void Samples::forget_context(CUcontext context) {
    for (Sample& sample : samples_) {
        if (sample.context != context) continue;
        sample.context = nullptr;
        sample.state.store(Sample::unused);
    }
}

}  // namespace tenant

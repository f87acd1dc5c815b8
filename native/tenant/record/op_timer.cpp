#include "tenant/record/op_timer.h"
#include "tenant/relaxed.h"

#include <algorithm>

#include "wire/segment.h"

namespace tenant {

namespace {

constexpr float kShortestUs = 0.5F;

}  // namespace

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
        uint32_t unused = Sample::unused;
        if (!sample.state.compare_exchange_strong(unused, Sample::being_taken)) continue;
        if (sample.context && sample.context != context) {
            sample.state.store(Sample::unused);
            continue;
        }
        bool made = sample.context == context;
        if (!made && driver.cuEventCreate(&sample.begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS) {
            made = driver.cuEventCreate(&sample.end, CU_EVENT_DEFAULT) == CUDA_SUCCESS;
            if (!made) driver.cuEventDestroy_v2(sample.begin);
        }
        if (made) sample.context = context;
        sample.owner = owner;
        if (made && driver.cuEventRecord(sample.begin, stream) == CUDA_SUCCESS) {
            sample.begun_ns = wire::now_ns();
            return &sample;
        }
        sample.state.store(Sample::unused);
        return nullptr;
    }
    return nullptr;
}

void OpTimer::end(Sample* sample, CUstream stream, bool launched, bool is_first, bool is_queued) {
    float host_us = static_cast<float>(wire::now_ns() - sample->begun_ns) / 1000;
    Relaxed relaxed;
    // The end first: a GPU that has waited for the launch waits for this event too.
    bool timed = launched && driver.cuEventRecord(sample->end, stream) == CUDA_SUCCESS;
    bool backed_up = !is_queued || driver.cuEventQuery(sample->begin) == CUDA_ERROR_NOT_READY;
    sample->host_us = backed_up ? 0 : host_us;
    sample->trust = is_first ? Trust::first : backed_up ? Trust::backed_up : Trust::starved;
    sample->state.store(timed ? Sample::on_its_way : Sample::unused, std::memory_order_release);
}

bool OpTimer::is_over(Sample& sample, float* us) {
    CUresult done = driver.cuEventQuery(sample.end);
    if (done == CUDA_ERROR_NOT_READY) return false;
    float ms = 0;
    if (done == CUDA_SUCCESS && driver.cuEventElapsedTime(&ms, sample.begin, sample.end) == CUDA_SUCCESS)
        *us = std::max(ms * 1000 - sample.host_us, kShortestUs);
    return true;
}

bool OpTimer::any_on_its_way() const {
    for (const Sample& sample : samples_)
        if (sample.state.load(std::memory_order_acquire) == Sample::on_its_way) return true;
    return false;
}

void OpTimer::forget_context(CUcontext context) {
    for (Sample& sample : samples_) {
        if (sample.context != context) continue;
        sample.context = nullptr;
        sample.state.store(Sample::unused);
    }
}

void OpTimer::forget_all() {
    for (Sample& sample : samples_) {
        sample.context = nullptr;
        sample.state.store(Sample::unused);
    }
}

}  // namespace tenant

#include "tenant/durations.h"

#include <algorithm>

#include "tenant/relaxed.h"
#include "wire/clock.h"

namespace tenant {

namespace {

constexpr uint32_t kFirstSamples = 4;
constexpr uint32_t kSampleEvery = 128;  // and at 8, 16, 32 and 64: graphs are made after a few rounds
constexpr uint32_t kLongAgo = 4;        // seconds, about
// What a launch may take the host at most, so that it counts. Of a longer one a part may have been after the kernel's
// start: the thread was interrupted, or the driver had to load code.
constexpr float kMostHostUs = 10, kShortestUs = 0.5F;
// How far two events are apart with nothing between them (H200: 1.3 us).
constexpr float kNothingUs = 1.3F;

bool is_empty(CUstream stream) {
    Relaxed relaxed;
    return driver.cuStreamQuery(stream) == CUDA_SUCCESS;
}

bool has_begun(const EventPair& pair) {
    Relaxed relaxed;
    return pair.has_begun();
}

}  // namespace

bool Durations::wants_sample(Shape shape) {
    const Entry* found = find(shape);
    Entry& here = found ? const_cast<Entry&>(*found) : take_place(shape);
    uint32_t launch = here.launches.load(std::memory_order_relaxed);
    here.launches.store(launch + 1, std::memory_order_relaxed);
    uint32_t moment = moment_.load(std::memory_order_relaxed);
    bool is_power = (launch & (launch - 1)) == 0;
    bool wanted = launch < kFirstSamples || launch % kSampleEvery == 0 || (is_power && launch > kFirstSamples) ||
                  moment - here.timed_at.load(std::memory_order_relaxed) >= kLongAgo ||
                  (launch % kFirstSamples == 0 && here.known.load(std::memory_order_relaxed).of(shape) < 0);
    if (wanted) here.timed_at.store(moment, std::memory_order_relaxed);
    return wanted;
}

Durations::Entry& Durations::take_place(Shape shape) {
    Entry* set = set_of(shape);
    Entry* least = nullptr;
    uint32_t fewest = 0;
    for (Entry* entry = set; entry < set + kPlaces; ++entry) {
        uint32_t launches = entry->launches.load(std::memory_order_relaxed);
        if (!least || launches < fewest) {
            least = entry;
            fewest = launches;
        }
        // What was used long ago is forgotten in the end; an empty place stays the least used.
        entry->launches.store(launches - launches / 2, std::memory_order_relaxed);
    }
    least->known.store({tag_of(shape), admission::kUnknown}, std::memory_order_relaxed);
    least->launches.store(0, std::memory_order_relaxed);
    least->shape.store(shape, std::memory_order_relaxed);
    return *least;
}

void Durations::begin_graph(Shape shape, float piece) {
    const Entry* found = find(shape);
    Entry& here = found ? const_cast<Entry&>(*found) : take_place(shape);
    here.known.store({tag_of(shape), admission::kUnknown}, std::memory_order_relaxed);
    here.launches.store(0, std::memory_order_relaxed);
    here.piece.store({tag_of(shape), piece}, std::memory_order_relaxed);
}

void Durations::note_fill(Shape shape, Fill fill) {
    const Entry* found = find(shape);
    Entry& here = found ? const_cast<Entry&>(*found) : take_place(shape);
    uint32_t most = UINT16_MAX;
    here.fill.store({tag_of(shape), static_cast<uint16_t>(std::min(fill.sms, most)), static_cast<uint16_t>(fill.bound)},
                    std::memory_order_relaxed);
}

void Durations::learn(Shape shape, float us) {
    auto* here = const_cast<Entry*>(find(shape));
    if (!here || us < 0) return;
    // A sample that was interrupted by another process is too long, none is too short: fall at once, rise slowly.
    Known before = here->known.load(std::memory_order_relaxed);
    float known = before.of(shape);
    Known after{tag_of(shape), known < 0 || us < known ? us : known + (us - known) / 16};
    // Unless the place is another's by now.
    here->known.compare_exchange_strong(before, after, std::memory_order_relaxed);
}

Samples::Sample* Samples::begin(Shape shape, CUcontext context, CUstream stream, bool is_kernel, float scale) {
    for (Sample& sample : samples_) {
        if (!sample.take(context)) continue;
        sample.shape = shape;
        sample.scale = scale;
        bool gpu_waits = is_kernel && is_empty(stream);
        if (!sample.begin(context, stream)) return nullptr;
        sample.begun_ns = gpu_waits ? wire::now_ns() : 0;
        return &sample;
    }
    return nullptr;
}

int Samples::count_of(CUcontext context) const {
    return static_cast<int>(
        std::count_if(samples_, samples_ + kSamples, [&](const Sample& sample) { return sample.is_of(context); }));
}

void Samples::lend_to(CUcontext context) {
    int own = count_of(context);
    for (Sample& sample : samples_) {
        CUcontext other = sample.context();
        if (other && other != context && count_of(other) > own + 1 && sample.give_up()) return;
    }
}

void Samples::end(Sample* sample, CUstream stream, bool launched) {
    float host_us = sample->begun_ns ? static_cast<float>(wire::now_ns() - sample->begun_ns) / 1000 : 0;
    bool timed = launched && sample->end(stream);
    // If it has not begun by now, another process had the GPU, and the GPU did not wait for the launch.
    bool gpu_waited = timed && host_us > 0 && has_begun(*sample) && host_us < kMostHostUs;
    sample->host_us = gpu_waited ? host_us : 0;
    sample->hand_over(timed);
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
        if (us >= 0) us = std::max(us - sample.host_us - kNothingUs, std::min(us, kShortestUs));
        durations.learn(sample.shape, us * sample.scale);
        sample.free();
    }
}

void Samples::forget_context(CUcontext context) {
    for (Sample& sample : samples_) sample.forget_context(context);
}

}  // namespace tenant

// durations CASE: what is remembered of how long operations run.
#include "tenant/durations.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "wire/clock.h"

#include "../require.h"

namespace tenant {
DriverCalls driver;
}

namespace {

using tenant::Durations;
using tenant::Shape;

constexpr Shape kBase = uint64_t{77} << 32;
// Shapes that fall on the same place of a table with one for each value of their middle bits.
Shape alike(uint32_t number) { return kBase + number; }

// Two that fall on one place are both remembered, launched in turn.
void two() {
    static Durations durations;
    for (Shape shape : {alike(1), alike(2)}) {
        REQUIRE(durations.wants_sample(shape));
        durations.learn(shape, static_cast<float>(shape - kBase) * 10);
    }
    for (int i = 0; i < 1000; ++i)
        for (Shape shape : {alike(1), alike(2)}) {
            REQUIRE(durations.estimate(shape) == static_cast<float>(shape - kBase) * 10);
            durations.wants_sample(shape);
        }
}

// Of those that are launched all the time, none is lost to others that come once.
void passers_by() {
    static Durations durations;
    for (int i = 0; i < 1000; ++i)
        for (Shape shape : {alike(1), alike(2)}) durations.wants_sample(shape);
    for (Shape shape : {alike(1), alike(2)}) durations.learn(shape, 5);
    for (uint32_t other = 100; other < 10000; ++other) {
        durations.wants_sample(alike(other));
        durations.learn(alike(other), 1000);
        for (Shape shape : {alike(1), alike(2)}) {
            durations.wants_sample(shape);
            durations.wants_sample(shape);
            REQUIRE(durations.estimate(shape) == 5);
        }
    }
    // But one that is launched no more makes room in the end.
    for (uint32_t i = 0; i < 100; ++i)
        for (uint32_t other = 3; other < 7; ++other) durations.wants_sample(alike(other));
    REQUIRE(durations.estimate(alike(1)) < 0 || durations.estimate(alike(2)) < 0);
}

void samples() {
    static Durations durations;
    int wanted = 0;
    for (int i = 0; i < 4; ++i) wanted += durations.wants_sample(alike(1));
    REQUIRE(wanted == 4);
    durations.learn(alike(1), 20);
    REQUIRE(durations.estimate(alike(1)) == 20);
    durations.learn(alike(1), 10);  // falls at once
    REQUIRE(durations.estimate(alike(1)) == 10);
    durations.learn(alike(1), 26);  // rises slowly
    REQUIRE(durations.estimate(alike(1)) == 11);
    durations.learn(alike(1), -1);
    REQUIRE(durations.estimate(alike(1)) == 11);
    wanted = 0;
    for (int i = 4; i < 100; ++i) wanted += durations.wants_sample(alike(1));
    REQUIRE(wanted == 4);
    for (int i = 100; i < 1284; ++i) wanted += durations.wants_sample(alike(1));
    REQUIRE(wanted == 14);
    durations.learn(alike(9), 3);  // nobody has launched it
    REQUIRE(durations.estimate(alike(9)) < 0);
}

// One that is launched once in a while is timed again and again.
void seldom() {
    static Durations durations;
    Shape shape = alike(1);
    int wanted = 0;
    for (uint64_t second = 100; second < 200; ++second) {
        durations.pass_time(second << 30);
        wanted += durations.wants_sample(shape);
        durations.learn(shape, 5);
    }
    REQUIRE(wanted > 24 && wanted < 30);
}

// Six shapes on four places, launched, learned and asked for by several threads: no time, no share of a graph and no
// number of SMs is ever another shape's.
void threads() {
    static Durations durations;
    auto work = [](unsigned seed) {
        for (int i = 0; i < 100000; ++i) {
            uint32_t number = 1 + static_cast<uint32_t>(rand_r(&seed)) % 6;
            Shape shape = alike(number);
            auto own = static_cast<float>(number);
            float us = durations.estimate(shape), piece = durations.piece_of_graph(shape);
            Durations::Fill fill = durations.fill_of(shape);
            REQUIRE(us < 0 || us == own);
            REQUIRE(piece == 1 || piece == own / 8);
            REQUIRE(fill.sms == 0 || (fill.sms == number && fill.bound == number % 3));
            if (durations.wants_sample(shape)) durations.learn(shape, own);
            if (i % 3 == 0) durations.note_fill(shape, {number, number % 3});
            if (i % 7 == 0) durations.begin_graph(shape, own / 8);
        }
    };
    std::vector<std::thread> running;
    for (unsigned i = 0; i < 3; ++i) running.emplace_back(work, i + 1);
    for (std::thread& thread : running) thread.join();
}

// An exec with the handle of one that is gone is another graph; and what was noted is taken once.
void graphs() {
    static Durations durations;
    Shape shape = tenant::graph_shape(&durations);
    REQUIRE(durations.piece_of_graph(shape) == 1);
    durations.begin_graph(shape, 0.25F);
    for (int i = 0; i < 5; ++i) durations.wants_sample(shape);
    durations.learn(shape, 500);
    REQUIRE(durations.estimate(shape) == 500 && durations.piece_of_graph(shape) == 0.25F);
    durations.begin_graph(shape, 0.5F);
    REQUIRE(durations.estimate(shape) < 0 && durations.piece_of_graph(shape) == 0.5F);
    for (int i = 0; i < 4; ++i) REQUIRE(durations.wants_sample(shape));
    // One that was never timed is tried again and again.
    int wanted = 0;
    for (int i = 4; i < 104; ++i) wanted += durations.wants_sample(shape);
    REQUIRE(wanted == 25);
    durations.note_pieces(100, 50);
    durations.note_pieces(20, 20);
    Durations::Noted noted = durations.take_noted();
    REQUIRE(noted.us == 120 && noted.squares == 100 * 50 + 20 * 20);
    noted = durations.take_noted();
    REQUIRE(noted.us == 0 && noted.squares == 0);
}

// A driver of events, each of the context that was current when it was made. A stream's handle is its context's.
struct Event {
    CUcontext context;
};
thread_local CUcontext current;
std::atomic<int> events_alive{0};
std::atomic<int> creates_left{1 << 30};  // until the driver would not any more
CUresult create(CUevent* out, unsigned int) {
    if (creates_left-- <= 0) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = reinterpret_cast<CUevent>(new Event{current});
    ++events_alive;
    return CUDA_SUCCESS;
}
CUresult destroy(CUevent event) {
    delete reinterpret_cast<Event*>(event);
    --events_alive;
    return CUDA_SUCCESS;
}
CUresult record(CUevent event, CUstream stream) {
    bool fits = reinterpret_cast<Event*>(event)->context == reinterpret_cast<CUcontext>(stream);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
std::atomic<int> queries_to_wait{0};  // until events have happened
CUresult query(CUevent) { return queries_to_wait > 0 && queries_to_wait-- ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }
std::atomic<int> unrelaxed_queries{0};  // each would invalidate a capture that another thread has open
thread_local bool is_relaxed = false;
CUresult exchange_mode(CUstreamCaptureMode* mode) {
    CUstreamCaptureMode before = is_relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_GLOBAL;
    is_relaxed = *mode == CU_STREAM_CAPTURE_MODE_RELAXED;
    *mode = before;
    return CUDA_SUCCESS;
}
std::atomic<bool> stream_is_empty{false};
CUresult query_stream(CUstream) {
    unrelaxed_queries += !is_relaxed;
    return stream_is_empty ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
// 5 us, and what two events are apart with nothing between them.
CUresult elapsed(float* ms, CUevent, CUevent) {
    *ms = 0.0063F;
    return CUDA_SUCCESS;
}
bool is_about(float us, float wanted) { return us > wanted - 0.01F && us < wanted + 0.01F; }

void make_driver() {
    tenant::driver.cuEventCreate = create;
    tenant::driver.cuEventDestroy_v2 = destroy;
    tenant::driver.cuEventRecord = record;
    tenant::driver.cuEventQuery = query;
    tenant::driver.cuEventElapsedTime = elapsed;
    tenant::driver.cuStreamQuery = query_stream;
    tenant::driver.cuThreadExchangeStreamCaptureMode = exchange_mode;
}

// Where the GPU waits for a kernel's launch, what the launch takes the host is not the kernel's time.
void launched_late() {
    make_driver();
    auto* context = reinterpret_cast<CUcontext>(uintptr_t{64});
    auto* stream = reinterpret_cast<CUstream>(uintptr_t{64});
    current = context;
    static tenant::Samples samples;
    uint32_t number = 0;
    auto learned = [&](bool is_empty, bool is_kernel, uint64_t host_ns) {
        static Durations durations;
        Shape shape = alike(++number);
        durations.wants_sample(shape);
        stream_is_empty = is_empty;
        auto* sample = samples.begin(shape, context, stream, is_kernel);
        REQUIRE(sample);
        for (uint64_t began = wire::now_ns(); wire::now_ns() - began < host_ns;) {
        }
        tenant::Samples::end(sample, stream, true);
        samples.collect(durations);
        return durations.estimate(shape);
    };
    // The kernel takes 5 us. A thread that is interrupted meanwhile leaves it at that.
    int seen = 0;
    for (int tries = 0; tries < 1000 && seen < 3; ++tries) {
        float us = learned(true, true, 2000);
        REQUIRE(is_about(us, 5) || (us > 0 && us <= 3.01F));
        seen += us < 4;
    }
    REQUIRE(seen == 3);
    // The kernel has taken some time, whatever the host took.
    for (int tries = 0; tries < 100; ++tries) {
        float us = learned(true, true, 8000);
        REQUIRE(is_about(us, 5) || us == 0.5F);
    }
    REQUIRE(is_about(learned(true, true, 20000), 5));  // part of it may have been after the kernel's start
    REQUIRE(is_about(learned(false, true, 2000), 5));  // queued behind others
    queries_to_wait = 1;
    REQUIRE(is_about(learned(true, true, 2000), 5));  // another process had the GPU
    REQUIRE(queries_to_wait == 0);
    REQUIRE(is_about(learned(true, false, 2000), 5));  // a copy's call may return when it has ended
    REQUIRE(unrelaxed_queries == 0);
}

// Whatever the driver refuses leaves a pair as it was, for the next who takes it.
void refused() {
    make_driver();
    static Durations durations;
    Shape shape = alike(1);
    durations.wants_sample(shape);
    auto *context = reinterpret_cast<CUcontext>(uintptr_t{64}), *other = reinterpret_cast<CUcontext>(uintptr_t{128});
    auto *stream = reinterpret_cast<CUstream>(uintptr_t{64}), *others = reinterpret_cast<CUstream>(uintptr_t{128});
    current = context;
    {
        tenant::Samples samples;
        for (int can_make : {0, 1}) {
            creates_left = can_make;
            REQUIRE(!samples.begin(shape, context, stream, true) && events_alive == 0);
        }
        creates_left = 1 << 30;
        // Into another context's stream.
        REQUIRE(!samples.begin(shape, context, others, true) && !samples.any_on_its_way());
        // The launch failed, or its end could not be recorded: there is nothing to read.
        tenant::Samples::end(samples.begin(shape, context, stream, true), stream, false);
        tenant::Samples::end(samples.begin(shape, context, stream, true), others, true);
        REQUIRE(!samples.any_on_its_way() && events_alive == 2);
        for (int i = 0; i < 100; ++i) {
            auto* sample = samples.begin(shape, context, stream, true, 3);
            REQUIRE(sample && !samples.any_on_its_way());
            tenant::Samples::end(sample, stream, true);
            REQUIRE(samples.any_on_its_way());
            samples.collect(durations);
            REQUIRE(!samples.any_on_its_way() && is_about(durations.estimate(shape), 15));
        }
        REQUIRE(events_alive == 2);
        samples.forget_context(other);
        REQUIRE(samples.begin(shape, context, stream, true)->is_of(context) && events_alive == 2);
    }
    // A context gets no more than another has; one that is in use is not lent.
    tenant::Samples samples;
    std::vector<tenant::Samples::Sample*> all;
    while (auto* sample = samples.begin(shape, context, stream, true)) all.push_back(sample);
    samples.lend_to(other);
    current = other;
    REQUIRE(!samples.begin(shape, other, others, true));
    for (auto* sample : all) sample->free();
    for (int i = 0; i < 100; ++i) {
        if (!samples.begin(shape, other, others, true)) samples.lend_to(other);
    }
    int of_other = 0;
    for (auto* sample : all) of_other += sample->is_of(other);
    REQUIRE(of_other == 8);
}

// As many contexts as there are pairs, one after the other and all at once, while a watcher reads what has ended: every
// one of them is timed, with events of its own.
void pairs() {
    make_driver();
    static tenant::Samples samples;
    static Durations durations;
    static std::mutex lock;
    constexpr uintptr_t kContexts = 6;
    std::atomic<bool> over{false};
    std::thread watcher([&] {
        while (!over.load()) {
            if (samples.any_on_its_way()) {
                std::lock_guard<std::mutex> locked(lock);
                samples.collect(durations);
            }
            std::this_thread::yield();
        }
    });
    auto launch = [](uintptr_t number, int wanted) {
        current = reinterpret_cast<CUcontext>(number);
        auto* stream = reinterpret_cast<CUstream>(number);
        Shape shape = uint64_t{number} << 32 | number;
        durations.wants_sample(shape);
        for (int timed = 0; timed < wanted;) {
            if (tenant::Samples::Sample* sample = samples.begin(shape, current, stream, true)) {
                tenant::Samples::end(sample, stream, true);
                ++timed;
            } else {
                std::lock_guard<std::mutex> locked(lock);
                samples.lend_to(current);
            }
            std::this_thread::yield();
        }
        while (!is_about(durations.estimate(shape), 5)) std::this_thread::yield();
    };
    // The first takes all the pairs that there are.
    current = reinterpret_cast<CUcontext>(uintptr_t{99});
    std::vector<tenant::Samples::Sample*> all;
    while (auto* sample = samples.begin(7, current, reinterpret_cast<CUstream>(uintptr_t{99}), true))
        all.push_back(sample);
    REQUIRE(all.size() >= 16);
    for (auto* sample : all) tenant::Samples::end(sample, reinterpret_cast<CUstream>(uintptr_t{99}), true);
    std::vector<std::thread> running;
    for (uintptr_t number = 1; number <= kContexts; ++number) running.emplace_back(launch, number, 2000);
    for (std::thread& thread : running) thread.join();
    over.store(true);
    watcher.join();
    // No events are left but those of pairs; one that was lent, and that nobody has come for since, has none.
    int with_events = 0;
    for (auto* sample : all) with_events += sample->context() != nullptr;
    REQUIRE(with_events > 0 && events_alive == 2 * with_events);
    // One whose context has ended belongs to whoever comes next.
    for (uintptr_t number = 1; number <= 99; ++number) samples.forget_context(reinterpret_cast<CUcontext>(number));
    current = reinterpret_cast<CUcontext>(uintptr_t{100});
    REQUIRE(samples.begin(8, current, reinterpret_cast<CUstream>(uintptr_t{100}), true));
}

}  // namespace

int main(int argc, char** argv) {
    const char* name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "two"))
        two();
    else if (!strcmp(name, "passers_by"))
        passers_by();
    else if (!strcmp(name, "samples"))
        samples();
    else if (!strcmp(name, "seldom"))
        seldom();
    else if (!strcmp(name, "threads"))
        threads();
    else if (!strcmp(name, "pairs"))
        pairs();
    else if (!strcmp(name, "graphs"))
        graphs();
    else if (!strcmp(name, "launched_late"))
        launched_late();
    else if (!strcmp(name, "refused"))
        refused();
    else
        return 2;
    return 0;
}

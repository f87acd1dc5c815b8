#include "tenant/record/recorder.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "tenant/amounts.h"
#include "tenant/context.h"
#include "tenant/fork.h"
#include "tenant/locked.h"
#include "tenant/membership.h"
#include "tenant/own_thread.h"
#include "tenant/quiet_write.h"
#include "wire/sleep.h"

namespace tenant {

std::atomic<Recorder*> Recorder::on_{nullptr};
std::atomic<uint32_t> Recorder::epoch_{1};

namespace {

constexpr uint64_t kMillisecond = 1000000, kSecond = 1000 * kMillisecond;
constexpr uint64_t kNapNs = 20 * kMillisecond;
constexpr uint64_t kTimingNapNs = 2 * kMillisecond;  // so that there are always some free to time with
constexpr uint64_t kBlockEveryNs = kSecond;
constexpr int kLastLooks = 10;

Lock start_lock{Rank::recorder_start};
std::atomic<bool> given_up{false};

void say_not_recorded(const char* path, const char* why) {
    constexpr int kLongest = PATH_MAX + 300;
    std::unique_ptr<char[]> line(new (std::nothrow) char[kLongest]);
    if (!line) return;
    int used = snprintf(line.get(), kLongest, "cotenant: recording into %s ends: %s; the job goes on\n", path, why);
    quiet_write(STDERR_FILENO, line.get(), static_cast<size_t>(std::min(used, kLongest - 1)));
}

}  // namespace

Recorder* Recorder::start() {
    if (given_up.load(std::memory_order_relaxed)) return nullptr;
    if (!current_context()) return nullptr;

    static std::atomic<bool> registered{false};
    if (!registered.exchange(true)) atexit(finish_at_exit);
    Locked locked(start_lock);
    if (!on_.load() && !given_up.load()) {
        const char* path = getenv("COTENANT_RECORD");
        const char* why = nullptr;
        WritingSignalsBlocked blocked;
        void* memory = mmap(nullptr, sizeof(Recorder), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        Recorder* recorder = nullptr;
        if (!path || !*path)
            why = "";
        else if (memory == MAP_FAILED)
            why = strerror(errno);
        else if (recorder = new (memory) Recorder; !recorder->file_.create(path))
            why = strerror(errno);
        else if (!recorder->start_thread())
            why = "no thread can be started";
        if (!why) {
            on_.store(recorder, std::memory_order_release);
        } else {
            given_up.store(true);
            if (*why) say_not_recorded(path, why);
            if (memory != MAP_FAILED) munmap(memory, sizeof(Recorder));
        }
    }
    return on_.load();
}

bool Recorder::start_thread() {
    for (uint32_t kind = 0; kind < kOverflowing; ++kind) {
        overflow_[kind].kind = static_cast<TraceKind>(kind);
        overflow_[kind].ready.store(1);
    }
    limit_bytes_ = parse_size(getenv("COTENANT_RECORD_LIMIT"));
    last_write_ns_ = wire::now_ns();
    const char* end = getenv("COTENANT_RECORD_SECONDS");
    if (double seconds = end ? parse_number(end, &end) : 0; seconds > 0)
        stop_at_ns_ = last_write_ns_ + static_cast<uint64_t>(std::min(seconds, 1e9) * kSecond);
    return start_own_thread(thread_main, this);
}

// The thread is the parent's, and so is the file; a child that works on a GPU gets its own.
void Recorder::forget_in_child() {
    on_.store(nullptr);
    given_up.store(false);
    epoch_.fetch_add(1);
    start_lock.renew();
}

namespace {

LISTEN(AtFork, ForkStep::recorder, Recorder::forget_in_child)

}  // namespace

void Recorder::finish_at_exit() {
    // First: a thread that goes on launching finds nothing to start again.
    given_up.store(true);
    Recorder* recorder = on_.exchange(nullptr);
    if (!recorder) return;
    recorder->leaving_.store(1);
    wire::wake_here(recorder->leaving_);
    for (int tries = 0; tries < 50 && !recorder->done_.load(); ++tries) wire::wait_here(recorder->done_, 0, kNapNs);
}

void* Recorder::thread_main(void* self) {
    auto* recorder = static_cast<Recorder*>(self);
    pthread_setname_np(pthread_self(), "cotenant-record");
    recorder->run();
    recorder->done_.store(1);
    wire::wake_here(recorder->done_);
    return nullptr;
}

void Recorder::run() {
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    driver.cuThreadExchangeStreamCaptureMode(&relaxed);
    note_facts();
    while (!is_over_) {
        bool leaving = leaving_.load();
        collect_times();
        // What was launched last may be about to end.
        for (int tries = 0; leaving && tries < kLastLooks && timer.any_on_its_way(); ++tries) {
            wire::wait_here(leaving_, 1, kMillisecond);
            collect_times();
        }
        drain(leaving);
        uint64_t now = wire::now_ns();
        if (leaving)
            finish("exit");
        else if (stop_at_ns_ && now >= stop_at_ns_)
            finish("time");
        else if (now - last_write_ns_ >= kBlockEveryNs)
            write_block();
        if (!is_over_) wire::wait_here(leaving_, 0, timer.any_on_its_way() ? kTimingNapNs : kNapNs);
    }
}

void Recorder::collect_times() {
    // Never waits: who holds a lock may be in the driver for long. As in the watcher, no event is asked for while
    // somebody opens a capture.
    if (!events_lock_.try_lock()) return;
    Membership* membership = Membership::current_if_joined();
    bool locked = membership && membership->try_lock();
    if (!membership || (locked && !captures.load()))
        timer.collect([](void* owner, float us, Trust trust) {
            auto* shape = static_cast<RecordedShape*>(owner);
            shape->timing.learn(us, trust);
            shape->has_news = true;
        });
    if (locked) membership->unlock();
    unlock_events();
}

void Recorder::drain(bool for_good) {
    while (!is_over_) {
        const RecordedOperation* next = ring_.front();
        if (!next || !is_written_down(*next, for_good)) return;
        coder_.add({next->time_ns, next->wait_ns, next->bytes, next->shape ? next->shape->number : 0,
                    static_cast<uint16_t>(next->stream->number - 1), next->thread, next->kind, next->direction});
        ring_.drop_front();
        if (coder_.is_full()) write_block();
    }
}

void Recorder::finish(const char* why) {
    bool is_limit = strcmp(why, "limit") == 0;
    if (!is_limit) write_block();
    if (is_over_) return;
    body_.clear();
    body_.add(why, strlen(why));
    write_record('E');
    if (!file_.append_block(payload_)) say_not_recorded(file_.path(), strerror(errno));
    stop(nullptr);
}

void Recorder::stop(const char* problem) {
    is_over_ = true;
    given_up.store(true);
    on_.store(nullptr);
    if (problem) say_not_recorded(file_.path(), problem);
}

}  // namespace tenant

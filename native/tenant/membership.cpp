#include "tenant/membership.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "tenant/context.h"
#include "tenant/fork.h"
#include "tenant/green_contexts.h"
#include "tenant/membership_events.h"
#include "tenant/notice.h"
#include "tenant/own_thread.h"
#include "tenant/settings.h"
#include "wire/border.h"
#include "wire/sleep.h"

namespace tenant {

std::atomic<Membership*> Membership::joined_{nullptr};

namespace {

enum Phase : uint32_t { starting, holding, refused, left };

Lock join_lock{Rank::joining};
std::atomic<bool> given_up{false};
// A forked child builds its own over it: the parent's, as inherited, belongs to nobody there.
alignas(Membership) char storage[sizeof(Membership)];

size_t gate_offset(int gpu) {
    return offsetof(wire::Slot, gpus) + sizeof(wire::OnGpu) * static_cast<size_t>(gpu) + offsetof(wire::OnGpu, gate);
}

void read_program_name(char* out, size_t room) {
    int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t got = read(fd, out, room - 1);
    close(fd);
    out[got > 0 ? got : 0] = 0;
    out[strcspn(out, "\n")] = 0;
}

}  // namespace

Membership* Membership::join() {
    if (given_up.load(std::memory_order_relaxed)) return nullptr;
    // A process without a context (a forked child of a CUDA program, say) has no work to share.
    if (!current_context()) return nullptr;

    static std::atomic<bool> registered{false};
    if (!registered.exchange(true)) atexit(leave_at_exit);
    Locked locked(join_lock);
    if (!joined_.load() && !given_up.load()) {
        auto* membership = new (storage) Membership;
        std::string why;
        const char* path = segment_from_environment();
        if (!path)
            why = "COTENANT_SEGMENT is not set (start the program with 'cotenant run')";
        else if ((membership->segment_ = wire::open_segment(path, &why)) && !membership->start())
            why = std::string(path) + " has no free slot";
        if (why.empty())
            joined_.store(membership, std::memory_order_release);
        else {
            given_up.store(true);
            notice_once("%s", why.c_str());
        }
    }
    return joined_.load();
}

bool Membership::start() {
    if (!start_own_thread(watcher_main, this)) return false;
    while (phase_.load() == starting) wire::wait_here(phase_, starting, 100000000);
    return phase_.load() == holding;
}

void Membership::forget_in_child() {
    joined_.store(nullptr);
    given_up.store(false);
    wire::ask_clock_again_in_child();
    join_lock.renew();
}

namespace {

LISTEN(AtFork, ForkStep::membership, Membership::forget_in_child)

}  // namespace

void Membership::leave_at_exit() {
    tell<AtExit>([](const AtExit& one) { one.act(); });
    // First: a thread that goes on launching passes through from here on, and must not join anew. What one of them has
    // still in its hands (this object, the segment's mapping) stays as long as the process.
    given_up.store(true);
    Membership* membership = joined_.exchange(nullptr);
    if (!membership) return;
    membership->write_report();
    membership->leaving_.store(1);
    membership->wake();
    // The watcher leaves the slot by itself; if it is stuck in the driver, the kernel frees the slot when we end.
    for (int tries = 0; tries < 20 && membership->phase_.load() == holding; ++tries)
        wire::wait_here(membership->phase_, holding, 10000000);
}

void Membership::introduce() {
    slot_ = &segment_->slot(index_);
    terms_.weight = std::max(thousandths_from_environment("COTENANT_WEIGHT", 1000), 1u);
    terms_.slowdown = thousandths_from_environment("COTENANT_SLOWDOWN", 0);
    terms_.floor = thousandths_from_environment("COTENANT_FLOOR", 0);
    run_id_from_environment(terms_.run_id);
    read_program_name(terms_.name, sizeof terms_.name);
    slot_->weight.store(terms_.weight);
    slot_->slowdown.store(terms_.slowdown);
    slot_->floor.store(terms_.floor);
    memcpy(slot_->run_id, terms_.run_id, sizeof terms_.run_id);
    memcpy(slot_->name, terms_.name, sizeof terms_.name);
    // The context that brought us here has its channels already.
    slot_->time_slice_us.store(time_slice().granted_us);
    slot_->time_slice_refused.store(time_slice().refused);
    tell<AtJoin>([&](const AtJoin& one) { one.act(*segment_, *slot_); });
    wire::join_class(*segment_, index_, class_from_environment());
    terms_.tenant_class = wire::class_of(*slot_);
}

void* Membership::watcher_main(void* self) {
    auto* membership = static_cast<Membership*>(self);
    pthread_setname_np(pthread_self(), "cotenant");
    membership->index_ = wire::take_slot(*membership->segment_);
    if (membership->index_ >= 0) membership->introduce();
    membership->phase_.store(membership->index_ >= 0 ? holding : refused);
    wire::wake_here(membership->phase_);
    if (membership->index_ < 0) return nullptr;
    membership->watch();
    wire::leave_slot(*membership->segment_, membership->index_);
    membership->phase_.store(left);
    wire::wake_here(membership->phase_);
    return nullptr;
}

void Membership::become_busy(int gpu) {
    if (is_leaving()) return;  // the slot may be another tenant's by now
    wire::OnGpu& here = slot_->gpus[gpu];
    if (!here.busy.load()) {
        here.figures.bursts.fetch_add(1, std::memory_order_relaxed);
        burst_began_ns_[gpu].store(wire::now_ns(), std::memory_order_relaxed);
        untimed_.fetch_or(1u << gpu);
    }
    wire::go_busy(*segment_, index_, gpu);
    // While it was idle it has not looked who is there.
    company_.fetch_or(1u << gpu);
    if (asleep_.load() == soundly) wake();
}

void Membership::time_start(const StreamState& state) {
    untimed_.fetch_and(~(1u << state.gpu));
    if (!(below_.load(std::memory_order_relaxed) >> state.gpu & 1) || captures.load()) return;
    if (breakdown_.begin(state, wire::now_ns()) && asleep_.load()) wake();
}

void Membership::become_ready(int gpu) {
    if (!is_leaving()) wire::go_ready(*segment_, index_, gpu);
}

Membership::GatePlaces Membership::gate_places(CUcontext context, int gpu) {
    InContext there(context);
    if (!there.is_there()) return {0, 0};
    Locked locked(lock_);
    GpuPages::Addresses at = pages_.of(owner_of(context), *slot_, progress);
    return {at.slot ? at.slot + gate_offset(gpu) : 0, at.words};
}

CUdeviceptr Membership::map_gate_of(StreamState& state) {
    if (state.gate == kCannotMap) return 0;
    InContext there(state.context);
    if (!there.is_there()) return 0;
    Locked locked(lock_);
    GpuPages::Addresses at = pages_.of(owner_of(state.context), *slot_, progress);
    if (!at.slot) {
        state.gate = kCannotMap;
        notice_once("the driver cannot map %s (CUDA error %d; is it on a tmpfs such as /dev/shm?)",
                    segment_from_environment(), pages_.refusal());
        return 0;
    }
    if (at.words) progress.begin(state);
    state.progress_word = at.words ? at.words + state.number * sizeof(uint32_t) : 0;
    state.gate = at.slot + gate_offset(state.gpu);
    return state.gate;
}

Samples::Sample* Membership::begin_sample(Shape shape, const StreamState& state) {
    Samples::Sample* sample = samples.begin(shape, state.context, state.handle);
    // The first contexts have all the pairs: the next operation of this one will find some.
    if (!sample && try_lock()) {
        samples.lend_to(state.context);
        unlock();
    }
    return sample;
}

int Membership::gpu_of(CUcontext context) {
    CUdevice device = 0;
    CUuuid uuid;
    InContext there(context);
    if (!there.is_there() || driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) return -1;
    // The second version tells MIG instances apart.
    if (driver.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS) return -1;
    int gpu = wire::gpu_number(*segment_, reinterpret_cast<const uint8_t*>(uuid.bytes));
    // Until the watcher has looked who else is there, somebody may be.
    if (gpu < 0) notice_once("%s does not know GPU %d", segment_from_environment(), device);
    if (gpu >= 0 && !(used_gpus_.fetch_or(1u << gpu) >> gpu & 1)) company_.fetch_or(1u << gpu);
    return gpu;
}

void Membership::mark_end_of_work(StreamState& state) {
    if (captures.load(std::memory_order_acquire)) return;
    CUevent event = state.last_work.load(std::memory_order_relaxed);
    if (!event && driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return;
    driver.cuEventRecord(event, state.handle);
    // An event that was never recorded reads as done: only now may the watcher ask for it.
    state.last_work.store(event, std::memory_order_release);
}

void Membership::wake() {
    asleep_.store(awake);
    wire::wake_here(asleep_);
}

void Membership::write_report() {
    const char* path = getenv("COTENANT_REPORT");
    if (!path || !*path) return;
    uint64_t sums[sizeof(wire::Figures) / sizeof(wire::Count)] = {};
    for (wire::OnGpu& gpu : slot_->gpus) {
        auto* figures = reinterpret_cast<wire::Count*>(&gpu.figures);
        for (size_t i = 0; i < sizeof sums / sizeof *sums; ++i) sums[i] += figures[i].load();
    }
    char program[sizeof terms_.name];
    memcpy(program, terms_.name, sizeof program);
    for (char& c : program)
        if (c == '"' || c == '\\' || (c > 0 && c < ' ')) c = '_';
    char line[1024];
    int used = snprintf(line, sizeof line,
                        "{\"pid\": %u, \"class\": \"%s\", \"program\": \"%s\", \"kernels\": %lu, \"graphs\": %lu, "
                        "\"copies\": %lu, \"memory_ops\": %lu, \"host_calls\": %lu, \"gates\": %lu, \"escaped\": %lu, "
                        "\"bursts\": %lu, \"unknown_functions\": %lu, \"export_tables\": %lu, "
                        "\"ungated_graphs\": %lu, \"checkpoints\": %lu}\n",
                        static_cast<unsigned>(getpid()), kClassNames[terms_.tenant_class], program, sums[0], sums[1],
                        sums[2], sums[3], sums[4], sums[5], sums[6], sums[7], slot_->unknown_functions.load(),
                        slot_->export_tables.load(), slot_->ungated_graphs.load(), slot_->checkpoints.load());
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return;
    if (write(fd, line, std::min<size_t>(used, sizeof line - 1)) < 0) errno = 0;
    close(fd);
}

}  // namespace tenant

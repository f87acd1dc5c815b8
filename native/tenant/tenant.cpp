#include "tenant/tenant.h"

#include <algorithm>
#include <cstddef>

#include "admission/bus.h"
#include "admission/rules.h"
#include "tenant/captures.h"
#include "tenant/context.h"
#include "tenant/detour.h"
#include "tenant/gate.h"
#include "tenant/graphs.h"
#include "tenant/green_contexts.h"
#include "tenant/lanes.h"
#include "tenant/membership.h"
#include "tenant/memory/used_contexts.h"
#include "tenant/timeline.h"
#include "wire/border.h"
#include "wire/sleep.h"

namespace tenant {

DriverCalls driver;

namespace {

// Small numbers for threads, given back when a thread ends, so that per-thread streams do not pile up. 0 and 1 mean
// something else in a StreamKey.
class ThreadNumber {
 public:
    ThreadNumber() {
        for (uint32_t i = 2; i < kMost; ++i)
            if (!taken_[i].exchange(true)) {
                number_ = i;
                return;
            }
    }
    ~ThreadNumber() {
        if (number_) taken_[number_].store(false);
    }
    uint32_t value() const { return number_; }  // 0: too many threads

 private:
    static constexpr uint32_t kMost = 1024;
    static_assert(kMost <= kDestroyed);
    static std::atomic<bool> taken_[kMost];
    uint32_t number_ = 0;
};
std::atomic<bool> ThreadNumber::taken_[kMost];

uint32_t thread_number() {
    thread_local ThreadNumber mine;
    return mine.value();
}

constexpr uint64_t kLongestPatienceNs = 1000000000;
constexpr uint64_t kPiecesNs = 10000000000;  // for which a call waits for a copy in pieces
constexpr uint64_t kCallNs = 20000000;       // for which a copy in pieces waits for other threads' calls

void add_one(wire::Count& count) { count.fetch_add(1, std::memory_order_relaxed); }

// A stream as the driver is called with it, and as the tenant knows it.
struct NamedStream {
    NamedStream(CUstream stream, bool per_thread_default) : handle(stream), key(key_of_stream(stream)) {
        if (reinterpret_cast<uintptr_t>(stream) > 2) return;
        bool per_thread = stream == CU_STREAM_PER_THREAD || (!stream && per_thread_default);
        handle = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
        context = current_context();
        uint32_t which = per_thread ? thread_number() : 1;
        key = context && which ? key_of_default_stream(context, which) : kNoStream;
    }
    // The green one of a default stream that belongs to one.
    CUcontext find_context() {
        if (!context) context = owner_of(handle);
        return context;
    }

    CUstream handle;
    StreamKey key;
    CUcontext context = nullptr;  // of a default stream; of others when it was looked for
};

// What a launch does to the other tenants of its process. Of the calling thread, which has one at a time: in the launch
// path nothing of this is touched where there are no lanes.
struct Crossing {
    Membership* escaped = nullptr;
    Membership* before = nullptr;
    StreamState* moved = nullptr;
    GoingThrough stream, graph;
    StreamKey key = kNoStream;  // of the stream, which another lane may take over before the operation is in it
};
thread_local Crossing crossing;

StreamState* enter_stream(Membership& membership, NamedStream& stream) {
    CUcontext context = stream.find_context();
    // Whether or not the stream is watched, its work is waited for before memory moves.
    used_contexts::note(owner_of(context ? context : current_context()));
    if (!context) return nullptr;
    int gpu = membership.gpu_of(context);
    if (gpu < 0) {
        detour::refuse(detour::unwatched_streams);
        return nullptr;
    }
    MembershipLocked locked(membership);
    // Another lane's thread may have entered it since it was looked for.
    if (Membership::lanes_open() && stream.key != kNoStream)
        Membership::for_each([&](Membership& other) {
            StreamState* there = &other == &membership ? nullptr : other.streams.find(stream.key);
            if (!there) return;
            crossing.moved = there;
            other.streams.remove(stream.key);
        });
    StreamState* state = nullptr;
    if (stream.key != kNoStream) state = membership.streams.find(stream.key);
    if (!state && stream.key != kNoStream) state = membership.streams.enter(stream.key, stream.handle, context, gpu);
    if (!state) {
        add_one(membership.slot().gpus[gpu].figures.escaped);
        detour::refuse(detour::unwatched_streams);
    }
    return state;
}

StreamState* state_of(Membership& membership, CUstream handle, bool per_thread_default) {
    NamedStream stream(handle, per_thread_default);
    // A thread mostly uses the same stream again.
    struct Last {
        StreamKey key;
        StreamState* state;
        uint32_t generation;
    };
    thread_local Last last{};
    uint32_t generation = membership.streams.generation();
    if (last.generation == generation && last.key == stream.key) return last.state;
    StreamState* state = stream.key != kNoStream ? membership.streams.find(stream.key) : nullptr;
    if (!state) state = enter_stream(membership, stream);
    if (state) last = {stream.key, state, generation};
    return state;
}

bool is_capturing(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return driver.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Kinds are in the order of their counts.
static_assert(offsetof(wire::Figures, kernels) == sizeof(wire::Count) * static_cast<int>(Kind::kernel) &&
              offsetof(wire::Figures, host_calls) == sizeof(wire::Count) * static_cast<int>(Kind::host_call));
wire::Count& figure(wire::Figures& figures, Kind kind) { return (&figures.kernels)[static_cast<int>(kind)]; }

// In place of a gate, for a stream that may not stand at one. A lane's thread waits no longer than a policy could want:
// where the process waits for this very thread, the lane has no work, or is seen to stand still (lanes.cpp). False: a
// linked stream shall stand at the gate after all, or the program's thread would wait for as long as a higher class
// works.
bool wait_at_gate(Membership& membership, StreamState& state, bool copies) {
    // Many threads of lanes may wait for long beside production, which needs the processors: they look ever less often.
    constexpr uint64_t kShortestNap = 50000, kLongestNap = 200000, kLongestNapOfLane = 1000000;
    constexpr uint64_t kLongestOfLaneNs = 60000000000;
    bool is_lane = membership.is_lane();
    uint64_t longest_nap = is_lane ? kLongestNapOfLane : kLongestNap;
    uint64_t longest = is_lane ? kLongestOfLaneNs : kLongestPatienceNs;
    wire::Slot& slot = membership.slot();
    wire::Flag& gate = copies ? slot.copy_gates[state.gpu] : slot.gpus[state.gpu].gate;
    state.among_copies.store(copies, std::memory_order_relaxed);
    state.since_gate_us.store(0, std::memory_order_relaxed);
    uint64_t began = wire::now_ns(), waited = 0;
    // What is to be evicted is let through, whoever has closed the gate again meanwhile.
    auto is_let_through = [&] { return membership.is_leaving() || slot.residence.where.load() == wire::evicting; };
    while (gate.load() != wire::kGateOpen && !is_let_through()) {
        if (waited >= longest) {
            if (is_lane) break;
            return false;
        }
        wire::nap(std::clamp(waited / 16, kShortestNap, longest_nap));
        waited = wire::now_ns() - began;
    }
    // What is in flight is known all the same.
    CUdeviceptr mapped = membership.gate_of(state);
    if (mapped && state.progress_word) Progress::put_mark(state);
    return true;
}

// The legacy stream waits for other streams, and they for it.
bool may_not_come_between(StreamKey stream) {
    StreamKey split = Membership::in_pieces.load();
    return split && (split == stream || is_legacy_stream(split) || is_legacy_stream(stream));
}

void nap_until_copied(StreamKey stream, uint64_t began_ns) {
    Membership::waiting_for_pieces.fetch_add(1);
    while (may_not_come_between(stream) && wire::now_ns() - began_ns < kPiecesNs) wire::nap(50000);
    Membership::waiting_for_pieces.fetch_sub(1);
}

void put_gate(Membership& membership, StreamState& state, bool copies) {
    if (!membership.may_stand(state) && wait_at_gate(membership, state, copies)) return;
    wire::OnGpu& here = membership.slot().gpus[state.gpu];
    CUdeviceptr gate = copies ? membership.copy_gate_of(state) : membership.gate_of(state);
    CUdeviceptr word = state.progress_word;
    uint32_t mark = Progress::mark_of(state);
    CUstreamBatchMemOpParams operations[3] = {write_value(word, Progress::standing(mark, copies)), wait_for_open(gate),
                                              write_value(word, Progress::passed(mark, copies))};
    CUstreamBatchMemOpParams* first = word ? operations : operations + 1;
    state.among_copies.store(copies, std::memory_order_relaxed);
    state.last_gate.store(mark, std::memory_order_relaxed);
    Progress::note_mark(state);
    if (gate && driver.cuStreamBatchMemOp_v2(state.handle, word ? 3 : 1, first, 0) == CUDA_SUCCESS)
        add_one(here.figures.gates);
    else
        add_one(here.figures.escaped);
}

}  // namespace

// Both sequentially consistent: either the watcher sees that an operation is under way, or we see that it has marked us
// idle.
__attribute__((always_inline)) inline void Work::enter(wire::OnGpu& here) {
    state_->entered.fetch_add(1);
    if (__builtin_expect(!here.busy.load(), 0)) begin_burst();
}

void Work::enter() { enter(membership_->slot().gpus[state_->gpu]); }

void Work::begin_burst() { membership_->become_busy(state_->gpu, !by_copy_gate()); }

Work::Work(What what, CUstream stream, bool per_thread_default) : membership_(Membership::current()) {
    auto kind = static_cast<Kind>(what.kind_and_bytes & 0xff);
    size_t bus_bytes = what.kind_and_bytes >> 8;
    if (!membership_ || is_too_late()) return;
    if (__builtin_expect(Membership::lanes_open() != 0, 0)) choose_lane(stream, per_thread_default);
    StreamState* state = state_of(*membership_, stream, per_thread_default);
    if (!state) return;
    if (captures.load(std::memory_order_acquire) && is_capturing(state->handle)) return;

    state_ = state;
    kind_ = kind;
    wire::Slot& slot = membership_->slot();
    wire::OnGpu& here = slot.gpus[state->gpu];
    uint32_t tenant_class = slot.tenant_class.load(std::memory_order_relaxed);
    add_one(figure(here.figures, kind));
    uint32_t rule = membership_->segment().header.knobs.rule.load(std::memory_order_relaxed);
    passes_gates_ = admission::is_gated(rule, tenant_class);
    asks_rule_ = admission::is_asked_live(rule);
    if (__builtin_expect((aside_ | bus_bytes) != 0, 0))
        enter_aside(bus_bytes, tenant_class);
    else
        enter(here);
    if (!passes_gates_) {
        bool runs_on_sms = kind == Kind::kernel || kind == Kind::graph;
        if (membership_->has_due(state->gpu) && runs_on_sms && membership_->do_due(*state)) aside_ |= kHolds;
        return;
    }
    if (Membership::in_pieces.load()) wait_for_pieces();
    be_ready();
}

void Work::enter_aside(size_t bytes, uint32_t tenant_class) {
    if (aside_ & kCrosses) begin_crossing();
    if (aside_ & kHasLanes && crossing.moved) state_->was.store(crossing.moved);
    if (passes_gates_ && (bytes >= admission::kLongCopy || (bytes && state_->among_copies.load()))) {
        aside_ |= kByCopyGate;
        state_->copy_calls.fetch_add(1);
    }
    if (bytes >= admission::kBusCopy && tenant_class < wire::kClasses - 1) {
        aside_ |= kUsesBus;
        state_->bus_calls.fetch_add(1);
    }
    enter();
    if (aside_ & kHasLanes && Membership::in_pieces.load()) wait_for_pieces();
    bool copies = membership_->slot().gpus[state_->gpu].busy.load() == wire::copying;
    if (aside_ & kUsesBus && !copies) membership_->become_copying(state_->gpu);
}

// The driver has it, and it is about to be counted as issued.
void Work::end_aside() {
    if (aside_ & kCrosses) end_crossing();
    if (aside_ & kHolds) membership_->hold(*state_);
    if (by_copy_gate()) state_->copy_calls.fetch_sub(1);
    if (!(aside_ & kUsesBus)) return;
    if (!(aside_ & kEndsWithCall)) {
        membership_->mark_end_of_copy(*state_);
        state_->bus_issued.store(state_->issued.load() + 1);
    }
    state_->bus_calls.fetch_sub(1);
}

// For a turn among its equals. Copies need none. What is queued behind copies needs one when its stream gets there: the
// watcher sees to that.
void Work::be_ready() {
    if (by_copy_gate() || membership_->slot().gpus[state_->gpu].ready.load()) return;
    if (!membership_->progress.is_among_copies(*state_)) membership_->become_ready(state_->gpu);
}

wire::Flag& Work::gate() const {
    wire::Slot& slot = membership_->slot();
    return by_copy_gate() ? slot.copy_gates[state_->gpu] : slot.gpus[state_->gpu].gate;
}

void Work::choose_lane(CUstream handle, bool per_thread_default) {
    NamedStream stream(handle, per_thread_default);
    if (stream.key == kNoStream) return;
    aside_ |= kHasLanes;
    // Before the stream becomes this lane's.
    if (may_not_come_between(stream.key)) nap_until_copied(stream.key, wire::now_ns());
    Launcher launcher = launcher_into(*membership_, stream.key, stream.handle);
    membership_ = launcher.membership;
    crossing = {launcher.escaped, launcher.before, launcher.moved, {}, {}, stream.key};
    if (launcher.escaped || launcher.before) aside_ |= kCrosses;
}

void Work::begin_crossing() {
    if (crossing.escaped) add_one(crossing.escaped->slot().gpus[state_->gpu].figures.escaped);
    if (crossing.before) crossing.stream.begin(*crossing.before, state_->gpu);
}

void Work::end_crossing() {
    crossing.stream.complete(state_->handle, state_->context);
    crossing.graph.complete(state_->handle, state_->context);
}

void Work::look_into(CUgraphExec exec) {
    Membership* gated = gates_in(exec);
    if (!gated || gated == membership_) return;
    if (!(aside_ & kCrosses)) crossing = {};
    aside_ |= kCrosses;
    crossing.graph.begin(*gated, state_->gpu);
}

void Work::pass_gate(Shape shape) {
    auto gate_every_us = static_cast<float>(wire::gate_every_us(membership_->segment().header.knobs));
    pass_gate(shape, {membership_->durations.estimate(shape), gate_every_us, 1});
}

void Work::pass_gate(Shape shape, const Expected& expected) {
    wire::Knobs& header = membership_->segment().header.knobs;
    admission::Knobs knobs{header.rule.load(std::memory_order_relaxed), expected.gate_every_us,
                           static_cast<float>(wire::in_flight_us(header))};
    // Between two gates are copies or none. An operation of the other kind has a gate of its own kind before it.
    bool among_copies = state_->among_copies.load(std::memory_order_relaxed), changes = among_copies != by_copy_gate();
    admission::Seen seen{membership_->slot().tenant_class.load(std::memory_order_relaxed),
                         membership_->company.has(state_->gpu),
                         gate().load(std::memory_order_relaxed) == wire::kGateOpen,
                         state_->since_gate_us.load(std::memory_order_relaxed),
                         membership_->progress.in_flight_us(*state_),
                         expected.us,
                         membership_->progress.operations_in_flight(*state_),
                         !changes && membership_->progress.gate_is_ahead(*state_),
                         membership_->linked_streams_on(state_->gpu)};
    admission::Verdict verdict = admission::admit(knobs, seen);
    if (verdict == admission::Verdict::wait) {
        {
            timeline::Interval waiting(timeline::Event::launch_wait, state_->gpu);
            wait_for_room(admission::most_in_flight_us(knobs, seen));
        }
        seen.in_flight_us = 0;
        seen.operations_in_flight = 0;
        seen.gate_is_open = gate().load(std::memory_order_relaxed) == wire::kGateOpen;
        seen.gate_is_ahead = !changes && membership_->progress.gate_is_ahead(*state_);
        verdict = admission::admit(knobs, seen);
    }
    if (verdict == admission::Verdict::go && changes && (among_copies || seen.has_company))
        verdict = admission::Verdict::gate;
    float since_gate_us = seen.since_gate_us;
    if (verdict == admission::Verdict::gate) {
        put_gate(*membership_, *state_, by_copy_gate());
        since_gate_us = 0;
    }
    // An operation that was never timed counts as enough for a gate behind it.
    float operation_us = seen.operation_us < 0 ? knobs.gate_every_us : seen.operation_us;
    if (seen.operation_us > 0 && kind_ == Kind::kernel)
        membership_->durations.note_pieces(operation_us, operation_us);
    else if (seen.operation_us > 0 && kind_ == Kind::graph)
        membership_->durations.note_pieces(operation_us, operation_us * membership_->durations.piece_of_graph(shape));
    state_->since_gate_us.store(since_gate_us + operation_us, std::memory_order_relaxed);
    state_->queued_ns.fetch_add(static_cast<uint64_t>(operation_us * 1000), std::memory_order_relaxed);
    membership_->note_launched(state_->gpu, operation_us);
    if (membership_->durations.wants_sample(shape))
        sample_ = membership_->begin_sample(shape, *state_, kind_ == Kind::kernel, expected.scale);
}

void Work::ask_rule(Shape shape, const KernelSize& size) {
    if (!state_) return;
    LaunchRule::ask(*membership_, *state_, kind_ == Kind::copy, shape, size, membership_->durations.estimate(shape));
    if (membership_->durations.wants_sample(shape))
        sample_ = membership_->begin_sample(shape, *state_, kind_ == Kind::kernel, 1);
}

// Only the launching thread waits; it holds no lock and is not inside the driver. It waits no longer than the knob
// says, or kLongestPatienceNs where the driver's channel would soon be full: there the thread would wait inside the
// driver with its lock, and block the watcher. It does not wait where the stream stands still while the gate is open:
// the stream may wait for what this very thread does next.
void Work::wait_for_room(float in_flight_us) {
    Progress& progress = membership_->progress;
    uint32_t passed = progress.mark_passed(*state_);
    bool is_held = gate().load() != wire::kGateOpen;
    if (!is_held && state_->stuck_at.load(std::memory_order_relaxed) == passed) return;
    uint64_t patience_ns = uint64_t{wire::patience_ms(membership_->segment().header.knobs)} * 1000000;
    // A lane's thread in the driver would hold back the other threads of its process.
    bool soon_full = membership_->is_lane() || progress.operations_in_flight(*state_) > 2 * admission::kMostOperations;
    if (is_held && soon_full) patience_ns = kLongestPatienceNs;
    uint64_t last_step = wire::now_ns();
    auto is_full = [&] {
        return progress.in_flight_us(*state_) > in_flight_us ||
               progress.operations_in_flight(*state_) > admission::kMostOperations;
    };
    while (is_full() && !membership_->is_leaving() && !(aside_ & kInPieces && pieces_are_waited_for())) {
        // A gate reports the work before it: behind it the stream may run empty unnoticed.
        if (!progress.mark_is_ahead(*state_) && !Progress::put_mark(*state_)) return;
        uint64_t now = wire::now_ns();
        if (uint32_t mark = progress.mark_passed(*state_); mark != passed) {
            passed = mark;
            last_step = now;
        } else if (now - last_step > patience_ns) {
            if (gate().load() == wire::kGateOpen) state_->stuck_at.store(passed, std::memory_order_relaxed);
            return;
        }
        wire::nap(50000);
    }
}

void Work::end_sample(bool launched) {
    Samples::end(sample_, state_->handle, launched);
    sample_ = nullptr;
}

bool Work::shares_bus() const { return membership_->bus.has(state_->gpu); }

float Work::piece_us() const {
    return membership_->long_pieces.has(state_->gpu) ? admission::kLongPieceUs : admission::kPieceUs;
}

float Work::learned_us(Shape shape) const { return membership_->durations.estimate(shape); }

// It is one operation more. The thread stays in the driver's midst, as the watcher sees it.
void Work::count_piece() {
    state_->entered.fetch_add(1);
    state_->issued.fetch_add(1);
}

bool Work::pieces_are_waited_for() const { return Membership::waiting_for_pieces.load() != 0; }

// Sequentially consistent, as `entered`: either this thread sees that pieces are being copied, or the thread that
// begins to copy them sees this one's call. That thread does not wait for its pieces to run, and makes the rest one as
// soon as somebody waits; only a synchronous copy takes as long as it takes. Without a lock, and no longer than
// kPiecesNs: the copy may wait for what this very thread does next.
void Work::wait_for_pieces() {
    StreamKey key = aside_ & kHasLanes ? crossing.key : state_->key.load(std::memory_order_relaxed);
    for (uint64_t began = wire::now_ns(); may_not_come_between(key) && !membership_->is_leaving(); enter()) {
        state_->entered.fetch_sub(1);
        nap_until_copied(key, began);
        if (wire::now_ns() - began >= kPiecesNs) return enter();
    }
}

bool Work::others_are_calling(StreamKey key) {
    if (!membership_->try_lock()) return true;
    bool calling = false;
    // Another lane's call may have begun before the stream was moved.
    StreamState* was = state_->was.load();
    calling |= was && was->is_being_called();
    Membership::for_each([&](Membership& one) {
        one.streams.for_each([&](const StreamState& other) {
            bool matters = other.key.load() == key || other.is_legacy() || is_legacy_stream(key);
            calling |= matters && other.is_being_called();
        });
    });
    membership_->unlock();
    return calling;
}

bool Work::begin_pieces() {
    state_->entered.fetch_sub(1);
    StreamKey nobody = kNoStream, key = state_->key.load();
    bool begins = key != kNoStream && Membership::in_pieces.compare_exchange_strong(nobody, key);
    uint64_t began = wire::now_ns();
    while (begins && others_are_calling(key)) {
        wire::nap(20000);
        if (wire::now_ns() - began < kCallNs) continue;
        Membership::in_pieces.store(kNoStream);
        begins = false;
    }
    enter();
    // Who copies in pieces meanwhile may have to wait for others to have called, as we did.
    if (!begins) wait_for_pieces();
    if (begins) aside_ |= kInPieces;
    return begins;
}

void Work::end_pieces() {
    aside_ = static_cast<uint8_t>(aside_ & ~kInPieces);
    Membership::in_pieces.store(kNoStream);
}

void Work::stay_busy() {
    if (__builtin_expect(aside_ != 0, 0)) end_aside();
    if (state_->is_per_thread()) membership_->mark_end_of_work(*state_);
    // Counted only now that the driver has it: earlier, the watcher would find its stream empty and take it for done.
    // Both sequentially consistent: either the watcher sees this operation, or we see that it has marked us idle
    // meanwhile, or has given our turn away.
    state_->issued.fetch_add(1);
    wire::OnGpu& here = membership_->slot().gpus[state_->gpu];
    if (__builtin_expect(!here.busy.load(), 0)) begin_burst();
    if (passes_gates_) be_ready();
}

OpeningCapture::OpeningCapture(CUstream stream, CUstreamCaptureMode mode, bool per_thread_default)
    : membership_(Membership::current()), mode_(mode) {
    if (!membership_) return;
    NamedStream named(stream, per_thread_default);
    stream_ = named.key;
    context_ = named.find_context();
    membership_->lock();
}

CUresult OpeningCapture::result(CUresult result) {
    if (membership_ && result == CUDA_SUCCESS) captures.add(stream_, context_, mode_);
    return result;
}

OpeningCapture::~OpeningCapture() {
    if (membership_) membership_->unlock();
}

EndingCapture::EndingCapture(CUstream stream, bool per_thread_default) : membership_(Membership::current_if_joined()) {
    if (!membership_ || !captures.load()) return;
    NamedStream named(stream, per_thread_default);
    stream_ = named.handle;
    MembershipLocked locked(*membership_);
    capture_ = captures.find(named.key);
}

EndingCapture::~EndingCapture() {
    if (!capture_ || is_capturing(stream_)) return;
    MembershipLocked locked(*membership_);
    captures.remove(capture_);
}

}  // namespace tenant

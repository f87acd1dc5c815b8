// lanes CASE: the tenants of one process, by what they do to each other, with a driver that is a table here
// (native/tenant/lanes.h, lane_events.h, stream_activity.h).
#include "tenant/lanes.h"

#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "../require.h"
#include "membership_inside.h"
#include "tenant/blocking_call.h"
#include "tenant/captures.h"
#include "tenant/graphs.h"
#include "tenant/lane_events.h"
#include "tenant/mps.h"
#include "tenant/settings.h"
#include "tenant/stream_activity.h"

namespace {

int graphs_that_stand = 0, refreshed = 0;
uint64_t clock_ns = 1000000000;  // goes on by a little at each look at it

}  // namespace

// What the rooms around would do.
namespace tenant {

DriverCalls driver;
std::atomic<bool> mps::is_here{false};
void mps::look_closer(CUresult) {}
wire::Class class_from_environment() { return wire::standard; }
int standing_graphs(const Membership&, int) { return graphs_that_stand; }
void forget_what_was_in_flight(const Membership&, int) {}
Membership* Membership::join() { return nullptr; }
Membership* Membership::join_lane(uint32_t, Membership* own) { return own; }
Membership::GatePlaces Membership::gate_places(CUcontext, int) {
    return {1, reinterpret_cast<CUdeviceptr>(progress.words())};
}
int Membership::gpu_of(CUcontext context) { return static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1; }
int Membership::add_lane(const LaneTerms& terms) {
    uint32_t count = lanes_open();
    if (count == kMostLanes) return 0;
    lanes_[count].terms = terms;
    lanes_open_.store(count + 1);
    return static_cast<int>(count) + 1;
}

}  // namespace tenant
uint64_t wire::now_ns() { return clock_ns += 1000; }
bool wire::refresh_gate(Segment&, int, int, uint64_t) { return ++refreshed; }

namespace {

using namespace tenant;

constexpr uint64_t kMs = 1000000;

template <class Handle>
Handle handle(uintptr_t number) {
    return reinterpret_cast<Handle>(number);
}

enum : uintptr_t { kOwns = 11, kFirsts = 21, kSeconds = 31, kBlocking = 90, kNew = 91 };
std::map<uintptr_t, CUresult> streams, events;
std::map<uintptr_t, int> asked;
uintptr_t captured = 0;
bool refuses_words = false, writes_words = false;
CUcontext current = handle<CUcontext>(1);
std::string written;

void make_driver() {
    driver.cuCtxGetCurrent = [](CUcontext* out) { return *out = current, CUDA_SUCCESS; };
    driver.cuCtxSetCurrent = [](CUcontext one) { return current = one, CUDA_SUCCESS; };
    driver.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
    driver.cuStreamQuery = [](CUstream stream) {
        ++asked[reinterpret_cast<uintptr_t>(stream)];
        return streams[reinterpret_cast<uintptr_t>(stream)];
    };
    driver.cuEventQuery = [](CUevent event) {
        ++asked[reinterpret_cast<uintptr_t>(event)];
        return events[reinterpret_cast<uintptr_t>(event)];
    };
    driver.cuStreamIsCapturing = [](CUstream stream, CUstreamCaptureStatus* out) {
        bool is = captured && handle<CUstream>(captured) == stream;
        return *out = is ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
    };
    driver.cuStreamGetFlags = [](CUstream stream, unsigned int* out) {
        return *out = handle<CUstream>(kBlocking) == stream ? 0 : CU_STREAM_NON_BLOCKING, CUDA_SUCCESS;
    };
    driver.cuStreamGetCtx_v2 = [](CUstream, CUcontext* context, CUgreenCtx*) {
        return *context = handle<CUcontext>(1), CUDA_SUCCESS;
    };
    driver.cuStreamBatchMemOp_v2 = [](CUstream stream, unsigned int, CUstreamBatchMemOpParams* what, unsigned int) {
        if (refuses_words) return CUDA_ERROR_NOT_SUPPORTED;
        written += std::to_string(reinterpret_cast<uintptr_t>(stream)) + " ";
        if (writes_words) *reinterpret_cast<uint32_t*>(what->writeValue.address) = what->writeValue.value;
        return CUDA_SUCCESS;
    };
}

// A production process with two opportunistic lanes, of which each has a stream: the process's on GPU 0, the first
// lane's on GPU 1, the second's on GPU 0.
Membership own, first, second;
wire::Slot slots[3];
alignas(wire::Segment) char memory[sizeof(wire::Segment)];
auto& segment = *new (memory) wire::Segment;

LaneTerms named(const char* name, uint32_t tenant_class = wire::opportunistic) {
    LaneTerms terms;
    terms.tenant_class = tenant_class;
    strncpy(terms.name, name, sizeof terms.name - 1);
    return terms;
}

StreamState* enter(Membership& one, uintptr_t stream, int gpu) {
    return one.streams.enter(key_of_stream(handle<CUstream>(stream)), handle<CUstream>(stream), current, gpu);
}
bool has(Membership& one, uintptr_t stream) { return one.streams.find(key_of_stream(handle<CUstream>(stream))); }

void make_tenants() {
    segment.header.knobs.rule.store(admission::strict);
    REQUIRE(open_lane(named("first")) == 1 && open_lane(named("second")) == 2);
    Membership* all[] = {&own, &first, &second};
    for (int i = 0; i < 3; ++i) {
        MembershipInside::give_slot(*all[i], slots[i], &segment);
        slots[i].tenant_class.store(all[i]->terms.tenant_class = i ? wire::opportunistic : wire::production);
    }
    not_inherited.joined.store(&own);
    MembershipInside::join_lane(0, first);
    MembershipInside::join_lane(1, second);
    enter(own, kOwns, 0);
    enter(first, kFirsts, 1);
    enter(second, kSeconds, 0);
}

void opening() {
    REQUIRE(open_lane(named("first")) == 1 && open_lane(named("second")) == 2);
    LaneTerms other = named("first");
    other.weight = 2000;
    REQUIRE(open_lane(other) == other_terms);
    other = named("first");
    other.slowdown = 50;
    REQUIRE(open_lane(other) == other_terms);
    other = named("first");
    other.floor = 50;
    REQUIRE(open_lane(other) == other_terms && open_lane(named("first", wire::standard)) == other_terms);
    slots[0].tenant_class.store(wire::standard);
    REQUIRE(open_lane(named("third", wire::production)) == class_above);
    REQUIRE(open_lane(named("third", wire::kClasses)) == class_above);
    REQUIRE(open_lane(named("third", wire::standard)) == 3);
    REQUIRE(enter_lane(2) == 0 && enter_lane(3) == 2 && enter_lane(4) == 3 && enter_lane(-1) == 3);
    REQUIRE(enter_lane(0) == 3 && enter_lane(0) == 0);
    for (int i = 4; i <= 8; ++i) REQUIRE(open_lane(named(std::to_string(i).c_str())) == i);
    REQUIRE(open_lane(named("9")) == too_many_lanes && open_lane(named("8")) == 8);
    // What has escaped is summed over GPUs; of a lane without a slot it is not known, of one without work it is none.
    slots[1].gpus[0].figures.escaped.store(3);
    slots[1].gpus[1].figures.escaped.store(4);
    REQUIRE(escaped_from(1) == 7 && escaped_from(2) == 0 && escaped_from(3) == 0);
    MembershipInside::refuse_lane(3);
    REQUIRE(escaped_from(3) == 0 && escaped_from(4) == -1 && escaped_from(0) == -1 && escaped_from(9) == -1);
}

// A stream is of one tenant at a time: of whom launched into it last.
void streams_of_each() {
    auto into = [](uintptr_t stream) {
        return launcher_into(own, key_of_stream(handle<CUstream>(stream)), handle<CUstream>(stream));
    };
    Launcher found = into(kOwns);
    REQUIRE(found.membership == &own && !found.escaped && !found.before && !found.moved);
    StreamState* state = first.streams.find(kFirsts);
    found = into(kFirsts);
    REQUIRE(found.membership == &own && !found.escaped && found.before == &first && found.moved == state);
    REQUIRE(!has(first, kFirsts) && has(second, kSeconds) && has(own, kOwns));
    enter_lane(2);
    found = into(kSeconds);
    REQUIRE(found.membership == &second && !found.escaped && !found.before && !found.moved);
    // Production's has no gates inside. What nobody has is the lane's.
    found = into(kOwns);
    REQUIRE(found.membership == &second && !found.before && found.moved && !has(own, kOwns));
    found = into(kNew);
    REQUIRE(found.membership == &second && !found.escaped && !found.moved);
    found = into(kBlocking);
    REQUIRE(found.membership == &own && found.escaped == &second);
    found = launcher_into(own, key_of_default_stream(current, 1), CU_STREAM_LEGACY);
    REQUIRE(found.membership == &own && found.escaped == &second);
}

bool is_open_for(Membership& lane, int gpu) { return lane.slot().gpus[gpu].below_floor.load(); }
// Whether the tenant's wait for it opens the lane's gate; then the stream gets past, unless it is kept.
bool opens(uintptr_t stream, uintptr_t event, Membership& lane, int gpu, bool stays = false) {
    for (wire::Slot& slot : slots)
        for (wire::OnGpu& here : slot.gpus) here.below_floor.store(0);
    refreshed = 0;
    written.clear();
    writes_words = !stays;
    {
        WaitingForEvent waiting(handle<CUstream>(stream), handle<CUevent>(event), false);
    }
    REQUIRE(is_open_for(lane, gpu) == (refreshed == 1) && !is_open_for(lane, 1 - gpu) && !is_open_for(own, gpu));
    REQUIRE(lane.let_through.is_waited_for(lane.progress, wire::now_ns()) == (stays && refreshed == 1));
    return refreshed;
}
void record(uintptr_t event, uintptr_t stream) {
    events[event] = CUDA_ERROR_NOT_READY;
    note_recorded(handle<CUevent>(event), handle<CUstream>(stream));
}

// A gate is open for the tenant that waits behind it for as long as it does, and for nobody else.
void waiting_for_events() {
    record(501, kFirsts);
    REQUIRE(opens(kOwns, 501, first, 1) && written == "11 ");
    REQUIRE(opens(1, 501, first, 1) && opens(2, 501, first, 1) && written == "2 ");
    record(502, kSeconds);
    REQUIRE(opens(kOwns, 502, second, 0) && !is_open_for(first, 1) && opens(kOwns, 501, first, 1));
    // A lane has no more right to the GPU than its gate gives it, nor has it to wait for itself.
    REQUIRE(!opens(kSeconds, 501, first, 1) && !opens(kFirsts, 501, first, 1));
    // It counts whose the stream is, else whose it will be.
    enter_lane(2);
    REQUIRE(opens(kOwns, 501, first, 1) && !opens(kNew, 501, first, 1) && opens(0, 501, first, 1));
    enter_lane(0);
    REQUIRE(opens(kNew, 501, first, 1));
    // Until the GPU is past, or the driver would not say when.
    REQUIRE(opens(kOwns, 501, first, 1, true));
    refuses_words = true;
    refreshed = 0;
    {
        WaitingForEvent waiting(handle<CUstream>(kOwns), handle<CUevent>(502), false);
    }
    REQUIRE(refreshed == 1 && !second.let_through.is_waited_for(second.progress, wire::now_ns()));
    refuses_words = false;
    REQUIRE(first.let_through.is_waited_for(first.progress, wire::now_ns()));
    REQUIRE(!first.let_through.is_waited_for(first.progress, wire::now_ns() + 2000 * kMs));
    // An event that is done, that production has recorded since, or that nobody of us has.
    events[501] = CUDA_SUCCESS;
    REQUIRE(!opens(kOwns, 501, first, 1) && !opens(kOwns, 503, first, 1));
    record(502, kOwns);
    REQUIRE(!opens(kOwns, 502, second, 0));
    record(502, kSeconds);
    record(502, 1);
    REQUIRE(!opens(kOwns, 502, second, 0));
    // A lane of the process's own class has no gate to open.
    slots[2].tenant_class.store(wire::production);
    record(502, kSeconds);
    REQUIRE(!opens(kOwns, 502, second, 0));
    slots[2].tenant_class.store(wire::opportunistic);
    REQUIRE(opens(kOwns, 502, second, 0));
    // In a capture an event stands for a node of its graph; while one is open, no event is asked.
    record(501, kFirsts);
    captures.add(kFirsts, current, CU_STREAM_CAPTURE_MODE_GLOBAL);
    captured = kFirsts;
    asked.clear();
    REQUIRE(opens(kOwns, 501, first, 1) && asked.empty());
    record(501, kFirsts);
    REQUIRE(!opens(kOwns, 501, first, 1));
    captured = 0;
    record(501, kFirsts);
    captured = kOwns;
    REQUIRE(!opens(kOwns, 501, first, 1));
}

// A lane is let through where its process would wait for it without anybody's seeing that.
void standing_still() {
    uint64_t now = 1000 * kMs;
    auto is = [&](int gpu = 1) { return is_let_through(first, gpu, now); };
    auto pass = [&](uint64_t ms) { now += ms * kMs; };
    REQUIRE(!is());
    slots[0].gpus[1].busy.store(1);
    slots[2].gpus[1].busy.store(1);
    own.note_move(1, now);
    REQUIRE(!is());
    pass(240);
    REQUIRE(!is() && !is(0));
    pass(20);
    REQUIRE(is() && !is(0));
    // Whatever it launches meanwhile, it goes on. Another lane that stands still is no matter: it is no higher.
    wire::Figures& figures = slots[0].gpus[1].figures;
    for (wire::Count* count :
         {&figures.kernels, &figures.graphs, &figures.copies, &figures.memory_ops, &figures.host_calls}) {
        count->fetch_add(1);
        REQUIRE(!is());
        pass(240);
        REQUIRE(!is());
        pass(20);
        REQUIRE(is());
    }
    own.note_move(1, now);
    REQUIRE(!is());
    pass(260);
    slots[0].gpus[1].busy.store(0);
    slots[0].gpus[0].busy.store(1);
    REQUIRE(!is());
    // Its process's memory goes once what the lane has queued has ended.
    slots[2].residence.where.store(wire::evicting);
    REQUIRE(!is());
    slots[0].residence.where.store(wire::evicting);
    REQUIRE(is() && is(0) && !is_let_through(own, 0, now));
}

// A wait for the GPU is of whom the thread works for, on the GPU of its context.
void waits() {
    auto counted = [](int tenant, int gpu) { return slots[tenant].gpus[gpu].blocking_calls.load(); };
    auto wait = [] { BlockingCall call(BlockingCall::For::stream_or_event); };
    own.used_gpus.add(0);
    wait();
    uint64_t blocked_ns = slots[0].gpus[0].blocked_ns.load();
    REQUIRE(counted(0, 0) == 1 && blocked_ns > 0);
    {
        BlockingCall copy(BlockingCall::For::nothing);
    }
    REQUIRE(counted(0, 0) == 1 && slots[0].gpus[0].blocked_ns.load() > blocked_ns);
    own.used_gpus.add(1);
    current = handle<CUcontext>(2);
    wait();
    REQUIRE(counted(0, 0) == 1 && counted(0, 1) == 1);
    enter_lane(2);
    wait();
    REQUIRE(counted(2, 1) == 1 && counted(1, 1) == 0 && counted(0, 1) == 1);
    REQUIRE(open_lane(named("third")) == 3);
    enter_lane(3);  // which has not joined
    wait();
    REQUIRE(counted(0, 1) == 2);
    current = nullptr;
    wait();
    REQUIRE(counted(0, 0) == 1 && counted(0, 1) == 2 && counted(2, 1) == 1);
}

void put_word(Membership& one, const StreamState& state, uint32_t word) {
    static_cast<std::atomic<uint32_t>*>(one.progress.words())[state.number].store(word);
}

// What the watcher sees of streams: each GPU by itself, and nothing new where it may not ask.
void looks() {
    StreamActivity activity(first);
    StreamState *there = first.streams.find(kFirsts), *here = enter(first, 22, 0), *copier = enter(first, 23, 0);
    auto moved = [&](int gpu) { return first.moved_ns(gpu); };
    REQUIRE(!activity.see(0).is_at_work() && !activity.see(1).is_at_work() && !moved(0) && !moved(1));
    streams[kFirsts] = streams[22] = streams[23] = CUDA_ERROR_NOT_READY;
    there->entered.store(1);
    there->issued.store(1);
    Seen seen = activity.see(1);
    REQUIRE(seen.unfinished && seen.running && seen.needs_sms && !seen.called && !seen.standing && !seen.copying);
    uint64_t then = moved(1);
    REQUIRE(then && !moved(0) && !activity.see(0).is_at_work() && asked[22] == 0);
    REQUIRE(activity.see(1).running && moved(1) == then);
    // One graph that stands is in the stream that seems to run.
    graphs_that_stand = 1;
    seen = activity.see(1);
    REQUIRE(seen.unfinished && !seen.running && seen.needs_sms);
    graphs_that_stand = 0;
    REQUIRE(activity.see(1).running);
    // Somebody has the lock: as before.
    first.lock();
    std::thread([&] {
        seen = activity.see(1);
        REQUIRE(seen.is_unknown && seen.unfinished && seen.uses_bus && seen.running && seen.needs_sms);
        seen = activity.see(0);
        REQUIRE(seen.is_unknown && seen.unfinished && !seen.running && !seen.needs_sms);
    }).join();
    first.unlock();
    // While a graph is captured no stream is asked, and all may need SMs.
    captures.add(kSeconds, current, CU_STREAM_CAPTURE_MODE_GLOBAL);
    streams[kFirsts] = CUDA_SUCCESS;
    asked.clear();
    REQUIRE(activity.see(1).running && activity.see(0).needs_sms && asked.empty() && there->finished == 0);
    captures.remove_all_of(current);
    // It has ended, and so it has where the driver knows of a fault only.
    REQUIRE(!activity.see(1).unfinished && there->finished == 1 && !activity.see(1).is_at_work());
    there->issued.store(2);
    there->entered.store(3);
    streams[kFirsts] = CUDA_ERROR_ILLEGAL_ADDRESS;
    seen = activity.see(1);
    REQUIRE(seen.changed && !seen.unfinished && seen.called && seen.calls_for_sms && seen.is_at_work());
    there->copy_calls.store(1);
    REQUIRE(activity.see(1).called && !activity.see(1).calls_for_sms && !activity.see(1).wants_turn());

    // At its gate, at that for copies, behind it.
    here->issued.store(1);
    here->progress_word = 1;
    put_word(first, *here, Progress::standing(0));
    seen = activity.see(0);
    REQUIRE(seen.standing && seen.unfinished && !seen.running && seen.wants_turn());
    put_word(first, *here, Progress::standing(0, true));
    seen = activity.see(0);
    REQUIRE(!seen.standing && seen.unfinished && !seen.running && !seen.copying && !seen.wants_turn());
    put_word(first, *here, Progress::passed(0, true));
    seen = activity.see(0);
    REQUIRE(seen.copying && seen.unfinished && !seen.running && !seen.wants_turn() && !seen.uses_bus);
    copier->issued.store(1);
    copier->bus_issued.store(1);
    seen = activity.see(0);
    REQUIRE(seen.uses_bus && seen.running && !activity.see(1).uses_bus);
    // Beside one that runs, a stream with a copy is asked all the same: lower classes wait for that.
    put_word(first, *here, Progress::passed(0));
    REQUIRE(activity.see(0).uses_bus && copier->finished == 0);
    streams[23] = CUDA_SUCCESS;
    seen = activity.see(0);
    REQUIRE(!seen.uses_bus && seen.running && copier->finished == 1);
    // A thread's own stream is known by an event.
    StreamState* thread = first.streams.enter(key_of_default_stream(current, 5), CU_STREAM_PER_THREAD, current, 1);
    events[700] = CUDA_ERROR_NOT_READY;
    thread->last_work.store(handle<CUevent>(700));
    thread->issued.store(1);
    asked.clear();
    REQUIRE(activity.see(1).running && asked[700] == 1 && !asked[2]);
    events[700] = CUDA_SUCCESS;
    REQUIRE(!activity.see(1).running && thread->finished == 1);

    // What is in flight, of each GPU.
    auto in_flight_us = [&](int gpu) {
        activity.show_in_flight(gpu);
        return first.slot().gpus[gpu].in_flight_us.load();
    };
    here->queued_ns.store(9000000);
    put_word(first, *here, Progress::passed(4000));
    there->queued_ns.store(2000000);
    there->progress_word = 1;
    put_word(first, *there, Progress::passed(500));
    REQUIRE(in_flight_us(0) == 5000 && in_flight_us(1) == 1500);
    put_word(first, *there, Progress::passed(2000));
    first.lock();
    std::thread([&] { REQUIRE(in_flight_us(1) == 1500); }).join();
    first.unlock();
    REQUIRE(in_flight_us(1) == 0);

    // A stream that is empty leaves its place at the gate to another.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "2", 1);
    Membership::standing_places.count();
    StreamState* one = enter(second, 32, 0);
    REQUIRE(first.may_stand(*here) && first.may_stand(*here) && !second.may_stand(*one) && own.may_stand(*one));
    activity.see(0);
    REQUIRE(!second.may_stand(*one));
    streams[22] = CUDA_SUCCESS;
    here->entered.store(1);
    StreamActivity(own).see(0);
    REQUIRE(!second.may_stand(*one));
    activity.see(0);
    REQUIRE(here->finished == 1 && second.may_stand(*one) && !first.may_stand(*here));
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
    Membership::standing_places.count();
    REQUIRE(!Membership::standing_places.any() && !second.may_stand(*one));
}

}  // namespace

int main(int, char** argv) {
    make_driver();
    make_tenants();
    if (!strcmp(argv[1], "opening")) opening();
    if (!strcmp(argv[1], "streams")) streams_of_each();
    if (!strcmp(argv[1], "events")) waiting_for_events();
    if (!strcmp(argv[1], "standing_still")) standing_still();
    if (!strcmp(argv[1], "waits")) waits();
    if (!strcmp(argv[1], "looks")) looks();
    return 0;
}

// used_contexts CASE: whether all work of this process has ended (native/tenant/memory/used_contexts.h), over a driver
// of this test's own, which ends events with their contexts and gives a context's handle out again.
#include "tenant/memory/used_contexts.h"

#include <cstring>
#include <map>

#include "../require.h"
#include "tenant/context_end.h"
#include "tenant/fork.h"
#include "tenant/memory/move_barrier.h"

namespace tenant {
DriverCalls driver;
std::atomic<bool> Still::memory_moves{true};
}  // namespace tenant

namespace {

using tenant::used_contexts::begin_to_drain;
using tenant::used_contexts::Drained;
using tenant::used_contexts::have_drained;
using tenant::used_contexts::note;

struct Work {
    int life;  // of the context, whose handle may come again
    uint64_t queued = 0, done = 0;
};
std::map<CUcontext, Work> contexts;
struct Event {
    CUcontext context;
    int life;
    uint64_t at = 0;
};
std::map<CUevent, Event> events;
CUcontext current = nullptr;
int lives = 0, waited = 0;
CUresult can_record = CUDA_SUCCESS;

CUcontext at(uint64_t number) { return reinterpret_cast<CUcontext>(number * 16); }
void make(CUcontext context) { contexts[context] = {++lives}; }
void end(CUcontext context) {
    contexts.erase(context);
    tenant::context_ended(context);
}
Event& good(CUevent event) {
    Event& one = events.at(event);
    REQUIRE(contexts.count(one.context) && contexts[one.context].life == one.life);
    return one;
}

CUresult set_current(CUcontext context) {
    REQUIRE(contexts.count(context));
    current = context;
    return CUDA_SUCCESS;
}
CUresult create_event(CUevent* out, unsigned int) {
    *out = reinterpret_cast<CUevent>(events.size() + 1);
    events[*out] = {current, contexts.at(current).life};
    return CUDA_SUCCESS;
}
CUresult record(CUcontext context, CUevent event) {
    REQUIRE(good(event).context == context);
    if (can_record == CUDA_SUCCESS) good(event).at = contexts.at(context).queued;
    return can_record;
}
CUresult query(CUevent event) {
    return good(event).at <= contexts[good(event).context].done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult synchronize() {
    ++waited;
    contexts.at(current).done = contexts.at(current).queued;
    return CUDA_SUCCESS;
}

Drained drained_now() {
    begin_to_drain();
    return have_drained();
}

// All of them are waited for, each time for what is queued by then.
void every_one() {
    REQUIRE(drained_now() == Drained::yes);
    note(nullptr);
    for (uint64_t number : {1, 2, 3}) {
        make(at(number));
        note(at(number));
        note(at(number));
    }
    for (int again = 0; again < 2; ++again)
        for (uint64_t number : {1, 2, 3}) {
            Work& work = contexts[at(number)];
            ++work.queued;
            begin_to_drain();
            REQUIRE(have_drained() == Drained::not_yet && have_drained() == Drained::not_yet);
            ++work.queued;  // too late for this time: its thread stands at the barrier
            ++work.done;
            REQUIRE(have_drained() == Drained::yes);
            work.done = work.queued;
        }
    REQUIRE(events.size() == 3 && waited == 0);
}

// A context that has ended is not asked for; one that has its handle, or its place, is.
void ended() {
    for (uint64_t number : {1, 2}) {
        make(at(number));
        note(at(number));
    }
    contexts[at(1)].queued = 1;
    REQUIRE(drained_now() == Drained::not_yet);
    end(at(1));
    REQUIRE(have_drained() == Drained::yes && drained_now() == Drained::yes);
    make(at(1));
    contexts[at(1)].queued = 1;
    note(at(1));
    REQUIRE(drained_now() == Drained::not_yet);
    end(at(2));
    make(at(3));
    note(at(3));
    contexts[at(1)].done = 1;
    REQUIRE(drained_now() == Drained::yes);
    contexts[at(3)].queued = 1;
    REQUIRE(drained_now() == Drained::not_yet);
    // A child has none of them.
    contexts.clear();
    tenant::tell<tenant::AtFork>([](const tenant::AtFork& one) { one.in_child(); });
    REQUIRE(drained_now() == Drained::yes);
    make(at(1));
    note(at(1));
    REQUIRE(drained_now() == Drained::yes);
}

// A driver that cannot tell is waited in; one that fails is believed; of more than there are places nothing is said.
void otherwise() {
    make(at(1));
    note(at(1));
    contexts[at(1)].queued = 1;
    can_record = CUDA_ERROR_NOT_SUPPORTED;
    REQUIRE(drained_now() == Drained::yes && waited == 1);
    can_record = CUDA_ERROR_UNKNOWN;
    REQUIRE(drained_now() == Drained::driver_failed && waited == 1);
    can_record = CUDA_SUCCESS;
    for (uint64_t number = 2; number <= 256; ++number) {
        make(at(number));
        note(at(number));
    }
    REQUIRE(drained_now() == Drained::yes);
    contexts[at(256)].queued = 1;
    REQUIRE(drained_now() == Drained::not_yet);
    contexts[at(256)].done = 1;
    note(at(257));
    REQUIRE(drained_now() == Drained::not_yet);
}

}  // namespace

int main(int argc, char** argv) {
    tenant::driver.cuCtxSetCurrent = set_current;
    tenant::driver.cuEventCreate = create_event;
    tenant::driver.cuCtxRecordEvent = record;
    tenant::driver.cuEventQuery = query;
    tenant::driver.cuCtxSynchronize = synchronize;
    const char* name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "every_one"))
        every_one();
    else if (!strcmp(name, "ended"))
        ended();
    else if (!strcmp(name, "otherwise"))
        otherwise();
    else
        return 2;
    return 0;
}

// deferred_free CASE: frees in a stream's order, over a driver of this test's own that gives a destroyed stream's
// handle to the next one, as NVIDIA's does and the software GPU does not.
#include "tenant/memory/deferred_free.h"

#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "../require.h"
#include "tenant/captures.h"
#include "tenant/context_end.h"
#include "tenant/green_contexts.h"
#include "tenant/membership.h"
#include "tenant/memory/pools.h"
#include "tenant/memory/residence.h"

// What was deleted is garbage, and is not used again: whoever still points there is found out.
void operator delete(void* gone, size_t bytes) noexcept { memset(gone, 0xdd, bytes); }
void operator delete(void*) noexcept {}

namespace {

CUcontext context_at(uint64_t number) { return reinterpret_cast<CUcontext>(number * 0x1000); }
CUcontext const kContext = context_at(1);
CUstream const kStream = reinterpret_cast<CUstream>(0x5000), kOther = reinterpret_cast<CUstream>(0x6000);
constexpr uint64_t kBytes = 4 << 20;

// Handles come again, lives do not.
struct Life {
    CUcontext context;
    uint64_t put = 0, done = 0;  // events that were recorded in it, and that it has got to
};
std::vector<Life> lives;
std::map<CUstream, size_t> life_of;
std::map<CUcontext, size_t> legacy_of;   // of the contexts that there are
std::map<CUcontext, int> contexts_made;  // under each handle
struct Event {
    CUcontext context;
    int made;  // when that was the context's number
    size_t life;
    uint64_t at;
};
std::map<CUevent, Event> events;
struct Allocation {
    uint64_t bytes;
    CUcontext context;
};
std::map<CUdeviceptr, Allocation> allocated;
uint64_t last_event = 0, last_pointer = 0;
CUcontext current = kContext;

void make_context(CUcontext context) {
    ++contexts_made[context];
    legacy_of[context] = lives.size();
    lives.push_back({context});
}
void make_stream(CUstream handle, CUcontext context) {
    life_of[handle] = lives.size();
    lives.push_back({context});
}
void reach_all(size_t life) { lives[life].done = lives[life].put; }

// As the driver has it: an event is of its context, and goes with it.
Event& good(CUevent event) {
    Event& one = events.at(event);
    REQUIRE(legacy_of.count(one.context) && one.made == contexts_made[one.context]);
    return one;
}
CUresult get_current(CUcontext* out) {
    *out = current;
    return CUDA_SUCCESS;
}
CUresult set_current(CUcontext context) {
    current = context;
    return CUDA_SUCCESS;
}
CUresult exchange_mode(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
CUresult create_event(CUevent* out, unsigned int) {
    *out = reinterpret_cast<CUevent>(++last_event * 16);
    events[*out] = {current, contexts_made[current], 0, 0};
    return CUDA_SUCCESS;
}
CUresult destroy_event(CUevent event) {
    good(event);
    events.erase(event);
    return CUDA_SUCCESS;
}
CUresult record_event(CUevent event, CUstream stream) {
    size_t life = stream == CU_STREAM_LEGACY ? legacy_of.at(current) : life_of.at(stream);
    Event& one = good(event);
    REQUIRE(one.context == lives[life].context);
    one.life = life;
    one.at = ++lives[life].put;
    return CUDA_SUCCESS;
}
CUresult query_event(CUevent event) {
    const Event& one = good(event);
    return one.at <= lives[one.life].done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUdeviceptr allocate(uint64_t bytes = kBytes, CUcontext context = kContext) {
    CUdeviceptr pointer = ++last_pointer << 30;
    allocated[pointer] = {bytes, context};
    return pointer;
}
CUdeviceptr allocate_and_free_in(CUstream stream) {
    CUdeviceptr pointer = allocate();
    REQUIRE(tenant::defer_free_in(pointer, stream, false) == CUDA_SUCCESS);
    return pointer;
}

}  // namespace

// The rest of the tenant, as far as it is asked.
namespace tenant {

DriverCalls driver;
Membership* Membership::join() { return nullptr; }
std::atomic<bool> Still::memory_moves{true};
Residence residence{Lock(Rank::residence, Lock::Kind::recursive), {},      {},
                    {residence.chunks, residence.pool},           nullptr, false};
CUcontext owner_of(CUcontext context) { return context; }
CUcontext owner_of(CUstream stream) { return lives[life_of.at(stream)].context; }
bool movable_range(CUdeviceptr pointer, MovableRange* out) {
    auto next = allocated.upper_bound(pointer);
    if (next == allocated.begin()) return false;
    auto& [base, about] = *--next;
    *out = {base, about.bytes, about.context, false};
    return pointer - base < about.bytes;
}
bool give_back_movable(CUdeviceptr pointer) { return allocated.erase(pointer) == 1; }
UnderWay::UnderWay() = default;
UnderWay::~UnderWay() = default;
Giving::Giving(uint64_t key) : key_(key), known_(false) {}
CUresult Giving::result(CUresult result) { return result; }

}  // namespace tenant

namespace {

using tenant::take_again;

// A stream has what it freed at once, the latest first; another stream has none of it.
void again() {
    CUdeviceptr first = allocate_and_free_in(kStream), second = allocate_and_free_in(kStream);
    REQUIRE(take_again(kBytes, kOther, false) == 0);
    REQUIRE(take_again(kBytes + 1, kStream, false) == 0);
    REQUIRE(take_again(kBytes, kStream, false) == second);
    REQUIRE(take_again(kBytes, kStream, false) == first);
    REQUIRE(take_again(kBytes, kStream, false) == 0 && allocated.size() == 2);
}

// Until the stream gets there it is counted; then it is free.
void in_order() {
    CUdeviceptr one = allocate_and_free_in(kStream), other = allocate_and_free_in(kOther);
    REQUIRE(!tenant::free_deferred() && allocated.size() == 2);
    reach_all(life_of[kOther]);
    REQUIRE(tenant::free_deferred() && allocated.count(one) == 1 && allocated.count(other) == 0);
    reach_all(life_of[kStream]);
    REQUIRE(tenant::free_deferred() && allocated.empty());
}

// What a destroyed stream has freed is not had by one that has got its handle: nothing says that this one comes after.
void same_handle() {
    CUdeviceptr before = allocate_and_free_in(kStream);
    size_t first = life_of[kStream];
    tenant::end_order_of(kStream);
    make_stream(kStream, kContext);
    REQUIRE(take_again(kBytes, kStream, false) == 0);
    CUdeviceptr after = allocate_and_free_in(kStream);
    REQUIRE(take_again(kBytes, kStream, false) == after);
    REQUIRE(take_again(kBytes, kStream, false) == 0);
    reach_all(first);
    REQUIRE(tenant::free_deferred() && allocated.size() == 1 && allocated.count(after) && !allocated.count(before));
    // Nor where nobody has seen the end of the first, and the second is in another context.
    CUdeviceptr unseen = allocate_and_free_in(kStream);
    size_t second = life_of[kStream];
    make_context(context_at(2));
    make_stream(kStream, context_at(2));
    REQUIRE(take_again(kBytes, kStream, false) == 0);
    CUdeviceptr other = allocate_and_free_in(kStream);
    reach_all(second);
    REQUIRE(tenant::free_deferred() && !allocated.count(unseen) && allocated.count(other));
    // Of memory of another context than the stream's it is told when it is free; in that stream nobody allocates it.
    REQUIRE(take_again(kBytes, kStream, false) == 0);
    CUdeviceptr own = allocate(kBytes, context_at(2));
    REQUIRE(tenant::defer_free_in(own, kStream, false) == CUDA_SUCCESS && take_again(kBytes, kStream, false) == own);
}

// Only a few events are kept for later.
void many() {
    std::vector<CUdeviceptr> freed;
    for (int i = 0; i < 200; ++i) freed.push_back(allocate_and_free_in(kStream));
    REQUIRE(events.size() == 200);
    reach_all(life_of[kStream]);
    REQUIRE(tenant::free_deferred() && allocated.empty() && events.size() < 100);
    for (int i = 0; i < 200; ++i) allocate_and_free_in(kOther);
    REQUIRE(events.size() == 200);
}

// Whatever comes, beside a book of what is pending: streams and contexts that end and whose handles come again, memory
// of one context that is freed in another's stream, captures.
class Walk {
 public:
    void run() {
        for (int step = 0; step < 20000; ++step) {
            any_step();
            agree();
        }
    }

 private:
    struct Pending {
        CUdeviceptr pointer;
        uint64_t at;
    };
    struct Captured {
        CUdeviceptr pointer;
        uint64_t number;
    };

    uint64_t below(uint64_t count) { return random_() % count; }
    template <class Map>
    auto any_of(const Map& map) {
        return *std::next(map.begin(), static_cast<long>(below(map.size())));
    }
    // A stream with a handle, or the current context's own.
    CUstream any_stream(size_t* life) {
        current = any_of(legacy_of).first;
        if (life_of.empty() || below(4) == 0) {
            *life = legacy_of.at(current);
            return below(2) ? nullptr : CU_STREAM_LEGACY;
        }
        auto [handle, its] = any_of(life_of);
        *life = its;
        return handle;
    }

    void any_step() {
        switch (below(16)) {
            case 0:
                return make();
            case 1:
                return end_stream();
            case 2:
                return below(8) ? void() : end_context();
            case 3:
                return look_at_all();
            case 4:
                return look_at_some();
            case 5:
                return begin_or_end_capture();
            case 6:
                return wait_for_context();
            case 7:
            case 8:
                return progress();
            case 9:
            case 10:
                return take();
            default:
                return free_one();
        }
    }

    void make() {
        CUcontext context = context_at(1 + below(3));
        if (!legacy_of.count(context)) make_context(context);
        auto handle = reinterpret_cast<CUstream>(0x50000 + below(6) * 0x100);
        if (!life_of.count(handle)) make_stream(handle, any_of(legacy_of).first);
    }
    void end_stream() {
        if (life_of.empty()) return;
        CUstream handle = any_of(life_of).first;
        tenant::end_order_of(handle);
        life_of.erase(handle);
    }
    void end_context() {
        if (legacy_of.size() < 2 || capture_) return;
        CUcontext context = any_of(legacy_of).first;
        legacy_of.erase(context);
        current = any_of(legacy_of).first;
        for (auto at = life_of.begin(); at != life_of.end();)
            at = lives[at->second].context == context ? life_of.erase(at) : std::next(at);
        std::map<CUdeviceptr, Allocation> before = allocated;
        tenant::context_ended(context);
        auto is_its = [&](CUdeviceptr pointer) { return before.at(pointer).context == context; };
        for (auto& [life, pending] : pending_) {
            std::vector<Pending> left;
            for (const Pending& one : pending) {
                if (lives[life].context != context && !is_its(one.pointer)) left.push_back(one);
                // Nothing of its stream runs any more: what is another context's is free.
                if (lives[life].context == context && !is_its(one.pointer)) REQUIRE(!allocated.count(one.pointer));
            }
            pending = left;
        }
        for (size_t i = captured_.size(); i-- > 0;)
            if (is_its(captured_[i].pointer)) captured_.erase(captured_.begin() + static_cast<long>(i));
        // Another allocation may have its address next.
        for (auto& [pointer, about] : before) REQUIRE(about.context != context || !tenant::is_deferred(pointer));
        for (auto at = held_.begin(); at != held_.end();) at = is_its(*at) ? held_.erase(at) : std::next(at);
        // Its own goes with it.
        for (auto& [pointer, about] : before)
            if (about.context == context) allocated.erase(pointer);
    }
    void progress() {
        Life& life = lives[below(lives.size())];
        if (life.done < life.put) life.done += 1 + below(life.put - life.done);
    }
    bool drop_reached(size_t life) {
        std::vector<Pending>& pending = pending_[life];
        size_t count = 0;
        while (!capture_ && count < pending.size() && pending[count].at <= lives[life].done) ++count;
        pending.erase(pending.begin(), pending.begin() + static_cast<long>(count));
        return count;
    }
    void look_at_all() {
        bool any = false;
        for (auto& entry : pending_) any |= drop_reached(entry.first);
        REQUIRE(tenant::free_deferred() == any);
    }
    // Each call looks at one stream: after as many as there are, and once over the end, at all.
    void look_at_some() {
        size_t streams = 1;
        for (auto& entry : pending_) streams += !entry.second.empty();
        for (size_t i = 0; i < 2 * streams; ++i) tenant::free_some_deferred();
        for (auto& entry : pending_) drop_reached(entry.first);
    }
    void begin_or_end_capture() {
        if (capture_)
            tenant::captures.remove(tenant::captures.find(1));
        else
            tenant::captures.add(1, kContext, CU_STREAM_CAPTURE_MODE_RELAXED);
        capture_ = !capture_;
    }
    void wait_for_context() {
        CUcontext context = any_of(legacy_of).first;
        uint64_t so_far = tenant::deferred_so_far();
        if (below(2) && so_far) --so_far;
        tenant::free_deferred_until(so_far, context);
        std::vector<Captured> left;
        for (const Captured& one : captured_)
            if (contexts_.at(one.pointer) != context || one.number > so_far) left.push_back(one);
        captured_ = left;
    }
    void take() {
        size_t life = 0;
        CUstream stream = any_stream(&life);
        uint64_t bytes = kBytes * (1 + below(2));
        CUdeviceptr expected = 0;
        std::vector<Pending>& pending = pending_[life];
        size_t at = pending.size();
        while (at-- > 0 && !expected)
            if (const Allocation& one = allocated.at(pending[at].pointer);
                one.bytes == bytes && one.context == lives[life].context) {
                expected = pending[at].pointer;
                pending.erase(pending.begin() + static_cast<long>(at));
            }
        REQUIRE(take_again(bytes, stream, false) == expected);
        if (expected) held_.insert(expected);
    }
    void free_one() {
        CUcontext context = any_of(legacy_of).first;
        CUdeviceptr pointer = allocate(kBytes * (1 + below(2)), context);
        contexts_[pointer] = context;
        if (!held_.empty() && below(2)) {
            held_.insert(pointer);
            pointer = *held_.begin();
            held_.erase(pointer);
        }
        size_t life = 0;
        CUstream stream = any_stream(&life);
        if (capture_ && below(2)) {
            REQUIRE(tenant::defer_free(pointer));
            captured_.push_back({pointer, tenant::deferred_so_far()});
        } else {
            REQUIRE(tenant::defer_free_in(pointer + 1, stream, false) == CUDA_ERROR_INVALID_VALUE);
            REQUIRE(tenant::defer_free_in(pointer, stream, false) == CUDA_SUCCESS);
            pending_[life].push_back({pointer, lives[life].put});
            drop_reached(life);
        }
        if (allocated.count(pointer))
            REQUIRE(tenant::defer_free_in(pointer, stream, false) == CUDA_ERROR_INVALID_VALUE);
    }

    void agree() {
        size_t count = held_.size() + captured_.size();
        for (CUdeviceptr pointer : held_) REQUIRE(allocated.count(pointer) && !tenant::is_deferred(pointer));
        for (const Captured& one : captured_) REQUIRE(allocated.count(one.pointer) && tenant::is_deferred(one.pointer));
        for (auto& [life, pending] : pending_) {
            for (const Pending& one : pending)
                REQUIRE(allocated.count(one.pointer) && tenant::is_deferred(one.pointer));
            count += pending.size();
        }
        REQUIRE(count == allocated.size());
    }

    std::mt19937 random_{1};
    std::set<CUdeviceptr> held_;
    std::map<CUdeviceptr, CUcontext> contexts_;
    std::map<size_t, std::vector<Pending>> pending_;  // by life
    std::vector<Captured> captured_;
    bool capture_ = false;
};

}  // namespace

int main(int argc, char** argv) {
    tenant::driver.cuCtxGetCurrent = get_current;
    tenant::driver.cuCtxSetCurrent = set_current;
    tenant::driver.cuThreadExchangeStreamCaptureMode = exchange_mode;
    tenant::driver.cuEventCreate = create_event;
    tenant::driver.cuEventDestroy_v2 = destroy_event;
    tenant::driver.cuEventRecord = record_event;
    tenant::driver.cuEventQuery = query_event;
    make_context(kContext);
    make_stream(kStream, kContext);
    make_stream(kOther, kContext);
    const char* name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "again"))
        again();
    else if (!strcmp(name, "in_order"))
        in_order();
    else if (!strcmp(name, "same_handle"))
        same_handle();
    else if (!strcmp(name, "many"))
        many();
    else if (!strcmp(name, "walk"))
        Walk().run();
    else
        return 2;
    return 0;
}

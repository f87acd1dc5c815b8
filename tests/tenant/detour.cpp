// detour CASE: which kernels leave their stream, and in what order streams come home, with a driver that writes down
// what it is told (native/tenant/detour.h).
#include "tenant/detour.h"

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "../require.h"
#include "membership_inside.h"
#include "tenant/captures.h"
#include "tenant/fork.h"
#include "tenant/membership.h"
#include "tenant/membership_events.h"

namespace tenant {
DriverCalls driver;
}

namespace {

using namespace tenant;
using namespace tenant::detour;

// Handles are numbers. Streams of the program are 101, 102, ...; the stand-in of stream s in green context g is
// 1000 * (g + 1) + s; its events are s + 10000 and s + 20000.
template <class Handle>
Handle handle(uintptr_t number) {
    return reinterpret_cast<Handle>(number);
}
template <class Handle>
std::string name_of(Handle one) {
    return std::to_string(reinterpret_cast<uintptr_t>(one));
}

std::string said;
bool refuses_waits = false;
std::set<uintptr_t> gone;
CUcontext current = handle<CUcontext>(1);

template <class Handle>
CUresult destroy(Handle one) {
    REQUIRE(gone.insert(reinterpret_cast<uintptr_t>(one)).second);
    return CUDA_SUCCESS;
}

void make_driver() {
    driver.cuCtxGetCurrent = [](CUcontext* out) { return *out = current, CUDA_SUCCESS; };
    driver.cuCtxSetCurrent = [](CUcontext one) { return current = one, CUDA_SUCCESS; };
    direct.cuEventRecord = [](CUevent event, CUstream stream) {
        said += "record " + name_of(event) + " in " + name_of(stream) + "; ";
        return CUDA_SUCCESS;
    };
    direct.cuStreamWaitEvent = [](CUstream stream, CUevent event, unsigned int) {
        if (refuses_waits) return CUDA_ERROR_OUT_OF_MEMORY;
        said += name_of(stream) + " waits for " + name_of(event) + "; ";
        return CUDA_SUCCESS;
    };
    direct.cuStreamSynchronize = [](CUstream stream) {
        return said += "end of " + name_of(stream) + "; ", CUDA_SUCCESS;
    };
    direct.cuStreamQuery = [](CUstream stream) {
        said += "asks " + name_of(stream) + "; ";
        return CUDA_SUCCESS;
    };
    direct.cuStreamDestroy_v2 = destroy<CUstream>;
    direct.cuEventDestroy_v2 = destroy<CUevent>;
    direct.cuGreenCtxDestroy = destroy<CUgreenCtx>;
    is_installed.store(true);
    phase.store(on);
}

Place& place(int number, uintptr_t stream, int device, bool in_legacy_order = false) {
    Place& one = places.all[number];
    one.home = handle<CUstream>(stream);
    one.context = handle<CUcontext>(1 + static_cast<uintptr_t>(device));
    one.device = device;
    one.gpu = device;
    one.in_legacy_order = in_legacy_order;
    one.there = handle<CUevent>(stream + 10000);
    one.back = handle<CUevent>(stream + 20000);
    for (uintptr_t green = 0; green < 4; ++green) one.streams[green] = handle<CUstream>(1000 * (green + 1) + stream);
    one.key.store(key_of_stream(one.home));
    return one;
}

// Greens 0 and 1 are of device 0, 2 and 3 of device 1.
void make_places() {
    for (int green = 0; green < 4; ++green) {
        Green& one = places.greens[green];
        one.handle = handle<CUgreenCtx>(50 + static_cast<uintptr_t>(green));
        one.device = green / 2;
        one.sms = 64;
        one.all = 132;
        one.most_blocks = 32;
        one.most_threads = 2048;
    }
    places.green_of[0].store(1);
    places.green_of[1].store(3);
    place(0, 101, 0);
    place(1, 102, 0);
    place(2, 201, 1);
    place(3, 103, 0, true);
    place(4, 104, 0, true);
}

KernelSize many() { return {&said, {100000, 1, 1}, {1024, 1, 1}, 0}; }
uintptr_t leaves(uintptr_t stream, bool may = true) {
    Departure departure(handle<CUstream>(stream), false, many(), nullptr, may);
    return reinterpret_cast<uintptr_t>(departure.stand_in());
}
std::string heard() {
    std::string all = said;
    said.clear();
    return all;
}

// A stream leaves once, and is home again before anything else is put into it, whichever green context it was in.
void order_of_streams() {
    REQUIRE(leaves(101) == 1101);
    REQUIRE(heard() == "record 10101 in 101; 1101 waits for 10101; " && is_away(places.all[0]));
    REQUIRE(leaves(101) == 1101 && heard().empty());
    REQUIRE(leaves(102) == 1102 && heard() == "record 10102 in 102; 1102 waits for 10102; ");
    // The share changes meanwhile: it comes home from where it was, and leaves for the other.
    places.green_of[0].store(2);
    REQUIRE(leaves(101) == 2101);
    REQUIRE(heard() == "record 20101 in 1101; 101 waits for 20101; record 10101 in 101; 2101 waits for 10101; ");
    REQUIRE(query(handle<CUstream>(101)) == CUDA_SUCCESS && heard() == "asks 2101; asks 101; ");
    REQUIRE(query(handle<CUstream>(103)) == CUDA_SUCCESS && heard() == "asks 103; ");
    {
        AtHome call;
    }
    REQUIRE(heard() == "record 20101 in 2101; 101 waits for 20101; record 20102 in 1102; 102 waits for 20102; ");
    REQUIRE(away.load() == 0 && others.load() == 0);
    {
        AtHome call;
    }
    REQUIRE(heard().empty());
    // While a call of another kind is under way, no stream leaves.
    {
        AtHome call;
        REQUIRE(leaves(101) == 0 && away.load() == 0);
    }
    // One that must stay brings all others home: it may be in the legacy stream's order.
    REQUIRE(leaves(101) == 2101 && leaves(201) == 3201);
    heard();
    REQUIRE(leaves(102, false) == 0 && away.load() == 0);
    REQUIRE(heard() == "record 20101 in 2101; 101 waits for 20101; record 20201 in 3201; 201 waits for 20201; ");
    // Of those in the legacy stream's order one at a time is away; the others are as they were.
    REQUIRE(leaves(101) == 2101 && leaves(103) == 2103);
    heard();
    REQUIRE(leaves(104) == 2104 && !is_away(places.all[3]) && is_away(places.all[0]) && is_away(places.all[4]));
    REQUIRE(heard() == "record 20103 in 2103; 103 waits for 20103; record 10104 in 104; 2104 waits for 10104; ");
    // Where the driver would not order them, the stand-in has ended before anything follows.
    refuses_waits = true;
    bring_home();
    refuses_waits = false;
    REQUIRE(heard() == "record 20101 in 2101; end of 2101; record 20104 in 2104; end of 2104; " && away.load() == 0);
    refuses_waits = true;
    REQUIRE(leaves(101) == 0 && away.load() == 0);
    refuses_waits = false;
    // A launch that the driver refuses there is not there.
    heard();
    {
        Departure departure(handle<CUstream>(101), false, many(), nullptr, true);
        departure.fails();
        REQUIRE(!departure.stand_in() && !is_away(places.all[0]));
    }
    // In a capture, for a thread's own default stream, for an unknown stream, and once it is over: none.
    captures.add(7, current, CU_STREAM_CAPTURE_MODE_GLOBAL);
    REQUIRE(leaves(101) == 0);
    captures.remove_all_of(current);
    REQUIRE(leaves(101) == 2101 && leaves(2) == 0 && leaves(999) == 0 && away.load() == 0);
    REQUIRE(leaves(101) == 2101);
    give_up(unknown_function);
    REQUIRE(away.load() == 0 && phase.load() == settling && leaves(101) == 0 && refusal() == unknown_function);
    give_up(by_mps);
    REQUIRE(refusal() == unknown_function);
}

// A stream that is destroyed, or a device's that is given back, takes what it had with it, and nothing of another's.
void forgetting() {
    REQUIRE(leaves(101) == 1101 && leaves(102) == 1102 && leaves(201) == 3201);
    heard();
    forget(handle<CUstream>(101));
    REQUIRE(heard() == "record 20101 in 1101; 101 waits for 20101; ");
    REQUIRE((gone == std::set<uintptr_t>{1101, 2101, 3101, 4101, 10101, 20101}));
    REQUIRE(!is_away(places.all[0]) && is_away(places.all[1]) && is_away(places.all[2]));
    forget(handle<CUstream>(101));
    forget(handle<CUstream>(0));
    REQUIRE(gone.size() == 6 && leaves(102) == 1102 && leaves(101) == 0);
    // Its place is another's, whose stand-ins are made anew.
    REQUIRE(!places.all[0].streams[0] && leaves(201) == 3201);
    gone.clear();
    forget(0);
    REQUIRE(away.load() == 0);
    for (uintptr_t stream : {102, 103, 104})
        for (uintptr_t one : {1000 + stream, 2000 + stream, 10000 + stream, 20000 + stream}) REQUIRE(gone.count(one));
    REQUIRE(gone.count(50) && gone.count(51) && !gone.count(52) && !gone.count(53));
    REQUIRE(!gone.count(3201) && !gone.count(10201) && current == handle<CUcontext>(1));
    REQUIRE(places.green_of[0].load() == 0 && places.green_of[1].load() == 3);
    REQUIRE(!places.greens[0].handle && places.greens[2].handle && leaves(201) == 3201 && leaves(102) == 0);
    size_t before = gone.size();
    forget(0);
    REQUIRE(gone.size() == before);
    forget(1);
    REQUIRE(gone.count(3201) && gone.count(52) && places.green_of[1].load() == 0 && leaves(201) == 0);
}

// Of the watcher's part: device 0 has 132 SMs and device 1 has 64, until `small`. Streams are of the context and device
// of their hundreds; 150 is of a green context, 160 of a context of the program's own.
bool small = false, refuses_greens = false;
int refused_events = 0, retained = 0;
uintptr_t made = 30000;
std::vector<std::string> greens_made, stand_ins_made;
std::vector<uintptr_t> events_made;

void make_upkeep_driver() {
    driver.cuDevicePrimaryCtxRetain = [](CUcontext* out, CUdevice device) {
        ++retained;
        return *out = handle<CUcontext>(1 + static_cast<uintptr_t>(device)), CUDA_SUCCESS;
    };
    direct.cuDevicePrimaryCtxRelease_v2 = [](CUdevice) { return --retained, CUDA_SUCCESS; };
    driver.cuCtxGetDevice = [](CUdevice* out) {
        auto context = reinterpret_cast<uintptr_t>(current);
        return *out = context == 2 ? 1 : 0, CUDA_SUCCESS;
    };
    driver.cuStreamGetCtx_v2 = [](CUstream stream, CUcontext* context, CUgreenCtx* green) {
        auto number = reinterpret_cast<uintptr_t>(stream);
        *context = handle<CUcontext>(number == 160 ? 9 : number / 100);
        *green = handle<CUgreenCtx>(number == 150 ? 77 : 0);
        return CUDA_SUCCESS;
    };
    driver.cuEventCreate = [](CUevent* out, unsigned int) {
        if (refused_events && !--refused_events) return CUDA_ERROR_OUT_OF_MEMORY;
        events_made.push_back(++made);
        return *out = handle<CUevent>(made), CUDA_SUCCESS;
    };
    direct.cuStreamGetFlags = [](CUstream stream, unsigned int* out) {
        return *out = reinterpret_cast<uintptr_t>(stream) == 102 ? 0 : CU_STREAM_NON_BLOCKING, CUDA_SUCCESS;
    };
    direct.cuStreamGetPriority = [](CUstream stream, int* out) {
        return *out = -static_cast<int>(reinterpret_cast<uintptr_t>(stream)), CUDA_SUCCESS;
    };
    direct.cuGreenCtxStreamCreate = [](CUstream* out, CUgreenCtx green, unsigned int flags, int priority) {
        stand_ins_made.push_back(name_of(green) + " " + std::to_string(flags) + " " + std::to_string(priority));
        return *out = handle<CUstream>(++made), CUDA_SUCCESS;
    };
    direct.cuDeviceGetDevResource = [](CUdevice device, CUdevResource* out, CUdevResourceType) {
        return out->sm.smCount = small ? 8 : device ? 64 : 132, CUDA_SUCCESS;
    };
    direct.cuDevSmResourceSplitByCount = [](CUdevResource* part, unsigned int*, const CUdevResource*, CUdevResource*,
                                            unsigned int,
                                            unsigned int least) { return part->sm.smCount = least, CUDA_SUCCESS; };
    direct.cuDevResourceGenerateDesc = [](CUdevResourceDesc* out, CUdevResource* part, unsigned int) {
        return *out = handle<CUdevResourceDesc>(part->sm.smCount), CUDA_SUCCESS;
    };
    direct.cuGreenCtxCreate = [](CUgreenCtx* out, CUdevResourceDesc part, CUdevice device, unsigned int) {
        if (refuses_greens) return CUDA_ERROR_NOT_PERMITTED;
        greens_made.push_back(name_of(part) + " of " + std::to_string(device));
        return *out = handle<CUgreenCtx>(++made), CUDA_SUCCESS;
    };
    direct.cuDeviceGetAttribute = [](int* out, CUdevice_attribute, CUdevice) { return *out = 32, CUDA_SUCCESS; };
}

Membership membership;
wire::Slot slot;

StreamState* enter(StreamKey key, uintptr_t stream, uintptr_t context) {
    int gpu = context == 2 ? 1 : 0;
    return membership.streams.enter(key, handle<CUstream>(stream), handle<CUcontext>(context), gpu);
}
StreamState* enter(uintptr_t stream, uintptr_t context) {
    return enter(key_of_stream(handle<CUstream>(stream)), stream, context);
}
uint64_t now_ns = 1000;
void look() {
    CUcontext before = current;
    tell<AtLook>([](const AtLook& one) { one.act(membership, now_ns); });
    REQUIRE(current == before && retained == 0);
}
void ask(uint32_t sms) {
    wire::Asked asked{};
    asked.sms = sms;
    CUcontext before = current;
    tell<AtRequest>([&](const AtRequest& one) { one.act(membership, asked); });
    REQUIRE(current == before);
}
void settle() {
    for (int i = 0; i < 3; ++i) look();
}
std::string sms_now() {
    return std::to_string(slot.gpus[0].sms_now.load()) + " " + std::to_string(slot.gpus[1].sms_now.load());
}
Place* place_of(uintptr_t stream) { return places.find(key_of_stream(handle<CUstream>(stream))); }
void begin_anew() {
    tell<AtFork>([](const AtFork& one) { one.in_child(); });
    REQUIRE(phase.load() == off && !refusal() && !place_of(101) && !places.greens[0].handle);
    not_inherited.joined.store(&membership);
}

// The limit of each GPU is by its own green context, for the streams that can leave; it comes once no call of before is
// under way, and goes once all are home.
void upkeep() {
    make_upkeep_driver();
    MembershipInside::give_slot(membership, slot);
    not_inherited.joined.store(&membership);
    slot.tenant_class.store(wire::opportunistic);
    membership.used_gpus.add(0);
    membership.used_gpus.add(1);
    StreamState* first = enter(101, 1);
    enter(102, 1);
    enter(150, 1);
    enter(160, 9);
    enter(201, 2);
    enter(key_of_default_stream(handle<CUcontext>(1), 1), 1, 1);
    enter(key_of_default_stream(handle<CUcontext>(1), 5), 2, 1);
    enter(key_of_default_stream(handle<CUcontext>(9), 1), 1, 9);
    current = handle<CUcontext>(2);
    phase.store(off);

    settle();
    REQUIRE(phase.load() == off && greens_made.empty() && events_made.empty());
    first->entered.store(1);
    ask(1 + 500);
    REQUIRE(membership.terms.sms == 500 && slot.sms.load() == 500 && phase.load() == settling);
    REQUIRE((greens_made == std::vector<std::string>{"64 of 0", "32 of 1"}) && sms_now() == "64 32");
    settle();
    REQUIRE(phase.load() == settling && leaves(101) == 0);
    first->issued.store(1);
    look();
    REQUIRE(phase.load() == on && greens_made.size() == 2 && stand_ins_made.size() == 4 && events_made.size() == 8);
    REQUIRE(place_of(101) && place_of(102) && place_of(201) && !place_of(150) && !place_of(160));
    REQUIRE(!place_of(101)->in_legacy_order && place_of(102)->in_legacy_order);
    REQUIRE(stand_ins_made[0] == name_of(places.greens[0].handle) + " 1 -101");
    REQUIRE(place_of(101)->streams[0] && !place_of(101)->streams[1] && place_of(201)->streams[1]);
    REQUIRE(leaves(101) == reinterpret_cast<uintptr_t>(place_of(101)->streams[0]));
    REQUIRE(leaves(201) == reinterpret_cast<uintptr_t>(place_of(201)->streams[1]));

    // It goes when all are home.
    ask(1);
    REQUIRE(phase.load() == settling && sms_now() == "0 0" && places.green_of[0].load() == 0);
    settle();
    REQUIRE(phase.load() == settling && away.load());
    bring_home();
    look();
    REQUIRE(phase.load() == off);

    // Another share is another green context, of its own GPU: 32 SMs of the other one are not its.
    ask(1 + 250);
    settle();
    REQUIRE(phase.load() == on && sms_now() == "32 16" && greens_made.size() == 4 && greens_made[2] == "32 of 0");
    ask(1 + 500);
    settle();
    REQUIRE(sms_now() == "64 32" && greens_made.size() == 4);
    // A policy gives less than was told, on its GPU, while that holds; never more, nor less than a group.
    slot.gpus[0].sms.store(900);
    slot.gpus[1].sms.store(10);
    slot.gpus[0].sms_until_ns.store(now_ns + 100);
    slot.gpus[1].sms_until_ns.store(now_ns + 100);
    look();
    REQUIRE(sms_now() == "64 8");
    now_ns += 200;
    look();
    REQUIRE(sms_now() == "64 32");
    // While a graph is captured nothing is asked.
    captures.add(7, current, CU_STREAM_CAPTURE_MODE_GLOBAL);
    slot.gpus[1].sms_until_ns.store(now_ns + 100);
    look();
    REQUIRE(sms_now() == "64 32");
    captures.remove_all_of(current);
    now_ns += 200;
    // Production has all, whatever it was told before.
    slot.tenant_class.store(wire::production);
    settle();
    REQUIRE(phase.load() == off && sms_now() == "0 0");
    slot.tenant_class.store(wire::opportunistic);
    settle();
    REQUIRE(phase.load() == on);
    give_up(unknown_function);
    settle();
    REQUIRE(phase.load() == off && sms_now() == "0 0" && slot.sms_refused.load() == unknown_function);

    // A GPU that has no more than a group has no part to give.
    begin_anew();
    small = true;
    greens_made.clear();
    settle();
    REQUIRE(greens_made.empty() && sms_now() == "0 0" && phase.load() == off && !refusal());
    small = false;

    // What the driver does not give is not kept half: an event, a green context.
    begin_anew();
    events_made.clear();
    stand_ins_made.clear();
    gone.clear();
    refused_events = 2;
    look();
    REQUIRE(!place_of(101) && place_of(102) && gone.count(events_made[0]) && gone.size() == 1);
    look();
    REQUIRE(place_of(101) && place_of(101)->there != place_of(102)->there && stand_ins_made.size() == 4);
    begin_anew();
    refuses_greens = true;
    look();
    REQUIRE(refusal() == no_green_contexts && phase.load() == off && !places.greens[0].handle);
    look();
    REQUIRE(slot.sms_refused.load() == no_green_contexts);
    refuses_greens = false;
    settle();
    REQUIRE(phase.load() == off && sms_now() == "0 0");

    // Where MPS was told a share it stays; production that becomes another class has no detour.
    begin_anew();
    wire::Segment* none = nullptr;
    auto join = [&] { tell<AtJoin>([&](const AtJoin& one) { one.act(*none, slot); }); };
    slot.sms.store(0);
    join();
    REQUIRE(!refusal() && !slot.sms_refused.load());
    slot.sms.store(300);
    join();
    REQUIRE(slot.sms_refused.load() == by_mps);
    ask(1 + 600);
    REQUIRE(slot.sms.load() == 300 && membership.terms.sms == 500);
    begin_anew();
    is_installed.store(false);
    slot.sms.store(0);
    join();
    REQUIRE(slot.sms_refused.load() == began_as_production);
}

}  // namespace

int main(int, char** argv) {
    make_driver();
    if (!strcmp(argv[1], "upkeep")) {
        upkeep();
        return 0;
    }
    make_places();
    if (!strcmp(argv[1], "order")) order_of_streams();
    if (!strcmp(argv[1], "forgetting")) forgetting();
    return 0;
}

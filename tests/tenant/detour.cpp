// detour CASE: which kernels leave their stream, and in what order streams come home, with a driver that writes down
// what it is told (native/tenant/detour.h).
#include "tenant/detour.h"

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "../require.h"
#include "tenant/captures.h"
#include "tenant/membership.h"

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

}  // namespace

int main(int, char** argv) {
    make_driver();
    make_places();
    if (!strcmp(argv[1], "order")) order_of_streams();
    if (!strcmp(argv[1], "forgetting")) forgetting();
    return 0;
}

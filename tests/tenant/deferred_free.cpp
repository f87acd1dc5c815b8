// deferred_free CASE: frees in a stream's order, over a driver of this test's own that gives a destroyed stream's
// handle to the next one, as NVIDIA's does and the software GPU does not.
#include "tenant/memory/deferred_free.h"

#include <cstring>
#include <map>
#include <set>

#include "../require.h"
#include "tenant/green_contexts.h"
#include "tenant/membership.h"
#include "tenant/memory/pools.h"
#include "tenant/memory/residence.h"

namespace {

CUcontext const kContext = reinterpret_cast<CUcontext>(0x1000);
CUstream const kStream = reinterpret_cast<CUstream>(0x5000), kOther = reinterpret_cast<CUstream>(0x6000);
constexpr uint64_t kBytes = 4 << 20;

// What is allocated, and which streams have got to what was put into them last.
std::set<CUdeviceptr> allocated;
std::set<CUstream> has_got_there;
std::map<CUevent, CUstream> recorded;
uint64_t last_event = 0, last_pointer = 0;

CUresult get_current(CUcontext* out) {
    *out = kContext;
    return CUDA_SUCCESS;
}
CUresult set_current(CUcontext) { return CUDA_SUCCESS; }
CUresult exchange_mode(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
CUresult create_event(CUevent* out, unsigned int) {
    *out = reinterpret_cast<CUevent>(++last_event * 16);
    return CUDA_SUCCESS;
}
CUresult destroy_event(CUevent) { return CUDA_SUCCESS; }
CUresult record_event(CUevent event, CUstream stream) {
    recorded[event] = stream;
    return CUDA_SUCCESS;
}
CUresult query_event(CUevent event) {
    return has_got_there.count(recorded.at(event)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUdeviceptr allocate() {
    CUdeviceptr pointer = ++last_pointer << 30;
    allocated.insert(pointer);
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
CUcontext owner_of(CUstream) { return kContext; }
bool movable_range(CUdeviceptr pointer, MovableRange* out) {
    *out = {pointer, kBytes, kContext, false};
    return allocated.count(pointer) == 1;
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
    has_got_there.insert(kOther);
    REQUIRE(tenant::free_deferred() && allocated.count(one) == 1 && allocated.count(other) == 0);
    has_got_there.insert(kStream);
    REQUIRE(tenant::free_deferred() && allocated.empty());
}

// What a destroyed stream has freed is not had by one that has got its handle: nothing says that this one comes after.
void same_handle() {
    CUdeviceptr before = allocate_and_free_in(kStream);
    tenant::end_order_of(kStream);
    REQUIRE(take_again(kBytes, kStream, false) == 0);
    CUdeviceptr after = allocate_and_free_in(kStream);
    REQUIRE(take_again(kBytes, kStream, false) == after);
    REQUIRE(take_again(kBytes, kStream, false) == 0);
    has_got_there.insert(kStream);
    REQUIRE(tenant::free_deferred() && allocated == std::set<CUdeviceptr>{after} && allocated.count(before) == 0);
}

}  // namespace

int main(int argc, char** argv) {
    tenant::driver.cuCtxGetCurrent = get_current;
    tenant::driver.cuCtxSetCurrent = set_current;
    tenant::driver.cuThreadExchangeStreamCaptureMode = exchange_mode;
    tenant::driver.cuEventCreate = create_event;
    tenant::driver.cuEventDestroy_v2 = destroy_event;
    tenant::driver.cuEventRecord = record_event;
    tenant::driver.cuEventQuery = query_event;
    const char* name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "again"))
        again();
    else if (!strcmp(name, "in_order"))
        in_order();
    else if (!strcmp(name, "same_handle"))
        same_handle();
    else
        return 2;
    return 0;
}

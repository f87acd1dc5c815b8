// contexts CASE: what each context has of the tenant's: mappings of its pages (`pages`), the primary context behind a
// green one (`greens`), and the places at which streams of lanes may stand (`places`).
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <vector>

#include "../require.h"
#include "tenant/gpu_pages.h"
#include "tenant/green_contexts.h"
#include "tenant/standing_places.h"

namespace tenant {
DriverCalls driver;
}

namespace {

using namespace tenant;

template <class Handle>
Handle handle(uintptr_t number) {
    return reinterpret_cast<Handle>(number * 64);
}
CUcontext context_of(uintptr_t number) { return handle<CUcontext>(number); }

// What is registered now, in no matter which context: the driver takes a mapping once.
std::set<void*> registered;
CUresult refuses = CUDA_SUCCESS;

void make_driver() {
    driver.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
    driver.cuMemHostRegister_v2 = [](void* at, size_t, unsigned int) {
        if (refuses != CUDA_SUCCESS) return refuses;
        return registered.insert(at).second ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    };
    driver.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* out, void* at, unsigned int) {
        return *out = reinterpret_cast<CUdeviceptr>(at), CUDA_SUCCESS;
    };
}

// Contexts come and go, as many at once as there is room for: each has mappings of its own of the same pages, for as
// long as it lives, and until its end is over nobody else has them.
void pages() {
    make_driver();
    void* memory = mmap(nullptr, wire::place_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    auto& slot = *static_cast<wire::Slot*>(memory);
    static Progress progress;
    static GpuPages pages;
    auto of = [&](uintptr_t number) { return pages.of(context_of(number), slot, progress); };
    auto end = [&](uintptr_t number) {
        int which = pages.begin_end_of(context_of(number));
        pages.complete_end(which);
        return which;
    };
    // The first has what is there already.
    REQUIRE(of(1).slot == reinterpret_cast<CUdeviceptr>(&slot));
    REQUIRE(of(1).words == reinterpret_cast<CUdeviceptr>(progress.words()));
    GpuPages::Addresses second = of(2);
    REQUIRE(second.slot && second.words && second.slot != of(1).slot && second.words != of(1).words);
    REQUIRE(of(2).slot == second.slot && registered.size() == 4);
    *static_cast<std::atomic<uint32_t>*>(progress.words()) = 77;
    REQUIRE(*reinterpret_cast<uint32_t*>(second.words) == 77);
    // One that nobody has seen ends: nothing of another's ends with it.
    REQUIRE(end(9) == GpuPages::kNone && of(1).slot == reinterpret_cast<CUdeviceptr>(&slot));
    REQUIRE(of(2).slot == second.slot);
    uintptr_t last = 2;
    while (of(last + 1).slot) REQUIRE(++last < 1000);
    REQUIRE(last == 64);
    // While one ends, its handle may be another's, whose mappings are not those.
    int which = pages.begin_end_of(context_of(2));
    REQUIRE(which != GpuPages::kNone && !of(2).slot && !of(last + 1).slot);
    pages.complete_end(which);
    REQUIRE(of(last + 1).slot == second.slot && !of(last + 2).slot);
    for (uintptr_t each = 3; each <= last; ++each) REQUIRE(of(each).slot != second.slot);
    // However many have been there.
    for (uintptr_t each = 100; each < 400; ++each) {
        REQUIRE(end(each == 100 ? last + 1 : each - 1) != GpuPages::kNone);
        REQUIRE(of(each).slot == second.slot);
    }
    // A driver that would not: that context has none, and its place is free again when it has gone.
    end(399);
    refuses = CUDA_ERROR_NOT_SUPPORTED;
    REQUIRE(!of(500).slot && !of(500).words && pages.refusal() == CUDA_ERROR_NOT_SUPPORTED);
    refuses = CUDA_SUCCESS;
    REQUIRE(end(500) != GpuPages::kNone && of(501).slot == second.slot && pages.refusal() != CUDA_ERROR_NOT_SUPPORTED);
    munmap(memory, wire::place_bytes());
}

// Green context g of device d has the handle 1000 + g as a context, and that device's primary one is 10 + d.
int retained = 0;
bool first_version_only = false;
void make_green_driver() {
    driver.cuCtxFromGreenCtx = [](CUcontext* out, CUgreenCtx green) {
        return *out = context_of(1000 + reinterpret_cast<uintptr_t>(green) / 64), CUDA_SUCCESS;
    };
    driver.cuDevicePrimaryCtxRetain = [](CUcontext* out, CUdevice device) {
        ++retained;
        return *out = context_of(10 + static_cast<uintptr_t>(device)), CUDA_SUCCESS;
    };
    driver.cuDevicePrimaryCtxRelease_v2 = [](CUdevice) { return --retained, CUDA_SUCCESS; };
    driver.cuStreamGetCtx_v2 = [](CUstream, CUcontext* out, CUgreenCtx*) {
        if (first_version_only) return CUDA_ERROR_NOT_SUPPORTED;
        return *out = context_of(10), CUDA_SUCCESS;
    };
    driver.cuStreamGetCtx = [](CUstream stream, CUcontext* out) {
        if (!stream) return CUDA_ERROR_INVALID_HANDLE;
        return *out = context_of(reinterpret_cast<uintptr_t>(stream) / 64), CUDA_SUCCESS;
    };
}

void greens() {
    make_green_driver();
    auto green = [](uintptr_t number) { return handle<CUgreenCtx>(number); };
    auto owner = [](uintptr_t number) { return owner_of(context_of(number)); };
    REQUIRE(owner_of(CUcontext{nullptr}) == nullptr && owner(1001) == context_of(1001));
    know_green_context(green(1), 0);
    know_green_context(green(2), 1);
    know_green_context(green(3), 0);
    REQUIRE(owner(1001) == context_of(10) && owner(1002) == context_of(11) && owner(1003) == context_of(10));
    REQUIRE(owner(1004) == context_of(1004) && retained == 0);
    // One of them ends. Its handle means nothing then, or another context; the others are what they were.
    forget_green_context(green(2));
    REQUIRE(owner(1002) == context_of(1002) && owner(1001) == context_of(10) && owner(1003) == context_of(10));
    REQUIRE(owner_of(CUcontext{nullptr}) == nullptr);
    know_green_context(green(2), 2);
    REQUIRE(owner(1002) == context_of(12));
    // However many come and go.
    for (uintptr_t each = 4; each < 1000; ++each) {
        know_green_context(green(each), 3);
        REQUIRE(owner(1000 + each) == context_of(13));
        forget_green_context(green(each));
        REQUIRE(owner(1000 + each) == context_of(1000 + each));
    }
    REQUIRE(owner(1002) == context_of(12) && retained == 0);
    // A stream's: the driver's first answer names the green context.
    REQUIRE(owner_of(handle<CUstream>(1002)) == context_of(10));
    first_version_only = true;
    REQUIRE(owner_of(handle<CUstream>(1002)) == context_of(12) && owner_of(handle<CUstream>(7)) == context_of(7));
    REQUIRE(owner_of(CUstream{nullptr}) == nullptr);
}

void places() {
    StandingPlaces places;
    static StreamState streams[8];
    int one = 0, other = 0;
    for (uint64_t i = 0; i < 8; ++i) streams[i].key.store(64 + i);
    REQUIRE(!places.any() && !places.take(&one, streams[0]));
    for (const char* text : {"1", "0", "-5", "nonsense"}) {
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", text, 1);
        places.count();
        REQUIRE(!places.any());
    }
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    places.count();
    REQUIRE(places.any());
    // Half of the channels, whosever the streams are; one that has a place keeps it.
    for (auto& stream : streams) stream.entered.store(1);  // a call is under way
    for (int i = 0; i < 4; ++i) REQUIRE(places.take(i < 2 ? &one : &other, streams[i]));
    REQUIRE(!places.take(&one, streams[4]) && places.take(&one, streams[0]) && places.take(&other, streams[3]));
    places.free_unused(&one);
    places.free_unused(&other);
    REQUIRE(!places.take(&one, streams[4]));
    // In use until all that was issued has finished.
    streams[0].issued.store(1);
    places.free_unused(&one);
    REQUIRE(!places.take(&one, streams[4]));
    streams[0].finished = 1;
    streams[2].issued.store(1);
    streams[2].finished = 1;
    places.free_unused(&one);  // not the other tenant's
    REQUIRE(places.take(&one, streams[4]) && !places.take(&one, streams[5]) && !places.take(&one, streams[0]));
    places.free_unused(&other);
    REQUIRE(places.take(&other, streams[5]) && !places.take(&other, streams[6]));
    // One that was destroyed has none.
    streams[1].key.store(kNoStream);
    places.free_unused(&one);
    REQUIRE(places.take(&one, streams[6]) && !places.take(&one, streams[7]));
    places.forget_all();
    for (int i = 4; i < 8; ++i) REQUIRE(places.take(&one, streams[i]));
    REQUIRE(!places.take(&one, streams[0]));
}

}  // namespace

int main(int, char** argv) {
    if (!strcmp(argv[1], "pages")) pages();
    if (!strcmp(argv[1], "greens")) greens();
    if (!strcmp(argv[1], "places")) places();
    return 0;
}

// hold CASE: what is kept queued in the gaps of a burst, with a GPU that begins what the test says
// (native/tenant/hold.h).
#include "tenant/hold.h"

#include <elf.h>

#include <cstdlib>
#include <cstring>

#include "../require.h"
#include "tenant/detour_places.h"
#include "tenant/green_contexts.h"
#include "tenant/membership.h"
#include "tenant/mps.h"
#include "tenant/settings.h"
#include "tenant/wait_for_all.h"

namespace tenant {

DriverCalls driver;
Membership* Membership::join() { return nullptr; }
CUcontext owner_of(CUcontext context) { return context == reinterpret_cast<CUcontext>(0x9000) ? nullptr : context; }
std::atomic<bool> mps::is_here{false};
std::atomic<bool> detour::is_installed{false};
bool hold_from_environment() { return true; }

}  // namespace tenant

namespace {

using tenant::Hold;
using tenant::WaitForAll;

auto* const kContext = reinterpret_cast<CUcontext>(0x1000);
auto* const kOther = reinterpret_cast<CUcontext>(0x2000);
auto* const kGreen = reinterpret_cast<CUcontext>(0x9000);
CUcontext current = nullptr;
uint32_t* words = nullptr;
uint32_t launched = 0, modules = 0, kernels = 0;
const char* refuses = "";
bool begins_at_once = false;
WaitForAll* waiting = nullptr;
bool starts_to_wait = false;

uint32_t begun() { return words[0]; }
uint32_t ended() { return words[32]; }
CUresult answer(const char* call) { return strcmp(refuses, call) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN; }

int major = 8, minor = 6, code_of = 80;

void make_driver() {
    tenant::driver.cuCtxGetDevice = [](CUdevice* out) { return *out = 5, CUDA_SUCCESS; };
    tenant::driver.cuDeviceGetAttribute = [](int* out, CUdevice_attribute which, CUdevice device) {
        REQUIRE(device == 5);
        *out = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? major : minor;
        return answer("attribute");
    };
    tenant::driver.cuCtxGetCurrent = [](CUcontext* out) { return *out = current, CUDA_SUCCESS; };
    tenant::driver.cuCtxSetCurrent = [](CUcontext context) { return current = context, CUDA_SUCCESS; };
    tenant::driver.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
    tenant::driver.cuMemHostRegister_v2 = [](void* page, size_t, unsigned int) {
        words = static_cast<uint32_t*>(page);
        return answer("register");
    };
    tenant::driver.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* out, void* page, unsigned int) {
        return *out = reinterpret_cast<CUdeviceptr>(page), answer("pointer");
    };
    tenant::driver.cuModuleLoadData = [](CUmodule* out, const void* image) {
        const auto* header = static_cast<const Elf64_Ehdr*>(image);
        REQUIRE(!memcmp(header->e_ident, ELFMAG, SELFMAG) && header->e_machine == EM_CUDA);
        // As far as it says so where we know it.
        uint32_t of = header->e_flags & 0xff;
        REQUIRE(of < 70 || of == static_cast<uint32_t>(code_of));
        ++modules;
        return *out = reinterpret_cast<CUmodule>(0x3000), answer("module");
    };
    tenant::driver.cuModuleGetFunction = [](CUfunction* out, CUmodule, const char* name) {
        REQUIRE(!strcmp(name, "cotenant_hold"));
        return *out = reinterpret_cast<CUfunction>(0x4000), answer("function");
    };
    tenant::driver.cuStreamCreate = [](CUstream* out, unsigned int flags) {
        REQUIRE(flags == CU_STREAM_NON_BLOCKING);
        return *out = reinterpret_cast<CUstream>(0x5000), answer("stream");
    };
    tenant::driver.cuLaunchKernel = [](CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                                       unsigned int, unsigned int, CUstream, void** parameters, void**) {
        REQUIRE(current == kContext || current == kOther);
        REQUIRE(*static_cast<uint32_t**>(parameters[0]) == words);
        launched = *static_cast<uint32_t*>(parameters[1]);
        REQUIRE(*static_cast<uint32_t*>(parameters[2]) == Hold::kLifeNs);
        ++kernels;
        if (begins_at_once) words[0] = launched;
        if (starts_to_wait && !waiting) waiting = new WaitForAll;
        return answer("launch");
    };
}

// The process has joined: as much of its membership as is asked for.
tenant::Membership& joined() {
    alignas(tenant::Membership) static unsigned char bare[sizeof(tenant::Membership)];
    auto* self = reinterpret_cast<tenant::Membership*>(bare);
    self->used_gpus.add(3);
    tenant::not_inherited.joined.store(self);
    return *self;
}

// A thread in this context has launched, and the watcher has looked, if there is something for it to do.
void fill(Hold& hold, CUcontext context) {
    current = context;
    hold.fill(context);
    if (!hold.is_to_be_prepared()) return;
    current = nullptr;
    hold.prepare();
    REQUIRE(current == nullptr && !hold.is_to_be_prepared());
    current = context;
    hold.fill(context);
}

void queue() {
    Hold hold;
    hold.release();  // of nothing
    hold.saw_gap();
    REQUIRE(hold.is_due());
    fill(hold, kContext);
    REQUIRE(kernels == Hold::kQueued && launched == kernels && ended() == 0 && !hold.is_due());
    fill(hold, kContext);
    REQUIRE(kernels == Hold::kQueued);
    words[0] = Hold::kQueued - Hold::kEnough;
    REQUIRE(!hold.is_due());
    words[0] = Hold::kQueued - Hold::kEnough + 1;
    REQUIRE(hold.is_due());
    words[0] = 3;
    fill(hold, kContext);
    REQUIRE(kernels == Hold::kQueued + 3 && modules == 1 && !hold.is_due());
    // A thread that is elsewhere by now.
    words[0] = 5;
    current = kOther;
    hold.fill(kContext);
    REQUIRE(kernels == Hold::kQueued + 3);
    // Those that were told to end hold nothing, whether or not they have begun.
    hold.release();
    REQUIRE(ended() == launched && begun() == 5 && hold.is_due());
    fill(hold, kContext);
    REQUIRE(launched == 2 * Hold::kQueued + 3 && ended() == Hold::kQueued + 3 && !hold.is_due());
    // A GPU on which they do not wait for each other does not keep us here.
    begins_at_once = true;
    words[0] = launched;
    fill(hold, kContext);
    REQUIRE(launched == 3 * Hold::kQueued + 3);
    // Nor does one that writes what it likes.
    words[0] = launched + 77;
    REQUIRE(!hold.is_due() == (launched - ended() >= Hold::kEnough));
    fill(hold, kContext);
    REQUIRE(launched <= 4 * Hold::kQueued + 3);
}

void gaps() {
    Hold hold;
    // One in every ten bursts is too few, but in this one there is one.
    for (int burst = 0; burst < 100; ++burst) {
        hold.begin_burst();
        REQUIRE(!hold.is_due());
        if (burst % 10 == 9) {
            hold.saw_gap();
            REQUIRE(hold.is_due());
        }
    }
    for (int burst = 0; burst < 100; ++burst) {
        hold.begin_burst();
        hold.saw_gap();
    }
    hold.begin_burst();
    REQUIRE(hold.is_due());
    fill(hold, kContext);
    REQUIRE(!hold.is_due());
    for (int burst = 0; burst < 100; ++burst) hold.begin_burst();
    hold.release();
    REQUIRE(!hold.is_due());
}

void due() {
    tenant::Due due;
    due.saw_wait(2);
    REQUIRE(due.has(2) && !due.has(1));
    // It waited for the burst before.
    due.begin_burst(2);
    tenant::Due::Taken first = due.take(2);
    REQUIRE(first.starts && !first.gap && !due.has(2));
    due.saw_wait(2);
    tenant::Due::Taken after_wait = due.take(2);
    REQUIRE(!after_wait.starts && after_wait.gap && !due.has(2));
    due.look_again(2);
    tenant::Due::Taken asked = due.take(2);
    REQUIRE(!asked.starts && !asked.gap);
}

void waits() {
    Hold& hold = joined().holds[3];
    fill(hold, kContext);
    {
        WaitForAll for_all;
        REQUIRE(ended() == launched);
        words[0] = launched;
        fill(hold, kContext);
        {
            WaitForAll another;
        }
        fill(hold, kContext);
        REQUIRE(kernels == Hold::kQueued);
    }
    // A thread begins to wait while one is being launched.
    starts_to_wait = true;
    fill(hold, kContext);
    REQUIRE(kernels == 2 * Hold::kQueued && ended() == launched);
    delete waiting;
    words[0] = launched;
    fill(hold, kContext);
    REQUIRE(kernels == 3 * Hold::kQueued && ended() != launched);
}

void refusals() {
    for (const char* call : {"attribute", "register", "pointer", "module", "function", "stream"}) {
        Hold hold;
        hold.saw_gap();
        refuses = call;
        fill(hold, kContext);
        refuses = "";
        uint32_t tried = modules;
        fill(hold, kContext);  // it is not asked again
        REQUIRE(kernels == 0 && modules == tried && !hold.is_due());
        hold.forget(kContext);
        fill(hold, kOther);
        REQUIRE(kernels == Hold::kQueued && modules == tried + 1);
        kernels = 0;
    }
    Hold hold;
    hold.saw_gap();
    refuses = "launch";
    fill(hold, kContext);
    refuses = "";
    fill(hold, kContext);
    REQUIRE(kernels == 1 && !hold.is_due());
}

void gpus() {
    struct {
        int major, minor, code_of;
    } const known[] = {{7, 0, 70}, {7, 2, 70}, {7, 5, 75},   {8, 0, 80},
                       {8, 9, 80}, {9, 0, 90}, {10, 3, 100}, {12, 1, 120}};
    for (const auto& gpu : known) {
        Hold hold;
        major = gpu.major, minor = gpu.minor, code_of = gpu.code_of;
        kernels = 0;
        fill(hold, kContext);
        REQUIRE(kernels == Hold::kQueued);
    }
    for (int generation : {6, 11, 13}) {
        Hold hold;
        major = generation;
        kernels = 0;
        fill(hold, kContext);
        REQUIRE(kernels == 0);
    }
}

void contexts() {
    Hold hold;
    fill(hold, kGreen);
    REQUIRE(kernels == 0 && modules == 0);
    fill(hold, kContext);
    // A program that goes to and fro between two has one queue.
    fill(hold, kOther);
    REQUIRE(kernels == Hold::kQueued && modules == 1);
    hold.forget(kOther);
    words[0] = 1;
    fill(hold, kContext);
    REQUIRE(kernels == Hold::kQueued + 1 && modules == 1);
    // Nobody waits for the rest where the context ends. The next one may have the same address.
    hold.forget(kContext);
    REQUIRE(ended() == launched);
    fill(hold, kContext);
    REQUIRE(kernels == 2 * Hold::kQueued + 1 && modules == 2);
}

void places() {
    REQUIRE(Hold::is_possible());
    tenant::mps::is_here = true;
    REQUIRE(!Hold::is_possible());
    tenant::mps::is_here = false;
    tenant::detour::is_installed = true;
    REQUIRE(!Hold::is_possible());
    Hold hold;
    fill(hold, kContext);
    REQUIRE(kernels == 0 && modules == 0);
}

}  // namespace

int main(int count, char** arguments) {
    REQUIRE(count == 2);
    make_driver();
    const char* which = arguments[1];
    if (!strcmp(which, "queue")) queue();
    if (!strcmp(which, "gaps")) gaps();
    if (!strcmp(which, "due")) due();
    if (!strcmp(which, "waits")) waits();
    if (!strcmp(which, "refusals")) refusals();
    if (!strcmp(which, "gpus")) gpus();
    if (!strcmp(which, "contexts")) contexts();
    if (!strcmp(which, "places")) places();
    return 0;
}

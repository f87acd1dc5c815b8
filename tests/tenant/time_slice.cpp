// `time_slice CASE`: how long the hardware lets each channel group run, with a kernel module that is a table here.
// Status 0, or the line that does not hold.
#include "tenant/time_slice.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "../require.h"
#include "tenant/fork.h"

namespace {

constexpr uint32_t kSchedule = 0xa06c0101, kSet = 0xa06c0103, kGet = 0xa06c0104, kChannelGroup = 0xa06c;
constexpr uint64_t kOwn = 1024, kDrivers = 2048;
constexpr uint32_t kKernels = 21, kFirstCopies = 22, kLastCopies = 24;

struct Control {
    uint32_t client, object, command, flags;
    uint64_t parameters;
    uint32_t bytes, status;
};

struct Allocation {
    uint32_t client, parent, object, kind;
    uint64_t parameters;
    uint32_t bytes, status;
};

struct GroupParameters {
    uint32_t errors, more_errors, addresses, engine, more[4];
};
constexpr uint32_t kGraphics = 1, kCopy = 11, kVideo = 19;

std::map<uint32_t, uint64_t> slices;  // of the groups that there are
int calls = 0, sets = 0;
bool refuses_kernels = false, refuses_copies = false, tells = true;

uint32_t answer(const Control& control) {
    if (!slices.count(control.object)) return 0x57;
    auto* us = reinterpret_cast<uint64_t*>(control.parameters);
    bool refuses = control.object == kKernels ? refuses_kernels : refuses_copies;
    if (control.command == kGet && tells)
        *us = slices[control.object];
    else if (control.command == kSet && (!refuses || *us == kDrivers || *us == kOwn))
        slices[control.object] = *us, ++sets;
    else if (control.command != kSchedule)
        return 0x1b;
    return 0;
}

int kernel_module(int, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void* argument = va_arg(arguments, void*);
    va_end(arguments);
    if (_IOC_NR(request) == 0x2B) {
        auto* made = static_cast<Allocation*>(argument);
        if (made->kind == kChannelGroup) slices[made->object] = kOwn;
    } else {
        auto* control = static_cast<Control*>(argument);
        control->status = answer(*control);
    }
    errno = ++calls;
    return 0;
}

void call(uint32_t object, uint32_t command, uint64_t us = 0) {
    Control control{1, object, command, 0, us ? reinterpret_cast<uint64_t>(&us) : 0, us ? 8u : 2u, 0};
    uint64_t before = us;
    int first = calls + 1;
    REQUIRE(ioctl(9, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2A, sizeof control), &control) == 0);
    REQUIRE(control.status == 0 && errno == first && us == before);  // the driver sees what it would without us
}

void make(uint32_t object, uint32_t engine) {
    GroupParameters parameters{};
    parameters.engine = engine;
    Allocation made{1, 0, object, kChannelGroup, reinterpret_cast<uint64_t>(&parameters), sizeof parameters, 0};
    REQUIRE(ioctl(9, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2B, sizeof made), &made) == 0);
    call(object, kSchedule);
}

// As the driver does it for a context.
void make_context() {
    make(kKernels, kGraphics);
    for (uint32_t object = kFirstCopies; object <= kLastCopies; ++object) make(object, kCopy);
    REQUIRE(slices[kKernels] == kOwn);
    call(kKernels, kSet, kDrivers);
}

bool are(uint64_t kernels_us, uint64_t copies_us) {
    for (const auto& [object, us] : slices)
        if (us != (object == kKernels ? kernels_us : copies_us)) return false;
    return tenant::time_slice().granted_us == kernels_us;
}

void start_as(const char* tenant_class) {
    setenv("COTENANT_CLASS", tenant_class, 1);
    make_context();
}

void classes(const char* tenant_class) {
    start_as(tenant_class);
    if (!strcmp(tenant_class, "production"))
        REQUIRE(are(1000000, 10000));
    else if (!strcmp(tenant_class, "opportunistic"))
        REQUIRE(are(1000, 30));
    else
        REQUIRE(are(1000, kOwn));
}

void changes() {
    start_as("opportunistic");
    int before = sets;
    tenant::set_time_slices({30, 30});
    REQUIRE(are(30, 30) && sets == before + 1);  // only what differs
    tenant::set_time_slices({1000000, 0});
    REQUIRE(are(1000000, kOwn));
    tenant::set_time_slices({0, 0});
    REQUIRE(are(kDrivers, kOwn));
    make(kLastCopies + 1, kCopy);
    tenant::set_time_slices({1000, 30});
    REQUIRE(are(1000, 30));
    make(kLastCopies + 2, kCopy);
    REQUIRE(are(1000, 30));  // made later
}

void kernels_refused() {
    refuses_kernels = true;
    start_as("opportunistic");
    REQUIRE(are(kDrivers, 30) && tenant::time_slice().refused);
    tenant::set_time_slices({30, 0});
    REQUIRE(are(kDrivers, kOwn));
}

void copies_refused() {
    refuses_copies = true;
    start_as("opportunistic");
    REQUIRE(are(1000, kOwn) && !tenant::time_slice().refused);
    int before = sets;
    tenant::set_time_slices({30, 30});
    REQUIRE(are(30, kOwn) && sets == before + 1);  // not asked again
}

// What cannot be put back is not changed.
void untold() {
    tells = false;
    start_as("opportunistic");
    REQUIRE(are(1000, kOwn));
}

void gone() {
    start_as("opportunistic");
    slices.erase(kKernels);
    slices.erase(kFirstCopies);
    tenant::set_time_slices({1000000, 0});
    REQUIRE(are(1000, kOwn) && !tenant::time_slice().refused);
    int before = calls;
    tenant::set_time_slices({1000000, 30});
    REQUIRE(calls - before == kLastCopies - kFirstCopies);  // who is gone is not asked again
}

// A number comes again, for another use.
void anew() {
    start_as("opportunistic");
    slices.erase(kKernels);
    slices.erase(kFirstCopies);
    make(kKernels, kCopy);
    REQUIRE(slices[kKernels] == 30);
    make(kFirstCopies, kGraphics);
    call(kFirstCopies, kSet, kDrivers);
    REQUIRE(slices[kFirstCopies] == 1000);
}

void many() {
    start_as("opportunistic");
    for (uint32_t i = 0; i < 1000; ++i) {
        make(1000 + i, kCopy);
        REQUIRE(slices[1000 + i] == 30);
        slices.erase(1000 + i);
    }
    for (uint32_t i = 0; i < 1000; ++i) make(1000 + i, kCopy);
    tenant::set_time_slices({1000000, 0});
    REQUIRE(slices[kKernels] == 1000000 && slices[1000] == kOwn && slices[1999] == kOwn);
}

// What the driver was refused is not asked for by us.
void failed() {
    setenv("COTENANT_CLASS", "opportunistic", 1);
    uint64_t us = kDrivers;
    Control control{1, 999, kSet, 0, reinterpret_cast<uint64_t>(&us), sizeof us, 0};
    REQUIRE(ioctl(9, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2A, sizeof control), &control) == 0);
    REQUIRE(control.status != 0 && calls == 1);
}

void video() {
    start_as("opportunistic");
    make(900, kVideo);
    tenant::set_time_slices({30, 30});
    REQUIRE(slices[900] == kOwn);
}

// One that is put on the run list once more is what it was.
void again() {
    start_as("opportunistic");
    call(kKernels, kSchedule);
    call(kFirstCopies, kSchedule);
    REQUIRE(are(1000, 30));
    tenant::set_time_slices({0, 0});
    REQUIRE(are(kDrivers, kOwn));
}

void child() {
    start_as("opportunistic");
    REQUIRE(tenant::mind_forks());
    if (pid_t one = fork()) {
        int status = 1;
        REQUIRE(waitpid(one, &status, 0) == one && status == 0);
        return;
    }
    int before = sets;
    tenant::set_time_slices({1000000, 0});
    REQUIRE(sets == before);  // they are its parent's
    make_context();
    REQUIRE(are(1000000, kOwn));
}

}  // namespace

extern "C" void* dlsym(void*, const char*) noexcept { return reinterpret_cast<void*>(kernel_module); }

int main(int, char** arguments) {
    const std::map<std::string, void (*)()> cases{
        {"changes", changes},
        {"kernels refused", kernels_refused},
        {"copies refused", copies_refused},
        {"untold", untold},
        {"gone", gone},
        {"anew", anew},
        {"many", many},
        {"video", video},
        {"failed", failed},
        {"again", again},
        {"child", child},
    };
    auto found = cases.find(arguments[1]);
    if (found == cases.end())
        classes(arguments[1]);
    else
        found->second();
    return 0;
}

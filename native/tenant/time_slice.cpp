#include "tenant/time_slice.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "tenant/settings.h"
#include "wire/wire.h"

namespace tenant {

namespace {

// NVIDIA's resource manager takes control calls through one ioctl; this is its argument, as the open kernel module has
// it.
struct ResourceControl {
    uint32_t client;
    uint32_t object;
    uint32_t command;
    uint32_t flags;
    uint64_t parameters;  // address
    uint32_t parameters_bytes;
    uint32_t status;
};
static_assert(sizeof(ResourceControl) == 32);

constexpr unsigned long kControlRequest = _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2A, sizeof(ResourceControl));
constexpr uint32_t kSetTimeSlice = 0xa06c0103;  // on a channel group; its parameter is one count of microseconds

using Ioctl = int (*)(int, unsigned long, ...);
int real_ioctl(int fd, unsigned long request, void* argument) {
    static Ioctl next = reinterpret_cast<Ioctl>(dlsym(RTLD_NEXT, "ioctl"));
    return next ? next(fd, request, argument) : static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

struct ChannelGroup {
    int fd;
    uint32_t client, object;
};
constexpr uint32_t kMostGroups = 64;  // later ones keep the slice they were made with
ChannelGroup groups[kMostGroups];
std::atomic<uint32_t> group_count{0};

std::atomic<uint32_t> wanted_us{UINT32_MAX};  // UINT32_MAX: by the class that we were started with
std::atomic<uint32_t> drivers_us{0};          // what the driver itself asks for
std::atomic<uint32_t> asked_us{0}, granted_us{0};
std::atomic<bool> refused{false};

int ask(int fd, ResourceControl* control, uint64_t us) {
    uint64_t* slice = reinterpret_cast<uint64_t*>(control->parameters);
    uint64_t drivers = *slice;
    *slice = us;
    int result = real_ioctl(fd, kControlRequest, control);
    if (result == 0 && control->status == 0) {
        granted_us.store(static_cast<uint32_t>(us));
        return result;
    }
    refused.store(true);
    *slice = drivers;
    control->status = 0;
    result = real_ioctl(fd, kControlRequest, control);
    if (result == 0 && control->status == 0) granted_us.store(static_cast<uint32_t>(drivers));
    return result;
}

void remember(int fd, const ResourceControl& control) {
    uint32_t place = group_count.fetch_add(1);
    if (place < kMostGroups) groups[place] = {fd, control.client, control.object};
}

int set_on_the_way(int fd, ResourceControl* control) {
    remember(fd, *control);
    drivers_us.store(static_cast<uint32_t>(*reinterpret_cast<uint64_t*>(control->parameters)));
    uint32_t wanted = wanted_us.load();
    uint32_t us = wanted == UINT32_MAX ? time_slice_for({class_from_environment(), false}) : wanted;
    asked_us.store(us);
    if (us && !refused.load()) return ask(fd, control, us);
    granted_us.store(static_cast<uint32_t>(*reinterpret_cast<uint64_t*>(control->parameters)));
    return real_ioctl(fd, kControlRequest, control);
}

bool sets_time_slice(unsigned long request, const void* argument) {
    if (request != kControlRequest || !argument) return false;
    const auto* control = static_cast<const ResourceControl*>(argument);
    return control->command == kSetTimeSlice && control->parameters_bytes == sizeof(uint64_t) && control->parameters;
}

}  // namespace

TimeSlice time_slice() { return {asked_us.load(), granted_us.load(), refused.load()}; }

void set_time_slice(uint32_t us) {
    wanted_us.store(us);
    if (!us) us = drivers_us.load();
    uint32_t known = group_count.load();
    for (uint32_t i = 0; us && !refused.load() && i < known && i < kMostGroups; ++i) {
        uint64_t parameter = us;
        ResourceControl control{groups[i].client,
                                groups[i].object,
                                kSetTimeSlice,
                                0,
                                reinterpret_cast<uint64_t>(&parameter),
                                sizeof parameter,
                                0};
        ask(groups[i].fd, &control, us);
    }
}

}  // namespace tenant

// Every ioctl of the process comes by here: all but one kind go on as they are.
extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void* argument = va_arg(arguments, void*);
    va_end(arguments);
    if (tenant::sets_time_slice(request, argument))
        return tenant::set_on_the_way(fd, static_cast<tenant::ResourceControl*>(argument));
    return tenant::real_ioctl(fd, request, argument);
}

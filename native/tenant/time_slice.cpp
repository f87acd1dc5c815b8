#include "tenant/time_slice.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "tenant/fork.h"
#include "tenant/lazy.h"
#include "tenant/locked.h"
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

// What it takes to make an object, and to make a channel group: the beginning of both.
struct ResourceAllocation {
    uint32_t client;
    uint32_t parent;
    uint32_t object;
    uint32_t kind;
    uint64_t parameters;  // address
};
struct ChannelGroupParameters {
    uint32_t errors, more_errors, addresses;
    uint32_t engine;
};

constexpr uint32_t kAllocateNumber = 0x2B;  // of an ioctl, whose argument has more than one length
constexpr uint32_t kChannelGroup = 0xa06c;
constexpr uint32_t kFirstCopyEngine = 9, kLastCopyEngine = 18;
constexpr uint32_t kControlRequest = _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2A, sizeof(ResourceControl));
// On a channel group; the parameter of the latter two is one count of microseconds.
constexpr uint32_t kSchedule = 0xa06c0101, kSetTimeSlice = 0xa06c0103, kGetTimeSlice = 0xa06c0104;

using Ioctl = int (*)(int, unsigned long, ...);
int real_ioctl(int fd, unsigned long request, void* argument) {
    static Lazy<Ioctl> found;
    Ioctl next = found.get([] { return reinterpret_cast<Ioctl>(dlsym(RTLD_NEXT, "ioctl")); });
    return next ? next(fd, request, argument) : static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

// Those for copies are known by their engine when they are made, and have a slice once they are on the run list. Those
// for kernels are the ones for which the driver asks for one. There are others, for video: they are left alone.
struct ChannelGroup {
    int fd;
    uint32_t client, object;
    bool runs_kernels;    // else it copies
    uint32_t drivers_us;  // without us; 0: not known, or ours is not taken
    uint32_t us;
};

Lock lock{Rank::time_slices};          // of what follows
constexpr uint32_t kMostGroups = 256;  // more keep the slice they were made with
ChannelGroup groups[kMostGroups];
uint32_t group_count = 0;
bool is_set = false;  // what is wanted; until then it is by the class that we were started with
admission::TimeSlices wanted = {};

std::atomic<uint32_t> asked_us{0}, granted_us{0};
std::atomic<bool> refused{false};

void forget_in_child() {
    lock.renew();
    group_count = 0;
}
LISTEN(AtFork, ForkStep::time_slice, forget_in_child)

bool control(const ChannelGroup& group, uint32_t command, uint64_t* us) {
    ResourceControl control{group.client, group.object, command, 0, reinterpret_cast<uint64_t>(us), sizeof *us, 0};
    return real_ioctl(group.fd, kControlRequest, &control) == 0 && control.status == 0;
}

bool is_there(ChannelGroup& group) {
    uint64_t us;
    return control(group, kGetTimeSlice, &us);
}

void keep_if(bool (*is_good)(ChannelGroup&)) {
    for (uint32_t i = 0; i < group_count;)
        if (is_good(groups[i]))
            ++i;
        else
            groups[i] = groups[--group_count];
}

bool take(ChannelGroup& group, uint64_t us) {
    if (!control(group, kSetTimeSlice, &us)) return false;
    group.us = static_cast<uint32_t>(us);
    return true;
}

// False: it is no more.
bool set(ChannelGroup& group) {
    uint32_t us = group.runs_kernels ? wanted.kernels_us : wanted.copies_us;
    if (!us) us = group.drivers_us;
    if (!group.drivers_us || us == group.us || (group.runs_kernels && refused.load())) return true;
    if (take(group, us)) return true;
    if (!take(group, group.drivers_us)) return false;
    if (group.runs_kernels)
        refused.store(true);
    else
        group.drivers_us = 0;
    return true;
}

void set_all() {
    if (!is_set) {
        admission::Slicing at_start{class_from_environment(), false};
        wanted = {admission::time_slice_for(at_start), admission::copy_slice_for(at_start)};
    }
    keep_if(set);
    for (uint32_t i = 0; i < group_count; ++i) {
        if (!groups[i].runs_kernels) continue;
        granted_us.store(groups[i].us);
        asked_us.store(wanted.kernels_us);
    }
}

ChannelGroup* find(uint32_t client, uint32_t object) {
    for (uint32_t i = 0; i < group_count; ++i)
        if (groups[i].client == client && groups[i].object == object) return &groups[i];
    return nullptr;
}

ChannelGroup* add(int fd, uint32_t client, uint32_t object, bool runs_kernels) {
    if (group_count == kMostGroups) keep_if(is_there);
    if (group_count == kMostGroups) return nullptr;
    groups[group_count] = {fd, client, object, runs_kernels, 0, 0};
    return &groups[group_count++];
}

void see_made(int fd, const ResourceAllocation& made) {
    Locked locked(lock);
    // Its number may have been another's.
    if (ChannelGroup* earlier = find(made.client, made.object)) *earlier = groups[--group_count];
    if (!made.parameters) return;
    uint32_t engine = reinterpret_cast<const ChannelGroupParameters*>(made.parameters)->engine;
    if (engine >= kFirstCopyEngine && engine <= kLastCopyEngine) add(fd, made.client, made.object, false);
}

void see_scheduled(const ResourceControl& done) {
    Locked locked(lock);
    ChannelGroup* group = find(done.client, done.object);
    uint64_t us = 0;
    if (!group || group->drivers_us || !control(*group, kGetTimeSlice, &us)) return;
    group->drivers_us = group->us = static_cast<uint32_t>(us);
    set_all();
}

void see_set(int fd, const ResourceControl& done) {
    Locked locked(lock);
    ChannelGroup* group = find(done.client, done.object);
    if (!group) group = add(fd, done.client, done.object, true);
    if (!group) return;
    group->drivers_us = group->us = static_cast<uint32_t>(*reinterpret_cast<uint64_t*>(done.parameters));
    set_all();
}

void see(int fd, uint32_t request, const void* argument) {
    if (_IOC_TYPE(request) != 'F' || !argument) return;
    bool is_both_ways = _IOC_DIR(request) == (_IOC_READ | _IOC_WRITE);
    if (is_both_ways && _IOC_NR(request) == kAllocateNumber && _IOC_SIZE(request) > sizeof(ResourceAllocation)) {
        const auto* made = static_cast<const ResourceAllocation*>(argument);
        if (made->kind == kChannelGroup) see_made(fd, *made);
    }
    if (request != kControlRequest) return;
    const auto* done = static_cast<const ResourceControl*>(argument);
    if (done->status != 0) return;
    bool has_slice = done->parameters_bytes == sizeof(uint64_t) && done->parameters;
    if (done->command == kSchedule) see_scheduled(*done);
    if (done->command == kSetTimeSlice && has_slice) see_set(fd, *done);
}

}  // namespace

TimeSlice time_slice() { return {asked_us.load(), granted_us.load(), refused.load()}; }

void set_time_slices(const admission::TimeSlices& slices) {
    Locked locked(lock);
    wanted = slices;
    is_set = true;
    set_all();
}

}  // namespace tenant

// Every ioctl of the process passes through here unchanged. After the driver has set up a channel group, the interposer
// sets its slice.
extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void* argument = va_arg(arguments, void*);
    va_end(arguments);
    int result = tenant::real_ioctl(fd, request, argument), error = errno;
    // The kernel looks at 32 bits of it; some callers have a sign in the others.
    if (result == 0) tenant::see(fd, static_cast<uint32_t>(request), argument);
    errno = error;
    return result;
}

#include "tenant/fork.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "tenant/raw_child.h"

namespace tenant {

namespace {

void before() {
    for (int step = static_cast<int>(ForkStep::kSteps); step-- > 0;)
        tell_at<AtFork>(step, [](const AtFork& one) {
            if (one.before) one.before();
        });
}

void in_parent() {
    tell<AtFork>([](const AtFork& one) {
        if (one.in_parent) one.in_parent();
    });
}

void in_child() {
    not_inherited.is_known.store(true);
    tell<AtFork>([](const AtFork& one) { one.in_child(); });
}

std::atomic<bool> is_raw{false};

void in_raw_child() {
    if (not_inherited.is_known.exchange(true)) return;
    is_raw.store(true);
    in_child();
}

// Kernels before 4.14 wipe nothing: such a child is not noticed there.
void mind_raw_children() {
    auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    auto at = reinterpret_cast<uintptr_t>(&not_inherited.joined) & ~(page - 1);
    not_inherited.is_known.store(true);
    if (madvise(reinterpret_cast<void*>(at), page, MADV_WIPEONFORK) == 0) forget_in_raw_child.store(in_raw_child);
}

}  // namespace

bool is_raw_child() { return is_raw.load(); }

bool mind_forks() {
    static std::atomic<bool> minded{false};
    if (minded.exchange(true)) return true;
    bool done = pthread_atfork(before, in_parent, in_child) == 0;
    if (!done) minded.store(false);
    if (done) mind_raw_children();
    return done;
}

}  // namespace tenant

#include "tenant/fork.h"

#include <pthread.h>

#include <atomic>

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
    tell<AtFork>([](const AtFork& one) { one.in_child(); });
}

}  // namespace

bool mind_forks() {
    static std::atomic<bool> minded{false};
    if (minded.exchange(true)) return true;
    bool done = pthread_atfork(before, in_parent, in_child) == 0;
    if (!done) minded.store(false);
    return done;
}

}  // namespace tenant

#include "tenant/leave_in_order.h"

#include <signal.h>
#include <unistd.h>

#include "tenant/fork.h"
#include "tenant/membership.h"
#include "tenant/membership_events.h"
#include "wire/clock.h"
#include "wire/sleep.h"

namespace tenant {

namespace leave_in_order {

std::atomic<uint32_t> ending{0};

namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
// The watcher may be in the driver, waiting for a lock that the interrupted thread holds.
constexpr uint64_t kExtraNs = 200000000;

std::atomic<bool> is_asked{false};
std::atomic<uint32_t> undrained{0};  // tenants of this process that the handler waits for
std::atomic<uint32_t> is_over{0};
std::atomic<int> owner{0};

void end_by(int number) {
    struct sigaction standard{};
    standard.sa_handler = SIG_DFL;
    sigaction(number, &standard, nullptr);
    raise(number);
}

void count_down() {
    if (undrained.fetch_sub(1) != 1) return;
    is_over.store(1);
    wire::wake_here(is_over);
}

// A vfork's child may get the signal too, before it has become another program: it has another number.
void leave(int number, siginfo_t*, void*) {
    if (Membership::current_if_joined() && getpid() == owner.load() && !is_asked.exchange(true)) {
        undrained.store(1);  // this handler's own, until all are counted
        ending.store(static_cast<uint32_t>(number));
        // A lane that joins now is found here, or its thread finds the signal (Membership::join_lane).
        std::atomic_thread_fence(std::memory_order_seq_cst);
        Membership::for_each([](Membership& one) {
            undrained.fetch_add(1);
            if (!one.draining.begin_wait()) undrained.fetch_sub(1);
            one.wake_watcher();
        });
        Membership::turn_launches_to_join();
        count_down();
        uint64_t deadline = wire::now_ns() + kPatienceNs + kExtraNs;
        for (uint64_t now = wire::now_ns(); !is_over.load() && now < deadline; now = wire::now_ns())
            wire::wait_here(is_over, 0, deadline - now);
    }
    end_by(number);
}

bool is_ours(const struct sigaction& action) { return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == leave; }
bool is_standard(const struct sigaction& action) {
    return !(action.sa_flags & SA_SIGINFO) && action.sa_handler == SIG_DFL;
}

void mind_signals(wire::Segment&, wire::Slot& slot) {
    if (!slot.mps_daemon.load()) return;
    owner.store(getpid());
    for (int number : kSignals) {
        struct sigaction action{};
        if (sigaction(number, nullptr, &action) || !is_standard(action)) continue;
        action.sa_sigaction = leave;
        action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        sigaction(number, &action, nullptr);
    }
}
LISTEN(AtJoin, MembershipStep::leave_in_order, mind_signals)

// A forked child has nothing on the GPU.
void forget_in_child() {
    is_asked.store(false);
    ending.store(0);
    undrained.store(0);
    is_over.store(0);
    if (!owner.exchange(0)) return;
    for (int number : kSignals) {
        struct sigaction action{};
        if (sigaction(number, nullptr, &action) || !is_ours(action)) continue;
        action = {};
        action.sa_handler = SIG_DFL;
        sigaction(number, &action, nullptr);
    }
}
LISTEN(AtFork, ForkStep::leave_in_order, forget_in_child)

}  // namespace

void stand_aside() {
    while (is_ending()) wire::nap(kPatienceNs);
}

void note_drained(Draining& one) {
    if (one.end()) count_down();
}

}  // namespace leave_in_order

}  // namespace tenant

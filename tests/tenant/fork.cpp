// fork: what two rooms do around a fork, which stand in the library in the order opposite to that of ForkStep; and what
// they do in a child that a bare clone has made.
#include "tenant/fork.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "../require.h"
#include "tenant/locked.h"
#include "tenant/raw_child.h"

namespace {

std::string told;
tenant::Lock lock{tenant::Rank::ledger};

}  // namespace

namespace tenant {

namespace ledger {

LISTEN(
    AtFork, ForkStep::ledger, [] { told += "ledger in child, "; }, [] { told += "ledger before, "; },
    [] { told += "ledger in parent, "; })

}  // namespace ledger

namespace membership {

LISTEN(
    AtFork, ForkStep::membership, [] { told += "membership in child, "; }, [] { told += "membership before, "; },
    [] { told += "membership in parent, "; })

}  // namespace membership

namespace graphs {

LISTEN(AtFork, ForkStep::graphs, [] {
    told += "graphs in child, ";
    lock.renew();
})

}  // namespace graphs

}  // namespace tenant

namespace {

pid_t bare_clone(unsigned long flags) { return static_cast<pid_t>(syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0)); }

bool ends_well(pid_t child) {
    int status = 1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

// As if another thread of the parent held the lock.
void a_bare_clone_is_noticed() {
    auto* joined = reinterpret_cast<tenant::Membership*>(&lock);
    tenant::not_inherited.joined.store(joined);
    told.clear();
    lock.lock();
    pid_t child = bare_clone(0);
    if (child == 0) {
        if (tenant::not_inherited.joined.load() || tenant::is_raw_child()) _exit(1);
        alarm(60);
        lock.lock();
        bool once = told == "membership in child, graphs in child, ledger in child, ";
        lock.unlock();
        lock.lock();
        _exit(once && tenant::is_raw_child() && told.size() < 60 ? 0 : 2);
    }
    lock.unlock();
    REQUIRE(ends_well(child) && told.empty() && !tenant::is_raw_child());
    REQUIRE(tenant::not_inherited.joined.load() == joined);
}

// It is in the parent's memory, and leaves it as it is.
void a_vfork_is_no_child() {
    told.clear();
    pid_t child = vfork();
    if (child == 0) {
        tenant::look_for_raw_child();
        _exit(told.empty() ? 0 : 1);
    }
    REQUIRE(ends_well(child) && told.empty());
}

}  // namespace

int main() {
    // Once, however many rooms ask for it.
    REQUIRE(tenant::mind_forks() && tenant::mind_forks());
    const std::string before = "ledger before, membership before, ";
    pid_t child = fork();
    if (child == 0) {
        REQUIRE(told == before + "membership in child, graphs in child, ledger in child, ");
        return 0;
    }
    REQUIRE(told == before + "membership in parent, ledger in parent, ");
    REQUIRE(ends_well(child));
    a_bare_clone_is_noticed();
    a_vfork_is_no_child();
    return 0;
}

// fork: what two rooms do around a fork, which stand in the library in the order opposite to that of ForkStep.
#include "tenant/fork.h"

#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "../require.h"

namespace {

std::string told;

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

LISTEN(AtFork, ForkStep::graphs, [] { told += "graphs in child, "; })

}  // namespace graphs

}  // namespace tenant

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
    int status = 1;
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}

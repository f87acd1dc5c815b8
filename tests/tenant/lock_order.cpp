// Locks taken in an order that its argument names; ends with status 0 if nobody objects.
#include "tenant/lock_order.h"

#include <sys/wait.h>

#include <cstring>
#include <thread>

#include "../require.h"
#include "tenant/locked.h"

namespace {

using tenant::Lock;
using tenant::Locked;
using tenant::Rank;

Lock residence{Rank::residence, Lock::Kind::recursive};
Lock membership{Rank::membership};
Lock ledger{Rank::ledger};

void in_order() {
    Locked first(residence), second(membership), third(ledger);
    // It has it already, and does not wait.
    Locked again(residence);
}

void tried() {
    Locked last(ledger);
    REQUIRE(membership.try_lock());
    membership.unlock();
}

void by_another_thread() {
    Locked last(ledger);
    std::thread([] { Locked first(membership); }).join();
}

void given_back() {
    ledger.lock();
    ledger.unlock();
    Locked first(membership);
}

// The child has none of the locks that its parent had, and makes them anew.
void in_a_forked_child() {
    Locked last(ledger);
    pid_t child = fork();
    if (child == 0) {
        ledger.renew();
        Locked first(membership), second(ledger);
        _exit(0);
    }
    int status = 1;
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
}

void out_of_order() {
    Locked last(ledger);
    Locked first(membership);
}

void after_a_try() {
    REQUIRE(ledger.try_lock());
    Locked first(membership);
}

}  // namespace

int main(int, char** arguments) {
    if (!strcmp(arguments[1], "right")) {
        in_order();
        tried();
        by_another_thread();
        given_back();
        in_a_forked_child();
    } else if (!strcmp(arguments[1], "wrong")) {
        out_of_order();
    } else {
        after_a_try();
    }
}

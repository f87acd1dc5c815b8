// The interposer's entries with nothing behind them: what does a function see that is called through a trampoline, and
// does unwinding find its way back out of one?
#include <unwind.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "../require.h"
#include "registers.h"

uint64_t called_with_stack, called_with_link;
Registers seen;

extern "C" {
void cuFirst();
void cuSecond();
void* dlopen(const char* path, int flags);
__attribute__((visibility("hidden"))) extern void* shim_slots[2];
__attribute__((visibility("hidden"))) void* shim_real_dlopen = nullptr;
}

namespace {

int resolved[2];
bool unwound_to_caller;
bool stepping;
int steps, lost;

struct Search {
    void* function;
    bool found;
};

_Unwind_Reason_Code look(_Unwind_Context* context, void* argument) {
    auto& search = *static_cast<Search*>(argument);
    int before = 0;
    void* at = reinterpret_cast<void*>(_Unwind_GetIPInfo(context, &before));
    // A return address is one past the call.
    if (!before) at = static_cast<char*>(at) - 1;
    if (_Unwind_FindEnclosingFunction(at) == search.function) search.found = true;
    return _URC_NO_REASON;
}

__attribute__((noinline)) void checked_calls(const Registers& registers, void (*function)()) {
    if (stepping) begin_steps();
    call_with(&registers, function);
    if (stepping) end_steps();
    unwound_to_caller = unwound_to_caller && !lost;
}

bool unwinds_to_the_caller() {
    Search search{reinterpret_cast<void*>(checked_calls), false};
    _Unwind_Backtrace(look, &search);
    return search.found;
}

void stepped(int) {
    ++steps;
    lost += !unwinds_to_the_caller();
}

Registers some_registers(unsigned salt) {
    Registers registers{};
    for (unsigned i = 0; i < 10; ++i) registers.general[i] = 0x0123456789abcdefu * (i + salt);
    for (unsigned i = 0; i < sizeof registers.vector; ++i)
        reinterpret_cast<unsigned char*>(registers.vector)[i] = static_cast<unsigned char>(7 * i + salt);
    return registers;
}

void require_all_seen(const Registers& given) {
    for (uint64_t i = 0; i < general_registers; ++i) REQUIRE(seen.general[i] == given.general[i]);
    REQUIRE(memcmp(seen.vector, given.vector, sizeof given.vector) == 0);
    REQUIRE(seen.stack == called_with_stack);
    REQUIRE(seen.link == called_with_link);
}

}  // namespace

extern "C" __attribute__((visibility("hidden"))) void* shim_resolve(int index) {
    ++resolved[index];
    if (!stepping) unwound_to_caller = unwinds_to_the_caller();
    shim_slots[index] = reinterpret_cast<void*>(target);
    clobber();
    return reinterpret_cast<void*>(target);
}

extern "C" __attribute__((visibility("hidden"))) const char* shim_redirect(const char* path) {
    shim_real_dlopen = reinterpret_cast<void*>(target);
    if (!stepping) unwound_to_caller = unwinds_to_the_caller();
    clobber();
    return path + 1;
}

int main() {
    void* at_first[2];
    memcpy(at_first, shim_slots, sizeof at_first);
    Registers given = some_registers(3);
    checked_calls(given, cuFirst);
    REQUIRE(resolved[0] == 1 && resolved[1] == 0);
    REQUIRE(unwound_to_caller);
    require_all_seen(given);

    given = some_registers(5);
    checked_calls(given, cuFirst);
    REQUIRE(resolved[0] == 1);
    require_all_seen(given);

    given = some_registers(9);
    unwound_to_caller = false;
    checked_calls(given, cuSecond);
    REQUIRE(resolved[0] == 1 && resolved[1] == 1);
    REQUIRE(unwound_to_caller);
    require_all_seen(given);

    // dlopen has two arguments, and passes its caller's return address on: whose RUNPATH is searched goes by that.
    given = some_registers(11);
    unwound_to_caller = false;
    checked_calls(given, reinterpret_cast<void (*)()>(dlopen));
    REQUIRE(unwound_to_caller);
    REQUIRE(seen.general[0] == given.general[0] + 1 && seen.general[1] == given.general[1]);
    REQUIRE(seen.stack == called_with_stack && seen.link == called_with_link);

    // At each instruction, as a profiler's signal may come.
    signal(SIGTRAP, stepped);
    stepping = true;
    memcpy(shim_slots, at_first, sizeof at_first);
    for (auto* function : {cuFirst, cuFirst, cuSecond, reinterpret_cast<void (*)()>(dlopen)})
        checked_calls(given, function);
    REQUIRE(resolved[0] == 2 && resolved[1] == 2);
    REQUIRE(!lost);
    printf("%d steps\n", steps);
    return 0;
}

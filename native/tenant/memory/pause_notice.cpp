#include "tenant/memory/pause_notice.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "tenant/quiet_write.h"

namespace tenant {

namespace pause_notice {

namespace {

// At the start: later another thread may change the environment.
const bool is_quiet = getenv("COTENANT_QUIET") != nullptr;

std::atomic<bool> interrupted{false};
struct sigaction programs_own;  // written only while our handler is not installed

void note_and_pass_on(int number, siginfo_t* info, void* context) {
    interrupted.store(true);
    if (programs_own.sa_flags & SA_SIGINFO)
        programs_own.sa_sigaction(number, info, context);
    else
        programs_own.sa_handler(number);
}

bool is_ours(const struct sigaction& action) {
    return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == note_and_pass_on;
}

// Without a handler SIGINT needs no help: it ends the program, or is ignored.
bool has_handler(const struct sigaction& action) {
    return (action.sa_flags & SA_SIGINFO) || (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

void say(const char* format) {
    if (is_quiet || !isatty(STDERR_FILENO)) return;
    char line[160];
    int used = snprintf(line, sizeof line, format, static_cast<int>(getpid()));
    if (used > 0) quiet_write(STDERR_FILENO, line, static_cast<size_t>(used));
}

}  // namespace

void begin() {
    say("cotenant: this job is paused; `cotenant resume %d` or Ctrl-C ends the pause\n");
    interrupted.store(false);
    struct sigaction now;
    // One that is reset at the first signal would be reset in our place.
    if (sigaction(SIGINT, nullptr, &now) || is_ours(now) || !has_handler(now) || (now.sa_flags & SA_RESETHAND)) return;
    programs_own = now;
    now.sa_flags |= SA_SIGINFO;
    now.sa_sigaction = note_and_pass_on;
    sigaction(SIGINT, &now, nullptr);
}

void end() {
    struct sigaction now;
    if (!sigaction(SIGINT, nullptr, &now) && is_ours(now)) sigaction(SIGINT, &programs_own, nullptr);
    say("cotenant: this job (%d) runs on when its memory is restored\n");
}

bool is_interrupted() { return interrupted.load(); }

}  // namespace pause_notice

}  // namespace tenant

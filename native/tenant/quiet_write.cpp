#include "tenant/quiet_write.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

namespace tenant {

namespace {

// A write raises SIGPIPE where nobody reads, SIGXFSZ beyond RLIMIT_FSIZE, and SIGTTOU in the background of a terminal.
// All three reach the thread that writes; the last is not raised while it is blocked.
class Blocked {
 public:
    Blocked() {
        sigset_t all, pending;
        sigemptyset(&all);
        sigemptyset(&ours_);
        sigpending(&pending);
        for (int number : {SIGPIPE, SIGXFSZ, SIGTTOU}) {
            sigaddset(&all, number);
            if (!sigismember(&pending, number)) sigaddset(&ours_, number);
        }
        pthread_sigmask(SIG_BLOCK, &all, &before_);
    }
    ~Blocked() {
        timespec at_once{};
        while (sigtimedwait(&ours_, nullptr, &at_once) > 0) {
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    Blocked(const Blocked&) = delete;
    Blocked& operator=(const Blocked&) = delete;

 private:
    sigset_t ours_, before_;
};

}  // namespace

void quiet_write(int fd, const char* line, size_t bytes) {
    int saved = errno;
    {
        Blocked blocked;
        // A pipe or a terminal that is full would hold the program up until somebody reads.
        pollfd one{fd, POLLOUT, 0};
        bool written = poll(&one, 1, 0) == 1 && (one.revents & POLLOUT) && write(fd, line, bytes) >= 0;
        static_cast<void>(written);
    }
    errno = saved;
}

}  // namespace tenant

#include "tenant/quiet_write.h"

#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

namespace tenant {

WritingSignalsBlocked::WritingSignalsBlocked() {
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

WritingSignalsBlocked::~WritingSignalsBlocked() {
    timespec at_once{};
    while (sigtimedwait(&ours_, nullptr, &at_once) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void quiet_write(int fd, const char* line, size_t bytes) {
    int saved = errno;
    {
        WritingSignalsBlocked blocked;
        // A pipe or a terminal that is full would hold the program up until somebody reads.
        pollfd one{fd, POLLOUT, 0};
        bool written = poll(&one, 1, 0) == 1 && (one.revents & POLLOUT) && write(fd, line, bytes) >= 0;
        static_cast<void>(written);
    }
    errno = saved;
}

}  // namespace tenant

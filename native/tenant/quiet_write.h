// Writing a line from a thread of the program: a stderr that nobody reads, a full pipe, a terminal that stops writers
// in the background and a limit on the size of files cost the line, never the program.
#pragma once

#include <cstddef>

#include <signal.h>

namespace tenant {

// While one exists, this thread gets no signal for what it writes: SIGPIPE where nobody reads, SIGXFSZ beyond
// RLIMIT_FSIZE, SIGTTOU in the background of a terminal. The mask and what was pending are as before then.
class WritingSignalsBlocked {
 public:
    WritingSignalsBlocked();
    ~WritingSignalsBlocked();
    WritingSignalsBlocked(const WritingSignalsBlocked&) = delete;
    WritingSignalsBlocked& operator=(const WritingSignalsBlocked&) = delete;

 private:
    sigset_t ours_, before_;
};

// Leaves errno, the signal mask and pending signals as they were.
void quiet_write(int fd, const char* line, size_t bytes);

}  // namespace tenant

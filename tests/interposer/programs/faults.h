// What a test and the failing driver tell each other, in a file that both have mapped (COTENANT_FAULTS). Python has the
// same in tests/interposer/failing.py.
#pragma once

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define FAULTS_JOBS 16
#define FAULTS_TRACE 8192

enum Manner { fail_instead = 0, fail_after = 1, kill_before = 2, kill_after = 3 };

typedef struct {
    // The test's to say. `armed` is written last.
    uint32_t armed;
    uint32_t pid;         // in which process; 0: in any
    uint32_t function;    // its place in the failing driver's list
    uint32_t occurrence;  // of this function since it was armed, the first is 1
    uint32_t manner;
    uint32_t lasting;    // all later ones, too
    uint32_t unwatched;  // meanwhile `most_used` and `most_pinned` do not rise
    uint32_t wanted_checks;
    // The failing driver's to say, of the thread that moves memory, since it was armed.
    uint32_t calls;
    uint32_t calls_of_function;
    uint32_t fired;
    // The job's.
    uint32_t checks;
    uint32_t torn;
    uint32_t streams;        // that the thread has made
    uint64_t event_queries;  // of all processes and threads
    // Of all processes and threads. What the software GPU itself says is in use, after the last change.
    uint64_t used, most_used;
    uint64_t most_pinned;
    struct {
        uint32_t pid, unused;
        uint64_t pinned;
    } jobs[FAULTS_JOBS];
    uint8_t trace[FAULTS_TRACE];  // the functions in the order of their calls
} Faults;

static inline Faults* open_faults(void) {
    const char* path = getenv("COTENANT_FAULTS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return NULL;
    void* mapped = mmap(NULL, sizeof(Faults), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return mapped == MAP_FAILED ? NULL : (Faults*)mapped;
}

#include "tenant/mps.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "tenant/fork.h"
#include "tenant/quiet_write.h"
#include "wire/wire.h"

namespace tenant {

namespace mps {

std::atomic<bool> is_here{false};

namespace {

std::atomic<uint32_t> failed_with{0};

void forget_in_child() {
    is_here.store(false);
    failed_with.store(0);
}
LISTEN(AtFork, ForkStep::mps, forget_in_child)

// A context that fails with one of these stays in error. In MPS it may have been another client's kernel.
bool is_fault(CUresult result) {
    switch (result) {
        case CUDA_ERROR_ILLEGAL_ADDRESS:
        case CUDA_ERROR_LAUNCH_TIMEOUT:
        case CUDA_ERROR_ASSERT:
        case CUDA_ERROR_HARDWARE_STACK_ERROR:
        case CUDA_ERROR_ILLEGAL_INSTRUCTION:
        case CUDA_ERROR_MISALIGNED_ADDRESS:
        case CUDA_ERROR_INVALID_ADDRESS_SPACE:
        case CUDA_ERROR_INVALID_PC:
        case CUDA_ERROR_LAUNCH_FAILED:
        case CUDA_ERROR_ECC_UNCORRECTABLE:
        case CUDA_ERROR_MPS_CONNECTION_FAILED:
        case CUDA_ERROR_MPS_RPC_FAILURE:
        case CUDA_ERROR_MPS_SERVER_NOT_READY:
        case CUDA_ERROR_MPS_CLIENT_TERMINATED:
            return true;
        default:
            return false;
    }
}

void put(int fd, const char* line, int length, int room) {
    if (length > 0) quiet_write(fd, line, static_cast<size_t>(std::min(length, room - 1)));
}

void tell(unsigned int result) {
    char line[320];
    int length =
        snprintf(line, sizeof line,
                 "cotenant: the MPS server of this job has failed (CUDA error %u), by this job's own fault or by "
                 "another's in the same server; `cotenant run` starts the next job in a new one\n",
                 result);
    put(STDERR_FILENO, line, length, sizeof line);
    const char* path = getenv("COTENANT_MPS_FAULTS");
    if (!path || !*path) return;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0) return;
    length = snprintf(line, sizeof line, "%d %u\n", static_cast<int>(getpid()), result);
    put(fd, line, length, sizeof line);
    close(fd);
}

}  // namespace

uint64_t daemon_here() {
    int enabled = 0;
    if (driver.cuDeviceGetAttribute(&enabled, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0) != CUDA_SUCCESS || !enabled) return 0;
    is_here.store(true);
    const char* given = getenv("CUDA_MPS_PIPE_DIRECTORY");
    struct stat about{};
    // Under whatever name each container sees it.
    if (stat(given && *given ? given : "/tmp/nvidia-mps", &about) != 0) return 1;
    uint64_t low = wire::check_of(about.st_dev, about.st_ino);
    return low | uint64_t{wire::check_of(about.st_ino, about.st_dev)} << 32;
}

uint32_t fault() { return failed_with.load(std::memory_order_relaxed); }

void look_closer(CUresult result) {
    if (!is_fault(result)) return;
    uint32_t none = 0;
    if (!failed_with.compare_exchange_strong(none, static_cast<uint32_t>(result))) return;
    int saved = errno;
    tell(static_cast<unsigned int>(result));
    errno = saved;
}

}  // namespace mps

}  // namespace tenant

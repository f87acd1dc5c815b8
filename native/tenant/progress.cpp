#include "tenant/progress.h"

#include <sys/mman.h>

namespace tenant {

Progress::Progress() {
    // Shared: a fork must not part the pages that the GPU writes from those that we read.
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) words_ = static_cast<std::atomic<uint32_t>*>(memory);
}

void Progress::map() {
    if (!words_ || address_.load()) return;
    CUdeviceptr address = 0;
    CUresult mapped =
        driver.cuMemHostRegister_v2(words_, kBytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if ((mapped == CUDA_SUCCESS || mapped == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) &&
        driver.cuMemHostGetDevicePointer_v2(&address, words_, 0) == CUDA_SUCCESS)
        address_.store(address);
}

}  // namespace tenant

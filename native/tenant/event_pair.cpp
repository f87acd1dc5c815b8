#include "tenant/event_pair.h"

namespace tenant {

bool EventPair::take(CUcontext context) {
    uint32_t before = unused;
    if (!state_.compare_exchange_strong(before, being_taken)) return false;
    if (!context_ || context_ == context) return true;
    free();
    return false;
}

bool EventPair::give_up() {
    uint32_t before = unused;
    if (!state_.compare_exchange_strong(before, being_taken)) return false;
    if (context_) {
        driver.cuEventDestroy_v2(begin_);
        driver.cuEventDestroy_v2(end_);
        context_ = nullptr;
    }
    free();
    return true;
}

bool EventPair::begin(CUcontext context, CUstream stream) {
    if (!context_ && driver.cuEventCreate(&begin_, CU_EVENT_DEFAULT) == CUDA_SUCCESS) {
        if (driver.cuEventCreate(&end_, CU_EVENT_DEFAULT) == CUDA_SUCCESS)
            context_ = context;
        else
            driver.cuEventDestroy_v2(begin_);
    }
    if (context_ && driver.cuEventRecord(begin_, stream) == CUDA_SUCCESS) return true;
    free();
    return false;
}

bool EventPair::is_over(float* us) const {
    CUresult done = driver.cuEventQuery(end_);
    if (done == CUDA_ERROR_NOT_READY) return false;
    float ms = 0;
    bool known = done == CUDA_SUCCESS && driver.cuEventElapsedTime(&ms, begin_, end_) == CUDA_SUCCESS;
    *us = known ? ms * 1000 : -1;
    return true;
}

void EventPair::forget() {
    context_ = nullptr;
    free();
}

}  // namespace tenant

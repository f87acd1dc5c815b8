// A device attribute that is a yes or no. It never changes, so the driver is asked once; no lock is taken.
#pragma once

#include <atomic>
#include <cstdint>

#include "tenant/driver_calls.h"

namespace tenant {

class DeviceAttribute {
 public:
    explicit constexpr DeviceAttribute(CUdevice_attribute attribute) : attribute_(attribute) {}

    bool of(CUdevice device) {
        uint64_t bit = device >= 0 && device < 64 ? uint64_t{1} << device : 0;
        if (asked_.load(std::memory_order_acquire) & bit) return there_.load(std::memory_order_relaxed) & bit;
        int value = 0;
        if (driver.cuDeviceGetAttribute(&value, attribute_, device) != CUDA_SUCCESS) return false;
        if (value) there_.fetch_or(bit, std::memory_order_relaxed);
        asked_.fetch_or(bit, std::memory_order_release);
        return value != 0;
    }
    // Its devices may have other numbers.
    void forget_in_child() {
        asked_.store(0);
        there_.store(0);
    }

 private:
    CUdevice_attribute attribute_;
    std::atomic<uint64_t> asked_{0}, there_{0};  // a bit a device; whoever sees `asked` sees what was answered
};

}  // namespace tenant

// What is asked of the driver about its devices, and how often; ends with status 0 or says what was wrong.
#include <thread>

#include "../require.h"
#include "tenant/device_attribute.h"

namespace tenant {
DriverCalls driver;
}

namespace {

std::atomic<int> asked{0};
std::atomic<CUresult> answer{CUDA_SUCCESS};
constexpr CUdevice_attribute kAttribute = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;

// True of devices with an odd number.
CUresult attribute_of(int* out, CUdevice_attribute attribute, CUdevice device) {
    REQUIRE(attribute == kAttribute);
    ++asked;
    if (answer == CUDA_SUCCESS) *out = device % 2;
    return answer;
}

int times(tenant::DeviceAttribute& attribute, CUdevice device, bool expected) {
    int before = asked;
    for (int i = 0; i < 10; ++i) REQUIRE(attribute.of(device) == expected);
    return asked - before;
}

}  // namespace

int main() {
    tenant::driver.cuDeviceGetAttribute = attribute_of;
    static tenant::DeviceAttribute attribute(kAttribute);
    REQUIRE(times(attribute, 0, false) == 1 && times(attribute, 1, true) == 1 && times(attribute, 63, true) == 1);
    REQUIRE(times(attribute, 0, false) == 0 && times(attribute, 1, true) == 0);

    // What the driver would not say is not known.
    answer = CUDA_ERROR_DEINITIALIZED;
    REQUIRE(times(attribute, 3, false) == 10 && times(attribute, 1, true) == 0);
    answer = CUDA_SUCCESS;
    REQUIRE(times(attribute, 3, true) == 1);

    // More devices than it remembers.
    REQUIRE(times(attribute, 64, false) == 10 && times(attribute, 65, true) == 10 && times(attribute, 0, false) == 0);

    attribute.forget_in_child();
    REQUIRE(times(attribute, 1, true) == 1);

    for (int round = 0; round < 200; ++round) {
        attribute.forget_in_child();
        std::thread others[4];
        for (std::thread& one : others)
            one = std::thread([] {
                for (CUdevice device = 0; device < 64; ++device) REQUIRE(attribute.of(device) == (device % 2 != 0));
            });
        for (std::thread& one : others) one.join();
    }
}

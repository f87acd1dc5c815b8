// What is asked of the driver about its devices, and how often; ends with status 0 or says what was wrong.
#include <thread>

#include "../require.h"
#include "tenant/ability.h"

namespace tenant {
DriverCalls driver;
}

namespace {

std::atomic<int> asked{0};
std::atomic<CUresult> answer{CUDA_SUCCESS};
constexpr CUdevice_attribute kAttribute = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;

// Devices with an odd number can.
CUresult attribute_of(int* out, CUdevice_attribute attribute, CUdevice device) {
    REQUIRE(attribute == kAttribute);
    ++asked;
    if (answer == CUDA_SUCCESS) *out = device % 2;
    return answer;
}

int times(tenant::Ability& ability, CUdevice device, bool expected) {
    int before = asked;
    for (int i = 0; i < 10; ++i) REQUIRE(ability.of(device) == expected);
    return asked - before;
}

}  // namespace

int main() {
    tenant::driver.cuDeviceGetAttribute = attribute_of;
    static tenant::Ability ability(kAttribute);
    REQUIRE(times(ability, 0, false) == 1 && times(ability, 1, true) == 1 && times(ability, 63, true) == 1);
    REQUIRE(times(ability, 0, false) == 0 && times(ability, 1, true) == 0);

    // What the driver would not say is not known.
    answer = CUDA_ERROR_DEINITIALIZED;
    REQUIRE(times(ability, 3, false) == 10 && times(ability, 1, true) == 0);
    answer = CUDA_SUCCESS;
    REQUIRE(times(ability, 3, true) == 1);

    // More devices than it remembers.
    REQUIRE(times(ability, 64, false) == 10 && times(ability, 65, true) == 10 && times(ability, 0, false) == 0);

    ability.forget_in_child();
    REQUIRE(times(ability, 1, true) == 1);

    for (int round = 0; round < 200; ++round) {
        ability.forget_in_child();
        std::thread others[4];
        for (std::thread& one : others)
            one = std::thread([] {
                for (CUdevice device = 0; device < 64; ++device) REQUIRE(ability.of(device) == (device % 2 != 0));
            });
        for (std::thread& one : others) one.join();
    }
}

// What the tables of a folder say of a kernel: `kernel_profile MODEL NAME`, with COTENANT_KERNEL_PROFILES. Prints
// "class microseconds", or "none". The kernel has a grid of 2 x 3 x 4, blocks of 5 x 6 x 7 and 8 bytes of shared
// memory; it is an error where one that differs, or the same on a second GPU of another model, is taken for it.
#include "tenant/kernel_profile.h"

#include <cstdio>
#include <initializer_list>

#include "../require.h"

tenant::DriverCalls tenant::driver;

char** words;
CUresult CUDAAPI name_function(const char** name, CUfunction) {
    *name = words[2];
    return CUDA_SUCCESS;
}
CUresult CUDAAPI name_device(char* name, int room, CUdevice device) {
    snprintf(name, static_cast<size_t>(room), "%s", device ? "of which nothing is known" : words[1]);
    return CUDA_SUCCESS;
}
CUresult CUDAAPI exchange(CUstreamCaptureMode*) { return CUDA_SUCCESS; }

int main(int, char** arguments) {
    words = arguments;
    tenant::driver.cuThreadExchangeStreamCaptureMode = exchange;
    tenant::naming = {name_function, nullptr, name_device};
    tenant::KernelProfile found = tenant::profile_of(0, {&words, {2, 3, 4}, {5, 6, 7}, 8});
    for (const tenant::KernelSize& other :
         {tenant::KernelSize{&words, {2, 3, 5}, {5, 6, 7}, 8}, tenant::KernelSize{&words, {2, 3, 4}, {5, 6, 8}, 8},
          tenant::KernelSize{&words, {2, 3, 4}, {5, 6, 7}, 9}, tenant::KernelSize{}})
        REQUIRE(!tenant::profile_of(0, other).is_there);
    REQUIRE(!tenant::profile_of(1, {&words, {2, 3, 4}, {5, 6, 7}, 8}).is_there);
    if (found.is_there)
        printf("%u %g\n", found.bound, static_cast<double>(found.us));
    else
        printf("none\n");
    return 0;
}

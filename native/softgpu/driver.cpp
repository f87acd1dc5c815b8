#include "softgpu/driver.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>

#include "softgpu/identity.h"
#include "softgpu/machine.h"
#include "softgpu/mps_client.h"

namespace softgpu {
namespace {

enum class State { fresh, initialised, no_device, forked };
std::atomic<State> state{State::fresh};

std::vector<int>& visible() {  // indices into machine(); written once, in cuInit
    static auto& devices = *new std::vector<int>;
    return devices;
}

std::string trimmed(const std::string& text) {
    const size_t first = text.find_first_not_of(" \t");
    if (first == std::string::npos) return "";
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// In MIG mode CUDA shows one instance, the first, unless others are named by UUID.
std::vector<int> devices_with_numbers(const std::vector<model::DeviceSpec>& devices) {
    std::vector<int> found;
    for (size_t i = 0; i < devices.size(); ++i) {
        const bool is_instance = !devices[i].mig.empty();
        if (is_instance && i > 0 && !devices[i - 1].mig.empty()) continue;
        found.push_back(static_cast<int>(i));
    }
    return found;
}

// -1: names no device. A UUID may be shortened as long as it is unambiguous.
int device_named(const std::string& name, const std::vector<model::DeviceSpec>& devices) {
    if (name.rfind("GPU-", 0) == 0 || name.rfind("MIG-", 0) == 0) {
        int found = -1;
        for (int i = 0; i < static_cast<int>(devices.size()); ++i) {
            if (device_uuid_text(devices[static_cast<size_t>(i)], i).rfind(name, 0) != 0) continue;
            if (found >= 0) return -1;
            found = i;
        }
        return found;
    }
    if (name.empty() || name.find_first_not_of("0123456789") != std::string::npos || name.size() > 6) return -1;
    const std::vector<int> numbered = devices_with_numbers(devices);
    const size_t number = static_cast<size_t>(std::stoi(name));
    return number < numbered.size() ? numbered[number] : -1;
}

// As the driver reads it: the list ends at the first name that is no device; a device named twice means none at all.
std::vector<int> devices_from_environment(const std::vector<model::DeviceSpec>& devices) {
    std::vector<int> result;
    const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
    if (!list) return devices_with_numbers(devices);
    const std::string text = list;
    for (size_t start = 0; start <= text.size();) {
        const size_t end = std::min(text.find(',', start), text.size());
        const int index = device_named(trimmed(text.substr(start, end - start)), devices);
        if (index < 0) break;
        if (std::find(result.begin(), result.end(), index) != result.end()) return {};
        result.push_back(index);
        start = end + 1;
    }
    return result;
}

void in_forked_child() {
    if (state.load() == State::initialised) state.store(State::forked);
}

CUresult initialise() {
    static std::mutex& mutex = *new std::mutex;
    if (state.load() == State::forked) return CUDA_ERROR_NOT_INITIALIZED;
    const std::lock_guard<std::mutex> lock(mutex);
    if (state.load() == State::initialised) return CUDA_SUCCESS;
    visible() = devices_from_environment(machine());
    if (visible().empty()) {
        state.store(State::no_device);
        return CUDA_ERROR_NO_DEVICE;
    }
    if (const int refused = join_mps()) return static_cast<CUresult>(refused);
    static const int registered = pthread_atfork(nullptr, nullptr, in_forked_child);
    if (registered != 0) return CUDA_ERROR_OPERATING_SYSTEM;
    state.store(State::initialised);
    return CUDA_SUCCESS;
}

}  // namespace

CUresult check_initialised() {
    return state.load(std::memory_order_acquire) == State::initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

int device_count() { return static_cast<int>(visible().size()); }

int machine_index(CUdevice device) {
    return device < 0 || device >= device_count() ? -1 : visible()[static_cast<size_t>(device)];
}

const model::DeviceSpec* device_spec(CUdevice device) {
    const int index = machine_index(device);
    return index < 0 ? nullptr : &machine()[static_cast<size_t>(index)];
}

}  // namespace softgpu

using namespace softgpu;

DRIVER_API cuInit(unsigned int flags) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return guarded(initialise);
}

DRIVER_API cuDriverGetVersion(int* version) {
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    *version = driver_version;
    return CUDA_SUCCESS;
}

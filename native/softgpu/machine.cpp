#include "softgpu/machine.h"

#include <dirent.h>
#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace softgpu {

namespace {

std::string environment(const char* name, const char* otherwise) {
    const char* value = std::getenv(name);
    return value && *value ? value : otherwise;
}

std::string shipped_devices(const std::string& folder) {
    std::vector<std::string> names;
    if (DIR* listing = opendir(folder.c_str())) {
        while (const dirent* entry = readdir(listing)) {
            std::string name = entry->d_name;
            size_t dot = name.rfind(".gpu");
            if (dot != std::string::npos && dot + 4 == name.size()) names.push_back(name.substr(0, dot));
        }
        closedir(listing);
    }
    std::sort(names.begin(), names.end());
    std::string text;
    for (const std::string& name : names) text += name + ", ";
    return text;
}

std::string device_file(const std::string& name) {
    char resolved[PATH_MAX];
    if (name.find('/') != std::string::npos) {
        if (realpath(name.c_str(), resolved)) return resolved;
        throw std::runtime_error("COTENANT_SOFTGPU: there is no device file " + name);
    }
    std::string folder = library_folder() + "/../devices";
    if (realpath((folder + "/" + name + ".gpu").c_str(), resolved)) return resolved;
    throw std::runtime_error("COTENANT_SOFTGPU: there is no device '" + name + "': use " + shipped_devices(folder) +
                             "or the path of a device file");
}

// The GPU itself, or with ":3g.71gb+1g.18gb" behind its name these instances.
std::vector<std::string> entries(const std::string& path, const std::string& instances) {
    if (instances.empty()) return {path};
    std::vector<std::string> found;
    std::stringstream names(instances.substr(1));
    for (std::string name; std::getline(names, name, '+');) found.push_back(path + ":" + name);
    return found;
}

MachineConfiguration read_configuration() {
    MachineConfiguration machine;
    try {
        machine.sharing = environment("COTENANT_SOFTGPU_SHARING", "timeslice");
        if (machine.sharing != "timeslice" && machine.sharing != "all-at-once") {
            throw std::runtime_error("COTENANT_SOFTGPU_SHARING: '" + machine.sharing +
                                     "' is unknown: use timeslice or all-at-once");
        }
        machine.text = machine.sharing + "\n";
        std::stringstream names(environment("COTENANT_SOFTGPU", "small"));
        for (std::string name; std::getline(names, name, ',');) {
            const size_t colon = std::min(name.find(':'), name.size());
            const std::string path = device_file(name.substr(0, colon));
            machine.gpus.push_back(model::read_device_file(path));
            for (std::string& entry : entries(path, name.substr(colon))) {
                model::DeviceSpec spec = model::read_device(entry);
                spec.all_at_once = machine.sharing == "all-at-once";
                machine.devices.push_back(std::move(spec));
                machine.gpu_of.push_back(static_cast<int>(machine.gpus.size()) - 1);
                machine.files.push_back(std::move(entry));
            }
            std::ifstream file(path);
            machine.text += path + name.substr(colon) + "\n";
            machine.text.append(std::istreambuf_iterator<char>(file), {});
        }
    } catch (const std::exception& error) {
        machine.devices.clear();
        machine.gpus.clear();
        machine.error = error.what();
    }
    return machine;
}

}  // namespace

std::string library_folder() {
    Dl_info info{};
    char resolved[PATH_MAX];
    if (!dladdr(reinterpret_cast<void*>(&machine_configuration), &info) || !info.dli_fname ||
        !realpath(info.dli_fname, resolved)) {
        return ".";
    }
    std::string path = resolved;
    return path.substr(0, path.rfind('/'));
}

const MachineConfiguration& machine_configuration() {
    static const MachineConfiguration* machine = new MachineConfiguration(read_configuration());
    return *machine;
}

int gpu_of(int machine_index) { return machine_configuration().gpu_of[static_cast<size_t>(machine_index)]; }

Uuid gpu_uuid(int gpu) {
    const MachineConfiguration& all = machine_configuration();
    const auto first = std::find(all.gpu_of.begin(), all.gpu_of.end(), gpu) - all.gpu_of.begin();
    return device_uuid(all.gpus[static_cast<size_t>(gpu)], static_cast<int>(first));
}

const std::vector<model::DeviceSpec>& machine() { return machine_configuration().devices; }

}  // namespace softgpu

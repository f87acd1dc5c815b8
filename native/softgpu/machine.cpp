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
            std::string path = device_file(name);
            model::DeviceSpec spec = model::read_device_file(path);
            spec.all_at_once = machine.sharing == "all-at-once";
            machine.devices.push_back(std::move(spec));
            std::ifstream file(path);
            machine.text += path + "\n";
            machine.text.append(std::istreambuf_iterator<char>(file), {});
            machine.files.push_back(std::move(path));
        }
    } catch (const std::exception& error) {
        machine.devices.clear();
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

const std::vector<model::DeviceSpec>& machine() { return machine_configuration().devices; }

}  // namespace softgpu

// Device files: "key = value" lines, '#' starts a comment.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <stdexcept>

#include "model/device_model.h"

namespace model {

namespace {

// What a device says of itself where its file does not: an H200 under driver 580, as recorded from a real one.
// Index is the CUdevice_attribute.
// clang-format off
constexpr int h200_attributes[] = {
    /*   0 */ 0, 1024, 1024, 1024, 64, 2147483647, 65535, 65535, 49152, 65536,
    /*  10 */ 32, 2147483647, 65536, 1980000, 512, 1, 132, 0, 0, 1,
    /*  20 */ 0, 131072, 131072, 65536, 16384, 16384, 16384, 32768, 32768, 2048,
    /*  30 */ 512, 1, 1, 0, 6, 0, 3201000, 6016, 62914560, 2048,
    /*  40 */ 3, 1, 32768, 2048, 1, 32768, 32768, 8192, 8192, 32768,
    /*  50 */ 0, 32, 32768, 32768, 2046, 32768, 131072, 65536, 16384, 16384,
    /*  60 */ 16384, 32768, 2048, 32768, 32768, 2048, 32768, 32768, 2046, 268435456,
    /*  70 */ 131072, 65000, 2097120, 32768, 32768, 9, 0, 32768, 1, 1,
    /*  80 */ 1, 233472, 65536, 1, 0, 0, 0, 2, 0, 1,
    /*  90 */ 1, 1, 0, 0, 0, 1, 1, 232448, 0, 1,
    /* 100 */ 0, 0, 1, 1, 0, 0, 32, 1, 39321600, 134217728,
    /* 110 */ 1, 1024, 1, 1, 1, 1, 1, 1, 100, 9,
    /* 120 */ 1, 1, 1, 1, 1, 1, 4, 1, 1, 1,
    /* 130 */ 0, -1, 0, 0, 0, 0, 0, 0, 0, 590680286,
    /* 140 */ 415174878, 1, 1, 0, 1, 1, 0, 0,
};
// clang-format on

[[noreturn]] void refuse(const std::string& path, int line, const std::string& what) {
    throw std::runtime_error(path + (line ? ":" + std::to_string(line) : "") + ": " + what);
}

std::string trimmed(const std::string& text) {
    size_t first = text.find_first_not_of(" \t\r");
    if (first == std::string::npos) return "";
    return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

struct Line {
    const std::string& path;
    int number;
    const std::string& key;
    const std::string& value;

    double real(double least) const {
        char* end = nullptr;
        double result = std::strtod(value.c_str(), &end);
        if (value.empty() || *end || !std::isfinite(result) || result < least) {
            refuse(path, number,
                   "'" + key + "' needs a number that is not below " + shown(least) + ", not '" + value + "'");
        }
        return result;
    }

    int integer(int least) const {
        char* end = nullptr;
        long result = std::strtol(value.c_str(), &end, 10);
        if (value.empty() || *end || result < least || result > std::numeric_limits<int>::max()) {
            refuse(path, number, "'" + key + "' needs a whole number, not '" + value + "'");
        }
        return static_cast<int>(result);
    }

    uint64_t size() const {
        char* end = nullptr;
        unsigned long long result = std::strtoull(value.c_str(), &end, 10);
        std::string unit = trimmed(end);
        uint64_t factor = unit.empty() ? 1 : unit == "MiB" ? 1ull << 20 : unit == "GiB" ? 1ull << 30 : 0;
        if (end == value.c_str() || value[0] == '-' || !factor || !result || result > UINT64_MAX / factor) {
            refuse(path, number, "'" + key + "' needs a size such as 1073741824, 1024MiB or 1GiB, not '" + value + "'");
        }
        return result * factor;
    }

    static std::string shown(double value) {
        std::string text = std::to_string(value);
        text.erase(text.find_last_not_of('0') + 1);
        if (text.back() == '.') text.pop_back();
        return text;
    }
};

constexpr int kMemorySlices = 8;

// mig.NAME = ID SMS MIB SIZE START...
MigProfile mig_profile(const Line& line) {
    std::istringstream words(line.value);
    MigProfile profile;
    uint64_t mib = 0;
    profile.name = line.key.substr(4);
    words >> profile.id >> profile.sms >> mib >> profile.size;
    profile.memory_bytes = mib << 20;
    for (int start = 0; words >> start;) profile.starts.push_back(start);
    bool fits = !profile.starts.empty();
    for (int start : profile.starts) fits = fits && start >= 0 && start + profile.size <= kMemorySlices;
    if (profile.name.empty() || !words.eof() || profile.id < 0 || profile.sms < 1 || mib < 1 || mib > 1ull << 30 ||
        profile.size < 1 || !fits) {
        refuse(line.path, line.number,
               "'" + line.key + "' needs ID SMS MIB SIZE START..., as 9 60 67072 4 0 4, not '" + line.value + "'");
    }
    return profile;
}

void apply(const Line& line, DeviceSpec& spec) {
    constexpr double some = 0.001;
    if (line.key == "name") {
        if (line.value.empty()) refuse(line.path, line.number, "'name' is empty");
        spec.name = line.value;
    } else if (line.key == "sms") {
        spec.sms = line.integer(1);
    } else if (line.key == "memory") {
        spec.memory_bytes = line.size();
    } else if (line.key == "memory_gbps") {
        spec.memory_gbps = line.real(some);
    } else if (line.key == "bus_gbps") {
        spec.bus_gbps = line.real(some);
    } else if (line.key == "slice_us") {
        spec.slice_us = line.real(1);
    } else if (line.key == "switch_us") {
        spec.switch_us = line.real(0);
    } else if (line.key == "launch_us") {
        spec.launch_us = line.real(0);
    } else if (line.key == "power_limit_w") {
        spec.power_limit_w = line.real(0);
    } else if (line.key == "compute") {
        char rest;
        if (std::sscanf(line.value.c_str(), "%d.%d%c", &spec.compute_major, &spec.compute_minor, &rest) != 2) {
            refuse(line.path, line.number, "'compute' needs a capability such as 9.0, not '" + line.value + "'");
        }
    } else if (line.key.rfind("mig.", 0) == 0) {
        spec.mig_profiles.push_back(mig_profile(line));
    } else if (line.key.rfind("attribute.", 0) == 0) {
        const std::string number = line.key.substr(10);
        int attribute = Line{line.path, line.number, line.key, number}.integer(1);
        spec.attributes[attribute] = line.integer(std::numeric_limits<int>::min());
    } else {
        refuse(line.path, line.number,
               "unknown key '" + line.key +
                   "': use name, sms, memory, memory_gbps, bus_gbps, compute, slice_us, switch_us, launch_us, "
                   "power_limit_w, attribute.N or mig.PROFILE");
    }
}

}  // namespace

DeviceSpec read_device_file(const std::string& path) {
    std::ifstream file(path);
    if (!file) refuse(path, 0, "cannot be read: name a shipped device or give the path of a device file");
    DeviceSpec spec;
    for (size_t i = 1; i < std::size(h200_attributes); i++) spec.attributes[static_cast<int>(i)] = h200_attributes[i];

    std::set<std::string> seen;
    std::string text;
    for (int number = 1; std::getline(file, text); number++) {
        text = trimmed(text.substr(0, text.find('#')));
        if (text.empty()) continue;
        size_t equals = text.find('=');
        if (equals == std::string::npos) refuse(path, number, "expected 'key = value', found '" + text + "'");
        std::string key = trimmed(text.substr(0, equals)), value = trimmed(text.substr(equals + 1));
        if (!seen.insert(key).second) refuse(path, number, "'" + key + "' is given twice");
        apply({path, number, key, value}, spec);
    }
    for (const char* needed : {"name", "sms", "memory", "memory_gbps", "bus_gbps", "compute"}) {
        if (!seen.count(needed)) refuse(path, 0, "'" + std::string(needed) + "' is missing: add a line for it");
    }
    return spec;
}

DeviceSpec read_device(const std::string& entry) {
    const size_t colon = entry.rfind(':');
    if (colon == std::string::npos || entry.find('/', colon) != std::string::npos) return read_device_file(entry);
    const std::string path = entry.substr(0, colon), wanted = entry.substr(colon + 1);
    DeviceSpec spec = read_device_file(path);
    for (const MigProfile& profile : spec.mig_profiles) {
        if (profile.name != wanted) continue;
        spec.memory_gbps *= static_cast<double>(profile.size) / kMemorySlices;
        spec.sms = profile.sms;
        spec.memory_bytes = profile.memory_bytes;
        spec.name += " MIG " + wanted;
        spec.mig = wanted;
        return spec;
    }
    refuse(path, 0, "it has no MIG profile '" + wanted + "': add a line for it");
}

}  // namespace model

// Reading a text module.
#include <cctype>
#include <cstdlib>
#include <set>
#include <sstream>
#include <stdexcept>

#include "softgpu/kernels.h"

namespace softgpu {
namespace {

[[noreturn]] void refuse(int line, const std::string& what) {
    throw std::runtime_error("line " + std::to_string(line) + ": " + what);
}

bool is_name(const std::string& text) {
    if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0]))) return false;
    for (const char c : text) {
        if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '$' && c != '.') return false;
    }
    return true;
}

// A number and what follows it.
double number_of(const std::string& text, std::string* rest, int line) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (end == text.c_str() || !(value >= 0) || value > 1e15) refuse(line, "'" + text + "' is not a number");
    *rest = end;
    return value;
}

double unit_us(const std::string& unit, int line) {
    if (unit == "ns") return 1e-3;
    if (unit == "us") return 1;
    if (unit == "ms") return 1e3;
    if (unit == "s") return 1e6;
    refuse(line, "'" + unit + "' is not a unit of time: use ns, us, ms or s");
}

void read_time(KernelText& kernel, const std::string& value, int line) {
    const bool from_parameter = value.rfind('@', 0) == 0;
    std::string unit;
    const double number = number_of(from_parameter ? value.substr(1) : value, &unit, line);
    kernel.has_time = true;
    kernel.time_us = unit_us(unit, line) * (from_parameter ? 1 : number);
    if (from_parameter) kernel.time_parameter = static_cast<int>(number);
}

void read_setting(KernelText& kernel, const std::string& key, const std::string& value, int line) {
    std::string rest;
    if (key == "time") {
        read_time(kernel, value, line);
    } else if (key == "sms") {
        if (value == "all") return;
        kernel.sms = static_cast<int>(number_of(value, &rest, line));
        if (!rest.empty() || kernel.sms < 1) refuse(line, "sms is 'all' or a count from 1");
    } else if (key == "bandwidth") {
        kernel.gbps = number_of(value, &rest, line);
        if (!rest.empty()) refuse(line, "bandwidth is a number of GB/s");
    } else if (key == "params") {
        try {
            kernel.parameters = parse_parameters(value);
        } catch (const std::runtime_error& error) {
            refuse(line, error.what());
        }
    } else if (key == "function") {
        kernel.function = built_in(value);
        if (!kernel.function) refuse(line, "'" + value + "' is no built-in: fill, add, scale or clock");
    } else {
        refuse(line, "'" + key + "' is not a setting: time, sms, bandwidth, params or function");
    }
}

KernelText read_kernel(std::istringstream& words, int line) {
    KernelText kernel;
    bool own_parameters = false;
    if (!(words >> kernel.name) || !is_name(kernel.name)) refuse(line, "a kernel needs a name");
    for (std::string word; words >> word;) {
        const size_t equals = word.find('=');
        if (equals == std::string::npos) refuse(line, "'" + word + "' is not of the form key=value");
        const std::string key = word.substr(0, equals);
        own_parameters = own_parameters || key == "params";
        read_setting(kernel, key, word.substr(equals + 1), line);
    }
    if (kernel.function) {
        if (own_parameters) refuse(line, "a built-in has parameters of its own");
        kernel.parameters = parse_parameters(kernel.function->parameters);
    }
    if (!kernel.function && !kernel.has_time) refuse(line, "a kernel needs time= or function=");
    if (kernel.time_parameter >= static_cast<int>(kernel.parameters.size())) {
        refuse(line,
               "time=@" + std::to_string(kernel.time_parameter) + " names a parameter that params= does not have");
    }
    return kernel;
}

}  // namespace

std::vector<Parameter> parse_parameters(const std::string& list) {
    std::vector<Parameter> parameters;
    std::istringstream names(list);
    size_t offset = 0;
    for (std::string name; std::getline(names, name, ',');) {
        static const std::set<std::string> known = {"u8", "i8", "u16", "i16", "u32", "i32", "f32", "u64", "i64", "f64"};
        if (!known.count(name))
            throw std::runtime_error("'" + name + "' is no parameter type: u8 to u64, i8 to i64, f32, f64");
        const size_t bytes = std::stoul(name.substr(1)) / 8;
        offset = (offset + bytes - 1) / bytes * bytes;
        parameters.push_back({name[0], offset, bytes});
        offset += bytes;
    }
    return parameters;
}

std::vector<std::shared_ptr<const KernelText>> parse_module(const std::string& text) {
    std::vector<std::shared_ptr<const KernelText>> kernels;
    std::set<std::string> names;
    std::istringstream lines(text);
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
        ++number;
        std::istringstream words(line.substr(0, line.find('#')));
        std::string word;
        if (!(words >> word)) continue;
        if (number == 1) {
            std::string version;
            if (word != "softgpu" || !(words >> version)) refuse(number, "a module starts with 'softgpu 1'");
            if (version != "1") refuse(number, "version " + version + " is not known: this is version 1");
            continue;
        }
        if (word != "kernel") refuse(number, "'" + word + "' is not understood: lines start with 'kernel'");
        KernelText kernel = read_kernel(words, number);
        if (!names.insert(kernel.name).second) refuse(number, "'" + kernel.name + "' was there already");
        kernels.push_back(std::make_shared<const KernelText>(std::move(kernel)));
    }
    return kernels;
}

}  // namespace softgpu

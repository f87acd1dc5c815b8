// Kernels as a text module describes them, and the built-in functions that they may run on real data.
//
//   softgpu 1
//   kernel burn    time=100us sms=all
//   kernel stream  time=50us sms=16 bandwidth=800
//   kernel spin    time=@0us params=u64
//   kernel fill    function=fill
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "softgpu/engine.h"
#include "softgpu/entry.h"

namespace softgpu {

struct Parameter {
    char kind;  // 'u', 'i' or 'f'
    size_t offset, bytes;
};

// What a kernel was given. Reads are by parameter, widened.
class Arguments {
 public:
    Arguments() = default;
    Arguments(const std::vector<Parameter>& layout, std::vector<unsigned char> bytes)
        : layout_(&layout), bytes_(std::move(bytes)) {}
    uint64_t whole(size_t index) const;
    double number(size_t index) const;
    float real(size_t index) const;
    const std::vector<unsigned char>& bytes() const { return bytes_; }

 private:
    const std::vector<Parameter>* layout_ = nullptr;
    std::vector<unsigned char> bytes_;
};

struct BuiltIn {
    const char* name;
    const char* parameters;
    model::Work (*cost)(const model::DeviceSpec& device, const Arguments& arguments);
    CUresult (*run)(const Context& context, const Arguments& arguments, const Timing& timing);
};

struct KernelText {
    std::string name;
    std::vector<Parameter> parameters;
    const BuiltIn* function = nullptr;
    bool has_time = false;  // else the built-in's own cost
    double time_us = 0;
    int time_parameter = -1;  // the run time is this argument times time_us
    int sms = 0;              // 0: all of them
    double gbps = 0;

    CUresult run(const Context& context, const Arguments& arguments, const Timing& timing) const;  // its built-in
    size_t parameter_bytes() const;
    model::Work cost(const model::DeviceSpec& device, const Arguments& arguments) const;
};

// Throws std::runtime_error that names the line.
std::vector<std::shared_ptr<const KernelText>> parse_module(const std::string& text);
std::vector<Parameter> parse_parameters(const std::string& list);
const BuiltIn* built_in(const std::string& name);

}  // namespace softgpu

// Modules and libraries: named kernels, loaded into one context or into whichever asks.
#pragma once

#include "softgpu/context.h"
#include "softgpu/kernels.h"

namespace softgpu {

struct Module;

struct Function {
    CUfunction handle = nullptr;
    std::shared_ptr<const KernelText> text;
    CUmodule module = nullptr;
    std::weak_ptr<Context> context;
    std::mutex mutex;  // guards the attributes
    std::map<int, int> attributes;
};
using FunctionRef = std::shared_ptr<Function>;

struct Module {
    CUmodule handle = nullptr;
    std::weak_ptr<Context> context;
    std::vector<FunctionRef> functions;  // fixed once loaded
    bool of_library = false;

    FunctionRef find(const std::string& name) const;
};
using ModuleRef = std::shared_ptr<Module>;

// For a CUfunction, or a CUkernel in its place, which then means its function in the current context.
CUresult find_function(CUfunction handle, FunctionRef* out);
// Blocks of this size that fit one SM at once; 0: such a block cannot run.
int blocks_per_sm(CUdevice device, unsigned threads, size_t shared_bytes);
int function_attribute(const Function& function, CUfunction_attribute attribute);
void forget_modules_of(Context& context);

}  // namespace softgpu

// Modules: named kernels, loaded into one context.
#pragma once

#include "softgpu/context.h"
#include "softgpu/kernels.h"

namespace softgpu {

struct Module;

struct Function {
    CUfunction handle = nullptr;
    std::shared_ptr<const KernelText> text;
    std::weak_ptr<Context> context;
};
using FunctionRef = std::shared_ptr<Function>;

struct Module {
    CUmodule handle = nullptr;
    std::weak_ptr<Context> context;
    std::vector<FunctionRef> functions;  // fixed once loaded

    FunctionRef find(const std::string& name) const;
};
using ModuleRef = std::shared_ptr<Module>;

using KernelTexts = std::vector<std::shared_ptr<const KernelText>>;

struct JitOptions {
    CUjit_option* names = nullptr;
    void** values = nullptr;
    unsigned count = 0;

    void report(const std::string& message) const;
};

CUresult read_image(const void* image, const JitOptions& options, KernelTexts* out);
ModuleRef make_module(const ContextRef& context, const KernelTexts& texts);
void drop_module(const ModuleRef& module);

CUresult find_function(CUfunction handle, FunctionRef* out);
// Blocks of this size that fit one SM at once; 0: such a block cannot run.
int blocks_per_sm(CUdevice device, unsigned threads, size_t shared_bytes);
void forget_modules_of(Context& context);

}  // namespace softgpu

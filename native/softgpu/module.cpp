#include "softgpu/module.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace softgpu {
namespace {

Registry<Module, CUmodule>& modules() {
    static auto& registry = *new Registry<Module, CUmodule>(6);
    return registry;
}
Registry<Function, CUfunction>& functions() {
    static auto& registry = *new Registry<Function, CUfunction>(7);
    return registry;
}
// What a real GPU would take: machine code in its containers, or PTX.
bool is_gpu_code(const char* image) {
    if (std::memcmp(image,
                    "\x7f"
                    "ELF",
                    4) == 0)
        return true;
    uint32_t magic = 0;
    std::memcpy(&magic, image, sizeof magic);
    if (magic == 0x466243b1u || magic == 0xba55ed50u) return true;
    if (!std::strchr(" \t\r\n./", image[0])) return false;
    return std::strstr(image, ".version") != nullptr;
}

CUresult load_module(CUmodule* out, const void* image, const JitOptions& options) {
    if (!out || (options.count > 0 && (!options.names || !options.values))) return CUDA_ERROR_INVALID_VALUE;
    ContextRef context;
    TRY(current_context(&context));
    TRY(unsafe_during_capture());
    KernelTexts texts;
    TRY(read_image(image, options, &texts));
    *out = make_module(context, texts)->handle;
    return CUDA_SUCCESS;
}

CUresult find_module(CUmodule handle, ModuleRef* out) {
    *out = modules().find(handle);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

// As the driver does it: the size is given by value, and is replaced by what was written.
void JitOptions::report(const std::string& message) const {
    char* buffer = nullptr;
    void** size = nullptr;
    for (unsigned i = 0; i < count; ++i) {
        if (names[i] == CU_JIT_ERROR_LOG_BUFFER) buffer = static_cast<char*>(values[i]);
        if (names[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) size = &values[i];
    }
    if (!buffer || !size) return;
    const size_t room = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(*size));
    if (room == 0) return;
    const size_t bytes = std::min(message.size(), room - 1);
    std::memcpy(buffer, message.data(), bytes);
    buffer[bytes] = '\0';
    *size = reinterpret_cast<void*>(static_cast<uintptr_t>(bytes));
}

CUresult read_image(const void* image, const JitOptions& options, KernelTexts* out) {
    if (!image) return CUDA_ERROR_INVALID_VALUE;
    const auto* text = static_cast<const char*>(image);
    if (text[0] == '\0') return CUDA_ERROR_INVALID_IMAGE;
    if (std::strncmp(text, "softgpu", 7) != 0) {
        const bool gpu_code = is_gpu_code(text);
        options.report(gpu_code ? "the software GPU runs no GPU code, only its own text modules"
                                : "not a module: a text module starts with 'softgpu 1'");
        return gpu_code ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE;
    }
    try {
        *out = parse_module(text);
        return CUDA_SUCCESS;
    } catch (const std::runtime_error& error) {
        options.report(error.what());
        return CUDA_ERROR_INVALID_IMAGE;
    }
}

ModuleRef make_module(const ContextRef& context, const KernelTexts& texts) {
    auto module = std::make_shared<Module>();
    module->handle = modules().issue();
    module->context = context;
    for (const auto& text : texts) {
        auto function = std::make_shared<Function>();
        function->handle = functions().issue();
        function->text = text;
        function->context = context;
        module->functions.push_back(function);
        functions().put(function->handle, function);
    }
    modules().put(module->handle, module);
    return module;
}

void drop_module(const ModuleRef& module) {
    modules().remove(module->handle);
    for (const FunctionRef& function : module->functions) functions().remove(function->handle);
}

FunctionRef Module::find(const std::string& name) const {
    for (const FunctionRef& function : functions) {
        if (function->text->name == name) return function;
    }
    return nullptr;
}

CUresult find_function(CUfunction handle, FunctionRef* out) {
    *out = functions().find(handle);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void forget_modules_of(Context& context) {
    const auto here = [&](const auto& object) { return object.context.lock().get() == &context; };
    modules().remove_if(here);
    functions().remove_if(here);
}

}  // namespace softgpu

using namespace softgpu;

ENTRY(cuModuleLoadData, (CUmodule * module, const void* image), load_module(module, image, {}))
ENTRY(cuModuleLoadDataEx,
      (CUmodule * module, const void* image, unsigned int count, CUjit_option* options, void** values),
      load_module(module, image, {options, values, count}))
DRIVER_API cuModuleUnload(CUmodule handle) {
    return entry([&] {
        ModuleRef module;
        TRY(find_module(handle, &module));
        drop_module(module);
        return CUDA_SUCCESS;
    });
}
DRIVER_API cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
    return entry([&] {
        if (!function || !name || !*name) return CUDA_ERROR_INVALID_VALUE;
        ModuleRef module;
        TRY(find_module(handle, &module));
        const FunctionRef found = module->find(name);
        if (!found) return CUDA_ERROR_NOT_FOUND;
        *function = found->handle;
        return CUDA_SUCCESS;
    });
}
DRIVER_API cuFuncGetName(const char** name, CUfunction handle) {
    return entry([&] {
        if (!name) return CUDA_ERROR_INVALID_VALUE;
        FunctionRef function;
        TRY(find_function(handle, &function));
        *name = function->text->name.c_str();
        return CUDA_SUCCESS;
    });
}

// Libraries: kernels that are loaded into whichever context asks for them.
#include <map>

#include "softgpu/module.h"

namespace softgpu {
namespace {

struct Kernel {
    CUkernel handle = nullptr;
    std::shared_ptr<const KernelText> text;
    CUlibrary library = nullptr;
};
using KernelRef = std::shared_ptr<Kernel>;

struct Library {
    CUlibrary handle = nullptr;
    KernelTexts texts;
    std::vector<KernelRef> kernels;
    std::mutex mutex;
    std::map<CUcontext, ModuleRef> modules;  // one for each context that asked
};
using LibraryRef = std::shared_ptr<Library>;

Registry<Library, CUlibrary>& libraries() {
    static auto& registry = *new Registry<Library, CUlibrary>(8);
    return registry;
}
Registry<Kernel, CUkernel>& kernels() {
    static auto& registry = *new Registry<Kernel, CUkernel>(9);
    return registry;
}

CUresult load_library(CUlibrary* out, const void* image, const JitOptions& options) {
    if (!out || (options.count > 0 && (!options.names || !options.values))) return CUDA_ERROR_INVALID_VALUE;
    auto library = std::make_shared<Library>();
    TRY(read_image(image, options, &library->texts));
    library->handle = libraries().issue();
    for (const auto& text : library->texts) {
        auto kernel = std::make_shared<Kernel>();
        kernel->handle = kernels().issue();
        kernel->text = text;
        kernel->library = library->handle;
        library->kernels.push_back(kernel);
        kernels().put(kernel->handle, kernel);
    }
    libraries().put(library->handle, library);
    *out = library->handle;
    return CUDA_SUCCESS;
}

CUresult find_library(CUlibrary handle, LibraryRef* out) {
    *out = libraries().find(handle);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult find_kernel(CUkernel handle, KernelRef* out) {
    *out = kernels().find(handle);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult unload_library(CUlibrary handle) {
    const LibraryRef library = libraries().remove(handle);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    for (const KernelRef& kernel : library->kernels) kernels().remove(kernel->handle);
    const std::lock_guard<std::mutex> lock(library->mutex);
    for (const auto& [context, module] : library->modules) drop_module(module);
    return CUDA_SUCCESS;
}

// The library's module in the current context, loaded when first asked for.
CUresult module_of(Library& library, ModuleRef* out) {
    ContextRef context;
    TRY(current_context(&context));
    const std::lock_guard<std::mutex> lock(library.mutex);
    ModuleRef& module = library.modules[context->handle];
    if (!module || module->context.lock() != context) {
        module = make_module(context, library.texts);
    }
    *out = module;
    return CUDA_SUCCESS;
}

CUresult function_of(const Kernel& kernel, FunctionRef* out) {
    LibraryRef library;
    TRY(find_library(kernel.library, &library));
    ModuleRef module;
    TRY(module_of(*library, &module));
    *out = module->find(kernel.text->name);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

CUresult find_kernel_function(CUkernel handle, FunctionRef* out) {
    KernelRef kernel;
    TRY(find_kernel(handle, &kernel));
    return function_of(*kernel, out);
}

}  // namespace softgpu

using namespace softgpu;

ENTRY(cuLibraryLoadData,
      (CUlibrary * library, const void* code, CUjit_option* options, void** values, unsigned int count,
       CUlibraryOption*, void**, unsigned int),
      load_library(library, code, {options, values, count}))
ENTRY(cuLibraryUnload, (CUlibrary library), unload_library(library))
DRIVER_API cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
    return entry([&] {
        if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
        LibraryRef library;
        TRY(find_library(handle, &library));
        for (const KernelRef& kernel : library->kernels) {
            if (kernel->text->name != name) continue;
            *out = kernel->handle;
            return CUDA_SUCCESS;
        }
        return CUDA_ERROR_NOT_FOUND;
    });
}
DRIVER_API cuKernelGetFunction(CUfunction* out, CUkernel handle) {
    return entry([&] {
        if (!out) return CUDA_ERROR_INVALID_VALUE;
        KernelRef kernel;
        TRY(find_kernel(handle, &kernel));
        FunctionRef function;
        TRY(function_of(*kernel, &function));
        *out = function->handle;
        return CUDA_SUCCESS;
    });
}
DRIVER_API cuKernelGetName(const char** name, CUkernel handle) {
    return entry([&] {
        if (!name) return CUDA_ERROR_INVALID_VALUE;
        KernelRef kernel;
        TRY(find_kernel(handle, &kernel));
        *name = kernel->text->name.c_str();
        return CUDA_SUCCESS;
    });
}

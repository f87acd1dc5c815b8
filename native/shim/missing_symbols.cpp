#include "shim/missing_symbols.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "shim/driver.h"

namespace shim {

namespace {

// In the table that the loader looks up, mapped from our file; null: not there.
ElfW(Sym) * symbol_of(void* self, const char* name) {
    void* address = dlsym(self, name);
    Dl_info about;
    void* found = nullptr;
    bool is_ours = address && dladdr1(address, &about, &found, RTLD_DL_SYMENT) && found && about.dli_sname &&
                   strcmp(about.dli_sname, name) == 0;
    return is_ours ? static_cast<ElfW(Sym)*>(found) : nullptr;
}

struct Segment {
    uintptr_t address;  // in
    int protection;     // out
};
int find_segment(dl_phdr_info* object, size_t, void* out) {
    auto* wanted = static_cast<Segment*>(out);
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const ElfW(Phdr) & one = object->dlpi_phdr[i];
        if (one.p_type != PT_LOAD || wanted->address - (object->dlpi_addr + one.p_vaddr) >= one.p_memsz) continue;
        wanted->protection = (one.p_flags & PF_R ? PROT_READ : 0) | (one.p_flags & PF_W ? PROT_WRITE : 0) |
                             (one.p_flags & PF_X ? PROT_EXEC : 0);
        return 1;
    }
    return 0;
}

}  // namespace

void hide_missing_symbols(const char* own_path) {
    void* self = own_path ? open_past_us(own_path, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
    if (!self) return;
    static ElfW(Sym) * hidden[Index::count];  // not on the program's stack: one thread at a time is here
    int count = 0;
    for (int i = 0; i < Index::count; ++i)
        if (!driver_has(i))
            if (ElfW(Sym)* symbol = symbol_of(self, names[i])) hidden[count++] = symbol;
    if (!count) return;
    auto [first, last] = std::minmax_element(hidden, hidden + count);
    auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    uintptr_t begin = reinterpret_cast<uintptr_t>(*first) & ~(page - 1), end = reinterpret_cast<uintptr_t>(*last + 1);
    Segment segment{reinterpret_cast<uintptr_t>(*first), PROT_READ};
    dl_iterate_phdr(find_segment, &segment);
    auto* pages = reinterpret_cast<void*>(begin);
    if (mprotect(pages, end - begin, segment.protection | PROT_WRITE) != 0) return;
    // The loader passes over a symbol that has no value.
    for (int i = 0; i < count; ++i) __atomic_store_n(&hidden[i]->st_value, 0, __ATOMIC_RELAXED);
    mprotect(pages, end - begin, segment.protection);
}

}  // namespace shim

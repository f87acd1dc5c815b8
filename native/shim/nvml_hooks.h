// NVML inside a tenant with a limit. A program that opens libnvidia-ml.so.1 gets a library of ours instead, which is
// empty except for two libraries that it is linked with: the interposer, then NVML. dlsym searches them in this order,
// so it finds the functions below here and all others in NVML itself, whichever version that is.
#pragma once

namespace shim {

bool is_nvml_name(const char* path);
// What to open instead of NVML; `path` itself where there is no limit, or it does not work.
const char* nvml_stand_in(const char* path, const char* own_path);

}  // namespace shim

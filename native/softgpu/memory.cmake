# Memory, copies, look-up and the weak definitions: the sources for the software GPU's driver library, and its NVML.
set(SOFTGPU_GENERATED ${CMAKE_CURRENT_BINARY_DIR}/generated)
set(SOFTGPU_EXPORTS ${NATIVE}/facts/driver-580.exports.txt)
set(SOFTGPU_PROCS ${NATIVE}/facts/driver-580.procs.txt)

add_custom_command(
  OUTPUT ${SOFTGPU_GENERATED}/stubs.cpp ${SOFTGPU_GENERATED}/proc_table.cpp
  COMMAND ${Python3_EXECUTABLE} ${CODEGEN}/softgpu_exports.py --exports ${SOFTGPU_EXPORTS} --procs ${SOFTGPU_PROCS} --output ${SOFTGPU_GENERATED}
  DEPENDS ${CODEGEN}/softgpu_exports.py ${SOFTGPU_EXPORTS} ${SOFTGPU_PROCS}
  VERBATIM)

add_library(softgpu_memory OBJECT
  ${NATIVE}/softgpu/copy.cpp
  ${NATIVE}/softgpu/copy_api.cpp
  ${NATIVE}/softgpu/host_memory.cpp
  ${NATIVE}/softgpu/ipc.cpp
  ${NATIVE}/softgpu/memory.cpp
  ${NATIVE}/softgpu/memory_api.cpp
  ${NATIVE}/softgpu/memory_array.cpp
  ${NATIVE}/softgpu/memory_blocks.cpp
  ${NATIVE}/softgpu/memset.cpp
  ${NATIVE}/softgpu/pointer.cpp
  ${NATIVE}/softgpu/pool.cpp
  ${NATIVE}/softgpu/proc_address.cpp
  ${NATIVE}/softgpu/vmm.cpp
  ${SOFTGPU_GENERATED}/proc_table.cpp
  ${SOFTGPU_GENERATED}/stubs.cpp)
target_include_directories(softgpu_memory PRIVATE ${NATIVE} SYSTEM ${CUDA_INCLUDE})
# The driver library takes these as objects, not as an archive: the weak definitions must lose against any strong one.
set(SOFTGPU_MEMORY_OBJECTS $<TARGET_OBJECTS:softgpu_memory>)

# NVML knows nothing of CUDA: it asks the device's process.
add_library(softgpu_nvml SHARED ${NATIVE}/softgpu/nvml.cpp ${NATIVE}/softgpu/clock_file.cpp)
target_include_directories(softgpu_nvml PRIVATE ${NATIVE})
target_link_libraries(softgpu_nvml PRIVATE softgpu_engine Threads::Threads)
target_link_options(softgpu_nvml PRIVATE -Wl,-Bsymbolic -Wl,-soname,libnvidia-ml.so.1)
export_only(softgpu_nvml ${NATIVE}/exports.map)
set_target_properties(softgpu_nvml PROPERTIES PREFIX "" OUTPUT_NAME libnvidia-ml SUFFIX .so.1 NO_SONAME ON)
install(TARGETS softgpu_nvml LIBRARY DESTINATION ${NATIVE_DESTINATION}/softgpu)

# CMake's toolchain file for wheels: zig brings a compiler, a linker and the symbols of old C libraries for every machine.
# ZIG is the folder with its commands (packaging/wheels.py writes them), MACHINE as `uname -m` says it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${MACHINE})
set(CMAKE_CXX_COMPILER ${ZIG}/c++)
set(CMAKE_AR ${ZIG}/ar)
set(CMAKE_RANLIB ${ZIG}/ranlib)
# And for objects with link-time optimisation.
set(CMAKE_CXX_COMPILER_AR ${ZIG}/ar)
set(CMAKE_CXX_COMPILER_RANLIB ${ZIG}/ranlib)
# The machine's own strip may not know the other machine's files.
add_link_options(-s)
# Test projects need to know them as well.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ZIG MACHINE)

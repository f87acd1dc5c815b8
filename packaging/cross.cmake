# CMake's toolchain file for Debian's cross compilers: COMPILER is g++ for MACHINE, which is as `uname -m` says it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${MACHINE})
set(CMAKE_CXX_COMPILER ${COMPILER})
set(CMAKE_ASM_COMPILER ${COMPILER})
# Test projects need to know them as well.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES COMPILER MACHINE)

"""The driver opened by its absolute path, without any CUDA library"""

import ctypes
import json
import os
import subprocess
from pathlib import Path

import evidence

PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry step(.param .u64 values, .param .u32 salt)
{
    .reg .b32 %i, %block, %size, %lane, %x, %salt;
    .reg .b64 %at, %offset;
    ld.param.u64 %at, [values];
    ld.param.u32 %salt, [salt];
    cvta.to.global.u64 %at, %at;
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %lane, %tid.x;
    mad.lo.u32 %i, %block, %size, %lane;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %at, %at, %offset;
    ld.global.u32 %x, [%at];
    mad.lo.u32 %x, %x, 1664525, %salt;
    st.global.u32 [%at], %x;
    ret;
}
\0"""


def driver_path():
    cache = subprocess.run(
        ["/sbin/ldconfig", "-p"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.splitlines()
    listed = [line.rsplit("=> ", 1)[1] for line in cache if line.strip().startswith("libcuda.so.1 ")]
    debians = f"/usr/lib/{os.uname().machine}-linux-gnu"
    folders = (debians, "/usr/lib64", "/usr/local/nvidia/lib64", "/usr/local/cuda/compat")
    usual = [f"{folder}/libcuda.so.1" for folder in folders]
    found = [path for path in listed + usual if Path(path).exists()]
    return found[0] if found else evidence.skip("no driver file found")


driver = ctypes.CDLL(driver_path())


def call(name, *arguments):
    status = getattr(driver, name)(*arguments)
    if status:
        raise SystemExit(f"{name}: {status}")


call("cuInit", 0)
device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), PTX)
call("cuModuleGetFunction", ctypes.byref(function), module, b"step")
count = 1 << 20
values, salt = ctypes.c_uint64(), ctypes.c_uint32()
call("cuMemAlloc_v2", ctypes.byref(values), ctypes.c_size_t(4 * count))
call("cuMemsetD32_v2", values, 1, ctypes.c_size_t(count))
arguments = (ctypes.c_void_p * 2)(ctypes.addressof(values), ctypes.addressof(salt))
for turn in range(200):
    salt.value = turn
    call("cuLaunchKernel", function, count // 256, 1, 1, 256, 1, 1, 0, None, arguments, None)
host = (ctypes.c_uint32 * count)()
call("cuMemcpyDtoH_v2", host, values, ctypes.c_size_t(4 * count))
version = ctypes.c_int()
call("cuDriverGetVersion", ctypes.byref(version))
result = {"digests": {"values": evidence.digest(bytes(host))}, "versions": {"driver API": str(version.value)}}
print(evidence.MARK + json.dumps(result), flush=True)

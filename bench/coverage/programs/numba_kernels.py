"""numba-cuda: kernels with shared memory, streams, device arrays"""

import evidence

numpy = evidence.need("numpy")
cuda = evidence.need("numba.cuda")
numba = evidence.need("numba")
if not hasattr(numpy, "row_stack"):
    evidence.skip("this numba needs numpy.row_stack, which this numpy no longer has")
if not cuda.is_available():
    evidence.skip("numba sees no GPU")


@cuda.jit
def scale(x, factor, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] * factor + 1.0


@cuda.jit
def block_sums(x, out):
    part = cuda.shared.array(256, numba.float32)
    lane = cuda.threadIdx.x
    i = cuda.grid(1)
    part[lane] = x[i] if i < x.size else 0.0
    cuda.syncthreads()
    width = 128
    while width > 0:
        if lane < width:
            part[lane] += part[lane + width]
        cuda.syncthreads()
        width //= 2
    if lane == 0:
        out[cuda.blockIdx.x] = part[0]


x = numpy.random.default_rng(4).standard_normal(1 << 20, dtype=numpy.float32)
stream = cuda.stream()
there = cuda.to_device(x, stream=stream)
scaled = cuda.device_array_like(there)
sums = cuda.device_array(x.size // 256, dtype=numpy.float32)
for turn in range(50):
    scale[x.size // 256, 256, stream](there, numpy.float32(turn * 0.5), scaled)
    block_sums[x.size // 256, 256, stream](scaled, sums)
stream.synchronize()
evidence.report(
    {
        "scaled": evidence.digest_array(scaled.copy_to_host()),
        "sums": evidence.digest_array(sums.copy_to_host()),
    },
    "numba",
    "numba-cuda",
)

// A program that carries its own CUDA runtime (nvcc -cudart static): streams, events, a graph, asynchronous allocation.
// Prints the bytes of its results in hexadecimal, one line each.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                          \
    do {                                                                     \
        cudaError_t status = (call);                                         \
        if (status != cudaSuccess) {                                         \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorName(status)); \
            std::exit(1);                                                    \
        }                                                                    \
    } while (0)

__global__ void step(uint32_t* values, uint32_t salt, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = values[i] * 1664525u + 1013904223u + salt;
}

uint64_t checksum(const std::vector<uint32_t>& values) {
    uint64_t sum = 1469598103934665603ull;
    for (uint32_t value : values) sum = (sum ^ value) * 1099511628211ull;
    return sum;
}

int main() {
    const int n = 1 << 20;
    const size_t bytes = n * sizeof(uint32_t);
    std::vector<uint32_t> host(n);
    uint32_t* values;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&values, bytes));
    CHECK(cudaMemset(values, 1, bytes));
    for (uint32_t i = 0; i < 200; ++i) step<<<n / 256, 256>>>(values, i, n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host.data(), values, bytes, cudaMemcpyDeviceToHost));
    std::printf("default-stream %016llx\n", (unsigned long long)checksum(host));

    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (uint32_t i = 0; i < 10; ++i) step<<<n / 256, 256, 0, stream>>>(values, i, n);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 20; ++i) CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaMemcpyAsync(host.data(), values, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("graph %016llx\n", (unsigned long long)checksum(host));

    uint32_t* scratch;
    CHECK(cudaMallocAsync(&scratch, bytes, stream));
    CHECK(cudaMemcpyAsync(scratch, values, bytes, cudaMemcpyDeviceToDevice, stream));
    step<<<n / 256, 256, 0, stream>>>(scratch, 7u, n);
    CHECK(cudaMemcpyAsync(host.data(), scratch, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaFreeAsync(scratch, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("async-allocation %016llx\n", (unsigned long long)checksum(host));
    int version;
    CHECK(cudaRuntimeGetVersion(&version));
    std::printf("runtime %d\n", version);
    return 0;
}

#include "softgpu/value_operations.h"

#include "softgpu/enqueue.h"

namespace softgpu {
namespace {

constexpr unsigned most_operations = 256;

template <class Word>
bool satisfied(Word now, Word value, unsigned condition) {
    using Signed = std::make_signed_t<Word>;
    switch (condition) {
        case CU_STREAM_WAIT_VALUE_GEQ:  // cyclic, as the hardware compares
            return static_cast<Signed>(now - value) >= 0;
        case CU_STREAM_WAIT_VALUE_EQ:
            return now == value;
        case CU_STREAM_WAIT_VALUE_AND:
            return (now & value) != 0;
        default:
            return static_cast<Word>(~(now | value)) != 0;
    }
}

template <class Word>
CUresult check_address(const Context& context, CUdeviceptr address) {
    if (address % sizeof(Word) != 0 || !device_can_access(context, address, sizeof(Word))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

// Atomic, because the other side is a plain store by another process or thread.
template <class Word>
CUresult make_wait(Context& context, CUdeviceptr address, Word value, unsigned flags, Operation* out) {
    const unsigned condition = flags & ~static_cast<unsigned>(CU_STREAM_WAIT_VALUE_FLUSH);
    if (condition > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
    TRY(check_address<Word>(context, address));
    out->until = [address, value, condition, &context] {
        {
            const MemoryHold hold;
            if (device_can_access(context, address, sizeof(Word))) {
                const Word now = __atomic_load_n(reinterpret_cast<const Word*>(place_here(address)), __ATOMIC_ACQUIRE);
                return satisfied(now, value, condition);
            }
        }
        context.engine->fail(CUDA_ERROR_ILLEGAL_ADDRESS);
        return true;
    };
    return CUDA_SUCCESS;
}

template <class Word>
CUresult make_write(Context& context, CUdeviceptr address, Word value, unsigned flags, Operation* out) {
    if (flags & ~static_cast<unsigned>(CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)) return CUDA_ERROR_INVALID_VALUE;
    TRY(check_address<Word>(context, address));
    out->effect = [address, value, &context](const Timing&) -> int {
        const MemoryHold hold;
        if (!device_can_access(context, address, sizeof(Word))) return CUDA_ERROR_ILLEGAL_ADDRESS;
        __atomic_store_n(reinterpret_cast<Word*>(place_here(address)), value, __ATOMIC_RELEASE);
        return CUDA_SUCCESS;
    };
    return CUDA_SUCCESS;
}

CUresult make_one(Context& context, const CUstreamBatchMemOpParams& one, Operation* out) {
    switch (one.operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            return make_wait<uint32_t>(context, one.waitValue.address, one.waitValue.value, one.waitValue.flags, out);
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            return make_wait<uint64_t>(context, one.waitValue.address, one.waitValue.value64, one.waitValue.flags, out);
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            return make_write<uint32_t>(context, one.writeValue.address, one.writeValue.value, one.writeValue.flags,
                                        out);
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            return make_write<uint64_t>(context, one.writeValue.address, one.writeValue.value64, one.writeValue.flags,
                                        out);
        case CU_STREAM_MEM_OP_BARRIER:
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult batch(CUstream handle, unsigned count, const CUstreamBatchMemOpParams* parameters, unsigned flags,
               DefaultStream which) {
    StreamRef stream;
    ContextRef context;
    TRY(find_stream(handle, which, &stream, &context));
    StreamWork work;
    TRY(make_value_operations(*context, parameters, count, flags, &work.steps));
    work.node = ValueNode{context->handle, {parameters, parameters + count}, flags};
    return enqueue_work(handle, which, std::move(work));
}

CUresult wait(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address, cuuint64_t value, unsigned flags,
              DefaultStream which) {
    CUstreamBatchMemOpParams one{};
    one.waitValue.operation = type;
    one.waitValue.address = address;
    one.waitValue.value64 = value;
    one.waitValue.flags = flags;
    return batch(stream, 1, &one, 0, which);
}

CUresult write(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address, cuuint64_t value, unsigned flags,
               DefaultStream which) {
    CUstreamBatchMemOpParams one{};
    one.writeValue.operation = type;
    one.writeValue.address = address;
    one.writeValue.value64 = value;
    one.writeValue.flags = flags;
    return batch(stream, 1, &one, 0, which);
}

}  // namespace

CUresult make_value_operations(Context& context, const CUstreamBatchMemOpParams* parameters, unsigned count,
                               unsigned flags, std::vector<Operation>* steps) {
    if (!parameters || count == 0 || count > most_operations || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; ++i) {
        Operation operation;
        operation.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
        TRY(make_one(context, parameters[i], &operation));
        steps->push_back(std::move(operation));
    }
    return CUDA_SUCCESS;
}

}  // namespace softgpu

using namespace softgpu;

#define VALUE_ENTRY_POINTS(suffix)                                                                                  \
    PLAIN_AND_PTSZ(cuStreamWaitValue32##suffix,                                                                     \
                   (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags),                    \
                   wait(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags, which))                      \
    PLAIN_AND_PTSZ(cuStreamWaitValue64##suffix,                                                                     \
                   (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags),                    \
                   wait(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags, which))                      \
    PLAIN_AND_PTSZ(cuStreamWriteValue32##suffix,                                                                    \
                   (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags),                    \
                   write(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags, which))                    \
    PLAIN_AND_PTSZ(cuStreamWriteValue64##suffix,                                                                    \
                   (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags),                    \
                   write(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags, which))                    \
    PLAIN_AND_PTSZ(cuStreamBatchMemOp##suffix,                                                                      \
                   (CUstream stream, unsigned int count, CUstreamBatchMemOpParams* parameters, unsigned int flags), \
                   batch(stream, count, parameters, flags, which))

VALUE_ENTRY_POINTS()
VALUE_ENTRY_POINTS(_v2)

#include "tenant/host_copies.h"

#include <iterator>

#include "admission/bus.h"
#include "tenant/membership.h"
#include "tenant/memory/residence.h"

namespace tenant {

namespace {

struct Range {
    unsigned int type = 0;  // CUmemorytype; 0: the driver does not know the memory
    unsigned int managed = 0;
    CUdeviceptr begin = 0;
    size_t bytes = 0;

    // Also of a count with which the sum would wrap around.
    bool has(uint64_t from, size_t count) const {
        return from >= begin && from - begin <= bytes && count <= bytes - (from - begin);
    }
};

Range range_at(uint64_t address) {
    Range range;
    MovableRange movable{};
    if (movable_range(address, &movable)) return {CU_MEMORYTYPE_DEVICE, 0, movable.base, movable.bytes};
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void* values[] = {&range.type, &range.managed, &range.begin, &range.bytes};
    if (driver.cuPointerGetAttributes(std::size(attributes), attributes, values, address) != CUDA_SUCCESS) return {};
    return range;
}

bool is_on_gpu(uint64_t address, size_t bytes) {
    Range range = range_at(address);
    return range.type == CU_MEMORYTYPE_DEVICE && !range.managed && range.has(address, bytes);
}

enum class Host : uint8_t { pinned, pageable, neither };

Host host_memory_at(uint64_t address, size_t bytes) {
    Range first = range_at(address);
    if (first.type == CU_MEMORYTYPE_HOST && !first.managed && first.has(address, bytes)) return Host::pinned;
    // Only a part of it may be pinned; the driver then says what it thinks of that.
    bool is_unknown = first.type == 0 && range_at(address + bytes - 1).type == 0;
    return is_unknown ? Host::pageable : Host::neither;
}

// The speed is learned like an operation's time, for each way and kind of host memory.
Shape speed_shape(Way way, Host host) { return mix(mix(2, static_cast<uint64_t>(way)), static_cast<uint64_t>(host)); }

constexpr float kMib = 1 << 20;

CUresult copy_piece(const HostCopy& copy, size_t at, size_t bytes, CUstream stream) {
    uint64_t to = copy.destination + at, from = copy.source + at;
    return copy.way == Way::to_gpu ? driver.cuMemcpyHtoDAsync_v2(to, reinterpret_cast<const void*>(from), bytes, stream)
                                   : driver.cuMemcpyDtoHAsync_v2(reinterpret_cast<void*>(to), from, bytes, stream);
}

}  // namespace

size_t bus_bytes(const HostCopy& copy) {
    if (copy.way != Way::unknown) return copy.bytes;
    if (copy.bytes < admission::kBusCopy) return 0;
    return is_on_gpu(copy.destination, copy.bytes) != is_on_gpu(copy.source, copy.bytes) ? copy.bytes : 0;
}

CopyAhead::CopyAhead(Work& work, const HostCopy& asked) : work_(work) {
    if (asked.bytes <= admission::kSmallestPiece || !work.shares_bus()) return;
    HostCopy copy = asked;
    if (copy.way == Way::unknown) copy.way = is_on_gpu(copy.destination, copy.bytes) ? Way::to_gpu : Way::to_host;
    uint64_t on_gpu = copy.way == Way::to_gpu ? copy.destination : copy.source;
    Host host = host_memory_at(copy.way == Way::to_gpu ? copy.source : copy.destination, copy.bytes);
    if (host == Host::neither || !is_on_gpu(on_gpu, copy.bytes)) return;

    Shape shape = speed_shape(copy.way, host);
    float us_per_mib = work.learned_us(shape), piece_us = work.piece_us();
    size_t piece = admission::piece_bytes(us_per_mib, piece_us);
    float mib = static_cast<float>(piece) / kMib;
    Work::Expected expected{us_per_mib > 0 ? us_per_mib * mib : admission::kUnknown, piece_us, 1 / mib};
    // The driver may return from a synchronous copy of so little before it has been made, as its documentation has it.
    // Then the program would write over what the pieces before it still have to carry.
    size_t rest = piece + admission::kPieceGrain;
    if (copy.bytes <= rest) return;
    is_split_ = work.begin_pieces();
    if (!is_split_) return;
    CUstream stream = work.stream();  // for all of them, also if the stream becomes another lane's
    for (; copy.bytes - bytes_ > rest && !work.pieces_are_waited_for(); bytes_ += piece) {
        work.pass_gate(shape, expected);
        result_ = work.result(copy_piece(copy, bytes_, piece, stream));
        if (result_ != CUDA_SUCCESS) return;
        work.count_piece();
    }
}

}  // namespace tenant

// What a client and softgpud say to each other over a Unix stream socket. Both are of one build of one machine: plain
// structs in its own byte order.
//
// A client process has two connections:
//   operations   Message...  ->        (never answered one by one)
//                            <-  Event...   in the order in which things happened
//   calls        Message     ->
//                            <-  Reply, followed by `count` Uses
// Each begins with a hello, which softgpud answers with a Reply; no answer means that softgpud is about to end and that
// another one is to be started.
#pragma once

#include <cstdint>
#include <type_traits>

namespace softgpu::protocol {

constexpr uint32_t version = 2;  // part of the socket's name: clients of another version have another machine

enum class Kind : uint16_t {
    hello,
    // operations
    open_mps_context,  // of an MPS client, before its first queue: queue is its share of the SMs in percent
    open_queue,        // opens its context too, when it is the first
    close_queue,
    close_context,
    submit,   // a Submit, followed by the operations it comes after
    release,  // ends a hold
    watch,    // somebody waits for this operation: tell of its end promptly
    leave,    // the process ends in order: what its contexts still run hurts no other client of its MPS server
    // calls
    reserve,
    give_back,
    memory,
    processes,
};

// Client's ids: contexts count up within the connection, queues are slots within a context, and the low bits of an
// operation say which queue it is in, so that neither side needs a table of operations.
constexpr int queue_bits = 20;
constexpr uint64_t queue_mask = (1u << queue_bits) - 1;

struct Message {
    uint32_t bytes;  // of the whole message
    Kind kind;
    uint16_t device;
    uint32_t context;
    uint32_t queue;
    uint64_t argument;  // the operation; open_queue: the priority; reserve and give_back: bytes; of an MPS client: its
                        // server
    double stamp_us;    // CLOCK_MONOTONIC when it was sent: softgpud's late wake-ups do not delay the work
};
static_assert(sizeof(Message) == 32 && std::is_trivially_copyable_v<Message>);

struct Submit {
    Message message;
    double time_us;
    double gbps;
    uint64_t work_bytes;
    int32_t sms;
    uint8_t work_kind;
    uint8_t watched;
    uint16_t padding;
};
static_assert(sizeof(Submit) == 64 && std::is_trivially_copyable_v<Submit>);

constexpr uint32_t largest_message = 16 << 20;

enum class EventKind : uint32_t { done, reached, failed };  // failed: the context, with `op` as its CUresult

struct Event {
    uint64_t op;
    double start_us;
    double end_us;
    uint32_t context;
    EventKind kind;
};
static_assert(sizeof(Event) == 32 && std::is_trivially_copyable_v<Event>);

struct Reply {
    uint64_t free_bytes;
    uint64_t total_bytes;
    uint32_t ok;
    uint32_t count;
};
static_assert(sizeof(Reply) == 24 && std::is_trivially_copyable_v<Reply>);

struct Use {
    uint64_t bytes;
    int32_t pid;
    uint32_t padding;
};
static_assert(sizeof(Use) == 16 && std::is_trivially_copyable_v<Use>);

}  // namespace softgpu::protocol

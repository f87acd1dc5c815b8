// The recorder's thread at work: what it found in the ring and the tables becomes records of the file.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tenant/identity_file.h"
#include "tenant/membership.h"
#include "tenant/record/recorder.h"
#include "wire/clock.h"

namespace tenant {

// Its shape and stream stand in the file before it. False: somebody is still filling them in.
bool Recorder::is_written_down(const RecordedOperation& operation, bool for_good) {
    if (!operation.stream->number) {
        if (!operation.stream->ready.load(std::memory_order_acquire) && !for_good) return false;
        write_stream(*operation.stream);
    }
    if (operation.shape && !operation.shape->number) {
        if (!operation.shape->ready.load(std::memory_order_acquire) && !for_good) return false;
        write_shape(*operation.shape);
    }
    return true;
}

void Recorder::write_record(char tag) {
    payload_.byte(static_cast<uint8_t>(tag));
    payload_.varint(body_.size());
    payload_.add(body_.data(), body_.size());
    body_.clear();
}

void Recorder::write_fact(const char* key, const char* value) {
    body_.varint(strlen(key));
    body_.add(key, strlen(key));
    body_.add(value, strlen(value));
    write_record('F');
}

// Where the time of the bursts went so far, of all GPUs (tenant/breakdown.h).
void Recorder::write_breakdown() {
    Membership* membership = Membership::current_if_joined();
    if (!membership) return;
    uint64_t bursts = 0, busy_ns = 0, waits = 0, waited_ns = 0, gap_ns = 0;
    for (const wire::OnGpu& here : membership->slot().gpus) {
        bursts += here.figures.bursts.load();
        busy_ns += here.busy_ns.load();
        waits += here.waits.load();
        waited_ns += here.waited_ns.load();
        gap_ns += here.gap_ns.load();
    }
    char text[160];
    snprintf(text, sizeof text,
             "%" PRIu64 " bursts %" PRIu64 " busy_ns %" PRIu64 " waits %" PRIu64 " waited_ns %" PRIu64 " gap_ns",
             bursts, busy_ns, waits, waited_ns, gap_ns);
    write_fact("breakdown", text);
}

void Recorder::note_facts() {
    auto fact = [&](const char* key, const char* value) { write_fact(key, value); };
    char text[64] = {};
    if (int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC); fd >= 0) {
        if (read(fd, text, sizeof text - 1) < 0) text[0] = 0;
        close(fd);
    }
    text[strcspn(text, "\n")] = 0;
    fact("program", text);
    int version = 0;
    if (recorder_calls.cuDriverGetVersion && recorder_calls.cuDriverGetVersion(&version) == CUDA_SUCCESS) {
        snprintf(text, sizeof text, "%d.%d", version / 1000, version % 1000 / 10);
        fact("cuda", text);
    }
    if (const char* tenant_class = setting("COTENANT_CLASS")) fact("class", tenant_class);
}

void Recorder::write_gpu(int number) {
    RecordedGpu& gpu = gpus_[number];
    if (gpu.is_written) return;
    gpu.is_written = true;
    body_.varint(static_cast<uint64_t>(number));
    body_.varint(static_cast<uint64_t>(gpu.sms));
    body_.varint(gpu.memory_bytes);
    body_.add(gpu.uuid, sizeof gpu.uuid);
    body_.add(gpu.name, strnlen(gpu.name, sizeof gpu.name));
    write_record('G');
    if (gpu.memory_gbps) {
        body_.varint(static_cast<uint64_t>(number));
        body_.varint(gpu.memory_gbps);
        write_record('B');
    }
}

void Recorder::write_stream(RecordedStream& stream) {
    write_gpu(stream.gpu);
    stream.number = ++stream_count_;
    body_.varint(stream.number - 1);
    body_.varint(static_cast<uint64_t>(stream.gpu));
    write_record('Q');
}

uint32_t Recorder::write_name(const char* name, uint32_t length) {
    if (!length) return 0;
    uint64_t hash = 14695981039346656037u;
    for (uint32_t i = 0; i < length; ++i) hash = (hash ^ static_cast<uint8_t>(name[i])) * 1099511628211u;
    uint32_t at = hash % kNames;
    while (names_[at].number && names_[at].hash != hash) at = (at + 1) % kNames;
    if (!names_[at].number) {
        names_[at] = {hash, ++name_count_};
        body_.varint(name_count_);
        body_.add(name, length);
        write_record('N');
    }
    return names_[at].number;
}

void Recorder::write_shape(RecordedShape& shape) {
    uint32_t name = write_name(shape.name, shape.name_length);
    numbered_[shape_count_++] = &shape;
    shape.number = shape_count_;
    shape.has_news = shape.timing.samples != 0;
    body_.varint(shape.number - 1);
    body_.byte(static_cast<uint8_t>(shape.kind));
    body_.byte(static_cast<uint8_t>(shape.direction));
    body_.varint(name);
    for (unsigned int size : shape.grid) body_.varint(size);
    for (unsigned int size : shape.block) body_.varint(size);
    body_.varint(shape.shared_bytes);
    body_.varint(shape.blocks_per_sm);
    body_.varint(shape.sms);
    body_.varint(shape.nodes);
    body_.varint(shape.bytes);
    write_record('S');
    if (!shape.registers && !shape.static_shared_bytes) return;
    body_.varint(shape.number - 1);
    body_.varint(shape.registers);
    body_.varint(shape.static_shared_bytes);
    write_record('K');
}

void Recorder::write_timings() {
    auto ns = [](double us) { return static_cast<uint64_t>(us * 1000 + 0.5); };
    for (uint32_t i = 0; i < shape_count_; ++i) {
        RecordedShape& shape = *numbered_[i];
        if (!shape.has_news) continue;
        shape.has_news = false;
        body_.varint(shape.number - 1);
        body_.varint(shape.timing.samples);
        body_.varint(ns(shape.timing.us));
        body_.varint(ns(shape.timing.min_us));
        body_.varint(ns(shape.timing.max_us));
        write_record('D');
    }
}

void Recorder::write_block() {
    last_write_ns_ = wire::now_ns();
    write_timings();
    if (coder_.count()) {
        write_breakdown();
        coder_.write(body_, file_.epoch_ns());
        write_record('O');
    }
    if (uint64_t lost = lost_.load(); lost != lost_written_) {
        lost_written_ = lost;
        body_.varint(lost);
        write_record('L');
    }
    if (!payload_.size()) return;
    constexpr uint64_t kRoomForTheEnd = 64;
    if (limit_bytes_ && file_.size() + payload_.size() + kRoomForTheEnd > limit_bytes_) {
        payload_.clear();
        finish("limit");
    } else if (payload_.failed() || body_.failed()) {
        stop(strerror(ENOMEM));
    } else if (!file_.append_block(payload_)) {
        stop(strerror(errno));
    }
    payload_.clear();
}

}  // namespace tenant

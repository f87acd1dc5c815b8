#include "tenant/recorder.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "tenant/membership.h"

namespace tenant {

RecorderCalls recorder_calls;
std::atomic<Recorder*> Recorder::on_{nullptr};

namespace {

constexpr uint64_t kMillisecond = 1000000, kSecond = 1000 * kMillisecond;
constexpr uint64_t kNapNs = 20 * kMillisecond;
constexpr uint64_t kTimingNapNs = 2 * kMillisecond;  // so that there are always some free to time with
constexpr uint64_t kBlockEveryNs = kSecond;
// A call that took longer has waited for something: most often for room in the driver's queue.
constexpr uint64_t kWaitedNs = 50000;
constexpr unsigned int kMostNodesLookedAt = 4096;
constexpr int kLastLooks = 10;

pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
std::atomic<bool> given_up{false};
// What a thread remembers of an earlier recorder, before a fork, is not true any more.
std::atomic<uint32_t> epoch{1};

void futex_wait(std::atomic<uint32_t>& word, uint32_t while_equal, uint64_t timeout_ns) {
    timespec timeout{static_cast<time_t>(timeout_ns / kSecond), static_cast<long>(timeout_ns % kSecond)};
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, while_equal, &timeout, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

void say_not_recorded(const char* path, const char* why) {
    char line[4400];
    int used = snprintf(line, sizeof line, "cotenant: recording into %s ends: %s; the job goes on\n", path, why);
    used = std::min(used, static_cast<int>(sizeof line) - 1);
    if (write(STDERR_FILENO, line, static_cast<size_t>(used)) < 0) errno = 0;
}

uint16_t thread_number() {
    static std::atomic<uint32_t> last{0};
    thread_local uint32_t mine = 0;
    if (!mine) mine = last.fetch_add(1, std::memory_order_relaxed) + 1;
    return static_cast<uint16_t>(std::min(mine, 65535u));
}

// "1.5", or "10M" with a power of 1024; 0: not set, or no number.
double environment_number(const char* name) {
    const char* text = getenv(name);
    if (!text) return 0;
    char* end = nullptr;
    double value = strtod(text, &end);
    constexpr char kPowers[] = "KMGT";
    if (const char* power = *end ? strchr(kPowers, *end) : nullptr)
        for (const char* each = kPowers; each <= power; ++each) value *= 1024;
    return value > 0 && value < 1e15 ? value : 0;
}

bool is_recorded_into_graph(CUstream stream) {
    Membership* membership = Membership::current_if_joined();
    if (membership && !membership->captures_open.load(std::memory_order_acquire)) return false;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return driver.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

uint64_t rounded(uint64_t bytes) {
    int digits = bytes ? 63 - __builtin_clzll(bytes) : 0;
    return digits > 3 ? bytes >> (digits - 3) << (digits - 3) : bytes;
}

const char* function_name(const void* function) {
    const char* name = nullptr;
    auto* handle = static_cast<CUfunction>(const_cast<void*>(function));
    if (recorder_calls.cuFuncGetName && recorder_calls.cuFuncGetName(&name, handle) == CUDA_SUCCESS && name)
        return name;
    if (recorder_calls.cuKernelGetName && recorder_calls.cuKernelGetName(&name, handle) == CUDA_SUCCESS && name)
        return name;
    return "";
}

unsigned int occupancy(const void* function, const unsigned int (&block)[3], unsigned int shared_bytes) {
    int blocks = 0;
    auto* handle = static_cast<CUfunction>(const_cast<void*>(function));
    int threads = static_cast<int>(block[0] * block[1] * block[2]);
    if (!handle || threads <= 0 || !recorder_calls.cuOccupancyMaxActiveBlocksPerMultiprocessor ||
        recorder_calls.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, handle, threads, shared_bytes) !=
            CUDA_SUCCESS)
        return 0;
    return static_cast<unsigned int>(std::max(blocks, 0));
}

uint64_t block_count(const unsigned int (&grid)[3]) { return uint64_t{grid[0]} * grid[1] * grid[2]; }

Shape graph_key(const void* exec) { return mix(2, reinterpret_cast<uintptr_t>(exec)); }

}  // namespace

void AllocationSizes::enter(uint64_t address, uint64_t bytes) {
    if (!address || used_ > kPlaces / 4 * 3) return;
    uint32_t at = home(address);
    while (places_[at].address && places_[at].address != address) at = (at + 1) % kPlaces;
    used_ += places_[at].address == 0;
    places_[at] = {address, bytes};
}

uint64_t AllocationSizes::take(uint64_t address) {
    uint32_t at = home(address);
    while (places_[at].address && places_[at].address != address) at = (at + 1) % kPlaces;
    if (!address || !places_[at].address) return 0;
    uint64_t bytes = places_[at].bytes;
    // What comes behind moves up, unless it is at home or between there and the gap.
    uint32_t gap = at;
    for (uint32_t next = (at + 1) % kPlaces; places_[next].address; next = (next + 1) % kPlaces) {
        uint32_t from_home = (next - home(places_[next].address)) % kPlaces;
        if (from_home < (next - gap) % kPlaces) continue;
        places_[gap] = places_[next];
        gap = next;
    }
    places_[gap] = {};
    --used_;
    return bytes;
}

Recorder* Recorder::start() {
    if (given_up.load(std::memory_order_relaxed)) return nullptr;
    CUcontext context = nullptr;
    if (driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context) return nullptr;

    static std::atomic<bool> registered{false};
    if (!registered.exchange(true)) {
        pthread_atfork(nullptr, nullptr, forget_in_child);
        atexit(finish_at_exit);
    }
    pthread_mutex_lock(&start_lock);
    if (!on_.load() && !given_up.load()) {
        const char* path = getenv("COTENANT_RECORD");
        const char* why = nullptr;
        void* memory = mmap(nullptr, sizeof(Recorder), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        Recorder* recorder = nullptr;
        if (!path || !*path)
            why = "";
        else if (memory == MAP_FAILED)
            why = strerror(errno);
        else if (recorder = new (memory) Recorder; !recorder->file_.create(path))
            why = strerror(errno);
        else if (!recorder->start_thread())
            why = "no thread can be started";
        if (!why) {
            on_.store(recorder, std::memory_order_release);
        } else {
            given_up.store(true);
            if (*why) say_not_recorded(path, why);
            if (memory != MAP_FAILED) munmap(memory, sizeof(Recorder));
        }
    }
    pthread_mutex_unlock(&start_lock);
    return on_.load();
}

bool Recorder::start_thread() {
    for (uint32_t kind = 0; kind < kOverflowing; ++kind) {
        overflow_[kind].kind = static_cast<TraceKind>(kind);
        overflow_[kind].ready.store(1);
    }
    limit_bytes_ = static_cast<uint64_t>(environment_number("COTENANT_RECORD_LIMIT"));
    last_write_ns_ = wire::now_ns();
    if (double seconds = std::min(environment_number("COTENANT_RECORD_SECONDS"), 1e9))
        stop_at_ns_ = last_write_ns_ + static_cast<uint64_t>(seconds * kSecond);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    bool started = pthread_create(&thread, &attributes, thread_main, this) == 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
}

// The thread is the parent's, and so is the file; a child that works on a GPU gets its own.
void Recorder::forget_in_child() {
    on_.store(nullptr);
    given_up.store(false);
    epoch.fetch_add(1);
    pthread_mutex_init(&start_lock, nullptr);
}

void Recorder::finish_at_exit() {
    Recorder* recorder = on_.exchange(nullptr);
    given_up.store(true);
    if (!recorder) return;
    recorder->leaving_.store(1);
    futex_wake(recorder->leaving_);
    for (int tries = 0; tries < 50 && !recorder->done_.load(); ++tries) futex_wait(recorder->done_, 0, kNapNs);
}

void* Recorder::thread_main(void* self) {
    auto* recorder = static_cast<Recorder*>(self);
    pthread_setname_np(pthread_self(), "cotenant-record");
    recorder->run();
    recorder->done_.store(1);
    futex_wake(recorder->done_);
    return nullptr;
}

void Recorder::run() {
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    driver.cuThreadExchangeStreamCaptureMode(&relaxed);
    note_facts();
    while (!is_over_) {
        bool leaving = leaving_.load();
        collect_times();
        // What was launched last may be about to end.
        for (int tries = 0; leaving && tries < kLastLooks && timer.any_on_its_way(); ++tries) {
            futex_wait(leaving_, 1, kMillisecond);
            collect_times();
        }
        drain(leaving);
        uint64_t now = wire::now_ns();
        if (leaving)
            finish("exit");
        else if (stop_at_ns_ && now >= stop_at_ns_)
            finish("time");
        else if (now - last_write_ns_ >= kBlockEveryNs)
            write_block();
        if (!is_over_) futex_wait(leaving_, 0, timer.any_on_its_way() ? kTimingNapNs : kNapNs);
    }
}

void Recorder::collect_times() {
    // Never waits: who holds a lock may be in the driver for long. As in the watcher, no event is asked for while
    // somebody opens a capture.
    if (pthread_mutex_trylock(&events_lock_) != 0) return;
    Membership* membership = Membership::current_if_joined();
    bool locked = membership && membership->try_lock();
    if (!membership || (locked && !membership->captures_open.load()))
        timer.collect([](void* owner, float us, Trust trust) {
            auto* shape = static_cast<RecordedShape*>(owner);
            shape->timing.learn(us, trust);
            shape->has_news = true;
        });
    if (locked) membership->unlock();
    unlock_events();
}

void Recorder::drain(bool for_good) {
    while (!is_over_) {
        const RecordedOperation* next = ring_.front();
        if (!next || !is_written_down(*next, for_good)) return;
        coder_.add({next->time_ns, next->wait_ns, next->bytes, next->shape ? next->shape->number : 0,
                    static_cast<uint16_t>(next->stream->number - 1), next->thread, next->kind, next->direction});
        ring_.drop_front();
        if (coder_.is_full()) write_block();
    }
}

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

void Recorder::note_facts() {
    auto fact = [&](const char* key, const char* value) {
        body_.varint(strlen(key));
        body_.add(key, strlen(key));
        body_.add(value, strlen(value));
        write_record('F');
    };
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
    if (const char* tenant_class = getenv("COTENANT_CLASS")) fact("class", tenant_class);
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

void Recorder::finish(const char* why) {
    bool is_limit = strcmp(why, "limit") == 0;
    if (!is_limit) write_block();
    if (is_over_) return;
    body_.clear();
    body_.add(why, strlen(why));
    write_record('E');
    if (!file_.append_block(payload_)) say_not_recorded(file_.path(), strerror(errno));
    stop(nullptr);
}

void Recorder::stop(const char* problem) {
    is_over_ = true;
    given_up.store(true);
    on_.store(nullptr);
    if (problem) say_not_recorded(file_.path(), problem);
}

RecordedStream* Recorder::stream_of(CUstream* stream, bool per_thread_default, CUcontext context) {
    uint64_t key = 0;
    if (reinterpret_cast<uintptr_t>(*stream) > 2) {
        key = mix(3, reinterpret_cast<uintptr_t>(*stream));
    } else {
        bool per_thread = *stream == CU_STREAM_PER_THREAD || (!*stream && per_thread_default);
        *stream = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
        key = mix(mix(4, reinterpret_cast<uintptr_t>(context)), per_thread ? thread_number() : 0);
    }
    struct Last {
        uint64_t key;
        RecordedStream* stream;
        uint32_t epoch;
    };
    thread_local Last last{};
    uint32_t now = epoch.load(std::memory_order_relaxed);
    if (last.epoch == now && last.key == key) return last.stream;
    auto [entry, is_new] = streams_.find_or_enter(key);
    if (is_new) {
        CUdevice device = 0;
        if (driver.cuCtxGetDevice(&device) != CUDA_SUCCESS || device < 0 || device >= static_cast<int>(kGpus))
            device = 0;
        note_gpu(device);
        entry->gpu = device;
        entry->ready.store(1, std::memory_order_release);
    }
    if (entry) last = {key, entry, now};
    return entry;
}

void Recorder::note_gpu(CUdevice device) {
    RecordedGpu& gpu = gpus_[device];
    uint32_t unknown = 0;
    if (!gpu.state.compare_exchange_strong(unknown, 1)) {
        // Whoever was first is about to have it.
        while (gpu.state.load(std::memory_order_acquire) != 2) sched_yield();
        return;
    }
    CUuuid uuid;
    size_t bytes = 0;
    if (recorder_calls.cuDeviceGetName) recorder_calls.cuDeviceGetName(gpu.name, sizeof gpu.name - 1, device);
    if (recorder_calls.cuDeviceGetAttribute)
        recorder_calls.cuDeviceGetAttribute(&gpu.sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    if (recorder_calls.cuDeviceTotalMem_v2 && recorder_calls.cuDeviceTotalMem_v2(&bytes, device) == CUDA_SUCCESS)
        gpu.memory_bytes = bytes;
    if (driver.cuDeviceGetUuid_v2(&uuid, device) == CUDA_SUCCESS) memcpy(gpu.uuid, uuid.bytes, sizeof gpu.uuid);
    gpu.state.store(2, std::memory_order_release);
}

RecordedShape* Recorder::shape_of(const Described& described, bool* is_new) {
    Shape key = 0;
    if (described.kind == TraceKind::kernel)
        key = mix(kernel_shape(described.what, described.grid, described.block, described.shared_bytes),
                  functions_generation_.load(std::memory_order_relaxed));
    else if (described.kind == TraceKind::graph)
        key = graph_key(described.what);
    else
        key = mix(mix(5, rounded(described.bytes)),
                  static_cast<uint64_t>(described.kind) << 8 | static_cast<uint64_t>(described.direction));
    auto [entry, entered] = shapes_.find_or_enter(key);
    *is_new = entered;
    return entry ? entry : &overflow_[static_cast<int>(described.kind)];
}

unsigned int Recorder::sms_filled(uint64_t blocks, unsigned int blocks_per_sm, int gpu) const {
    auto all = static_cast<uint64_t>(gpus_[gpu].sms);
    if (!blocks || !blocks_per_sm || !all) return 0;
    return static_cast<unsigned int>(std::min(all, (blocks + blocks_per_sm - 1) / blocks_per_sm));
}

void Recorder::describe(RecordedShape& shape, const Described& described, int gpu, bool exists) {
    shape.kind = described.kind;
    shape.direction = described.direction;
    shape.bytes = rounded(described.bytes);
    if (described.kind == TraceKind::kernel && exists) {
        memcpy(shape.grid, described.grid, sizeof shape.grid);
        memcpy(shape.block, described.block, sizeof shape.block);
        shape.shared_bytes = described.shared_bytes;
        shape.blocks_per_sm = occupancy(described.what, described.block, described.shared_bytes);
        shape.sms = sms_filled(block_count(described.grid), shape.blocks_per_sm, gpu);
        const char* name = function_name(described.what);
        auto length = static_cast<uint32_t>(strnlen(name, kLongestName));
        uint32_t at = name_bytes_used_.fetch_add(length);
        if (at + length <= kNameBytes) {
            memcpy(name_bytes_ + at, name, length);
            shape.name = name_bytes_ + at;
            shape.name_length = length;
        } else {
            name_bytes_used_.fetch_sub(length);
        }
    }
    shape.ready.store(1, std::memory_order_release);
}

void Recorder::saw_graph(CUgraphExec exec, CUgraph graph) {
    shapes_.retire(graph_key(exec));  // an earlier graph's exec may have had the same address
    auto [shape, is_new] = shapes_.find_or_enter(graph_key(exec));
    if (!is_new) return;
    CUdevice device = 0;
    if (driver.cuCtxGetDevice(&device) != CUDA_SUCCESS || device < 0 || device >= static_cast<int>(kGpus)) device = 0;
    note_gpu(device);
    shape->kind = TraceKind::graph;
    size_t count = 0;
    if (driver.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) count = 0;
    shape->nodes = static_cast<unsigned int>(count);
    auto* nodes = static_cast<CUgraphNode*>(calloc(count ? count : 1, sizeof(CUgraphNode)));
    uint64_t filled = 0, kernels = 0;
    if (nodes && count && driver.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count && i < kMostNodesLookedAt; ++i) {
            CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
            CUDA_KERNEL_NODE_PARAMS kernel{};
            if (driver.cuGraphNodeGetType(nodes[i], &type) != CUDA_SUCCESS || type != CU_GRAPH_NODE_TYPE_KERNEL ||
                driver.cuGraphKernelNodeGetParams_v2(nodes[i], &kernel) != CUDA_SUCCESS)
                continue;
            const void* function = kernel.func ? static_cast<const void*>(kernel.func) : kernel.kern;
            unsigned int per_sm =
                occupancy(function, {kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ}, kernel.sharedMemBytes);
            unsigned int sms =
                sms_filled(block_count({kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ}), per_sm, device);
            filled += sms;
            kernels += sms != 0;
        }
    free(nodes);
    if (kernels) shape->sms = static_cast<unsigned int>((filled + kernels / 2) / kernels);
    shape->ready.store(1, std::memory_order_release);
}

void Recorder::saw_allocation(uint64_t address, uint64_t bytes) {
    pthread_mutex_lock(&sizes_lock_);
    sizes_.enter(address, bytes);
    pthread_mutex_unlock(&sizes_lock_);
}

uint64_t Recorder::take_allocation(uint64_t address) {
    pthread_mutex_lock(&sizes_lock_);
    uint64_t bytes = sizes_.take(address);
    pthread_mutex_unlock(&sizes_lock_);
    return bytes;
}

RecordedCall::RecordedCall(const Described& described, CUstream stream, bool per_thread_default)
    : recorder_(Recorder::current()), described_(described), handle_(stream) {
    if (!recorder_) return;
    CUcontext context = nullptr;
    if (driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context ||
        !(stream_ = recorder_->stream_of(&handle_, per_thread_default, context)) ||
        (described.is_in_stream && is_recorded_into_graph(handle_))) {
        recorder_ = nullptr;
        return;
    }
    if (described.kind < TraceKind::wait) {
        shape_ = recorder_->shape_of(described, &is_new_shape_);
        uint32_t before = shape_->operations.fetch_add(1, std::memory_order_relaxed);
        is_first_ = before == 0;
        if (OpTimer::wants(before)) sample_ = recorder_->timer.begin(shape_, context, handle_);
    }
    begun_ns_ = wire::now_ns();
}

void RecordedCall::note(bool succeeded) {
    uint64_t now = wire::now_ns();
    // A copy of pageable memory takes the host along, whatever its name says.
    bool is_queued = !described_.blocks && (described_.kind != TraceKind::copy || now - begun_ns_ < kWaitedNs);
    if (sample_) OpTimer::end(sample_, handle_, succeeded, is_first_, is_queued);
    if (is_new_shape_) recorder_->describe(*shape_, described_, stream_->gpu, succeeded);
    if (!succeeded) return;
    uint64_t length = now > begun_ns_ ? now - begun_ns_ : 1;
    bool waited = described_.blocks || described_.kind == TraceKind::wait || length >= kWaitedNs;
    recorder_->put({now, waited ? length : 0, described_.bytes, shape_, stream_, thread_number(), described_.kind,
                    described_.direction});
}

EndingContext::EndingContext(CUcontext context) : recorder_(Recorder::current_if_on()) {
    if (!recorder_) return;
    recorder_->lock_events();
    recorder_->timer.forget_context(context);
}

EndingContext::EndingContext(CUdevice device) : recorder_(Recorder::current_if_on()), device_(device) {
    if (recorder_) recorder_->lock_events();
}

EndingContext::~EndingContext() {
    if (!recorder_) return;
    unsigned int flags = 0;
    int active = 0;
    if (device_ >= 0 && (driver.cuDevicePrimaryCtxGetState(device_, &flags, &active) != CUDA_SUCCESS || !active))
        recorder_->timer.forget_all();
    recorder_->unlock_events();
}

Direction direction_between(CUdeviceptr to, CUdeviceptr from) {
    if (!recorder_calls.cuPointerGetAttribute) return Direction::unknown;
    auto is_on_device = [](CUdeviceptr address) {
        CUmemorytype type = CU_MEMORYTYPE_HOST;
        return recorder_calls.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
               type == CU_MEMORYTYPE_DEVICE;
    };
    bool to_device = is_on_device(to);
    if (is_on_device(from)) return to_device ? Direction::on_device : Direction::to_host;
    return to_device ? Direction::to_device : Direction::on_host;
}

}  // namespace tenant

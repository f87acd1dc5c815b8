#include "wire/attached.h"

#include <sys/mman.h>
#include <unistd.h>

namespace wire {

Segment* reserve_segment() {
    void* at = mmap(nullptr, mapped_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    auto* segment = static_cast<Segment*>(at);
    attached(*segment).own = -1;
    attached(*segment).process.store(getpid());
    pthread_mutex_init(&attached(*segment).lock, nullptr);
    return segment;
}

}  // namespace wire

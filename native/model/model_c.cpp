// The device model behind a flat C interface, for Python (ctypes): tests and the simulator. Nothing is thrown across
// it; a wrong id is ignored, or answered with the value said below.
#include <cstdio>
#include <exception>
#include <new>

#include "model/device_model.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

struct Handle {
    explicit Handle(const model::DeviceSpec& spec) : device(spec) {}
    model::DeviceModel device;
    std::vector<model::Notice> notices;
};

}  // namespace

extern "C" {

struct CotenantDevice {
    int32_t sms;
    int32_t all_at_once;
    double memory_gbps, bus_gbps;
    double slice_us, switch_us, launch_us;
};

struct CotenantWork {
    int32_t kind;  // as in model::WorkKind
    int32_t sms;
    double time_us, gbps;
    uint64_t bytes;
};

struct CotenantNotice {
    uint64_t tag, op;
    double start_us, end_us;
    uint32_t queue;
    uint32_t reached;  // 1: a hold is at the head of its queue; 0: the operation is done
};
}

constexpr uint32_t no_id = UINT32_MAX;

// Fills *device from a device file; 0, or -1 with a line in `why`.
EXPORT int cotenant_model_read_device(const char* path, CotenantDevice* device, char* why, size_t why_bytes) {
    try {
        model::DeviceSpec spec = model::read_device_file(path);
        *device = {spec.sms,      spec.all_at_once, spec.memory_gbps, spec.bus_gbps,
                   spec.slice_us, spec.switch_us,   spec.launch_us};
        return 0;
    } catch (const std::exception& error) {
        std::snprintf(why, why_bytes, "%s", error.what());
        return -1;
    }
}

// Null when there is no memory for it.
EXPORT Handle* cotenant_model_new(const CotenantDevice* device) {
    try {
        model::DeviceSpec spec;
        spec.sms = device->sms;
        spec.all_at_once = device->all_at_once != 0;
        spec.memory_gbps = device->memory_gbps;
        spec.bus_gbps = device->bus_gbps;
        spec.slice_us = device->slice_us;
        spec.switch_us = device->switch_us;
        spec.launch_us = device->launch_us;
        return new Handle(spec);
    } catch (const std::exception&) {
        return nullptr;
    }
}

EXPORT void cotenant_model_delete(Handle* handle) { delete handle; }

EXPORT uint32_t cotenant_model_open_context(Handle* handle) {
    try {
        return handle->device.open_context();
    } catch (const std::bad_alloc&) {
        return no_id;
    }
}

EXPORT void cotenant_model_cancel_context(Handle* handle, uint32_t context) {
    try {
        if (handle->device.valid_context(context)) handle->device.cancel_context(context);
    } catch (const std::bad_alloc&) {
    }
}

EXPORT void cotenant_model_set_slice(Handle* handle, uint32_t context, double us) {
    if (handle->device.valid_context(context)) handle->device.set_slice(context, us);
}

// UINT32_MAX: no such context.
EXPORT uint32_t cotenant_model_open_queue(Handle* handle, uint32_t context, int priority) {
    try {
        return handle->device.valid_context(context) ? handle->device.open_queue(context, priority) : no_id;
    } catch (const std::bad_alloc&) {
        return no_id;
    }
}

EXPORT void cotenant_model_close_queue(Handle* handle, uint32_t queue) {
    if (handle->device.valid_queue(queue)) handle->device.close_queue(queue);
}

// 0: no such queue or kind.
EXPORT uint64_t cotenant_model_submit(Handle* handle, uint32_t queue, const CotenantWork* work, const uint64_t* after,
                                      size_t after_count, uint64_t tag) {
    try {
        if (!handle->device.valid_queue(queue)) return 0;
        if (work->kind < 0 || work->kind > static_cast<int>(model::WorkKind::hold)) return 0;
        model::Work asked{static_cast<model::WorkKind>(work->kind), work->time_us, work->sms, work->gbps, work->bytes};
        return handle->device.submit(queue, asked, after, after_count, tag);
    } catch (const std::bad_alloc&) {
        return 0;
    }
}

EXPORT void cotenant_model_release(Handle* handle, uint64_t op) {
    try {
        handle->device.release(op);
    } catch (const std::bad_alloc&) {
    }
}

EXPORT double cotenant_model_now(Handle* handle) { return handle->device.now(); }

EXPORT double cotenant_model_earliest_end(Handle* handle, uint64_t op) { return handle->device.earliest_end(op); }

// Infinity: nothing happens by itself.
EXPORT double cotenant_model_next_event(Handle* handle) {
    try {
        return handle->device.next_event();
    } catch (const std::bad_alloc&) {
        return model::never;
    }
}

// How many notices cotenant_model_notice() then has, until the next call.
EXPORT size_t cotenant_model_advance(Handle* handle, double to) {
    handle->notices.clear();
    try {
        handle->device.advance(to, handle->notices);
    } catch (const std::bad_alloc&) {
    }
    return handle->notices.size();
}

EXPORT void cotenant_model_notice(Handle* handle, size_t index, CotenantNotice* out) {
    if (index >= handle->notices.size()) return;
    const model::Notice& notice = handle->notices[index];
    *out = {notice.tag,    notice.op,    notice.start_us,
            notice.end_us, notice.queue, notice.kind == model::NoticeKind::reached};
}

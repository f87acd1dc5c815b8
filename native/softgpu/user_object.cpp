#include "softgpu/user_object.h"

#include <climits>

#include "softgpu/graph.h"

namespace softgpu {
namespace {

struct UserObject {
    void* pointer = nullptr;
    CUhostFn destroy = nullptr;
    std::mutex mutex;
    unsigned references = 0;
};

Registry<UserObject, CUuserObject>& user_objects() {
    static auto& registry = *new Registry<UserObject, CUuserObject>(11);
    return registry;
}

CUresult create(CUuserObject* out, void* pointer, CUhostFn destroy, unsigned references, unsigned flags) {
    if (!out || !destroy || references == 0 || references > INT_MAX) return CUDA_ERROR_INVALID_VALUE;
    if (flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) return CUDA_ERROR_INVALID_VALUE;
    auto object = std::make_shared<UserObject>();
    object->pointer = pointer;
    object->destroy = destroy;
    object->references = references;
    *out = user_objects().issue();
    user_objects().put(*out, std::move(object));
    return CUDA_SUCCESS;
}

CUresult keep(CUgraph handle, CUuserObject object, unsigned count, unsigned flags) {
    if (flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)) return CUDA_ERROR_INVALID_VALUE;
    if (count == 0 || count > INT_MAX || !user_objects().find(object)) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard<std::mutex> lock(graph_lock());
    const GraphRef graph = graph_from(handle);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    if (!(flags & CU_GRAPH_USER_OBJECT_MOVE)) TRY(retain_user_object(object, count));
    graph->kept[object] += count;
    return CUDA_SUCCESS;
}

CUresult let_go(CUgraph handle, CUuserObject object, unsigned count) {
    if (count == 0 || count > INT_MAX) return CUDA_ERROR_INVALID_VALUE;
    {
        const std::lock_guard<std::mutex> lock(graph_lock());
        const GraphRef graph = graph_from(handle);
        if (!graph) return CUDA_ERROR_INVALID_VALUE;
        const auto found = graph->kept.find(object);
        if (found == graph->kept.end() || found->second < count) return CUDA_ERROR_INVALID_VALUE;
        found->second -= count;
        if (found->second == 0) graph->kept.erase(found);
    }
    return release_user_object(object, count);
}

}  // namespace

CUresult retain_user_object(CUuserObject handle, unsigned count) {
    const auto object = user_objects().find(handle);
    if (!object || count == 0 || count > INT_MAX) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard<std::mutex> lock(object->mutex);
    object->references += count;
    return CUDA_SUCCESS;
}

CUresult release_user_object(CUuserObject handle, unsigned count) {
    const auto object = user_objects().find(handle);
    if (!object || count == 0) return CUDA_ERROR_INVALID_VALUE;
    {
        const std::lock_guard<std::mutex> lock(object->mutex);
        if (object->references < count) return CUDA_ERROR_INVALID_VALUE;
        object->references -= count;
        if (object->references > 0) return CUDA_SUCCESS;
    }
    user_objects().remove(handle);
    object->destroy(object->pointer);
    return CUDA_SUCCESS;
}

}  // namespace softgpu

using namespace softgpu;

DRIVER_API cuUserObjectCreate(CUuserObject* object, void* pointer, CUhostFn destroy, unsigned int references,
                              unsigned int flags) {
    return entry([&] { return create(object, pointer, destroy, references, flags); });
}
DRIVER_API cuUserObjectRetain(CUuserObject object, unsigned int count) {
    return entry([&] { return retain_user_object(object, count); });
}
DRIVER_API cuUserObjectRelease(CUuserObject object, unsigned int count) {
    return entry([&] { return release_user_object(object, count); });
}
DRIVER_API cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags) {
    return entry([&] { return keep(graph, object, count, flags); });
}
DRIVER_API cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
    return entry([&] { return let_go(graph, object, count); });
}

// User objects: a caller's resource, counted, that graphs keep alive.
#pragma once

#include <map>

#include "softgpu/entry.h"

namespace softgpu {

CUresult retain_user_object(CUuserObject object, unsigned count);
// The caller's destructor runs with the last reference, on this thread: never call this under a lock.
CUresult release_user_object(CUuserObject object, unsigned count);

}  // namespace softgpu

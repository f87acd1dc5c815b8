#include "tenant/class_name.h"

#include <cstdlib>
#include <cstring>

namespace tenant {

wire::Class class_from_environment() {
    const char* text = getenv("COTENANT_CLASS");
    for (uint32_t i = 0; text && i < wire::kClasses; ++i)
        if (!strcmp(text, kClassNames[i])) return static_cast<wire::Class>(i);
    return wire::standard;
}

}  // namespace tenant

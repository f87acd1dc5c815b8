#include "tenant/notice.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "tenant/quiet_write.h"

namespace tenant {

void notice_once(const char* format, ...) {
    static std::atomic_flag said = ATOMIC_FLAG_INIT;
    if (said.test_and_set()) return;
    int saved = errno;
    char line[512];
    int used = snprintf(line, sizeof line, "cotenant: ");
    va_list arguments;
    va_start(arguments, format);
    int body = vsnprintf(line + used, sizeof line - used, format, arguments);
    va_end(arguments);
    if (body > 0) used += body;
    constexpr char kEnd[] = "; running without sharing\n";
    if (used > static_cast<int>(sizeof line - sizeof kEnd)) used = sizeof line - sizeof kEnd;
    used += snprintf(line + used, sizeof line - used, "%s", kEnd);
    quiet_write(STDERR_FILENO, line, static_cast<size_t>(used));
    errno = saved;
}

}  // namespace tenant

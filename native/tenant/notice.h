// The only way in which the interposer speaks inside a guest: one line on stderr, once a process.
#pragma once

namespace tenant {

__attribute__((format(printf, 1, 2))) void notice_once(const char* format, ...);

}  // namespace tenant

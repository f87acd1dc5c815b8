// What an administrator says about this tenant in a file that the tenant cannot change: a node agent mounts it into a
// container. Where there is such a file, it alone counts: the environment is the tenant's own, and a shell, `env -i` or
// an SSH server may have emptied it.
//
//   /etc/cotenant/identity    lines NAME=VALUE, with the names of the environment (settings.h)
//
// A file that its group or everybody may write is none. It is read once, at the first use of any setting.
#pragma once

namespace tenant {

bool has_identity_file();

// The value of COTENANT_... from the identity file or, where there is none, from the environment, as it was
// at the start where the program has emptied it; null: not set.
const char* setting(const char* name);

}  // namespace tenant

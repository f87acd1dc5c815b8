// The line about this tenant that the process adds at its end to the file that COTENANT_REPORT names.
#pragma once

#include "tenant/terms.h"

namespace tenant {

void write_report(const wire::Slot& slot, const Terms& terms);

}  // namespace tenant

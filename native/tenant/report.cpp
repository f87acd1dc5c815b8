#include "tenant/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tenant/quiet_write.h"
#include "tenant/settings.h"

namespace tenant {

void write_report(const wire::Slot& slot, const Terms& terms) {
    const char* path = getenv("COTENANT_REPORT");
    if (!path || !*path) return;
    uint64_t sums[sizeof(wire::Figures) / sizeof(wire::Count)] = {};
    for (const wire::OnGpu& gpu : slot.gpus) {
        auto* figures = reinterpret_cast<const wire::Count*>(&gpu.figures);
        for (size_t i = 0; i < sizeof sums / sizeof *sums; ++i) sums[i] += figures[i].load();
    }
    char program[sizeof terms.name];
    memcpy(program, terms.name, sizeof program);
    for (char& c : program)
        if (c == '"' || c == '\\' || (c > 0 && c < ' ')) c = '_';
    char line[1024];
    int used = snprintf(line, sizeof line,
                        "{\"pid\": %u, \"class\": \"%s\", \"program\": \"%s\", \"kernels\": %lu, \"graphs\": %lu, "
                        "\"copies\": %lu, \"memory_ops\": %lu, \"host_calls\": %lu, \"gates\": %lu, \"escaped\": %lu, "
                        "\"bursts\": %lu, \"unknown_functions\": %lu, \"export_tables\": %lu, "
                        "\"ungated_graphs\": %lu, \"checkpoints\": %lu}\n",
                        static_cast<unsigned>(getpid()), kClassNames[terms.tenant_class], program, sums[0], sums[1],
                        sums[2], sums[3], sums[4], sums[5], sums[6], sums[7], slot.unknown_functions.load(),
                        slot.export_tables.load(), slot.ungated_graphs.load(), slot.checkpoints.load());
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return;
    quiet_write(fd, line, std::min<size_t>(used, sizeof line - 1));
    close(fd);
}

}  // namespace tenant

#include "tenant/settings.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tenant/amounts.h"
#include "tenant/identity_file.h"
#include "wire/shared_segment.h"

namespace tenant {

wire::Class class_from_environment() {
    const char* text = setting("COTENANT_CLASS");
    for (uint32_t i = 0; text && i < wire::kClasses; ++i)
        if (!strcmp(text, kClassNames[i])) return static_cast<wire::Class>(i);
    return wire::standard;
}

uint32_t thousandths_from_environment(const char* name, uint32_t otherwise) {
    const char* text = setting(name);
    if (!text || !*text) return otherwise;
    const char* end = text;
    double value = parse_number(text, &end);
    value *= *end == '%' ? 10 : 1000;
    // Written so that what is no number counts as nothing said.
    return end != text && value >= 0 && value <= 1e6 ? static_cast<uint32_t>(value + 0.5) : otherwise;
}

float cut_cost_from_environment() {
    const char* text = getenv("COTENANT_CUT_COST");
    if (!text || !*text) return -1;
    const char* end = text;
    double us = parse_number(text, &end);
    return end != text && us >= 0 && us <= 1e6 ? static_cast<float>(us) : -1;
}

bool hold_from_environment() {
    const char* text = getenv("COTENANT_HOLD");
    return !text || strcmp(text, "0") != 0;
}

const char* segment_from_environment() {
    const char* path = setting("COTENANT_SEGMENT");
    return path && *path ? path : wire::default_shared_segment();
}

void run_id_from_environment(uint8_t out[16]) {
    const char* text = setting("COTENANT_RUN_ID");
    if (!text || strlen(text) != 32) return;
    for (int i = 0; i < 16; ++i) {
        unsigned int byte = 0;
        if (sscanf(text + 2 * i, "%2x", &byte) == 1) out[i] = static_cast<uint8_t>(byte);
    }
}

void job_from_environment(char* out, size_t room) {
    const char* text = setting("COTENANT_NAME");
    snprintf(out, room, "%s", text ? text : "");
}

}  // namespace tenant

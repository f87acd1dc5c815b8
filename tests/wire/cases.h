// The `main` of a program of cases, each on a segment: PROGRAM SEGMENT CASE.
#pragma once

#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include "wire/segment.h"

namespace {

using Cases = std::map<std::string, std::function<void(wire::Segment&)>>;

// A case that is not there has not succeeded.
int run_case(int argc, char** argv, const Cases& cases) {
    if (argc < 3 || !cases.count(argv[2])) {
        fprintf(stderr, "no such case\n");
        return 2;
    }
    std::string why;
    wire::Segment* segment = wire::create_or_open_segment(argv[1], &why);
    if (!segment) {
        fprintf(stderr, "%s\n", why.c_str());
        return 1;
    }
    cases.at(argv[2])(*segment);
    return 0;
}

}  // namespace

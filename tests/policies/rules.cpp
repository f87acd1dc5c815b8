// rules decide|preempt RULE [FIELD=VALUE]...: what a modelled rule says of a moment; fields not named are zero.
#include "admission/rules.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>

namespace {

using Set = std::function<void(double)>;

template <typename T>
Set into(T& field) {
    return [&field](double value) { field = static_cast<T>(value); };
}

void name_operation(std::map<std::string, Set>& fields, const std::string& of, admission::Operation& operation) {
    fields[of + "kind"] = [&](double value) { operation.kind = static_cast<admission::Kind>(value); };
    fields[of + "bound"] = [&](double value) { operation.bound = static_cast<admission::Bound>(value); };
    fields[of + "begins_request"] = into(operation.begins_request);
    fields[of + "us"] = into(operation.us);
    fields[of + "sms"] = into(operation.sms);
    fields[of + "gbps"] = into(operation.gbps);
}

void name_side(std::map<std::string, Set>& fields, const std::string& of, admission::Side& side) {
    fields[of + "running"] = into(side.running);
    fields[of + "copies"] = into(side.copies);
    fields[of + "with_work"] = into(side.with_work);
    fields[of + "sms"] = into(side.sms);
    fields[of + "left_us"] = into(side.left_us);
    fields[of + "outstanding_us"] = into(side.outstanding_us);
    fields[of + "bound"] = [&](double value) { side.bound = static_cast<admission::Bound>(value); };
}

const char* kVerdicts[] = {"go", "gate", "wait"};
const char* kPreemptions[] = {"let_run", "drain", "cut", "kill"};

}  // namespace

int main(int argc, char** argv) {
    admission::Moment moment;
    admission::Running running;
    float parameters[admission::kParameters] = {};
    std::map<std::string, Set> fields{
        {"number", into(moment.tenant.number)},
        {"tenant_class", into(moment.tenant.tenant_class)},
        {"remaining_us", into(moment.tenant.remaining_us)},
        {"lane_is_taken", into(moment.tenant.lane_is_taken)},
        {"lane_next", into(moment.tenant.lane_next)},
        {"gpu.sms", into(moment.gpu.sms)},
        {"gpu.free_sms", into(moment.gpu.free_sms)},
        {"gpu.memory_gbps", into(moment.gpu.memory_gbps)},
        {"gpu.squeezed", into(moment.gpu.squeezed)},
        {"gpu.cut_us", into(moment.gpu.cut_us)},
        {"gpu.lowest_rank_waiting", into(moment.gpu.lowest_rank_waiting)},
        {"gpu.least_left_waiting", into(moment.gpu.least_left_waiting)},
        {"gpu.lowest_rank_tenant", into(moment.gpu.lowest_rank_tenant)},
        {"gpu.least_left_tenant", into(moment.gpu.least_left_tenant)},
        {"running.left_us", into(running.left_us)},
    };
    name_operation(fields, "", moment.operation);
    name_operation(fields, "running.", running.operation);
    name_side(fields, "production.", moment.gpu.production);
    name_side(fields, "below.", moment.gpu.below);
    for (int i = 0; i < admission::kParameters; ++i) fields["p" + std::to_string(i)] = into(parameters[i]);

    if (argc < 3) return 2;
    for (int i = 3; i < argc; ++i) {
        std::string word = argv[i];
        size_t equals = word.find('=');
        auto field = fields.find(word.substr(0, equals));
        if (equals == std::string::npos || field == fields.end()) return fprintf(stderr, "no field %s\n", argv[i]), 2;
        field->second(strtod(word.c_str() + equals + 1, nullptr));
    }
    auto rule = static_cast<uint32_t>(atoi(argv[2]));
    if (strcmp(argv[1], "preempt") == 0)
        puts(kPreemptions[static_cast<int>(admission::preempt(rule, moment, running, parameters))]);
    else
        puts(kVerdicts[static_cast<int>(admission::decide(rule, moment, parameters))]);
    return 0;
}

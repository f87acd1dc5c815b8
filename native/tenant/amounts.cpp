#include "tenant/amounts.h"

#include <locale.h>

#include <cstdlib>
#include <cstring>

namespace tenant {

namespace {

// The number at the beginning: digits, perhaps with a point, and perhaps a space behind. Negative: none is there.
double number_before_unit(const char* text, const char** unit) {
    text += strspn(text, " \t\n\v\f\r");
    const char* end = text;
    double number = parse_number(text, &end);
    // What is more than digits (a sign, an exponent, "inf") is no amount.
    if (end == text || end != text + strspn(text, "0123456789.")) return -1;
    *unit = end + (*end == ' ');
    return number;
}

bool is_over(const char* text) { return text[strspn(text, " \t\n\v\f\r")] == 0; }

bool is_letter(char c, char upper) { return c == upper || c == upper + ('a' - 'A'); }

// Behind what it has read; 1: there was none.
double parse_unit(const char** text) {
    constexpr char kPowers[] = "KMGT";
    double scale = 1;
    for (const char* power = kPowers; *power; ++power) {
        scale *= 1024;
        if (!is_letter(**text, *power)) continue;
        const char* behind = *text + 1;
        if (is_letter(behind[0], 'I') && is_letter(behind[1], 'B'))
            behind += 2;
        else if (is_letter(behind[0], 'B'))
            behind += 1;
        *text = behind;
        return scale;
    }
    if (is_letter(**text, 'B')) ++*text;
    return 1;
}

}  // namespace

double parse_number(const char* text, const char** end) {
    // Of the library's own: nothing is allocated for it.
    locale_t with_point = newlocale(LC_ALL_MASK, "C", nullptr);
    char* behind = const_cast<char*>(text);
    double number = with_point ? strtod_l(text, &behind, with_point) : strtod(text, &behind);
    if (with_point) freelocale(with_point);
    *end = behind;
    return number;
}

uint64_t parse_size(const char* text) {
    if (!text) return 0;
    const char* unit = nullptr;
    double number = number_before_unit(text, &unit);
    if (number < 0) return 0;
    double bytes = number * parse_unit(&unit);
    return is_over(unit) && bytes < 0x1p63 ? static_cast<uint64_t>(bytes) : 0;
}

uint64_t parse_share(const char* text) {
    if (!text) return 0;
    const char* unit = nullptr;
    double number = number_before_unit(text, &unit);
    if (number < 0 || *unit != '%' || !is_over(unit + 1)) return 0;
    double millionths = number * 10000 + 0.5;
    return millionths < 1000001 ? static_cast<uint64_t>(millionths) : 0;
}

}  // namespace tenant

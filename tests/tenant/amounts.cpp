// For each line of stdin what it is as a size and as a share. In the locale that the environment names.
#include "tenant/amounts.h"

#include <locale.h>

#include <cstdio>
#include <iostream>
#include <string>

int main() {
    setlocale(LC_ALL, "");
    for (std::string line; std::getline(std::cin, line);) {
        unsigned long long size = tenant::parse_size(line.c_str()), share = tenant::parse_share(line.c_str());
        printf("%s %llu %llu\n", localeconv()->decimal_point, size, share);
        fflush(stdout);
    }
}

// identity_file NAME...: the value of each setting, on a line of its own; "-": it is not set.
#include "tenant/identity_file.h"

#include <cstdio>

int main(int, char** words) {
    while (const char* name = *++words) {
        const char* value = tenant::setting(name);
        puts(value ? value : "-");
    }
    return 0;
}

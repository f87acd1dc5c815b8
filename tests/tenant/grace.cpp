// grace PAUSE...: the grace after these pauses, repeated 200 times (microseconds; 300 while too little is known).
#include <cstdio>
#include <cstdlib>

#include "tenant/grace.h"

int main(int argc, char** argv) {
    tenant::Grace grace;
    for (int round = 0; round < 200; ++round)
        for (int i = 1; i < argc; ++i) grace.saw_pause(strtof(argv[i], nullptr));
    printf("%.0f\n", grace.us(300));
    return 0;
}

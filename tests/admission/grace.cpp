// grace PAUSE... [then PAUSE...]: the grace after these pauses, repeated 200 times, and after others that followed
// (microseconds; 300 while too little is known).
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "admission/grace.h"

int main(int argc, char** argv) {
    admission::Grace grace;
    for (int first = 1, end; first < argc; first = end + 1) {
        for (end = first; end < argc && strcmp(argv[end], "then") != 0;) ++end;
        for (int round = 0; round < 200; ++round)
            for (int i = first; i < end; ++i) grace.saw_pause(strtof(argv[i], nullptr));
    }
    printf("%.0f\n", grace.us(300));
    return 0;
}

// grace WORK PAUSE... [then PAUSE...]: the grace after these pauses, repeated 200 times, and after others that
// followed, with so much work between any two (microseconds; 300 while too little is known).
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "admission/grace.h"

int main(int argc, char** argv) {
    if (argc < 2) return 2;
    admission::Grace grace;
    double now = 1e12, work = atof(argv[1]);
    for (int first = 2, end; first < argc; first = end + 1) {
        for (end = first; end < argc && strcmp(argv[end], "then") != 0;) ++end;
        for (int round = 0; round < 200; ++round)
            for (int i = first; i < end; ++i) {
                double since = now + work;
                now = since + atof(argv[i]);
                grace.saw_pause(since, now);
            }
    }
    printf("%.0f\n", grace.us(300));
    return 0;
}

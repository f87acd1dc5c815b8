// A pause by hand, as the person at the program's terminal sees it: a line on stderr, and Ctrl-C.
//
// A program that waits at the move barrier is inside a CUDA call and cannot act on SIGINT: Python's handler only leaves
// a note for the interpreter. So during a pause SIGINT goes through a handler of ours to the program's own, and the
// mover ends the pause: when the memory is restored the call returns, and the program does what it does on SIGINT.
#pragma once

namespace tenant {

namespace pause_notice {

// The mover's alone.
void begin();
void end();
bool is_interrupted();  // by SIGINT, since it began

}  // namespace pause_notice

}  // namespace tenant

/* A driver whose launches do nothing and whose streams are never done: what a launch costs is the interposer's, and a
   tenant that launched once stays busy, however slowly it is stepped. All else is the software GPU's: this library is
   linked with it, and a look-up in this one goes on to that one. */
int cuLaunchKernel(void) { return 0; }

int cuStreamQuery(void) {
    enum { CUDA_ERROR_NOT_READY = 600 };
    return CUDA_ERROR_NOT_READY;
}

#include "base/base.h"

#include <time.h>

#if defined(__EMSCRIPTEN__) || defined(PLUMB_HOST_CLOCK)
/* Emscripten's libc has no clock without Emscripten's JavaScript.  web/engine/engine.js provides one, in
 * milliseconds, also to the modules with 64-bit addresses. */
__attribute__((import_module("env"), import_name("plumb_now"))) double host_now(void);

double clock_seconds(void) { return host_now() * 1e-3; }
#else
double clock_seconds(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
#endif

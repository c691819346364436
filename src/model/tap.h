/* Where a pass hands its activations to; see plumb_tap. */
#ifndef PLUMB_MODEL_TAP_H
#define PLUMB_MODEL_TAP_H

#include "base/base.h"

struct tap_sink {
    void (*on_tap)(void *user, const plumb_tap *tap);   /* NULL: off */
    void *user;
};

#endif

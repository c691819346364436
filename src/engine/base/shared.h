/* Memory that several owners have, and that goes with the last of them.  Only one thread at a time may use it. */
#ifndef PLUMB_BASE_SHARED_H
#define PLUMB_BASE_SHARED_H

#include "base/base.h"

struct shared {
    uint32_t n_owner;
    uint32_t unused[3];   /* so that bytes are aligned as those of malloc are */
    uint8_t bytes[];
};

/* n bytes with one owner; NULL if out of memory. */
struct shared *shared_create(uint64_t n);
/* Makes *at NULL, which was an owner unless it is NULL already. */
void shared_leave(struct shared **at);

#endif

/* Copies of the states of recurrent layers, each after some number of tokens.  A state has no parts that belong to
 * single tokens, so going back means to begin with a copy, and to compute the tokens behind it again.  Sequences that
 * begin with the same tokens may share copies, which nobody changes. */
#ifndef PLUMB_FORWARD_SNAPSHOTS_H
#define PLUMB_FORWARD_SNAPSHOTS_H

#include "base/shared.h"

/* SNAPSHOTS_MAX: copies that are kept by default, if they fit into SNAPSHOTS_BYTES.  SNAPSHOTS_EVERY: tokens between
 * two of them while tokens come one by one. */
enum { SNAPSHOTS_MAX = 16, SNAPSHOTS_BYTES = 64 << 20, SNAPSHOTS_EVERY = 64 };

struct snapshots {
    uint64_t size;                 /* elements of the states of all layers */
    uint32_t max;                  /* copies that are kept: snapshots_max(size) */
    uint32_t n, at[PLUMB_MAX_SNAPSHOTS]; /* after how many tokens, ascending */
    struct shared *copies[PLUMB_MAX_SNAPSHOTS];   /* n copies, then memory for others; NULL: not allocated */
};

/* The values of copy i. */
static inline float *snapshots_values(const struct snapshots *s, uint32_t i) {
    return (float *)(void *)s->copies[i]->bytes;
}

/* Returns how many copies of `size` elements are kept: at least 2, and none of 0.  wanted: how many the caller asks
 * for; 0: as many as fit. */
uint32_t snapshots_max(uint64_t size, uint32_t wanted);
/* Makes an empty list.  size may be 0. */
void snapshots_init(struct snapshots *s, uint64_t size, uint32_t wanted);
/* Allocates room for all copies.  Returns false if there is no memory. */
bool snapshots_reserve(struct snapshots *s);
void snapshots_free(struct snapshots *s);
/* Bytes of what is allocated, copies that other lists have too included. */
uint64_t snapshots_held(const struct snapshots *s);
/* Frees the memory for copies that there are not. */
void snapshots_trim(struct snapshots *s);
/* Returns the place for a copy after n tokens, more than any other copy has.  If there is no room, the copy goes that
 * leaves the smallest gap.  NULL: there is no memory, and the list has fewer copies. */
float *snapshots_add(struct snapshots *s, uint32_t n);
/* Returns the most tokens, at most n, after which there is a copy; 0: there is none. */
uint32_t snapshots_before(const struct snapshots *s, uint32_t n);
/* Forgets the copies after more than n tokens, and returns the one after n; NULL: there is none. */
const float *snapshots_back(struct snapshots *s, uint32_t n);
/* Makes `to`, a list for states of the same size, have the copies of `from` after at most n tokens. */
void snapshots_share(struct snapshots *to, const struct snapshots *from, uint32_t n);

#endif

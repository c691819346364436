/* Finds where in a file the values of a tensor come from, if they were not read from the tensor's own place.
 *
 * The values of one block of the wrong tensor are compared with what every byte of the file would give if the tensor's
 * type were read from there.  The f16 scale that such a block has must lie between two bounds, which follow from the
 * differences of the values; most bytes are excluded by that alone.  Where a block fits, the whole tensor is read from
 * there and compared.
 */
#ifndef PLUMB_CHECK_MOVED_H
#define PLUMB_CHECK_MOVED_H

#include "gguf/gguf.h"

struct moved_span;

/* The search in one file.  Places that were found are tried first for the next tensors.  Zero-initialize, then set the
 * fields of the first group. */
struct moved_search {
    struct gguf *const *parts;     /* (n_part), complete */
    size_t n_part;
    void (*on_progress)(void *user, double done);   /* may be NULL; done: 0..1, of one pass over the file */
    void *user;

    struct moved_span *spans;      /* (n_span) the tensors of all parts by their place */
    size_t n_span;
    int64_t shifts[8];             /* differences of places that were found, the newest first */
    uint32_t n_shift;
    uint32_t n_fruitless;          /* passes over the file that found nothing */
    uint64_t n_looked;             /* bytes of the file at which passes looked */
};
void moved_free(struct moved_search *m);

/* A place that has the values. */
struct moved {
    bool is_found;
    size_t part;
    uint64_t byte, own_byte;       /* where the values are, and the tensor's own place, in the file of that part */
    const struct gguf_tensor *in;  /* the tensor in which they begin; NULL: before the data */
    uint64_t in_byte;              /* at which of its bytes */
    uint64_t n_compared, n_equal;  /* rows that were compared, and how many of these are equal */
};

/* Looks for the values of `theirs`.  own: the tensor of the same name and shape in the file that is searched.  theirs
 * must have floats or the type of own; for any other, nothing is found.  PLUMB_ERROR_MEMORY. */
plumb_status moved_find(struct moved_search *m, const struct gguf_tensor *theirs, const struct gguf_tensor *own,
                        struct moved *out, struct error *err);

/* Writes "64 bytes (1 row) before" or the like.  Returns text. */
struct moved_text { char text[160]; };
const char *moved_distance(struct moved_text *text, const struct moved_search *m, const struct moved *where,
                           const struct gguf_tensor *own);

/* True if no more passes over a file are made, because several found nothing or because they have taken their time. */
bool moved_is_exhausted(const struct moved_search *m);

#endif

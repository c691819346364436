/* Compares the keys of two files that decide what their models compute: those that the plan of the model or its
 * tokenizer reads.  Other keys, such as names, licences and the types of the tensors, may differ. */
#ifndef PLUMB_CHECK_KEYS_H
#define PLUMB_CHECK_KEYS_H

#include "gguf/gguf.h"
#include "trace/report.h"

/* Values of both files at a place: the first one that differs if the key is an array. */
struct key_difference {
    const struct gguf_key *a, *b;   /* NULL: the file has no such key */
    uint64_t place, n;              /* the index of the values; how many places differ, 0: the keys are no arrays */
};

/* Calls found for each key that differs.  Keys of the architecture do not differ if the plans are the same, for
 * instance if one of them says what is the default.  Both files must be complete.  PLUMB_ERROR_MEMORY. */
plumb_status keys_compare(struct gguf *const *a, size_t n_part_a, struct gguf *const *b, size_t n_part_b,
                          void (*found)(void *user, const struct key_difference *difference), void *user,
                          struct error *err);
/* Writes the value of a key at a place; "-" or null if k is NULL or has no value there. */
void keys_write_value(struct report_writer *w, const struct gguf_key *k, uint64_t place, bool is_json);

#endif

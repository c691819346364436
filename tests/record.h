/* Runs of the reference pass on the synthetic models that keep every tap: a prompt of N_PROMPT tokens and N_STEP steps
 * after it. */
#ifndef PLUMB_TESTS_RECORD_H
#define PLUMB_TESTS_RECORD_H

#include "mistakes/known.h"

enum { N_PROMPT = 4, N_STEP = 3, N_TOKEN = N_PROMPT + N_STEP, RECORD_MAX_TAP = (1 + N_STEP + 2) * 250 };

/* The known mistake with this name; NULL if there is none. */
const struct known_mistake *known_find(const char *name);

extern const int32_t record_ids[N_TOKEN];   /* all different */

struct record {
    plumb_tap taps[RECORD_MAX_TAP];
    float *data[RECORD_MAX_TAP];
    size_t n;
    float *logits;   /* (n_vocab) of the last token; what is pooled, in a model with pooling */
};

typedef void record_force(void *user, const plumb_tap *tap, double *x);

/* tests/vectors/synth/<name>.gguf; NULL and a failed check if it cannot be loaded. */
plumb_model *record_load(const char *name);
/* Feeds the first n_prompt ids at once and the others one by one; logits of every batch's last token only.  In a model
 * with pooling, the embeddings of all tokens are pooled then. */
struct record *record_run(const struct model *m, const struct known_set *q, const int32_t *ids, size_t n_prompt,
                          size_t n, record_force *force, void *user);
/* The same for N_TOKEN ids with one known mistake; without any if name is NULL. */
struct record *record_known(const struct model *m, const char *name, const int32_t *ids);
void record_free(struct record *record);
/* A sink: user is a struct record. */
void record_tap(void *user, const plumb_tap *tap);
/* The values (n_head, n) of a token; for kq_soft_max n is the number of tokens up to the end of its batch. */
const float *record_at(const struct record *record, const char *name, int32_t layer, uint32_t pos);
/* Multiplies Qcur_rope and Qcur_normed by 100, because attn.softmax=no_max has an effect only on large scores. */
void record_enlarge(void *user, const plumb_tap *tap, double *x);

#endif

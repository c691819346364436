/* Helpers that the tests of several rooms share: loading models and traces through the public API, capturing output,
 * and llama.cpp's vectors. */
#ifndef PLUMB_TESTS_FIXTURE_H
#define PLUMB_TESTS_FIXTURE_H

#include "base/base.h"
#include "plumb_truth.h"

/* Gives bytes [at, end) of file to the model's current part, at most piece at a time. */
plumb_status fixture_give(plumb_model *m, const uint8_t *file, size_t at, size_t end, size_t piece);
/* A completely loaded model; NULL and a failed check on errors. */
plumb_model *fixture_load(const char *path);
/* The same with all tensors in F32, so that nothing rounds their products; for files that are not split. */
plumb_model *fixture_load_f32(const char *path);
/* Index of the largest logit; the first one among equals. */
int32_t fixture_largest(const float *logits, uint32_t n);
/* FNV-1a over n bytes. */
uint64_t fixture_hash(const void *bytes, size_t n);
/* The session as bytes (tests/bytes.h), which the caller frees; a failed check on errors. */
struct bytes;
struct bytes fixture_save(plumb_session *s);
plumb_status fixture_restore(plumb_session *s, const uint8_t *bytes, size_t n);
/* The trace in a file, of any format; NULL and a failed check if it cannot be read. */
plumb_trace *fixture_read_trace(const char *path);

/* Offsets of the f16 scales of a block: d, and m or dmin.  n is 0 for types that have none. */
struct f16_places {
    uint32_t type;
    uint8_t n, at[2];
};
const struct f16_places *fixture_f16_places(uint32_t type);

/* A plumb_write that collects a report or a file: text is n bytes and a 0.  Zero-initialize. */
struct capture {
    char *text;
    size_t n;
};
void capture_write(void *user, const char *bytes, size_t n);
void capture_free(struct capture *t);
/* The number after "field": in the first JSON object whose "name" is name; NAN if there is none. */
double capture_number(const struct capture *t, const char *name, const char *field);

/* A file that tests/vectors/llama/logits.c wrote; its layout is described there. */
struct llama_vectors {
    uint32_t n_vocab, n_token, n_record, stride, n_sample, n_top;
    int32_t *tokens;           /* (n_token) */
    const uint8_t *records;    /* (n_record) of record_bytes each, for the last n_record tokens */
    size_t record_bytes;
    uint8_t *file;
};
/* path below tests/vectors; false and a failed check if it does not fit its header. */
bool llama_vectors_read(struct llama_vectors *v, const char *path);
void llama_vectors_free(struct llama_vectors *v);
/* Word i of record k: 0 is logsumexp, then n_sample logits, n_top ids, n_top logits. */
float llama_f32(const struct llama_vectors *v, uint32_t k, size_t i);
/* The largest logit's id, and its distance to the second largest. */
int32_t llama_top_id(const struct llama_vectors *v, uint32_t k);
float llama_margin(const struct llama_vectors *v, uint32_t k);
/* Relative RMS error of logits (n_vocab) against the samples of record k. */
double llama_distance(const struct llama_vectors *v, uint32_t k, const float *logits);

#endif

/* The check of a whole model by a text that it must know: the perplexity is far too high if weights are exchanged,
 * permuted or misread in many layers. */
#include "check/selfcheck.h"

#include "check/alone.h"
#include "tokenizer/vocab.h"

#include <math.h>
#include <stdlib.h>

/* Bounds of the perplexity of the text.  See docs/diagnose.md for those of right and of broken files. */
#define WARN_PERPLEXITY 20.0
#define MAX_PERPLEXITY 300.0

void selfcheck_perplexity(struct check *c, double perplexity, uint32_t n_token, uint32_t n_vocab) {
    if (perplexity <= WARN_PERPLEXITY) {
        check_set(c, VERDICT_OK, "perplexity %.3g over %u tokens of a well-known English text: as unsure as among so "
                  "many equally likely tokens (bound %g; guessing gives %u)", perplexity, n_token, WARN_PERPLEXITY,
                  n_vocab);
    } else if (perplexity <= MAX_PERPLEXITY) {
        check_set(c, VERDICT_WARN, "perplexity %.3g over %u tokens of a well-known English text (at most %g is usual, "
                  "guessing gives %u): is the model damaged, or made for other texts?", perplexity, n_token,
                  WARN_PERPLEXITY, n_vocab);
    } else {
        check_set(c, VERDICT_FAIL, "perplexity %.3g over %u tokens of a well-known English text (at most %g is usual, "
                  "guessing gives %u): the weights do not fit together, or a key is wrong", perplexity, n_token,
                  WARN_PERPLEXITY, n_vocab);
    }
}

/* Every model that was trained on English knows these: the beginning of the Declaration of Independence, and of the
 * King James Bible. */
static const char text[] =
    "We hold these truths to be self-evident, that all men are created equal, that they are endowed by their Creator "
    "with certain unalienable Rights, that among these are Life, Liberty and the pursuit of Happiness. In the "
    "beginning God created the heaven and the earth. And the earth was without form, and void; and darkness was upon "
    "the face of the deep. And the Spirit of God moved upon the face of the waters.";

/* MIN_TOKEN to MAX_TOKEN are fed, as many as cost about MAX_COST multiplications.  Those before FIRST, which nothing
 * announces, are not scored. */
enum { MIN_TOKEN = 32, MAX_TOKEN = 96, FIRST = 4, N_STEP = 8, MIN_VOCAB = 4096 };
#define MAX_COST 15000000000u
#define MIN_PARAM 10000000u

/* Returns -log of the probability of a token. */
static double surprise(const float *logits, uint32_t n_vocab, int32_t id) {
    double largest = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n_vocab; i++) largest = fmax(largest, (double)logits[i]);
    for (uint32_t i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - largest);
    return log(sum) + largest - (double)logits[id];
}

/* Sets *out to the perplexity of tokens FIRST .. n - 1.  logits: (N_STEP, n_vocab) scratch. */
static plumb_status run(const struct model *m, const int32_t *ids, uint32_t n, float *logits, double *out,
                        struct error *err) {
    struct alone f;
    struct kernels k;
    kernels_init(&k, KERNELS_SIMD128, PLUMB_PRECISION_EXACT16);
    struct pool *pool = pool_create(4);   /* the number of threads does not change the logits */
    plumb_status status = alone_create(&f, m, n, N_STEP, &k, pool, err);
    double sum = 0;
    for (uint32_t pos = 0; status == PLUMB_OK && pos < n; pos += N_STEP) {
        uint32_t n_step = n - pos < N_STEP ? n - pos : N_STEP;
        alone_run(&f, ids + pos, n_step, pos, logits);
        for (uint32_t i = 0; i < n_step; i++) {
            uint32_t next = pos + i + 1;
            if (next < FIRST || next >= n) continue;
            sum += surprise(logits + (size_t)i * m->plan.n_vocab, m->plan.n_vocab, ids[next]);
        }
    }
    alone_free(&f);
    pool_free(pool);
    *out = exp(sum / (n - FIRST));
    return status;
}

plumb_status selfcheck_text(struct check *c, struct tokenizer *t, uint64_t n_param, struct error *err) {
    const struct model *m = c->model;
    if (!m->plan.has_logits) {
        check_set(c, VERDICT_SKIP, "the model computes embeddings, and no logits");
    } else if (m->plan.n_encoder > 0) {
        check_set(c, VERDICT_SKIP, "what the decoder writes depends on what the encoder reads");
    } else if (!t || !t->kind->encode) {
        check_set(c, VERDICT_SKIP, "the vocabulary has no texts");
    } else if (m->plan.n_vocab < MIN_VOCAB || n_param < MIN_PARAM) {
        check_set(c, VERDICT_SKIP, "a model of %llu weights and %u tokens is too small to know a text (at least %u and "
                  "%d)", (unsigned long long)n_param, m->plan.n_vocab, MIN_PARAM, MIN_VOCAB);
    }
    if (c->verdict == VERDICT_SKIP) return PLUMB_OK;
    int32_t ids[MAX_TOKEN];
    int64_t n_id = tokenizer_encode(t, text, sizeof text - 1, PLUMB_ADD_SPECIAL, ids, MAX_TOKEN, err);
    if (n_id == PLUMB_ERROR_MEMORY) return PLUMB_ERROR_MEMORY;
    if (n_id < MIN_TOKEN || n_id > (int64_t)sizeof text / 3) {
        check_set(c, VERDICT_SKIP, "the vocabulary is not made for English: %lld tokens for %zu characters",
                  (long long)n_id, sizeof text - 1);
        return PLUMB_OK;
    }
    uint64_t n_cheap = MAX_COST / n_param, n = n_id < MAX_TOKEN ? (uint64_t)n_id : MAX_TOKEN;
    if (n > n_cheap) n = n_cheap < MIN_TOKEN ? MIN_TOKEN : n_cheap;
    float *logits = alloc_array((uint64_t)N_STEP * m->plan.n_vocab, sizeof *logits);
    if (!logits) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: logits of %d tokens", N_STEP);
    double perplexity = 0;
    plumb_status status = run(m, ids, (uint32_t)n, logits, &perplexity, err);
    free(logits);
    if (status == PLUMB_OK) selfcheck_perplexity(c, perplexity, (uint32_t)n - FIRST, m->plan.n_vocab);
    return status;
}

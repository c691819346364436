#include "mistakes/known.h"
#include "record.h"

#include "fixture.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

const int32_t record_ids[N_TOKEN] = { 72, 101, 13, 255, 97, 32, 199 };

void record_tap(void *user, const plumb_tap *tap) {
    struct record *run = user;
    size_t n = (size_t)tap->n_token * tap->n_head * tap->n;
    if (!CHECK(run->n < RECORD_MAX_TAP, "more than %d taps", RECORD_MAX_TAP)) return;
    float *copy = alloc_array(n, sizeof *copy);
    if (copy) memcpy(copy, tap->data, n * sizeof *copy);
    run->taps[run->n] = *tap;
    run->taps[run->n].data = run->data[run->n] = copy;
    run->n++;
}

void record_free(struct record *run) {
    for (size_t i = 0; i < run->n; i++) free(run->data[i]);
    free(run->logits);
    free(run);
}

struct record *record_run(const struct model *m, const struct known_set *q, const int32_t *ids, size_t n_prompt,
                          size_t n, record_force *force, void *user) {
    struct error err;
    struct reference *r = NULL;
    struct record *run = calloc(1, sizeof *run);
    bool is_pooled = m->plan.pooling.kind != PLUMB_POOLING_NONE;
    uint32_t n_row = m->plan.n_embd > m->plan.n_vocab ? m->plan.n_embd : m->plan.n_vocab;
    float *embeddings = calloc((size_t)(N_TOKEN + 3) * m->plan.n_embd, sizeof *embeddings);
    run->logits = calloc((size_t)(N_PROMPT + 3) * n_row, sizeof *run->logits);
    if (CHECK(reference_create(&r, m, N_TOKEN + 3, N_PROMPT + 3, &err) == PLUMB_OK, "%s", err.message)) {
        CHECK(reference_set_tap(r, (struct tap_sink) { record_tap, run }) == PLUMB_OK, "taps");
        known_apply(r, q);
        reference_set_force(r, force, user);
        if (m->plan.n_encoder > 0) reference_encode(r, ids, (uint32_t)n);
        for (uint32_t pos = 0, n_run = (uint32_t)n_prompt; pos < n; pos += n_run, n_run = 1) {
            reference_run(r, ids + pos, n_run, pos, is_pooled ? n_run : 1, run->logits);
            if (is_pooled) reference_embeddings(r, n_run, embeddings + (size_t)pos * m->plan.n_embd);
        }
        if (is_pooled) reference_pool(r, embeddings, (uint32_t)n, reference_pooling(r), run->logits);
    }
    reference_free(r);
    free(embeddings);
    return run;
}

const struct known_mistake *known_find(const char *name) {
    const struct known_mistake *q;
    for (size_t i = 0; (q = known_at(i)) && strcmp(q->name, name) != 0; i++);
    return q;
}

struct record *record_known(const struct model *m, const char *name, const int32_t *ids) {
    struct known_set set = { 0 };
    const struct known_mistake *q = name ? known_find(name) : NULL;
    CHECK(q || !name, "no known mistake %s", name ? name : "");
    if (q) known_add(&set, q);
    return record_run(m, &set, ids, N_PROMPT, N_TOKEN, NULL, NULL);
}

const float *record_at(const struct record *run, const char *name, int32_t layer, uint32_t pos) {
    for (size_t i = 0; i < run->n; i++) {
        const plumb_tap *t = &run->taps[i];
        if (strcmp(t->name, name) == 0 && t->layer == layer && pos >= t->pos && pos < t->pos + t->n_token) {
            return t->data + (size_t)(pos - t->pos) * t->n_head * t->n;
        }
    }
    CHECK(false, "no %s-%d at %u", name, (int)layer, pos);
    abort();   /* a mistake in the test itself */
}

plumb_model *record_load(const char *name) {
    char path[120];
    snprintf(path, sizeof path, "tests/vectors/synth/%s.gguf", name);
    return fixture_load(path);
}

void record_enlarge(void *user, const plumb_tap *tap, double *x) {
    (void)user;
    if (strcmp(tap->name, "Qcur_rope") != 0 && strcmp(tap->name, "Qcur_normed") != 0) return;
    for (size_t i = 0; i < (size_t)tap->n_token * tap->n_head * tap->n; i++) x[i] *= 100;
}

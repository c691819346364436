/* Truth: the default model through the public API, against llama.cpp (tests/vectors/llama, layout in its logits.c).
 * llama.cpp computed on the same weights dequantized to F32, so that only arithmetic differs.  Release builds only:
 * the reference pass multiplies 120 G numbers here. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MODEL_FILE "models/SmolLM2-135M-Instruct.Q4_1.gguf"

/* ---- llama.cpp's side -------------------------------------------------------------------------------------------- */

struct vectors {
    uint32_t n_vocab, n_token, n_record, stride, n_sample, n_top;
    const int32_t *tokens;     /* (n_token) */
    const uint8_t *records;    /* (n_record) of record_bytes each */
    size_t record_bytes;
    uint8_t *file;
};

static bool read_vectors(struct vectors *v, const char *name) {
    char path[100];
    size_t n;
    snprintf(path, sizeof path, "tests/vectors/llama/%s.bin", name);
    memset(v, 0, sizeof *v);
    v->file = test_read_all(path, &n);
    if (!v->file) return false;
    uint32_t *fields[] = { &v->n_vocab, &v->n_token, &v->n_record, &v->stride, &v->n_sample, &v->n_top };
    for (size_t i = 0; i < 6; i++) *fields[i] = load_u32(v->file + 8 + 4 * i);
    v->tokens = (const int32_t *)(const void *)(v->file + 32);
    v->records = v->file + 32 + 4 * (size_t)v->n_token;
    v->record_bytes = 4 * (1 + (size_t)v->n_sample + 2 * (size_t)v->n_top);
    return CHECK(memcmp(v->file, "PLMBLOGT", 8) == 0 && n == 32 + 4 * (size_t)v->n_token + v->n_record * v->record_bytes,
                 "%s: %zu bytes do not fit its header", path, n);
}

/* Field i of record k: 0 logsumexp, then samples, top ids, top logits. */
static const uint8_t *field(const struct vectors *v, uint32_t k, size_t i) {
    return v->records + k * v->record_bytes + 4 * i;
}
static float field_f32(const struct vectors *v, uint32_t k, size_t i) { return f32_from_bits(load_u32(field(v, k, i))); }
static int32_t top_id(const struct vectors *v, uint32_t k) { return (int32_t)load_u32(field(v, k, 1 + v->n_sample)); }
/* Largest logit minus second largest. */
static float margin(const struct vectors *v, uint32_t k) {
    size_t top = 1 + v->n_sample + v->n_top;
    return field_f32(v, k, top) - field_f32(v, k, top + 1);
}

/* ---- our side ------------------------------------------------------------------------------------------------------ */

static plumb_model *load_model(void) {
    plumb_model *m = plumb_model_create();
    if (!m || plumb_model_begin(m, PLUMB_SIZE_UNKNOWN) != PLUMB_OK) return m;
    for (uint64_t at = 0;;) {
        void *data;
        size_t n;
        if (plumb_model_window(m, &data, &n) != PLUMB_OK || n == 0) break;
        int64_t n_read = test_read(MODEL_FILE, at, data, n);
        if (n_read <= 0 || plumb_model_commit(m, (size_t)n_read) != PLUMB_OK) break;
        at += (uint64_t)n_read;
    }
    if (!CHECK(plumb_model_end(m) == PLUMB_OK, "%s", plumb_model_error(m))) {
        plumb_model_free(m);
        return NULL;
    }
    return m;
}

static plumb_session *new_session(plumb_model *m, plumb_pass pass) {
    plumb_session *s = NULL;
    plumb_session_params params = { .n_ctx = 1024, .pass = pass };
    CHECK(plumb_session_create(&s, m, &params) == PLUMB_OK, "%s", plumb_model_error(m));
    return s;
}

static int32_t largest(const float *logits, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    return (int32_t)best;
}

/* ---- reference pass and llama.cpp ------------------------------------------------------------------------------------- */

struct against_llama {
    struct vectors v;
    double worst;           /* relative RMS of a position's sampled logits */
    double worst_logsumexp; /* absolute */
    uint32_t n_top1;        /* positions with llama.cpp's largest logit */
};

static void compare_with_llama(void *user, uint32_t pos, const float *logits) {
    struct against_llama *a = user;
    double d2 = 0, l2 = 0, sum = 0;
    for (uint32_t i = 0; i < a->v.n_sample; i++) {
        double l = (double)field_f32(&a->v, pos, 1 + i), d = (double)logits[i * a->v.stride] - l;
        d2 += d * d;
        l2 += l * l;
    }
    int32_t best = largest(logits, a->v.n_vocab);
    for (uint32_t i = 0; i < a->v.n_vocab; i++) sum += exp((double)logits[i] - (double)logits[best]);
    double logsumexp = log(sum) + (double)logits[best];
    a->worst = fmax(a->worst, sqrt(d2 / l2));
    a->worst_logsumexp = fmax(a->worst_logsumexp, fabs(logsumexp - (double)field_f32(&a->v, pos, 0)));
    a->n_top1 += best == top_id(&a->v, pos);
}

static void check_against_llama(plumb_pass pass, double most) {
    struct against_llama a = { .worst = 0 };
    plumb_model *m = load_model();
    plumb_session *s = m ? new_session(m, pass) : NULL;
    if (s && read_vectors(&a.v, "mixed.f32") && CHECK(a.v.n_record == 64 && a.v.n_token == 64, "%u", a.v.n_record)) {
        CHECK(plumb_session_feed_all(s, a.v.tokens, a.v.n_token, compare_with_llama, &a) == PLUMB_OK, "%s",
              plumb_session_error(s));
        CHECK(a.worst > 0 && a.worst <= most, "worst relative RMS %g", a.worst);
        CHECK(a.worst_logsumexp <= 30 * most, "worst logsumexp difference %g", a.worst_logsumexp);
        CHECK(a.n_top1 >= 63, "same top-1 at %u of 64 positions", a.n_top1);
        test_note("worst relative RMS %.3g, logsumexp off by %.3g, same top-1 at %u of 64", a.worst, a.worst_logsumexp,
                  a.n_top1);
    }
    free(a.v.file);
    plumb_session_free(s);
    plumb_model_free(m);
}

static void reference_case(void) { check_against_llama(PLUMB_PASS_REFERENCE, 1e-3); }
static void fast_case(void) { check_against_llama(PLUMB_PASS_FAST, 1e-2); }

/* ---- fast pass and reference pass -------------------------------------------------------------------------------------- */

enum { N_COMPARED = 512, N_CHUNK = 64 };

struct against_reference {
    float *reference;      /* (N_CHUNK, n_vocab) of the chunk's positions */
    uint32_t n_vocab, first;
    double d2, l2, worst, divergence;
    uint32_t n_top1;
};

static void keep(void *user, uint32_t pos, const float *logits) {
    struct against_reference *a = user;
    memcpy(a->reference + (size_t)(pos - a->first) * a->n_vocab, logits, a->n_vocab * sizeof *logits);
}

static double log_sum_exp(const float *logits, uint32_t n) {
    double max = (double)logits[largest(logits, n)], sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += exp((double)logits[i] - max);
    return max + log(sum);
}

static void compare(void *user, uint32_t pos, const float *fast) {
    struct against_reference *a = user;
    const float *truth = a->reference + (size_t)(pos - a->first) * a->n_vocab;
    double d2 = 0, l2 = 0, lse_truth = log_sum_exp(truth, a->n_vocab), lse_fast = log_sum_exp(fast, a->n_vocab);
    for (uint32_t i = 0; i < a->n_vocab; i++) {
        double d = (double)fast[i] - (double)truth[i], log_p = (double)truth[i] - lse_truth;
        d2 += d * d;
        l2 += (double)truth[i] * (double)truth[i];
        a->divergence += exp(log_p) * (log_p - ((double)fast[i] - lse_fast)) / N_COMPARED;
    }
    a->worst = fmax(a->worst, sqrt(d2 / l2));
    a->n_top1 += largest(truth, a->n_vocab) == largest(fast, a->n_vocab);
}

static void passes_case(void) {
    struct vectors v = { 0 };
    struct against_reference a = { 0 };
    plumb_model *m = load_model();
    plumb_session *reference = m ? new_session(m, PLUMB_PASS_REFERENCE) : NULL;
    plumb_session *fast = m ? new_session(m, PLUMB_PASS_FAST) : NULL;
    if (reference && fast && read_vectors(&v, "text.f32")) {
        a.n_vocab = v.n_vocab;
        a.reference = alloc_array((uint64_t)N_CHUNK * v.n_vocab, sizeof *a.reference);
        CHECK(a.reference && v.n_token == N_COMPARED, "%u tokens", v.n_token);
        for (; a.reference && a.first < N_COMPARED; a.first += N_CHUNK) {
            CHECK(plumb_session_feed_all(reference, v.tokens + a.first, N_CHUNK, keep, &a) == PLUMB_OK
                  && plumb_session_feed_all(fast, v.tokens + a.first, N_CHUNK, compare, &a) == PLUMB_OK,
                  "position %u", a.first);
        }
        CHECK(a.worst > 0 && a.worst <= 1e-2, "worst relative RMS %g", a.worst);
        CHECK(a.n_top1 * 100 >= N_COMPARED * 99, "same top-1 at %u of %d positions", a.n_top1, N_COMPARED);
        test_note("worst relative RMS %.3g, mean KL divergence %.3g, same top-1 at %u of %d", a.worst, a.divergence,
                  a.n_top1, N_COMPARED);
    }
    free(a.reference);
    free(v.file);
    plumb_session_free(reference);
    plumb_session_free(fast);
    plumb_model_free(m);
}

/* ---- greedy continuations ---------------------------------------------------------------------------------------------- */

struct forced {
    const struct vectors *v;
    uint32_t first;         /* position of the first record */
    uint32_t n_same;
};

static void check_choice(void *user, uint32_t pos, const float *logits) {
    struct forced *f = user;
    if (pos < f->first) return;
    int32_t choice = largest(logits, f->v->n_vocab);
    uint32_t k = pos - f->first;
    CHECK(choice == top_id(f->v, k), "token %u: reference %d, llama.cpp %d with a margin of %g", k, (int)choice,
          (int)top_id(f->v, k), (double)margin(f->v, k));
    f->n_same += choice == top_id(f->v, k);
}

/* The fast pass decodes 64 tokens one by one.  The reference pass is fed the same tokens at once: where its choice is
 * the next token at every position, its own greedy decoding is the same sequence. */
static void greedy_row(const void *row) {
    struct vectors v = { 0 };
    plumb_model *m = load_model();
    plumb_session *reference = m ? new_session(m, PLUMB_PASS_REFERENCE) : NULL;
    plumb_session *fast = m ? new_session(m, PLUMB_PASS_FAST) : NULL;
    if (reference && fast && read_vectors(&v, row) && CHECK(v.n_record == 64, "%u records", v.n_record)) {
        uint32_t n_prompt = v.n_token + 1 - v.n_record;
        CHECK(plumb_session_feed(fast, v.tokens, n_prompt) == PLUMB_OK, "%s", plumb_session_error(fast));
        for (uint32_t k = 0; k < v.n_record; k++) {
            int32_t id = largest(plumb_session_logits(fast), v.n_vocab);
            if (!CHECK(id == top_id(&v, k), "token %u: %d, llama.cpp %d with a margin of %g", k, (int)id,
                       (int)top_id(&v, k), (double)margin(&v, k))) break;
            if (plumb_session_feed(fast, &id, 1) != PLUMB_OK) break;
        }
        struct forced f = { .v = &v, .first = n_prompt - 1 };
        CHECK(plumb_session_feed_all(reference, v.tokens, v.n_token, check_choice, &f) == PLUMB_OK, "%s",
              plumb_session_error(reference));
        CHECK(f.n_same == 64, "reference: %u of 64 tokens", f.n_same);
    }
    free(v.file);
    plumb_session_free(reference);
    plumb_session_free(fast);
    plumb_model_free(m);
}

void test_truth(void) {
    test_case("truth: reference pass equals llama.cpp on the F32 file within 1e-3, 64 positions", reference_case);
    test_case("truth: fast pass equals llama.cpp on the F32 file within 1e-2, 64 positions", fast_case);
    test_case("truth: fast pass equals the reference pass within 1e-2, top-1 at 99 % of 512 positions", passes_case);
    test_row("truth: 64 greedy tokens after \"The capital of France is\" are llama.cpp's", greedy_row, "capital.f32");
    test_row("truth: 64 greedy tokens after a chat question are llama.cpp's", greedy_row, "chat.f32");
    test_row("truth: 64 greedy tokens after a text of 600 tokens are llama.cpp's", greedy_row, "long.f32");
}

/* Truth: two real models through the public API, against llama.cpp (tests/vectors/llama, layout in its logits.c), and a
 * sentence encoder against sentence-transformers (tests/vectors/minilm).  llama.cpp ran the same weights dequantized to
 * F32, so only the arithmetic differs.  Release builds only: the reference pass does 2e11 multiplications here. */
#include "fixture.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

#define SMOLLM2 "models/SmolLM2-135M-Instruct.Q4_1.gguf"
#define GEMMA3 "models/gemma-3-270m.Q4_K_M.gguf"
#define MINILM "models/all-MiniLM-L6-v2.Q8_0.gguf"

/* A model and its vectors. */
struct truth_row {
    const char *model, *vectors;
    plumb_pass pass;        /* of rows of logits and sentences */
    double most;            /* relative RMS of logits that is allowed, in rows of logits */
};

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

enum { N_CTX = 1024 };

static plumb_session *new_session(plumb_model *m, plumb_pass pass, uint32_t n_ctx) {
    plumb_session *s = NULL;
    plumb_session_params params = { .n_ctx = n_ctx, .pass = pass, .precision = PLUMB_PRECISION_EXACT16 };
    CHECK(plumb_session_create(&s, m, &params) == PLUMB_OK, "%s", plumb_model_error(m));
    return s;
}

/* ---- reference pass and llama.cpp -------------------------------------------------------------------------------- */

struct against_llama {
    struct llama_vectors v;
    double worst;           /* relative RMS of a position's sampled logits */
    double worst_logsumexp; /* absolute */
    uint32_t n_top1;        /* positions with llama.cpp's largest logit */
};

static void compare_with_llama(void *user, uint32_t pos, const float *logits) {
    struct against_llama *a = user;
    double sum = 0;
    int32_t best = fixture_largest(logits, a->v.n_vocab);
    for (uint32_t i = 0; i < a->v.n_vocab; i++) sum += exp((double)logits[i] - (double)logits[best]);
    double logsumexp = log(sum) + (double)logits[best];
    a->worst = worse(a->worst, llama_distance(&a->v, pos, logits));
    a->worst_logsumexp = worse(a->worst_logsumexp, fabs(logsumexp - (double)llama_f32(&a->v, pos, 0)));
    a->n_top1 += best == llama_top_id(&a->v, pos);
}

static void logits_case(const void *row_) {
    const struct truth_row *row = row_;
    struct against_llama a = { .worst = 0 };
    plumb_model *m = fixture_load(row->model);
    plumb_session *s = m ? new_session(m, row->pass, N_CTX) : NULL;
    if (s && llama_vectors_read(&a.v, row->vectors)
        && CHECK(a.v.n_record == 64 && a.v.n_token == 64, "%u", a.v.n_record)) {
        CHECK(plumb_session_feed_all(s, a.v.tokens, a.v.n_token, compare_with_llama, &a) == PLUMB_OK, "%s",
              plumb_session_error(s));
        CHECK(a.worst > 0 && a.worst <= row->most, "worst relative RMS %g", a.worst);
        CHECK(a.worst_logsumexp <= 30 * row->most, "worst logsumexp difference %g", a.worst_logsumexp);
        CHECK(a.n_top1 >= 63, "same top-1 at %u of 64 positions", a.n_top1);
        test_note("worst relative RMS %.3g, logsumexp off by %.3g, same top-1 at %u of 64", a.worst, a.worst_logsumexp,
                  a.n_top1);
    }
    llama_vectors_free(&a.v);
    plumb_session_free(s);
    plumb_model_free(m);
}

/* ---- fast pass and reference pass -------------------------------------------------------------------------------- */

enum { N_TEXT = 512, N_COMPARED = 512, N_CHUNK = 64 };

struct against_reference {
    float *reference;      /* (N_CHUNK, n_vocab) at the chunk's positions */
    uint32_t n_vocab, first;
    double d2, l2, worst, divergence;
    uint32_t n_top1;
};

static void keep(void *user, uint32_t pos, const float *logits) {
    struct against_reference *a = user;
    memcpy(a->reference + (size_t)(pos - a->first) * a->n_vocab, logits, a->n_vocab * sizeof *logits);
}

static double log_sum_exp(const float *logits, uint32_t n) {
    double max = (double)logits[fixture_largest(logits, n)], sum = 0;
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
        a->divergence += exp(log_p) * (log_p - ((double)fast[i] - lse_fast)) / (double)N_COMPARED;
    }
    a->worst = worse(a->worst, sqrt(d2 / l2));
    a->n_top1 += fixture_largest(truth, a->n_vocab) == fixture_largest(fast, a->n_vocab);
}

static void passes_case(void) {
    struct llama_vectors v = { 0 };
    struct against_reference a = { 0 };
    plumb_model *m = fixture_load(SMOLLM2);
    plumb_session *reference = m ? new_session(m, PLUMB_PASS_REFERENCE, N_CTX) : NULL;
    plumb_session *fast = m ? new_session(m, PLUMB_PASS_FAST, N_CTX) : NULL;
    if (reference && fast && llama_vectors_read(&v, "llama/text.f32.bin")) {
        a.n_vocab = v.n_vocab;
        a.reference = alloc_array((uint64_t)N_CHUNK * v.n_vocab, sizeof *a.reference);
        CHECK(a.reference && v.n_token == N_TEXT, "%u tokens", v.n_token);
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
    llama_vectors_free(&v);
    plumb_session_free(reference);
    plumb_session_free(fast);
    plumb_model_free(m);
}

/* ---- greedy continuations ---------------------------------------------------------------------------------------- */

struct forced {
    const struct llama_vectors *v;
    uint32_t first;         /* position of the first record */
    uint32_t n_same;
};

static void check_choice(void *user, uint32_t pos, const float *logits) {
    struct forced *f = user;
    if (pos < f->first) return;
    int32_t choice = fixture_largest(logits, f->v->n_vocab);
    uint32_t k = pos - f->first;
    CHECK(choice == llama_top_id(f->v, k), "token %u: reference %d, llama.cpp %d with a margin of %g", k, (int)choice,
          (int)llama_top_id(f->v, k), (double)llama_margin(f->v, k));
    f->n_same += choice == llama_top_id(f->v, k);
}

/* 64 tokens that llama.cpp chose after a prompt, and a session for them. */
struct continuation {
    plumb_model *m;
    plumb_session *s;
    struct llama_vectors v;
    uint32_t n_prompt;      /* the other tokens of v were chosen; so was one more behind them */
};

/* Returns false after a failed check.  Call continuation_free in any case. */
static bool continuation_open(struct continuation *c, const struct truth_row *row, plumb_pass pass) {
    *c = (struct continuation){ .m = fixture_load(row->model) };
    c->s = c->m ? new_session(c->m, pass, N_CTX) : NULL;
    if (!c->s || !llama_vectors_read(&c->v, row->vectors)) return false;
    c->n_prompt = c->v.n_token + 1 - c->v.n_record;
    return CHECK(c->v.n_record == 64, "%u records", c->v.n_record);
}

static void continuation_free(struct continuation *c) {
    llama_vectors_free(&c->v);
    plumb_session_free(c->s);
    plumb_model_free(c->m);
}

/* The fast pass decodes 64 tokens one by one. */
static void greedy_case(const void *row) {
    struct continuation c;
    if (continuation_open(&c, row, PLUMB_PASS_FAST)) {
        CHECK(plumb_session_feed(c.s, c.v.tokens, c.n_prompt) == PLUMB_OK, "%s", plumb_session_error(c.s));
        for (uint32_t k = 0; k < c.v.n_record; k++) {
            int32_t id = fixture_largest(plumb_session_logits(c.s), c.v.n_vocab);
            if (!CHECK(id == llama_top_id(&c.v, k), "token %u: %d, llama.cpp %d with a margin of %g", k, (int)id,
                       (int)llama_top_id(&c.v, k), (double)llama_margin(&c.v, k))) break;
            if (plumb_session_feed(c.s, &id, 1) != PLUMB_OK) break;
        }
    }
    continuation_free(&c);
}

/* The reference pass is fed llama.cpp's 64 tokens at once: if it chooses the next token at every position, its own
 * greedy decoding would give the same sequence.  It takes 70 ms for each token of Gemma, whose logits are compared at
 * 64 positions instead. */
static void choices_case(const void *row) {
    struct continuation c;
    if (continuation_open(&c, row, PLUMB_PASS_REFERENCE)) {
        struct forced f = { .v = &c.v, .first = c.n_prompt - 1 };
        CHECK(plumb_session_feed(c.s, c.v.tokens, f.first) == PLUMB_OK
              && plumb_session_feed_all(c.s, c.v.tokens + f.first, c.v.n_record, check_choice, &f) == PLUMB_OK,
              "%s", plumb_session_error(c.s));
        CHECK(f.n_same == 64, "reference: %u of 64 tokens", f.n_same);
    }
    continuation_free(&c);
}

/* ---- sentences --------------------------------------------------------------------------------------------------- */

enum { N_SENTENCE = 24, N_MINILM = 384, N_SENTENCE_IDS = 256 };

/* The vector of a sentence, of length 1.  out: (N_MINILM). */
static bool embed(plumb_model *m, plumb_session *s, const char *text, size_t len, double *out) {
    int32_t ids[N_SENTENCE_IDS];
    uint32_t n_vector = 0, n = 0;
    int64_t n_id = plumb_tokenize(m, text, len, PLUMB_ADD_SPECIAL, ids, N_SENTENCE_IDS);
    const uint32_t length = (uint32_t)n_id;
    if (!CHECK(n_id > 0 && n_id <= N_SENTENCE_IDS, "%lld tokens", (long long)n_id)
        || !CHECK(plumb_session_embed(s, ids, &length, 1, PLUMB_POOLING_MODEL) == 1, "%s", plumb_session_error(s))) {
        return false;
    }
    const float *v = plumb_session_embedding(s, &n_vector, &n);
    if (!CHECK(n_vector == 1 && n == N_MINILM, "%u vectors of %u", n_vector, n)) return false;
    double sum = 0;
    for (uint32_t i = 0; i < N_MINILM; i++) sum += (double)v[i] * (double)v[i];
    for (uint32_t i = 0; i < N_MINILM; i++) out[i] = (double)v[i] / sqrt(sum);
    return true;
}

static double dot(const double *a, const double *b) {
    double sum = 0;
    for (uint32_t i = 0; i < N_MINILM; i++) sum += a[i] * b[i];
    return sum;
}

/* The other vector that is nearest to vector i. */
static uint32_t nearest(double (*v)[N_MINILM], uint32_t i) {
    uint32_t best = i == 0 ? 1 : 0;
    for (uint32_t j = 0; j < N_SENTENCE; j++) {
        if (j != i && dot(v[i], v[j]) > dot(v[i], v[best])) best = j;
    }
    return best;
}

/* Compares with the vectors that sentence-transformers computes from the original weights, which are not quantized. */
static void sentences_case(const void *row_) {
    const struct truth_row *row = row_;
    static double ours[N_SENTENCE][N_MINILM], original[N_SENTENCE][N_MINILM];
    size_t n_text = 0, n_bytes = 0;
    char *texts = test_read_all("tests/vectors/minilm/texts.txt", &n_text), *text = texts;
    uint8_t *bytes = test_read_all(row->vectors, &n_bytes);
    plumb_model *m = fixture_load(row->model);
    plumb_session *s = m ? new_session(m, row->pass, N_SENTENCE_IDS) : NULL;
    double least = 1;
    uint32_t n = 0;
    if (s && texts && bytes && CHECK(n_bytes == N_SENTENCE * N_MINILM * sizeof(float), "%zu bytes", n_bytes)) {
        for (const char *end; n < N_SENTENCE && (end = strchr(text, '\n')) != NULL; n++, text += end - text + 1) {
            if (!embed(m, s, text, (size_t)(end - text), ours[n])) break;
            for (uint32_t i = 0; i < N_MINILM; i++) {
                float f;
                memcpy(&f, bytes + (n * N_MINILM + i) * sizeof f, sizeof f);
                original[n][i] = (double)f;
            }
            double cosine = dot(ours[n], original[n]);
            CHECK(cosine >= row->most, "text %u: cosine %.6f", n, cosine);
            if (!(cosine >= least)) least = cosine;
        }
        CHECK(n == N_SENTENCE && *text == 0, "%u texts", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        CHECK(nearest(ours, i) == nearest(original, i), "the nearest text to %u is %u, the original says %u", i,
              nearest(ours, i), nearest(original, i));
    }
    test_note("least cosine %.6f; \"%s\" and \"%s\" have %.3f, the original %.3f", least, "A man is eating food.",
              "Someone has a meal.", dot(ours[0], ours[2]), dot(original[0], original[2]));
    free(texts);
    free(bytes);
    plumb_session_free(s);
    plumb_model_free(m);
}

void test_truth(void) {
    static const struct truth_row minilm[] = {
        { MINILM, "tests/vectors/minilm/vectors.bin", PLUMB_PASS_REFERENCE, 0.999 },
        { MINILM, "tests/vectors/minilm/vectors.bin", PLUMB_PASS_FAST, 0.999 },
    };
    static const struct truth_row smollm2[] = {
        { SMOLLM2, "llama/mixed.f32.bin", PLUMB_PASS_REFERENCE, 1e-3 },
        { SMOLLM2, "llama/mixed.f32.bin", PLUMB_PASS_FAST, 1e-2 },
        { SMOLLM2, "llama/capital.f32.bin", 0, 0 },
        { SMOLLM2, "llama/chat.f32.bin", 0, 0 },
        { SMOLLM2, "llama/long.f32.bin", 0, 0 },
    };
    static const struct truth_row gemma3[] = {
        { GEMMA3, "llama/gemma3/mixed.f32.bin", PLUMB_PASS_REFERENCE, 1e-3 },
        { GEMMA3, "llama/gemma3/mixed.f32.bin", PLUMB_PASS_FAST, 1e-2 },
        { GEMMA3, "llama/gemma3/colours.f32.bin", 0, 0 },
        { GEMMA3, "llama/gemma3/code.f32.bin", 0, 0 },
        { GEMMA3, "llama/gemma3/japanese.f32.bin", 0, 0 },
        { GEMMA3, "llama/gemma3/dialog.f32.bin", 0, 0 },
        { GEMMA3, "llama/gemma3/long.f32.bin", 0, 0 },
    };
    test_row("truth: SmolLM2, reference pass equals llama.cpp on the F32 file within 1e-3, 64 positions", logits_case,
             &smollm2[0]);
    test_row("truth: SmolLM2, fast pass equals llama.cpp on the F32 file within 1e-2, 64 positions", logits_case,
             &smollm2[1]);
    test_case("truth: SmolLM2, fast pass equals the reference pass within 1e-2, top-1 at 99 % of 512 "
              "positions", passes_case);
    test_row("truth: SmolLM2, 64 greedy tokens after \"The capital of France is\" are llama.cpp's", greedy_case,
             &smollm2[2]);
    test_row("truth: SmolLM2, 64 greedy tokens after a chat question are llama.cpp's", greedy_case, &smollm2[3]);
    test_row("truth: SmolLM2, 64 greedy tokens after a text of 600 tokens are llama.cpp's", greedy_case, &smollm2[4]);
    test_row("truth: SmolLM2, the reference pass chooses the same 64 after \"The capital of France is\"", choices_case,
             &smollm2[2]);
    test_row("truth: SmolLM2, the reference pass chooses the same 64 after a chat question", choices_case, &smollm2[3]);
    test_row("truth: SmolLM2, the reference pass chooses the same 64 after a text of 600 tokens", choices_case,
             &smollm2[4]);
    test_row("truth: Gemma 3, reference pass equals llama.cpp on the F32 file within 1e-3, 64 positions", logits_case,
             &gemma3[0]);
    test_row("truth: Gemma 3, fast pass equals llama.cpp on the F32 file within 1e-2, 64 positions", logits_case,
             &gemma3[1]);
    test_row("truth: Gemma 3, 64 greedy tokens after \"The three primary colours are\" are llama.cpp's", greedy_case,
             &gemma3[2]);
    test_row("truth: Gemma 3, 64 greedy tokens after JavaScript are llama.cpp's", greedy_case, &gemma3[3]);
    test_row("truth: Gemma 3, 64 greedy tokens after Japanese are llama.cpp's", greedy_case, &gemma3[4]);
    test_row("truth: Gemma 3, 64 greedy tokens after a dialog are llama.cpp's", greedy_case, &gemma3[5]);
    test_row("truth: Gemma 3, 64 greedy tokens after 606 tokens, more than its window, are llama.cpp's", greedy_case,
             &gemma3[6]);
    test_row("truth: MiniLM, reference pass: sentences have sentence-transformers' vectors and the same nearest one",
             sentences_case, &minilm[0]);
    test_row("truth: MiniLM, fast pass: sentences have sentence-transformers' vectors and the same nearest one",
             sentences_case, &minilm[1]);
}

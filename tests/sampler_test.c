/* The sampler.  Ground truth: small examples worked out in the comments; llama.cpp's samplers on random logits and a
 * second implementation in Python (tests/vectors/sampler/make.py); the published outputs of xoshiro256** and
 * splitmix64.
 */
#include "sampler/sampler.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

#define LN2 0.693147180559945309f
#define MAX_VOCAB 4096

/* All filters off, temperature 1: the plain softmax. */
static plumb_sampling plain(void) {
    return (plumb_sampling){ .temperature = 1, .top_p = 1, .typical_p = 1, .repeat_penalty = 1, .penalty_last_n = 64 };
}

static plumb_sampler *create(uint32_t n_vocab, plumb_sampling params) {
    plumb_sampler *s;
    const char *reason = "";
    plumb_status status = plumb_sampler_create(&s, n_vocab, &params, &reason);
    CHECK(status == PLUMB_OK, "status %d: %s", status, reason);
    return s;
}

/* Gives the probability of each token and, if values is not NULL, its logit after bias and penalties; 0 and NaN for
 * tokens that are filtered out.  Returns how many remain. */
static size_t spread(plumb_sampler *s, uint32_t n_vocab, const float *logits, double *p, float *values) {
    size_t n;
    double total;
    const struct candidate *c = sampler_candidates(s, logits, &n, &total);
    for (uint32_t i = 0; i < n_vocab; i++) {
        p[i] = 0;
        if (values) values[i] = NAN;
    }
    for (size_t i = 0; i < n; i++) {
        p[c[i].id] = c[i].weight / total;
        if (values) values[c[i].id] = c[i].logit;
    }
    return n;
}

/* ---- the worked example: five tokens of probability 1/8 1/2 1/16 1/4 1/16 ------------------------------------------
 * Their logits are 1 3 0 2 0 times ln 2, so the weights are 2 8 1 4 1, sixteen in all. */
static const float example[5] = { 1 * LN2, 3 * LN2, 0, 2 * LN2, 0 };

static void expect_shares(plumb_sampling params, const double *shares) {
    plumb_sampler *s = create(5, params);
    if (!s) return;
    double p[5], total = 0;
    size_t n = spread(s, 5, example, p, NULL), n_expected = 0;
    for (int i = 0; i < 5; i++) {
        total += shares[i];
        n_expected += shares[i] > 0;
    }
    CHECK(n == n_expected, "%zu candidates, expected %zu", n, n_expected);
    /* ln 2 in f32 has an error of 2e-8, which the exponent multiplies by three. */
    for (int i = 0; i < 5; i++) {
        CHECK(fabs(p[i] - shares[i] / total) < 2e-7, "token %d: %.9f, expected %.9f", i, p[i], shares[i] / total);
    }
    plumb_sampler_free(s);
}
#define EXPECT(params, ...) expect_shares(params, (const double[5]){ __VA_ARGS__ })

static void temperature(void) {
    plumb_sampling p = plain();
    EXPECT(p, 2, 8, 1, 4, 1);
    p.temperature = 0.5f;   /* logits doubled, weights squared */
    EXPECT(p, 4, 64, 1, 16, 1);
    p.temperature = 1e-30f; /* only the likeliest keeps any weight */
    plumb_sampler *s = create(5, p);
    double share[5];
    spread(s, 5, example, share, NULL);
    CHECK(share[1] == 1, "%g", share[1]);
    plumb_sampler_free(s);
    p.temperature = 1e6f;   /* nearly alike */
    EXPECT(p, exp2(1e-6), exp2(3e-6), 1, exp2(2e-6), 1);
}

static void top_k(void) {
    plumb_sampling p = plain();
    p.top_k = 1; EXPECT(p, 0, 8, 0, 0, 0);
    p.top_k = 2; EXPECT(p, 0, 8, 0, 4, 0);
    p.top_k = 3; EXPECT(p, 2, 8, 0, 4, 0);
    p.top_k = 4; EXPECT(p, 2, 8, 1, 4, 0);   /* 2 and 4 are equal: the lower id */
    p.top_k = 5; EXPECT(p, 2, 8, 1, 4, 1);
    p.top_k = INT32_MAX; EXPECT(p, 2, 8, 1, 4, 1);
}

/* The sums, likeliest first, are 0.5 0.75 0.875 0.9375 1: the first to reach top_p is the last that is kept. */
static void top_p(void) {
    plumb_sampling p = plain();
    p.top_p = 0;     EXPECT(p, 0, 8, 0, 0, 0);   /* one token is always kept */
    p.top_p = 0.49f; EXPECT(p, 0, 8, 0, 0, 0);
    p.top_p = 0.51f; EXPECT(p, 0, 8, 0, 4, 0);
    p.top_p = 0.8f;  EXPECT(p, 2, 8, 0, 4, 0);
    p.top_p = 0.9f;  EXPECT(p, 2, 8, 1, 4, 0);
    p.top_p = 0.95f; EXPECT(p, 2, 8, 1, 4, 1);
    /* After top_k 2 the shares are 2/3 and 1/3, so the first reaches 0.6. */
    p.top_p = 0.6f;
    p.top_k = 2;     EXPECT(p, 0, 8, 0, 0, 0);
    p.top_p = 0.7f;  EXPECT(p, 0, 8, 0, 4, 0);
}

/* Relative to the likeliest the tokens have 1/4 1 1/8 1/2 1/8. */
static void min_p(void) {
    plumb_sampling p = plain();
    p.min_p = 0.1f; EXPECT(p, 2, 8, 1, 4, 1);
    p.min_p = 0.2f; EXPECT(p, 2, 8, 0, 4, 0);
    p.min_p = 0.3f; EXPECT(p, 0, 8, 0, 4, 0);
    p.min_p = 0.6f; EXPECT(p, 0, 8, 0, 0, 0);
    p.min_p = 1;    EXPECT(p, 0, 8, 0, 0, 0);
}

/* In bits: information 3 1 4 2 4, entropy 3/8 + 1/2 + 4/16 + 2/4 + 4/16 = 1.875, distances 1.125 0.875 2.125 0.125
 * 2.125.  So the order is 3 1 0 2 4, the sums 0.25 0.75 0.875 0.9375 1; the first to exceed typical_p is the last. */
static void typical(void) {
    plumb_sampling p = plain();
    p.typical_p = 0;    EXPECT(p, 0, 0, 0, 4, 0);
    p.typical_p = 0.2f; EXPECT(p, 0, 0, 0, 4, 0);
    p.typical_p = 0.5f; EXPECT(p, 0, 8, 0, 4, 0);
    p.typical_p = 0.8f; EXPECT(p, 2, 8, 0, 4, 0);
    p.typical_p = 0.9f; EXPECT(p, 2, 8, 1, 4, 0);
    /* Greedy takes the likeliest of the typical ones, as llama.cpp's chain does. */
    p.typical_p = 0.2f;
    p.temperature = 0;
    plumb_sampler *s = create(5, p);
    int32_t token = plumb_sampler_sample(s, example);
    CHECK(token == 3, "token %d", token);
    plumb_sampler_free(s);
}

/* Filters use the probabilities at temperature 1: top_p 0.7 keeps tokens 1 and 3 at any temperature. */
static void filters_before_temperature(void) {
    plumb_sampling p = plain();
    p.top_p = 0.7f;
    p.temperature = 0.5f; EXPECT(p, 0, 64, 0, 16, 0);
    p.temperature = 1e6f; EXPECT(p, 0, exp2(3e-6), 0, exp2(2e-6), 0);
}

static void greedy(void) {
    static const float logits[6] = { -1, 2, 2, -INFINITY, NAN, 1 };
    plumb_sampling p = plain();
    p.temperature = 0;
    plumb_sampler *s = create(6, p);
    int32_t token = plumb_sampler_sample(s, logits);
    CHECK(token == 1, "of equal logits the lower id, not %d", token);
    plumb_sampler_free(s);
    p.temperature = -0.0f;
    p.top_k = 3, p.top_p = 0.5f, p.min_p = 0.5f;
    p.bias = &(plumb_logit_bias){ 5, 1.5f };   /* 1 + 1.5 > 2 */
    p.n_bias = 1;
    s = create(6, p);
    token = plumb_sampler_sample(s, logits);
    CHECK(token == 5, "with bias: %d", token);
    plumb_sampler_free(s);
}

/* ---- penalties and bias: exact in f32 ---------------------------------------------------------------------------- */

static void expect_values(plumb_sampler *s, const char *what, const float *logits, const float *expected) {
    double p[4];
    float values[4];
    spread(s, 4, logits, p, values);
    for (int i = 0; i < 4; i++) {
        CHECK(values[i] == expected[i] || (isnan(values[i]) && isnan(expected[i])), "%s: token %d has %g, expected %g",
              what, i, (double)values[i], (double)expected[i]);
    }
}
#define EXPECT_VALUES(s, what, ...) expect_values(s, what, four, (const float[4]){ __VA_ARGS__ })
static const float four[4] = { 2, -2, 1, 0.5f };

static void accept_all(plumb_sampler *s, const int32_t *tokens, size_t n) {
    for (size_t i = 0; i < n; i++) plumb_sampler_accept(s, tokens[i]);
}

static void repeat_penalty(void) {
    plumb_sampling p = plain();
    p.repeat_penalty = 2;
    plumb_sampler *s = create(4, p);
    EXPECT_VALUES(s, "nothing accepted", 2, -2, 1, 0.5f);
    accept_all(s, (const int32_t[]){ 0, 1, 0 }, 3);   /* once, however often the token occurred */
    EXPECT_VALUES(s, "2 / 2, -2 * 2", 1, -4, 1, 0.5f);
    plumb_sampler_free(s);
}

static void presence_and_frequency(void) {
    plumb_sampling p = plain();
    p.frequency_penalty = 0.25f;
    p.presence_penalty = 0.5f;
    plumb_sampler *s = create(4, p);
    accept_all(s, (const int32_t[]){ 0, 2, 0, 0 }, 4);
    EXPECT_VALUES(s, "2 - (3 * 0.25 + 0.5), 1 - (0.25 + 0.5)", 0.75f, -2, 0.25f, 0.5f);
    plumb_sampler_free(s);
    p.repeat_penalty = 2;
    s = create(4, p);
    accept_all(s, (const int32_t[]){ 0, 2, 0, 0 }, 4);
    EXPECT_VALUES(s, "repetition first: 2 / 2 - 1.25, 1 / 2 - 0.75", -0.25f, -2, -0.25f, 0.5f);
    plumb_sampler_free(s);
}

static void penalty_window(void) {
    plumb_sampling p = plain();
    p.frequency_penalty = 1;
    p.penalty_last_n = 2;
    plumb_sampler *s = create(4, p);
    accept_all(s, (const int32_t[]){ 0, 1, 2 }, 3);
    EXPECT_VALUES(s, "window 1 2", 2, -3, 0, 0.5f);
    accept_all(s, (const int32_t[]){ -1, 4, INT32_MAX, INT32_MIN }, 4);
    EXPECT_VALUES(s, "ids outside the vocabulary do not move the window", 2, -3, 0, 0.5f);
    plumb_sampler_accept(s, 3);
    EXPECT_VALUES(s, "window 2 3", 2, -2, 0, -0.5f);
    accept_all(s, (const int32_t[]){ 3, 3, 3 }, 3);
    EXPECT_VALUES(s, "window 3 3", 2, -2, 1, -1.5f);
    plumb_sampler_free(s);
    p.penalty_last_n = 0;
    s = create(4, p);
    plumb_sampler_accept(s, 0);
    EXPECT_VALUES(s, "window off", 2, -2, 1, 0.5f);
    plumb_sampler_free(s);
}

static void logit_bias(void) {
    plumb_logit_bias bias[] = { { 0, -1.5f }, { 3, 2 }, { 0, 0.25f }, { 2, -INFINITY } };
    plumb_sampling p = plain();
    p.bias = bias;
    p.n_bias = 4;
    plumb_sampler *s = create(4, p);
    bias[1].bias = 100;   /* the sampler has its own copy */
    EXPECT_VALUES(s, "2 - 1.5 + 0.25, 0.5 + 2, forbidden", 0.75f, -2, NAN, 2.5f);
    plumb_sampler_free(s);
    bias[0] = (plumb_logit_bias){ 1, 5 };
    p.n_bias = 1;
    p.repeat_penalty = 2;
    s = create(4, p);
    plumb_sampler_accept(s, 1);
    EXPECT_VALUES(s, "bias before penalties: (-2 + 5) / 2", 2, 1.5f, 1, 0.5f);
    plumb_sampler_free(s);
    bias[0] = (plumb_logit_bias){ 3, INFINITY };
    s = create(4, p);
    for (int i = 0; i < 8; i++) {
        int32_t token = plumb_sampler_sample(s, four);
        CHECK(token == 3, "+infinity forces the token, not %d", token);
    }
    plumb_sampler_free(s);
}

/* ---- edges ------------------------------------------------------------------------------------------------------- */

static void odd_logits(void) {
    const float no[4] = { -INFINITY, NAN, -INFINITY, -NAN }, one[4] = { NAN, -INFINITY, -1e30f, NAN },
                two[4] = { 1e38f, INFINITY, NAN, INFINITY }, far[4] = { -3e38f, 3e38f, 0, -INFINITY };
    plumb_sampling all[6] = { plain(), plain(), plain(), plain(), plain(), plain() };
    all[1].temperature = 0;
    all[2].top_k = 2;
    all[3].top_p = 0.9f;
    all[4].min_p = 0.1f;
    all[5].typical_p = 0.9f;
    for (int i = 0; i < 6; i++) {
        plumb_sampler *s = create(4, all[i]);
        int32_t token = plumb_sampler_sample(s, no);
        CHECK(token == -1, "setting %d: no token is possible, got %d", i, token);
        token = plumb_sampler_sample(s, one);
        CHECK(token == 2, "setting %d: only token 2 is possible, got %d", i, token);
        token = plumb_sampler_sample(s, far);
        CHECK(token == 1, "setting %d: all weight is on token 1, got %d", i, token);
        int seen = 0;
        for (int j = 0; j < 32; j++) {
            token = plumb_sampler_sample(s, two);
            CHECK(token == 1 || token == 3, "setting %d: +infinity wins, got %d", i, token);
            seen |= 1 << token;
        }
        CHECK(seen == (i == 1 ? 2 : 10), "setting %d: two infinities share, seen %x", i, (unsigned)seen);
        plumb_sampler_free(s);
    }
    /* Two infinities with a half each: the first exceeds typical_p 0.4. */
    all[5].typical_p = 0.4f;
    plumb_sampler *s = create(4, all[5]);
    double p[4];
    size_t n = spread(s, 4, (const float[4]){ INFINITY, 1e38f, NAN, INFINITY }, p, NULL);
    CHECK(n == 1 && p[0] == 1, "%zu candidates, %g", n, p[0]);
    plumb_sampler_free(s);
    s = create(1, plain());
    int32_t token = plumb_sampler_sample(s, four);
    CHECK(token == 0, "a vocabulary of one: %d", token);
    plumb_sampler_free(s);
}

/* Compares every selection order with a simple count of ranks, on logits with many ties. */
static void selection_is_exact(void) {
    enum { N = 613 };
    float logits[N];
    for (uint32_t i = 0; i < N; i++) logits[i] = (float)(i * 2654435761u >> 27);   /* 32 values, each ~19 times */
    static const uint32_t ks[] = { 1, 2, 3, 19, 40, 255, 256, 257, 611, 612 };
    for (size_t j = 0; j < sizeof ks / sizeof ks[0]; j++) {
        plumb_sampling p = plain();
        p.top_k = ks[j];
        plumb_sampler *s = create(N, p);
        size_t n;
        double total;
        const struct candidate *c = sampler_candidates(s, logits, &n, &total);
        CHECK(n == ks[j], "%zu candidates", n);
        for (size_t i = 0; i < n; i++) {
            size_t rank = 0;
            for (int32_t id = 0; id < N; id++) {
                rank += logits[id] > logits[c[i].id] || (logits[id] == logits[c[i].id] && id < c[i].id);
            }
            CHECK(rank == i, "k %u: token %d is at %zu, its rank is %zu", ks[j], c[i].id, i, rank);
        }
        plumb_sampler_free(s);
    }
}

/* Two equal tokens, weights 1 and 1: the first reaches a half, and only both exceed it. */
static void exact_halves(void) {
    static const float logits[2] = { 1, 1 };
    plumb_sampling p = plain();
    double share[2];
    p.top_p = 0.5f;
    plumb_sampler *s = create(2, p);
    size_t n = spread(s, 2, logits, share, NULL);
    CHECK(n == 1 && share[0] == 1, "top-p keeps %zu, %g", n, share[0]);
    plumb_sampler_free(s);
    p.top_p = 1;
    p.typical_p = 0.5f;
    s = create(2, p);
    n = spread(s, 2, logits, share, NULL);
    CHECK(n == 2 && share[0] == 0.5, "typical keeps %zu, %g", n, share[0]);
    plumb_sampler_free(s);
}

/* There are fewer possible tokens than top_k. */
static void top_k_of_few(void) {
    static const float logits[6] = { -INFINITY, 3, 1, 2, NAN, 4 };
    static const int32_t order[4] = { 5, 1, 3, 2 };
    plumb_sampling p = plain();
    p.top_k = 5;
    plumb_sampler *s = create(6, p);
    size_t n;
    double total;
    const struct candidate *c = sampler_candidates(s, logits, &n, &total);
    REQUIRE(n == 4, "%zu candidates", n);
    for (int i = 0; i < 4; i++) CHECK(c[i].id == order[i], "place %d has token %d", i, c[i].id);
    plumb_sampler_free(s);
}

/* Shares of sixteen: 1/8 1/2 1/16 1/4 1/16; ranks 1 3 0 2 4. */
static void log_probabilities(void) {
    static const int32_t ranks[5] = { 1, 3, 0, 2, 4 };
    static const double shares[5] = { 1 / 2.0, 1 / 4.0, 1 / 8.0, 1 / 16.0, 1 / 16.0 };
    int32_t ids[8];
    for (uint32_t k = 0; k <= 8; k++) {
        double log_sum = plumb_logits_top(example, 5, k, ids);
        CHECK(fabs(log_sum - log(16)) < 1e-7, "%.9f", log_sum);
        for (uint32_t i = 0; i < k; i++) {
            CHECK(ids[i] == (i < 5 ? ranks[i] : -1), "k = %u: place %u has %d", k, i, ids[i]);
            if (i < 5) CHECK(fabs(exp((double)example[ids[i]] - log_sum) - shares[i]) < 1e-7, "place %u", i);
        }
    }
    const float odd[6] = { NAN, 1e4f, -INFINITY, 1e4f, -1e4f, NAN };
    double log_sum = plumb_logits_top(odd, 6, 6, ids);
    CHECK(fabs(log_sum - (1e4 + log(2))) < 1e-9, "%.9f", log_sum);
    CHECK(ids[0] == 1 && ids[1] == 3 && ids[2] == 4 && ids[3] == -1, "%d %d %d %d", ids[0], ids[1], ids[2], ids[3]);
    const float none[2] = { NAN, -INFINITY };
    plumb_logits_top(none, 2, 1, ids);
    CHECK(ids[0] == -1, "%d", ids[0]);
}

static void bad_arguments(void) {
    struct { const char *word; plumb_sampling params; } rows[] = {
        { "temperature", plain() }, { "temperature", plain() }, { "top_p", plain() }, { "top_p", plain() },
        { "top_p", plain() }, { "min_p", plain() }, { "min_p", plain() }, { "typical_p", plain() },
        { "typical_p", plain() }, { "repeat_penalty", plain() }, { "repeat_penalty", plain() },
        { "repeat_penalty", plain() }, { "presence_penalty", plain() }, { "frequency_penalty", plain() },
        { "bias", plain() }, { "bias token", plain() }, { "bias token", plain() }, { "bias", plain() },
        { "temperature must be 0..1e6", plain() }, { "temperature", plain() }, { "top_k", plain() },
        { "penalty_last_n", plain() }, { "temperature", plain() }, { "repeat_penalty must be 1e-6..1e6", plain() },
        { "repeat_penalty", plain() }, { "presence_penalty must be -1e6..1e6", plain() },
        { "frequency_penalty", plain() },
    };
    plumb_logit_bias low = { -1, 0 }, high = { 4, 0 }, nan = { 0, NAN };
    rows[0].params.temperature = NAN;
    rows[1].params.temperature = INFINITY;
    rows[2].params.top_p = NAN;
    rows[3].params.top_p = 1.001f;
    rows[4].params.top_p = -0.001f;
    rows[5].params.min_p = NAN;
    rows[6].params.min_p = 1.5f;
    rows[7].params.typical_p = NAN;
    rows[8].params.typical_p = -1;
    rows[9].params.repeat_penalty = 0;
    rows[10].params.repeat_penalty = INFINITY;
    rows[11].params.repeat_penalty = NAN;
    rows[12].params.presence_penalty = NAN;
    rows[13].params.frequency_penalty = -INFINITY;
    rows[14].params.n_bias = 1;
    rows[15].params.n_bias = 1, rows[15].params.bias = &low;
    rows[16].params.n_bias = 1, rows[16].params.bias = &high;
    rows[17].params.n_bias = 1, rows[17].params.bias = &nan;
    rows[18].params.temperature = -1;
    rows[19].params.temperature = -1e-30f;
    rows[20].params.top_k = UINT32_MAX;
    rows[21].params.penalty_last_n = (1 << 24) + 1;
    rows[22].params.temperature = 1.000001e6f;
    rows[23].params.repeat_penalty = 0.999999e-6f;
    rows[24].params.repeat_penalty = 1.000001e6f;
    rows[25].params.presence_penalty = -1.000001e6f;
    rows[26].params.frequency_penalty = 1.000001e6f;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        plumb_sampler *s = (plumb_sampler *)&rows;
        const char *reason = NULL;
        plumb_status status = plumb_sampler_create(&s, 4, &rows[i].params, &reason);
        CHECK(status == PLUMB_ERROR_ARGUMENT && !s, "row %zu: status %d", i, status);
        CHECK(reason && strstr(reason, rows[i].word), "row %zu: %s", i, reason ? reason : "(null)");
        status = plumb_sampler_create(&s, 4, &rows[i].params, NULL);
        CHECK(status == PLUMB_ERROR_ARGUMENT && !s, "row %zu without a reason: status %d", i, status);
    }
    /* The limits themselves are allowed. */
    plumb_sampling least = { .repeat_penalty = 1e-6f, .presence_penalty = -1e6f, .frequency_penalty = -1e6f };
    plumb_sampling most = { .temperature = 1e6f, .top_k = INT32_MAX, .top_p = 1, .min_p = 1, .typical_p = 1,
                            .repeat_penalty = 1e6f, .presence_penalty = 1e6f, .frequency_penalty = 1e6f,
                            .penalty_last_n = 1 << 24, .seed = UINT64_MAX };
    plumb_sampler_free(create(4, least));
    plumb_sampler_free(create(4, most));
    plumb_sampler *s;
    plumb_sampling p = plain();
    CHECK(plumb_sampler_create(&s, 0, &p, NULL) == PLUMB_ERROR_ARGUMENT, "an empty vocabulary");
    CHECK(plumb_sampler_create(&s, 1u << 31, &p, NULL) == PLUMB_ERROR_ARGUMENT, "ids beyond int32");
    p = plumb_sampling_default();
    CHECK(p.temperature == 0.8f && p.top_k == 40 && p.top_p == 0.95f && p.min_p == 0.05f && p.typical_p == 1 &&
          p.repeat_penalty == 1 && p.presence_penalty == 0 && p.frequency_penalty == 0 && p.penalty_last_n == 64 &&
          p.n_bias == 0 && p.bias == NULL && p.seed == 0, "the documented defaults");
    plumb_sampler_free(NULL);
}

/* ---- llama.cpp --------------------------------------------------------------------------------------------------- */

static void as_llama_cpp(void) {
    size_t n_bytes;
    uint8_t *file = test_read_all("tests/vectors/sampler/llama.bin", &n_bytes);
    REQUIRE(file, "no vectors");
    const uint8_t *at = file;
    static float logits[MAX_VOCAB];
    static double p[MAX_VOCAB];
    uint32_t n_case = load_u32(at);
    at += 4;
    for (uint32_t i = 0; i < n_case; i++) {
        uint32_t h[13];
        for (int j = 0; j < 13; j++, at += 4) h[j] = load_u32(at);
        plumb_logit_bias bias[4];
        for (uint32_t j = 0; j < h[9]; j++, at += 8) {
            bias[j] = (plumb_logit_bias){ (int32_t)load_u32(at), f32_from_bits(load_u32(at + 4)) };
        }
        plumb_sampling params = {
            .temperature = f32_from_bits(h[0]), .top_k = h[1], .top_p = f32_from_bits(h[2]),
            .min_p = f32_from_bits(h[3]), .typical_p = f32_from_bits(h[4]), .repeat_penalty = f32_from_bits(h[5]),
            .presence_penalty = f32_from_bits(h[6]), .frequency_penalty = f32_from_bits(h[7]), .penalty_last_n = h[8],
            .n_bias = h[9], .bias = bias,
        };
        uint32_t n_vocab = h[11], n_expected = h[12];
        plumb_sampler *s = create(n_vocab, params);
        for (uint32_t j = 0; j < h[10]; j++, at += 4) plumb_sampler_accept(s, (int32_t)load_u32(at));
        for (uint32_t j = 0; j < n_vocab; j++, at += 4) logits[j] = f32_from_bits(load_u32(at));
        size_t n = spread(s, n_vocab, logits, p, NULL);
        CHECK(n == n_expected, "case %u: %zu candidates, llama.cpp has %u", i, n, n_expected);
        for (uint32_t j = 0; j < n_expected; j++, at += 8) {
            double theirs = (double)f32_from_bits(load_u32(at + 4)), ours = p[load_u32(at)];
            /* llama.cpp computes f32 exponentials of f32 quotients */
            CHECK(fabs(ours - theirs) <= 4e-6 * theirs, "case %u, token %u: %.9g, llama.cpp has %.9g", i, load_u32(at),
                  ours, theirs);
        }
        plumb_sampler_free(s);
    }
    CHECK(at == file + n_bytes, "%td bytes read of %zu", at - file, n_bytes);
    free(file);
}

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

/* The outputs of the authors' C code, as published in the tests of the Rust crate rand_xoshiro. */
static void published_random_numbers(void) {
    static const uint64_t xoshiro[10] = {
        11520u, 0u, 1509978240u, 1215971899390074240u, 1216172134540287360u, 607988272756665600u,
        16172922978634559625u, 8476171486693032832u, 10595114339597558777u, 2904607092377533576u,
    };
    static const uint64_t splitmix[4] = {
        1985237415132408290u, 2979275885539914483u, 13511426838097143398u, 8488337342461049707u,
    };
    struct rng rng = { { 1, 2, 3, 4 } };
    for (int i = 0; i < 10; i++) {
        uint64_t x = rng_next(&rng);
        CHECK(x == xoshiro[i], "xoshiro256** output %d is %llu", i, (unsigned long long)x);
    }
    rng_seed(&rng, 1477776061723855037u);
    for (int i = 0; i < 4; i++) {
        CHECK(rng.s[i] == splitmix[i], "splitmix64 output %d is %llu", i, (unsigned long long)rng.s[i]);
    }
    rng = (struct rng){ { 1, 2, 3, 4 } };
    CHECK(rng_uniform(&rng) == 5 * 0x1p-53, "11520 >> 11 = 5");
}

/* Pearson's chi-square of 64000 draws; the bound is the 99.9 % quantile, and the seed is fixed. */
static void expect_draws(plumb_sampling params, const double *shares, double bound) {
    enum { DRAWS = 64000 };
    plumb_sampler *s = create(5, params);
    int count[5] = { 0 };
    double total = 0, chi2 = 0;
    for (int i = 0; i < DRAWS; i++) {
        int32_t token = plumb_sampler_sample(s, example);
        if (!CHECK(token >= 0 && token < 5, "token %d", token)) break;
        count[token]++;
    }
    for (int i = 0; i < 5; i++) total += shares[i];
    for (int i = 0; i < 5; i++) {
        double expected = (double)DRAWS * shares[i] / total;
        CHECK(expected > 0 || count[i] == 0, "token %d was drawn %d times and has no weight", i, count[i]);
        if (expected > 0) chi2 += (count[i] - expected) * (count[i] - expected) / expected;
    }
    CHECK(chi2 < bound, "chi-square %.2f, bound %.2f", chi2, bound);
    CHECK(chi2 > 0.01, "chi-square %.4f: too even to be random", chi2);
    plumb_sampler_free(s);
}
#define EXPECT_DRAWS(params, bound, ...) expect_draws(params, (const double[5]){ __VA_ARGS__ }, bound)

static void draws_follow_probabilities(void) {
    plumb_sampling p = plain();
    for (p.seed = 0; p.seed < 4; p.seed++) EXPECT_DRAWS(p, 18.47, 2, 8, 1, 4, 1);   /* 4 degrees of freedom */
    p.temperature = 0.5f;
    p.top_k = 4;
    for (; p.seed < 8; p.seed++) EXPECT_DRAWS(p, 16.27, 4, 64, 1, 16, 0);           /* 3 */
}

static void golden_draws(void) {
    enum { N = 1000, DRAWS = 64 };
    size_t n_bytes;
    uint8_t *file = test_read_all("tests/vectors/sampler/golden.bin", &n_bytes);
    REQUIRE(file && n_bytes == DRAWS * 4, "golden.bin");
    static float logits[N];
    for (uint32_t i = 0; i < N; i++) logits[i] = (float)((double)(i * 2654435761u >> 8) / 0x1p24 * 8 - 4);
    plumb_sampling p = plumb_sampling_default();
    p.repeat_penalty = 1.25f;
    p.seed = 2026;
    plumb_sampler *s = create(N, p);
    p.seed = 2027;
    plumb_sampler *other = create(N, p);
    int n_equal = 0;
    for (int i = 0; i < DRAWS; i++) {
        int32_t expected = (int32_t)load_u32(file + 4 * i), token = plumb_sampler_sample(s, logits);
        CHECK(token == expected, "draw %d: %d, expected %d", i, token, expected);
        plumb_sampler_accept(s, token);
        n_equal += plumb_sampler_sample(other, logits) == token;
    }
    CHECK(n_equal < DRAWS / 2, "another seed, and %d of %d tokens are the same", n_equal, DRAWS);
    plumb_sampler_free(s);
    plumb_sampler_free(other);
    free(file);
}

/* Sampling among allowed tokens is sampling with the bias -infinity on all others. */
static void sample_allowed(void) {
    enum { N = 300 };
    float logits[N];
    uint32_t allowed[(N + 31) / 32] = { 0 };
    plumb_logit_bias bias[N];
    uint32_t n_bias = 0;
    struct rng rng;
    rng_seed(&rng, 5);
    for (int i = 0; i < N; i++) {
        logits[i] = (float)(8 * rng_uniform(&rng));
        if (rng_next(&rng) % 4 == 0) allowed[i / 32] |= 1u << i % 32;
        else bias[n_bias++] = (plumb_logit_bias){ i, -INFINITY };
    }
    for (int k = 0; k < 3; k++) {
        plumb_sampling params = k == 0 ? plain() : plumb_sampling_default();
        params.temperature = k == 2 ? 0 : 1.5f;
        params.repeat_penalty = k == 0 ? 1 : 1.3f;
        plumb_sampler *one = create(N, params);
        params.bias = bias;
        params.n_bias = n_bias;
        plumb_sampler *other = create(N, params);
        for (int i = 0; one && other && i < 50; i++) {
            int32_t a = plumb_sampler_sample_allowed(one, logits, allowed), b = plumb_sampler_sample(other, logits);
            CHECK(a == b && a >= 0 && allowed[a / 32] >> a % 32 & 1, "draw %d: token %d, with a bias %d", i, (int)a,
                  (int)b);
            plumb_sampler_accept(one, a);
            plumb_sampler_accept(other, b);
        }
        uint32_t none[(N + 31) / 32] = { 0 };
        if (one) CHECK(plumb_sampler_sample_allowed(one, logits, none) == -1, "none is allowed");
        plumb_sampler_free(one);
        plumb_sampler_free(other);
    }
}

void test_sampler(void) {
    test_case("sampler: among allowed tokens as with a bias of -infinity on the others", sample_allowed);
    test_case("sampler: temperature divides the logits", temperature);
    test_case("sampler: top-k keeps the k likeliest, of equal ones the lower ids", top_k);
    test_case("sampler: top-p keeps the shortest run that reaches p", top_p);
    test_case("sampler: min-p keeps what is at least p times as likely as the likeliest", min_p);
    test_case("sampler: typical-p keeps the tokens nearest to the entropy", typical);
    test_case("sampler: the filters apply at temperature 1", filters_before_temperature);
    test_case("sampler: greedy takes the likeliest, of equal ones the lower id", greedy);
    test_case("sampler: the repetition penalty divides positive and multiplies negative logits", repeat_penalty);
    test_case("sampler: presence and frequency penalties are subtracted", presence_and_frequency);
    test_case("sampler: penalties look at the last n tokens", penalty_window);
    test_case("sampler: logit bias is added first, -infinity forbids, +infinity forces", logit_bias);
    test_case("sampler: NaN and infinite logits are handled", odd_logits);
    test_case("sampler: selection is exact where logits are equal", selection_is_exact);
    test_case("sampler: top-p stops when the sum reaches p, typical-p when it exceeds p", exact_halves);
    test_case("sampler: top-k works with fewer possible tokens", top_k_of_few);
    test_case("sampler: log-probabilities are those of the example, equal logits by id, NaN and -infinity left out",
              log_probabilities);
    test_case("sampler: arguments out of range are refused by name", bad_arguments);
    test_case("sampler: candidates and probabilities equal llama.cpp's", as_llama_cpp);
    test_case("sampler: random numbers equal those published for xoshiro256** and splitmix64",
              published_random_numbers);
    test_case("sampler: draws follow the probabilities (chi-square)", draws_follow_probabilities);
    test_case("sampler: 64 tokens of a seed equal those of the Python implementation", golden_draws);
}

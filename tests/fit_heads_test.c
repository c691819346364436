/* Analysers of the steps that work on heads: RoPE, attention weights, attention output.  Ground truth: the formulas of
 * each mistake, written out below.  The engine computes nothing here. */
#include "diagnose/fit.h"
#include "test.h"
#include "trace/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_TOKEN = 9, N_PROMPT = 6, N_HEAD = 4 };
#define DIM 16   /* not an enumerator, because clang warns where one meets a double */

/* A model without weights.  Layer 0 is tested; layer 1 has another RoPE. */
struct toy {
    struct model model;
    struct layer layer[2];
    struct layer_plan layer_plan[2];
    struct program program;
};

static void toy_make(struct toy *toy) {
    memset(toy, 0, sizeof *toy);
    struct plan *p = &toy->model.plan;
    toy->model.layers = toy->layer;
    p->layers = toy->layer_plan;
    p->n_layer = 2;
    p->n_embd = N_HEAD * DIM;
    p->steps = steps_block;
    p->ropes[ROPE_GLOBAL] = (struct rope_plan){ .pairing = ROPE_NORM, .n_rot = DIM, .freq_base = 10000, .freq_scale = 1,
                                                .magnitude = 1 };
    p->ropes[ROPE_LOCAL] = p->ropes[ROPE_GLOBAL];
    p->ropes[ROPE_LOCAL].freq_base = 100;
    toy->layer_plan[1].attn.rope = ROPE_LOCAL;
    toy->layer_plan[0].attn = (struct attn_plan){ .n_head = N_HEAD, .n_head_kv = N_HEAD, .k_dim = DIM, .v_dim = DIM,
                                                  .is_causal = true };
    toy->program = program_of(p, &toy->model, 0);
    toy->layer[0].program = &toy->program;
}

/* Numbers from -1 to 1. */
static double noise(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (double)(int32_t)*state / 2147483648.0;
}

static void add_row(struct plumb_trace *t, enum tap_id id, uint32_t pos, uint32_t n_head, uint32_t n, const float *x) {
    struct trace_row *row;
    bool ok = trace_new_row(t, id, 0, pos, &row) == PLUMB_OK
           && trace_set_values(t, row, id, n_head, n, x, NULL, n_head * n) == PLUMB_OK;
    CHECK(ok, "%s", plumb_trace_error(t));
}

/* What was said of a step. */
struct said {
    uint32_t n_clear;
    char first[FIT_SENTENCE + FIT_WHERE + 8], all[2048];
};

static struct said analyse(const struct toy *toy, const struct plumb_trace *theirs, const struct plumb_trace *right,
                           enum tap_id id, double floor) {
    struct error err = { 0 };
    struct said said = { 0 };
    struct fit f = { .model = &toy->model, .dump = theirs, .right = right, .id = id, .n_prompt = N_PROMPT,
                     .floor = floor };
    if (CHECK(fit_begin(&f), "no rows") && CHECK(fit_analyse(&f, &err) == PLUMB_OK, "%s", err.message)) {
        said.n_clear = f.n_clear;
        size_t n_first = 0, n_all = 0;
        for (uint32_t i = 0; i < f.n_finding; i++) {
            const struct finding *g = &f.findings[i];
            const char *comma = *g->where ? ", " : "";
            if (i == 0 && f.n_clear > 0) {
                report_append(said.first, sizeof said.first, &n_first, "%s%s%s", g->sentence, comma, g->where);
            }
            report_append(said.all, sizeof said.all, &n_all, "\n  %.2g %s%s%s", g->error, g->sentence, comma, g->where);
        }
    }
    fit_free(&f);
    return said;
}

static void check_said(const struct said *said, const char *says) {
    if (!says) CHECK(said->n_clear == 0, "%s%s", said->first, said->all);
    else CHECK(said->n_clear == 1 && strstr(said->first, says), "%u clear, no \"%s\": %s", said->n_clear, says,
               said->all);
}

/* ---- RoPE -------------------------------------------------------------------------------------------------------- */

/* Su et al. 2021: (a, b) becomes (a cos - b sin, a sin + b cos). */
static void turn(const double *x, double *y, int a, int b, double angle) {
    y[a] = x[a] * cos(angle) - x[b] * sin(angle);
    y[b] = x[a] * sin(angle) + x[b] * cos(angle);
}

static void neighbours(const double *x, double *y, double position, double base, double width) {
    for (int i = 0; i < DIM / 2; i++) turn(x, y, 2 * i, 2 * i + 1, position * pow(base, -2 * i / width));
}

static void halves(const double *x, double *y, double position) {
    for (int i = 0; i < DIM / 2; i++) turn(x, y, i, i + DIM / 2, position * pow(10000, -2.0 * i / DIM));
}

static void usual(const double *x, double *y, double position) { neighbours(x, y, position, 10000, DIM); }

typedef void rope_step(const double *x, double *y, uint32_t pos, uint32_t head);   /* y is a copy of x */

#define STEP(name) static void name(const double *x, double *y, uint32_t pos, uint32_t head)
STEP(rope_right) { (void)head; usual(x, y, pos); }
STEP(rope_none) { (void)x, (void)y, (void)pos, (void)head; }
STEP(rope_halves) { (void)head; halves(x, y, pos); }
STEP(rope_base) { (void)head; neighbours(x, y, pos, 500000, DIM); }
STEP(rope_odd_base) { (void)head; neighbours(x, y, pos, 12345, DIM); }
STEP(rope_width) { (void)head; neighbours(x, y, pos, 10000, 3 * DIM); }
STEP(rope_later) { (void)head; usual(x, y, pos + 1); }
STEP(rope_fixed) { (void)pos, (void)head; usual(x, y, 3); }
STEP(rope_from_end) { (void)head; usual(x, y, N_TOKEN - 1 - pos); }
STEP(rope_restarted) { (void)head; usual(x, y, pos < N_PROMPT ? pos : pos - N_PROMPT); }
STEP(rope_frozen) { (void)head; usual(x, y, pos < N_PROMPT ? pos : N_PROMPT); }
STEP(rope_late_decoding) { (void)head; usual(x, y, pos < N_PROMPT ? pos : pos + 1); }
STEP(rope_reversed) { (void)head; usual(x, y, -(double)pos); }
STEP(rope_twice) { (void)head; usual(x, y, 2.0 * pos); }
STEP(rope_quarter) { (void)head; usual(x, y, 0.25 * pos); }
STEP(rope_degrees) { (void)head; usual(x, y, pos * 3.14159265358979 / 180); }
STEP(rope_heads) { (void)pos; usual(x, y, head); }
STEP(rope_one_head) { neighbours(x, y, pos, head == 2 ? 500000 : 10000, DIM); }
STEP(rope_integers) {
    (void)head;
    for (int i = 0; i < DIM / 2; i++) turn(x, y, 2 * i, 2 * i + 1, pos * pow(10000, -(2 * i / DIM)));
}
STEP(rope_from_1) {
    (void)head;
    for (int i = 0; i < DIM / 2; i++) turn(x, y, 2 * i, 2 * i + 1, pos * pow(10000, -2.0 * (i + 1) / DIM));
}
STEP(rope_scaled_base) {
    (void)head;
    for (int i = 0; i < DIM / 2; i++) turn(x, y, 2 * i, 2 * i + 1, 0.3 * pos * pow(54321, -2.0 * i / DIM));
}
STEP(rope_part) {
    (void)head;
    for (int i = 0; i < DIM / 4; i++) turn(x, y, 2 * i, 2 * i + 1, pos * pow(10000, -2.0 * i / DIM));
}
STEP(rope_half) {   /* n_rot is half of what it should be */
    (void)head;
    for (int i = 0; i < DIM / 4; i++) turn(x, y, 2 * i, 2 * i + 1, pos * pow(10000, -2.0 * i / (DIM / 2)));
}
STEP(rope_backwards) {
    (void)head;
    for (int i = 0; i < DIM / 2; i++) turn(x, y, 2 * i, 2 * i + 1, pos * pow(10000, -2.0 * (DIM / 2 - 1 - i) / DIM));
}
STEP(rope_in_place) {
    (void)head;
    for (int i = 0; i < DIM; i += 2) {
        double angle = pos * pow(10000, -(double)i / DIM);
        y[i] = y[i] * cos(angle) - y[i + 1] * sin(angle);
        y[i + 1] = y[i] * sin(angle) + y[i + 1] * cos(angle);
    }
    (void)x;
}
STEP(rope_exchanged) {
    (void)head;
    for (int i = 0; i < DIM; i += 2) {
        double angle = pos * pow(10000, -(double)i / DIM);
        y[i] = x[i] * sin(angle) - x[i + 1] * cos(angle);
        y[i + 1] = x[i] * cos(angle) + x[i + 1] * sin(angle);
    }
}
STEP(rope_signs) {
    (void)head;
    for (int i = 0; i < DIM; i += 2) {
        double angle = pos * pow(10000, -(double)i / DIM);
        y[i] = x[i] * cos(angle) + x[i + 1] * sin(angle);
        y[i + 1] = x[i] * sin(angle) + x[i + 1] * cos(angle);
    }
}
STEP(rope_scaled_halves) {
    (void)head;
    halves(x, y, pos);
    for (int i = 0; i < DIM; i++) y[i] *= 0.25;
}
STEP(rope_reordered) {   /* the pairs are written to the two halves */
    (void)head;
    double z[DIM];
    usual(x, z, pos);
    for (int i = 0; i < DIM; i++) y[i % 2 * DIM / 2 + i / 2] = z[i];
}
STEP(rope_squared) { (void)pos, (void)head; for (int i = 0; i < DIM; i++) y[i] = x[i] * x[i]; }
STEP(rope_random) {   /* no rotation: the sizes of pairs change too */
    uint32_t state = pos * N_HEAD + head;
    usual(x, y, pos);
    for (int i = 0; i < DIM; i++) y[i] *= 1 + 0.5 * noise(&state);
}
STEP(rope_next_head) { (void)head; usual(x, y, pos); y[0] = y[1]; }

struct rope_case {
    const char *name;
    rope_step *step;
    const char *says;   /* NULL: no verdict */
};

static const struct rope_case rope_cases[] = {
    { "the right step", rope_right, NULL },
    { "no rotation", rope_none, "is not rotated" },
    { "pairs of halves", rope_halves, "is rotated by the right angles, and the pairs are elements i and i + 8 of a "
      "head, not 2i and 2i + 1" },
    { "another base", rope_base, "by frequencies of base 500000, not 10000" },
    { "a base that nobody uses", rope_odd_base, "by frequencies of base 1234" },
    { "another width in the exponents", rope_width, "by frequencies of 10000^(-2i / 48), not 10000^(-2i / 16)" },
    { "one position later", rope_later, "as at position p + 1 in the token at p" },
    { "the same position everywhere", rope_fixed, "as at position 3 in every token" },
    { "positions from the end", rope_from_end, "by positions that count from the last token" },
    { "positions that restart", rope_restarted, "by positions that begin at 0 again after the prompt" },
    { "positions that stop", rope_frozen, "as at position 6 in every token after the prompt" },
    { "one position later in decoding", rope_late_decoding, "as at position p + 1 in the token at p, only in tokens "
      "that were decoded one by one" },
    { "the opposite direction", rope_reversed, "is rotated in the opposite direction" },
    { "twice", rope_twice, "is rotated twice" },
    { "scaled positions", rope_quarter, "by positions times 0.25, not times 1" },
    { "degrees", rope_degrees, "cosine and sine are taken of degrees, not radians" },
    { "heads as positions", rope_heads, "by the index of the head instead of the position" },
    { "another base in one head", rope_one_head, "by frequencies of base 500000, not 10000, only in head 2" },
    { "a division of integers", rope_integers, "by the same frequency, 1, in all pairs" },
    { "exponents from 1", rope_from_1, "by frequencies whose exponents begin at i = 1" },
    { "scaling and another base", rope_scaled_base, "by frequencies of 0.3" },
    { "some of the pairs", rope_part, "in the pairs 0 to 3 alone, of 8 pairs" },
    { "half of n_rot", rope_half, "by frequencies of 4 pairs, not 8, of 10000^(-2i / 8), not 10000^(-2i / 16)" },
    { "frequencies in reverse order", rope_backwards, "by the frequencies of the pairs in reverse order" },
    { "in place", rope_in_place, "the second element is computed from the first one after its rotation" },
    { "sine and cosine exchanged", rope_exchanged, "with sine and cosine exchanged" },
    { "a wrong sign", rope_signs, "pairs (a, b) become (a cos + b sin, a sin + b cos), not" },
    { "halves and a factor", rope_scaled_halves, "i and i + 8 of a head, not 2i and 2i + 1, and multiplied by 0.25" },
    { "another order of elements", rope_reordered, "has the elements of each head in the order of the transposed "
      "(8, 2)" },
    { "squares", rope_squared, NULL },
    { "random factors", rope_random, NULL },
    { "an element in the wrong place", rope_next_head, NULL },
};

/* Runs a step on random rows and analyses it.  `right` is the right step. */
static void check_rope(const struct toy *toy, enum tap_id input, enum tap_id id, rope_step *right_step, rope_step *step,
                       double rounding, const char *says) {
    struct plumb_trace *theirs = plumb_trace_create(), *right = plumb_trace_create();
    uint32_t state = 7;
    REQUIRE(theirs && right, "out of memory");
    int32_t tokens[N_TOKEN] = { 0 };
    CHECK(trace_set_tokens(theirs, tokens, N_TOKEN, N_PROMPT) == PLUMB_OK, "%s", plumb_trace_error(theirs));
    for (uint32_t pos = 0; pos < N_TOKEN; pos++) {
        float before[N_HEAD * DIM], after[2][N_HEAD * DIM];
        for (uint32_t h = 0; h < N_HEAD; h++) {
            double x[DIM], y[2][DIM];
            for (int i = 0; i < DIM; i++) {
                before[h * DIM + (uint32_t)i] = (float)noise(&state);
                x[i] = y[0][i] = y[1][i] = (double)before[h * DIM + (uint32_t)i];
            }
            right_step(x, y[0], pos, h);
            step(x, y[1], pos, h);
            for (uint32_t i = 0; i < DIM; i++) {
                after[0][h * DIM + i] = (float)y[0][i];
                after[1][h * DIM + i] = (float)(y[1][i] * (1 + rounding * noise(&state)));
            }
        }
        add_row(right, id, pos, N_HEAD, DIM, after[0]);
        if (input != id) add_row(theirs, input, pos, N_HEAD, DIM, before);
        add_row(theirs, id, pos, N_HEAD, DIM, after[1]);
    }
    double floor = rounding > 0 ? 2 * rounding : 1e-6;
    struct said said = analyse(toy, theirs, right, id, floor);
    check_said(&said, says);
    plumb_trace_free(theirs);
    plumb_trace_free(right);
}

static void rope(const void *arg) {
    const struct rope_case *c = arg;
    struct toy toy;
    toy_make(&toy);
    check_rope(&toy, TAP_QCUR, TAP_QCUR_ROPE, rope_right, c->step, 0, c->says);
    check_rope(&toy, TAP_KCUR, TAP_KCUR_ROPE, rope_right, c->step, 5e-4, c->says);   /* as f16 rounds */
}

/* Half of each head is rotated, in pairs of halves, with factors of pairs, a scaling factor of 4 and a magnitude. */
static const float factors[DIM / 4] = { 1, 2, 3, 8 };

static void scaled(const double *x, double *y, double position, double factor_power, double scale, double magnitude) {
    for (int i = 0; i < DIM / 4; i++) {
        double frequency = pow(500, -2.0 * i / (DIM / 2)) * pow((double)factors[i], factor_power) * scale;
        turn(x, y, i, i + DIM / 4, position * frequency);
        y[i] *= magnitude;
        y[i + DIM / 4] *= magnitude;
    }
}

STEP(scaled_right) { (void)head; scaled(x, y, pos, -1, 0.25, 1.2); }
STEP(scaled_base) {
    (void)head;
    for (int i = 0; i < DIM / 4; i++) {
        turn(x, y, i, i + DIM / 4, pos * pow(20000, -2.0 * i / (DIM / 2)) / (double)factors[i] / 4);
        y[i] *= 1.2;
        y[i + DIM / 4] *= 1.2;
    }
}
STEP(scaled_no_factors) { (void)head; scaled(x, y, pos, 0, 0.25, 1.2); }
STEP(scaled_times_factors) { (void)head; scaled(x, y, pos, 1, 0.25, 1.2); }
STEP(scaled_nothing) { (void)head; scaled(x, y, pos, 0, 1, 1.2); }
STEP(scaled_not) { (void)head; scaled(x, y, pos, -1, 1, 1.2); }
STEP(scaled_small) { (void)head; scaled(x, y, pos, -1, 0.25, 1); }
STEP(scaled_last) {   /* the last half of each head */
    (void)head;
    scaled(x + DIM / 2, y + DIM / 2, pos, -1, 0.25, 1.2);
}
STEP(scaled_neighbours) {
    (void)head;
    for (int i = 0; i < DIM / 4; i++) {
        turn(x, y, 2 * i, 2 * i + 1, pos * pow(500, -2.0 * i / (DIM / 2)) / (double)factors[i] / 4);
        y[2 * i] *= 1.2;
        y[2 * i + 1] *= 1.2;
    }
}

static const struct rope_case scaled_cases[] = {
    { "the right step", scaled_right, NULL },
    { "another base", scaled_base, "by frequencies of base 20000, not 500, with the right scaling and factors" },
    { "no factors", scaled_no_factors, "by frequencies without the factors of pairs" },
    { "the inverse of the factors", scaled_times_factors, "multiplied by the factors of pairs, not divided by them" },
    { "neither factors nor scaling", scaled_nothing, "with neither the scaling factor nor the factors of pairs" },
    { "no scaling", scaled_not, "is rotated by positions times 1, not times 0.25" },
    { "no magnitude", scaled_small, "without multiplying cosine and sine by 1.2" },
    { "the last elements of heads", scaled_last, "the pairs are elements 8 + i and 12 + i of a head, not i and i + 4" },
    { "neighbours", scaled_neighbours, "the pairs are elements 2i and 2i + 1 of a head, not i and i + 4" },
};

static void rope_scaled(const void *arg) {
    const struct rope_case *c = arg;
    struct toy toy;
    struct weight w = { .n_in = DIM / 4, .n_out = 1, .data = (const uint8_t *)factors };
    toy_make(&toy);
    toy.model.rope_freqs.w = &w;
    toy.model.plan.ropes[ROPE_GLOBAL] = (struct rope_plan){ .pairing = ROPE_NEOX, .n_rot = DIM / 2, .freq_base = 500,
        .freq_scale = 0.25f, .magnitude = 1.2f, .has_factors = true };
    check_rope(&toy, TAP_QCUR, TAP_QCUR_ROPE, scaled_right, c->step, 0, c->says);
}

static void rope_early(void) {
    struct toy toy;
    toy_make(&toy);
    check_rope(&toy, TAP_VCUR, TAP_VCUR, rope_none, rope_right, 0, "is rotated by the right angles");
    check_rope(&toy, TAP_VCUR, TAP_VCUR, rope_none, rope_halves, 0, "i and i + 8 of a head");
    check_rope(&toy, TAP_VCUR, TAP_VCUR, rope_none, rope_none, 0, NULL);
    check_rope(&toy, TAP_VCUR, TAP_VCUR, rope_none, rope_random, 0, NULL);
}

/* ---- attention weights ------------------------------------------------------------------------------------------- */

enum { N_KV = 2 };

/* softmax(q k / sqrt(DIM)) over the keys up to the token's own; head h of Q reads head h / 2 of K. */
enum attention_mistake {
    RIGHT, SCALE_1, SCALE_DIM, SCALE_ODD, SOFTCAP, STRICT, NO_MASK, NEXT_TOKEN, WINDOW, SUM_LATE, OVER_QUERIES,
    OVER_HEADS, NO_SUM, EXTRA_KEY, INTERLEAVED, FIRST_HEAD, ODD_HEADS, PREVIOUS_SLOT, ZERO_SLOT, OTHER_SLOT, LAYOUT,
    LAYOUT_BATCH, STRIDE, OWN_ZERO, OVERWRITTEN, LESS_ELEMENTS, ONE_HEAD, DECODED_OWN, WEAK_MASK, SLOTS, BASE_2,
    RANDOM_SCORES, SQUARES
};

struct attention_data {
    float q[N_TOKEN][N_HEAD][DIM], k[N_TOKEN][N_KV][DIM], v[N_TOKEN][N_KV][DIM];
    float weights[N_TOKEN][N_HEAD][N_TOKEN], out[N_TOKEN][N_HEAD * DIM];
};

static double dot(const float *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static bool sees(enum attention_mistake m, uint32_t t, uint32_t j) {
    bool is_filled = j < (t < N_PROMPT ? N_PROMPT : t + 1);
    switch (m) {
    case STRICT: return j < t || j + t == 0;
    case NO_MASK: case WEAK_MASK: return is_filled;
    case NEXT_TOKEN: return j <= t + 1 && is_filled;
    case WINDOW: return j <= t && j + 3 > t;
    case OVERWRITTEN: return j <= t && j <= N_PROMPT;
    case DECODED_OWN: return j < t || (j == t && t < N_PROMPT);
    default: return j <= t;
    }
}

static double score(const struct attention_data *d, enum attention_mistake m, uint32_t t, uint32_t h, uint32_t j) {
    static const float zeros[DIM];
    static const uint32_t odd_heads[N_HEAD] = { 1, 0, 0, 1 };
    uint32_t g = m == INTERLEAVED ? h % N_KV : m == FIRST_HEAD ? 0 : m == ODD_HEADS ? odd_heads[h] : h / 2;
    const float *k = d->k[j][g];
    if (m == PREVIOUS_SLOT) k = j > 0 ? d->k[j - 1][g] : zeros;
    if (m == ZERO_SLOT && j == 2) k = zeros;
    if (m == OTHER_SLOT && j == 3) k = d->k[1][g];
    uint32_t n_slot = m == LAYOUT ? N_TOKEN : t < N_PROMPT ? N_PROMPT : t + 1, row = g * n_slot + j;
    if (m == LAYOUT || (m == LAYOUT_BATCH && j < n_slot)) k = d->k[row / N_KV][row % N_KV];
    if (m == STRIDE) k = j * (N_HEAD / N_KV) < n_slot ? d->k[j * (N_HEAD / N_KV)][g] : zeros;
    if (m == OWN_ZERO && t >= N_PROMPT && j == t) k = zeros;
    if (m == OVERWRITTEN && t > N_PROMPT && j == N_PROMPT) k = d->k[t][g];
    double scale = m == SCALE_1 ? 1 : m == SCALE_DIM ? 1.0 / DIM : m == SCALE_ODD ? 0.337 : 0.25;
    if (m == ONE_HEAD && h == 3) scale = 1;
    double s = dot(d->q[t][h], k, m == LESS_ELEMENTS ? DIM / 2 : DIM) * scale;
    if (m == SOFTCAP) s = 2 * tanh(s / 2);
    if (m == WEAK_MASK && j > t) s -= 3;
    if (m == BASE_2) s *= log(2);
    if (m == SQUARES) s *= fabs(s);
    uint32_t state = j * 64 + h * 1000 + t;
    return m == RANDOM_SCORES ? 2 * noise(&state) : s;
}

/* Divides exponentials by sums over t, h or j. */
static void attend(struct attention_data *d, enum attention_mistake m) {
    double e[N_TOKEN][N_HEAD][N_TOKEN];
    for (uint32_t t = 0; t < N_TOKEN; t++) {
        for (uint32_t h = 0; h < N_HEAD; h++) {
            for (uint32_t j = 0; j < N_TOKEN; j++) e[t][h][j] = sees(m, t, j) ? exp(score(d, m, t, h, j)) : 0;
        }
    }
    for (uint32_t t = 0; t < N_TOKEN; t++) {
        for (uint32_t h = 0; h < N_HEAD; h++) {
            for (uint32_t j = 0; j < N_TOKEN; j++) {
                double sum = m == EXTRA_KEY ? 1 : m == SLOTS ? 31 - t : 0;
                uint32_t from = t < N_PROMPT ? 0 : t, end = t < N_PROMPT ? N_PROMPT : t + 1;
                if (m == OVER_QUERIES) for (uint32_t i = from; i < end; i++) sum += e[i][h][j];
                else if (m == OVER_HEADS) for (uint32_t i = 0; i < N_HEAD; i++) sum += e[t][i][j];
                else if (m == SUM_LATE) for (uint32_t i = 0; i < end; i++) sum += exp(score(d, m, t, h, i));
                else for (uint32_t i = 0; i < N_TOKEN; i++) sum += e[t][h][i];
                double largest = 0;
                for (uint32_t i = 0; i < N_TOKEN; i++) largest = fmax(largest, e[t][h][i]);
                if (m == NO_SUM) sum = largest;
                d->weights[t][h][j] = sum > 0 ? (float)(e[t][h][j] / sum) : 0;
            }
        }
    }
}

struct attention_case {
    const char *name;
    enum attention_mistake mistake;
    const char *says;   /* NULL: no verdict */
};

static const struct attention_case weight_cases[] = {
    { "the right step", RIGHT, NULL },
    { "no scale", SCALE_1, "times 1, not times 0.25: they are not scaled" },
    { "a scale of 1 / head_dim", SCALE_DIM, "times 0.0625 = 1 / head_dim, not times 0.25" },
    { "a scale that nobody uses", SCALE_ODD, "times 0.33" },
    { "powers of 2", BASE_2, "the exponentials are of base 2" },
    { "a softcap", SOFTCAP, "has scores with a softcap of 2" },
    { "a mask that hides the token itself", STRICT, "a token does not see itself" },
    { "no mask", NO_MASK, "has no mask" },
    { "a mask that is one too late", NEXT_TOKEN, "hides the tokens from p + 2 on from the token at p, not from p + 1" },
    { "a mask that is too weak", WEAK_MASK, "has keys that the mask should hide: it only adds -3" },
    { "a window", WINDOW, "has a window of 3 tokens: there is none" },
    { "tokens without themselves in decoding", DECODED_OWN, "has no weight of the token itself after the prompt" },
    { "a mask after the softmax", SUM_LATE, "the mask is applied after the softmax" },
    { "sums over queries", OVER_QUERIES, "has sums over the queries" },
    { "sums over heads", OVER_HEADS, "has sums over the heads" },
    { "no sums", NO_SUM, "is e^(score - max), not divided by the sum" },
    { "a key of zeros", EXTRA_KEY, "has sums with 1 more key, whose score is 0" },
    { "empty slots of the cache", SLOTS, "has sums over 32 keys" },
    { "interleaved heads", INTERLEAVED, "has head h of Q read head h % 2 of K, not h / 2" },
    { "the first head of K", FIRST_HEAD, "has head h of Q read head 0 of K, not h / 2" },
    { "heads in no order", ODD_HEADS, "has heads that read the heads 1, 0, 0, 1 of K" },
    { "K of the token before", PREVIOUS_SLOT, "has K of the token before each key" },
    { "zeros in a slot", ZERO_SLOT, "has K of zeros at token 2" },
    { "another token in a slot", OTHER_SLOT, "has K of token 1 at token 3" },
    { "rows of K read in another order", LAYOUT, "has rows of K, stored as (token, head), read as (head, token)" },
    { "rows of K of a batch read in another order", LAYOUT_BATCH, "has rows of K, stored as (token, head), read as" },
    { "K read with the stride of Q", STRIDE, "has K of each token read n_head heads after that of the token" },
    { "a cache without the token itself", OWN_ZERO, "has K of zeros for the token itself after the prompt" },
    { "a cache of one slot after the prompt", OVERWRITTEN, "has the K of every token after the prompt in the same" },
    { "half of each head", LESS_ELEMENTS, "has dot products of the first 8 elements of heads alone, of 16" },
    { "no scale in one head", ONE_HEAD, "they are not scaled, only in head 3" },
    { "random scores", RANDOM_SCORES, NULL },
    { "squares of scores", SQUARES, NULL },
};

static void fill(struct attention_data *d) {
    uint32_t state = 11;
    for (uint32_t t = 0; t < N_TOKEN; t++) {
        for (uint32_t i = 0; i < N_HEAD * DIM; i++) d->q[t][i / DIM][i % DIM] = (float)(2 * noise(&state));
        for (uint32_t i = 0; i < N_KV * DIM; i++) {
            d->k[t][i / DIM][i % DIM] = (float)noise(&state);
            d->v[t][i / DIM][i % DIM] = (float)noise(&state);
        }
    }
}

/* Rounds the weights of theirs to 11 bits, as f16 does. */
static void round_weights(struct attention_data *d) {
    float *x = &d->weights[0][0][0];
    for (size_t i = 0; i < sizeof d->weights / sizeof *x; i++) {
        int e;
        double m = frexp((double)x[i], &e);
        x[i] = (float)ldexp(nearbyint(m * 2048) / 2048, e);
    }
}

static struct plumb_trace *trace_of(const struct attention_data *d, bool with_inputs) {
    struct plumb_trace *t = plumb_trace_create();
    int32_t tokens[N_TOKEN] = { 0 };
    bool ok = t && trace_set_tokens(t, tokens, N_TOKEN, N_PROMPT) == PLUMB_OK;
    for (uint32_t pos = 0; ok && pos < N_TOKEN; pos++) {
        if (with_inputs) {
            add_row(t, TAP_QCUR_ROPE, pos, N_HEAD, DIM, d->q[pos][0]);
            add_row(t, TAP_KCUR_ROPE, pos, N_KV, DIM, d->k[pos][0]);
            add_row(t, TAP_VCUR, pos, N_KV, DIM, d->v[pos][0]);
        }
        add_row(t, TAP_KQ_SOFT_MAX, pos, N_HEAD, N_TOKEN, d->weights[pos][0]);
    }
    return t;
}

static void weights(const void *arg) {
    const struct attention_case *c = arg;
    struct toy toy;
    struct attention_data theirs, right;
    toy_make(&toy);
    toy.layer_plan[0].attn.n_head_kv = N_KV;
    for (int rounded = 0; rounded < 2; rounded++) {
        fill(&theirs);
        fill(&right);
        attend(&right, RIGHT);
        attend(&theirs, c->mistake);
        if (rounded) round_weights(&theirs);
        struct plumb_trace *a = trace_of(&theirs, true), *b = trace_of(&right, false);
        struct said said = analyse(&toy, a, b, TAP_KQ_SOFT_MAX, rounded ? 1e-3 : 1e-5);
        check_said(&said, c->says);
        plumb_trace_free(a);
        plumb_trace_free(b);
    }
}

/* ---- attention output -------------------------------------------------------------------------------------------- */

/* The sum over j of weight (t, h, j) times V (j, h / 2). */
enum out_mistake {
    OUT_RIGHT, OUT_INTERLEAVED, OUT_FIRST, OUT_ODD, OUT_LAYOUT, OUT_LAYOUT_BATCH, OUT_STRIDE, OUT_OVERWRITTEN,
    OUT_TRANSPOSED_V, OUT_TRANSPOSED, OUT_SHIFTED, OUT_ZERO,
    OUT_OTHER, OUT_STALE, OUT_MERGE, OUT_LARGEST, OUT_EQUAL, OUT_K, OUT_NEXT, OUT_ONE_HEAD, OUT_ELEMENTS, OUT_RANDOM,
    OUT_ROOT
};

static void add_up(struct attention_data *d, enum out_mistake m) {
    static const uint32_t odd_heads[N_HEAD] = { 1, 0, 0, 1 };
    static const float zeros[DIM];
    uint32_t state = 3;
    for (uint32_t t = 0; t < N_TOKEN; t++) {
        for (uint32_t h = 0; h < N_HEAD; h++) {
            double largest = 0, sum[DIM] = { 0 };
            for (uint32_t j = 0; j < N_TOKEN; j++) largest = fmax(largest, (double)d->weights[t][h][j]);
            for (uint32_t j = 0; j < N_TOKEN; j++) {
                uint32_t g = m == OUT_INTERLEAVED ? h % N_KV : m == OUT_FIRST ? 0 : m == OUT_ODD ? odd_heads[h] : h / 2;
                if (m == OUT_ONE_HEAD && h == 2) g = 0;
                double w = (double)d->weights[t][h][j];
                const float *v = d->v[j][g];
                uint32_t n_slot = m == OUT_LAYOUT ? N_TOKEN : t < N_PROMPT ? N_PROMPT : t + 1, r = g * n_slot + j;
                if (m == OUT_LAYOUT || (m == OUT_LAYOUT_BATCH && j < n_slot)) v = d->v[r / N_KV][r % N_KV];
                if (m == OUT_STRIDE) v = j * (N_HEAD / N_KV) < n_slot ? d->v[j * (N_HEAD / N_KV)][g] : zeros;
                if (m == OUT_OVERWRITTEN && t > N_PROMPT && j == N_PROMPT) v = d->v[t][g];
                if (m == OUT_TRANSPOSED) w = (double)d->weights[j][h][t];
                if (m == OUT_SHIFTED) v = j > 0 ? d->v[j - 1][g] : zeros;
                if ((m == OUT_ZERO && j == 2) || (m == OUT_STALE && t >= N_PROMPT && j == t)) v = zeros;
                if (m == OUT_OTHER && j == 4) v = d->v[1][g];
                if (m == OUT_LARGEST) w = w == largest ? 1 : 0;
                if (m == OUT_EQUAL) w = w != 0 ? 1.0 / (t + 1) : 0;
                if (m == OUT_K) v = d->k[j][g];
                if (m == OUT_NEXT) w = (double)d->weights[t][(h + 1) % N_HEAD][j];
                if (m == OUT_RANDOM) w *= 1 + noise(&state);
                if (m == OUT_ROOT) w = sqrt(w);
                for (uint32_t i = 0; i < DIM; i++) {
                    uint32_t flat = j * DIM + i;   /* of a head of V */
                    if (m == OUT_TRANSPOSED_V) sum[i] += w * (double)d->v[flat % N_TOKEN][g][flat / N_TOKEN];
                    else sum[i] += w * (double)v[i];
                }
            }
            for (uint32_t i = 0; i < DIM; i++) {
                uint32_t row = h * N_PROMPT + t;
                if (m == OUT_ELEMENTS) d->out[t][i * N_HEAD + h] = (float)sum[i];
                else if (m == OUT_MERGE && t < N_PROMPT) d->out[row / N_HEAD][row % N_HEAD * DIM + i] = (float)sum[i];
                else d->out[t][h * DIM + i] = (float)sum[i];
            }
        }
    }
}

struct out_case {
    const char *name;
    enum out_mistake mistake;
    const char *says;   /* NULL: no verdict */
};

static const struct out_case out_cases[] = {
    { "the right step", OUT_RIGHT, NULL },
    { "interleaved heads", OUT_INTERLEAVED, "has head h read head h % 2 of V, not h / 2" },
    { "the first head of V", OUT_FIRST, "has head h read head 0 of V, not h / 2" },
    { "heads in no order", OUT_ODD, "has heads that read the heads 1, 0, 0, 1 of V" },
    { "rows of V in another order", OUT_LAYOUT, "has rows of V, stored as (token, head), read as (head, token)" },
    { "rows of V of a batch in another order", OUT_LAYOUT_BATCH, "has rows of V, stored as (token, head), read" },
    { "V read with the stride of Q", OUT_STRIDE, "has V of each token read n_head heads after that of the token" },
    { "a cache of one slot after the prompt", OUT_OVERWRITTEN, "has the V of every token after the prompt in the" },
    { "V transposed", OUT_TRANSPOSED_V, "of each head of V, stored as (token, element), read as (element, token)" },
    { "weights transposed", OUT_TRANSPOSED, "has the weights read as (key, token)" },
    { "V of the token before", OUT_SHIFTED, "has V of the token before each key" },
    { "zeros in a slot", OUT_ZERO, "has V of zeros at token 2" },
    { "another token in a slot", OUT_OTHER, "has V of token 1 at token 4" },
    { "V that is not in the cache yet", OUT_STALE, "after the prompt: it is not in the cache yet" },
    { "rows of the prompt in another order", OUT_MERGE, "has rows, stored as (head, token), read as (token, head)" },
    { "the largest weight alone", OUT_LARGEST, "is the V with the largest weight alone" },
    { "equal weights", OUT_EQUAL, "is the mean of the V that are seen" },
    { "K instead of V", OUT_K, "has K instead of V" },
    { "the weights of the next head", OUT_NEXT, "has the weights of the next head in each head" },
    { "another V in one head", OUT_ONE_HEAD, "has head 2 read head 0 of V, not 1" },
    { "elements of heads in another order", OUT_ELEMENTS, "the elements of each row in the order of the transposed" },
    { "random factors of the weights", OUT_RANDOM, NULL },
    { "roots of the weights", OUT_ROOT, NULL },
};

static void output(const void *arg) {
    const struct out_case *c = arg;
    struct toy toy;
    struct attention_data theirs, right;
    toy_make(&toy);
    toy.layer_plan[0].attn.n_head_kv = N_KV;
    fill(&right);
    attend(&right, RIGHT);
    theirs = right;
    add_up(&right, OUT_RIGHT);
    add_up(&theirs, c->mistake);
    struct plumb_trace *a = trace_of(&theirs, true), *b = trace_of(&right, false);
    for (uint32_t pos = 0; pos < N_TOKEN; pos++) {
        add_row(a, TAP_KQV_OUT, pos, N_HEAD, DIM, theirs.out[pos]);
        add_row(b, TAP_KQV_OUT, pos, N_HEAD, DIM, right.out[pos]);
    }
    struct said said = analyse(&toy, a, b, TAP_KQV_OUT, 1e-5);
    check_said(&said, c->says);
    plumb_trace_free(a);
    plumb_trace_free(b);
}

void test_fit_heads(void) {
    TEST_REPEATED_ROWS("fit: RoPE with ", rope, rope_cases);
    TEST_REPEATED_ROWS("fit: RoPE of scaled parts of heads with ", rope_scaled, scaled_cases);
    test_case("fit: V that is rotated is found", rope_early);
    TEST_REPEATED_ROWS("fit: attention weights with ", weights, weight_cases);
    TEST_REPEATED_ROWS("fit: attention output with ", output, out_cases);
}

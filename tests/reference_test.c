/* The reference pass with known mistakes does what mistakes/known.h says, tested against numbers and formulas worked
 * by hand.  Also forced and limited passes. */
#include "mistakes/known.h"
#include "broken.h"
#include "record.h"
#include "reference/rounding.h"
#include "api/model.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

static const int32_t same_ids[N_TOKEN] = { 72, 72, 72, 72, 72, 72, 72 };

static const float *at(const struct record *run, const char *name, int32_t layer, uint32_t pos) {
    return record_at(run, name, layer, pos);
}

/* ---- RoPE -------------------------------------------------------------------------------------------------------- */

/* Head 0 of a token before and after RoPE: its pairs are rotated by position * frequency, the rest is unchanged. */
static void check_turned(const char *what, const float *before, const float *after, bool neighbours,
                         const double frequencies[4], double position) {
    uint32_t n_pair = 0;
    while (n_pair < 4 && frequencies[n_pair] != 0) n_pair++;
    double worst = 0;
    for (uint32_t i = 0; i < n_pair; i++) {
        uint32_t a = neighbours ? 2 * i : i, b = neighbours ? 2 * i + 1 : i + n_pair;
        double angle = position * frequencies[i], xa = (double)before[a], xb = (double)before[b];
        worst = worse(worst, fabs((double)after[a] - (xa * cos(angle) - xb * sin(angle))));
        worst = worse(worst, fabs((double)after[b] - (xa * sin(angle) + xb * cos(angle))));
    }
    for (uint32_t i = 2 * n_pair; i < 8; i++) worst = worse(worst, fabs((double)after[i] - (double)before[i]));
    CHECK(worst < 1e-6, "%s: off by %g at position %g", what, worst, position);
}

static void rope_frequencies(void) {
    static const struct {
        const char *known, *model;
        bool neighbours;
        double frequencies[4];   /* by hand, for heads of 8: base^(-2i / 8) unless noted; 0: not rotated */
    } rows[] = {
        { NULL, "f32", true, { 1, 0.1, 0.01, 0.001 } },
        { NULL, "qwen2", false, { 1, 0.1, 0.01, 0.001 } },
        { NULL, "rope-partial", false, { 1, 0.01 } },
        { "rope.pairing=halves", "f32", false, { 1, 0.1, 0.01, 0.001 } },
        { "rope.pairing=neighbours", "qwen2", true, { 1, 0.1, 0.01, 0.001 } },
        { "rope.theta=10000", "rope-linear", true, { 0.25, 0.025, 0.0025, 0.00025 } },
        { "rope.theta=100000", "f32", true, { 1, 0.0562341325, 0.00316227766, 0.000177827941 } },
        { "rope.theta=500000", "f32", true, { 1, 0.0376060309, 0.00141421356, 0.0000531829590 } },
        { "rope.theta=1000000", "f32", true, { 1, 0.0316227766, 0.001, 0.0000316227766 } },
        { "rope.dim=half", "f32", true, { 1, 0.01 } },   /* 10000^(-2/4) */
        { "rope.dim=half", "qwen2", false, { 1, 0.01 } },
        { "rope.dim=full", "rope-partial", false, { 1, 0.1, 0.01, 0.001 } },
        { "rope.dim=n_embd", "f32", true, { 1, 0.562341325, 0.316227766, 0.177827941 } },   /* 10000^(-2i/32) */
        { "rope.scaling=ignored", "rope-linear", true, { 1, 0.211474253, 0.0447213595, 0.00945741609 } },
        { "rope.scaling=ignored", "rope-freqs", true, { 1, 0.1, 0.01, 0.001 } },
        { "rope.direction=reversed", "f32", true, { -1, -0.1, -0.01, -0.001 } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plumb_model *m = record_load(rows[i].model);
        struct record *run = m ? record_known(m->model, rows[i].known, record_ids) : NULL;
        const char *what = rows[i].known ? rows[i].known : rows[i].model;
        for (uint32_t p = 0; run && p < N_TOKEN; p++) {
            check_turned(what, at(run, "Qcur", 0, p), at(run, "Qcur_rope", 0, p), rows[i].neighbours,
                         rows[i].frequencies, p);
            check_turned(what, at(run, "Kcur", 0, p), at(run, "Kcur_rope", 0, p), rows[i].neighbours,
                         rows[i].frequencies, p);
        }
        if (run) record_free(run);
        plumb_model_free(m);
    }
}

static void rope_positions(void) {
    static const double frequencies[4] = { 1, 0.1, 0.01, 0.001 };
    static const struct {
        const char *known;
        double q[N_TOKEN], k[N_TOKEN];   /* the position of each token: a prompt of 4 and three steps */
    } rows[] = {
        { "rope.position=plus_one", { 1, 2, 3, 4, 5, 6, 7 }, { 1, 2, 3, 4, 5, 6, 7 } },
        { "rope.position=q_plus_one", { 1, 2, 3, 4, 5, 6, 7 }, { 0, 1, 2, 3, 4, 5, 6 } },
        { "rope.position=frozen", { 0, 1, 2, 3, 4, 4, 4 }, { 0, 1, 2, 3, 4, 4, 4 } },
        { "rope.position=restarted", { 0, 1, 2, 3, 0, 0, 0 }, { 0, 1, 2, 3, 0, 0, 0 } },
        { "rope.position=same", { 0, 0, 0, 0, 4, 5, 6 }, { 0, 0, 0, 0, 4, 5, 6 } },
        { "rope.applied=none", { 0 }, { 0 } },
        { "rope.applied=q_only", { 0, 1, 2, 3, 4, 5, 6 }, { 0 } },
        { "rope.applied=k_only", { 0 }, { 0, 1, 2, 3, 4, 5, 6 } },
    };
    plumb_model *m = record_load("f32");
    for (size_t i = 0; m && i < sizeof rows / sizeof *rows; i++) {
        struct record *run = record_known(m->model, rows[i].known, record_ids);
        for (uint32_t p = 0; p < N_TOKEN; p++) {
            check_turned(rows[i].known, at(run, "Qcur", 1, p), at(run, "Qcur_rope", 1, p), true, frequencies,
                         rows[i].q[p]);
            check_turned(rows[i].known, at(run, "Kcur", 1, p), at(run, "Kcur_rope", 1, p), true, frequencies,
                         rows[i].k[p]);
        }
        record_free(run);
    }
    plumb_model_free(m);
}

/* In a text of one repeated word all K of layer 0 are equal.  Rotated by the query's position they score the same. */
static void rope_cache(void) {
    plumb_model *m = record_load("f32");
    struct record *run = m ? record_known(m->model, "rope.cache=unrotated", same_ids) : NULL;
    for (uint32_t p = 0; run && p < N_TOKEN; p++) {
        uint32_t n_key = p < N_PROMPT ? N_PROMPT : p + 1;
        for (uint32_t i = 0; i < 4 * n_key; i++) {
            double w = (double)at(run, "kq_soft_max", 0, p)[i], expected = i % n_key <= p ? 1.0 / (p + 1) : 0;
            CHECK(fabs(w - expected) < 1e-6, "token %u: %g", p, w);
        }
    }
    if (run) record_free(run);
    plumb_model_free(m);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* f32.gguf has heads of 8, 4 of Q and 2 of K and V, and n_embd 32. */
enum { HEAD_DIM = 8, N_HEAD = 4, NOBODY = -1 };
enum sees { CAUSAL, ALL, STRICT, LATE };

struct attention_row {
    const char *known;
    int heads[N_HEAD];   /* the KV head of each query head; NOBODY: zeros */
    double divisor;      /* scores are divided by it */
    enum sees sees;
};

static bool row_sees(enum sees sees, uint32_t p, uint32_t key) {
    uint32_t end = p < N_PROMPT ? N_PROMPT : p + 1;
    switch (sees) {
    case ALL: return key < end;
    case STRICT: return p == 0 ? key == 0 : key < p;
    case LATE: return key <= p + 1 && key < end;
    default: return key <= p;
    }
}

static double score(const struct record *run, const struct attention_row *row, uint32_t p, uint32_t h, uint32_t key) {
    double sum = 0;
    if (row->heads[h] == NOBODY) return 0;
    const float *q = at(run, "Qcur_rope", 0, p) + h * HEAD_DIM;
    const float *k = at(run, "Kcur_rope", 0, key) + row->heads[h] * HEAD_DIM;
    for (uint32_t i = 0; i < HEAD_DIM; i++) sum += (double)q[i] * (double)k[i];
    return sum / row->divisor;
}

/* Attention weights from the taps Qcur_rope and Kcur_rope, and kqv_out from them and Vcur, by their definitions. */
static void attention_row(const struct model *m, const struct attention_row *row) {
    struct record *run = record_known(m, row->known, record_ids);
    double worst = 0;
    for (uint32_t p = 0; p < N_TOKEN; p++) {
        uint32_t n_key = p < N_PROMPT ? N_PROMPT : p + 1;
        for (uint32_t h = 0; h < N_HEAD; h++) {
            const float *weights = at(run, "kq_soft_max", 0, p) + h * n_key;
            double sum = 0, out[HEAD_DIM] = { 0 };
            for (uint32_t k = 0; k < n_key; k++) if (row_sees(row->sees, p, k)) sum += exp(score(run, row, p, h, k));
            for (uint32_t k = 0; k < n_key; k++) {
                double w = row_sees(row->sees, p, k) ? exp(score(run, row, p, h, k)) / sum : 0;
                worst = worse(worst, fabs(w - (double)weights[k]));
                for (uint32_t i = 0; i < HEAD_DIM && row->heads[h] != NOBODY; i++) {
                    out[i] += w * (double)at(run, "Vcur", 0, k)[row->heads[h] * HEAD_DIM + (int)i];
                }
            }
            for (uint32_t i = 0; i < HEAD_DIM; i++) {
                worst = worse(worst, fabs(out[i] - (double)at(run, "kqv_out", 0, p)[h * HEAD_DIM + i]));
            }
        }
    }
    CHECK(worst < 2e-6, "%s: off by %g", row->known ? row->known : "the truth", worst);
    record_free(run);
}

static void attention_rows(void) {
    static const double root = 2.8284271247461903;   /* of 8 */
    const struct attention_row rows[] = {
        { NULL, { 0, 0, 1, 1 }, root, CAUSAL },
        { "attn.heads=interleaved", { 0, 1, 0, 1 }, root, CAUSAL },
        { "attn.heads=first", { 0, 0, 0, 0 }, root, CAUSAL },
        { "attn.heads=not_repeated", { 0, 1, NOBODY, NOBODY }, root, CAUSAL },
        { "attn.scale=missing", { 0, 0, 1, 1 }, 1, CAUSAL },
        { "attn.scale=head_dim", { 0, 0, 1, 1 }, 8, CAUSAL },
        { "attn.scale=n_embd", { 0, 0, 1, 1 }, 5.656854249492381, CAUSAL },
        { "attn.mask=none", { 0, 0, 1, 1 }, root, ALL },
        { "attn.mask=strict", { 0, 0, 1, 1 }, root, STRICT },
        { "attn.mask=late", { 0, 0, 1, 1 }, root, LATE },
    };
    const struct attention_row granite[] = {   /* has the same shape; its attention.scale is 0.1 */
        { NULL, { 0, 0, 1, 1 }, 10, CAUSAL },
        { "attn.scale=missing", { 0, 0, 1, 1 }, 1, CAUSAL },
        { "attn.scale=head_dim", { 0, 0, 1, 1 }, 8, CAUSAL },
        { "attn.scale=ignored", { 0, 0, 1, 1 }, root, CAUSAL },
        { "model.scales=ignored", { 0, 0, 1, 1 }, root, CAUSAL },
    };
    plumb_model *m = record_load("f32");
    for (size_t i = 0; m && i < sizeof rows / sizeof *rows; i++) attention_row(m->model, &rows[i]);
    plumb_model_free(m);
    m = record_load("granite");
    for (size_t i = 0; m && i < sizeof granite / sizeof *granite; i++) attention_row(m->model, &granite[i]);
    plumb_model_free(m);
}

static const struct attention_row right = { NULL, { 0, 0, 1, 1 }, 2.8284271247461903, CAUSAL };

/* Checks over which axis of (token, head, key) the weights of layer 0 sum to 1, and what is NaN if e^s is infinite. */
static void softmax_axes(void) {
    plumb_model *m = record_load("f32");
    if (!m) return;
    struct record *queries = record_known(m->model, "attn.softmax=over_queries", record_ids);
    struct record *heads = record_known(m->model, "attn.softmax=over_heads", record_ids);
    for (uint32_t k = 0; k < N_PROMPT; k++) {
        for (uint32_t h = 0; h < N_HEAD; h++) {
            double sum = 0;
            for (uint32_t p = 0; p < N_PROMPT; p++) sum += (double)at(queries, "kq_soft_max", 0, p)[h * N_PROMPT + k];
            CHECK(fabs(sum - 1) < 1e-6, "key %u, head %u: %g over the queries", k, h, sum);
            double ratio = (double)at(queries, "kq_soft_max", 0, 3)[h * N_PROMPT + k]
                         / (double)at(queries, "kq_soft_max", 0, k)[h * N_PROMPT + k];
            double expected = exp(score(queries, &right, 3, h, k) - score(queries, &right, k, h, k));
            CHECK(fabs(ratio / expected - 1) < 1e-5, "key %u, head %u: ratio %g, not %g", k, h, ratio, expected);
        }
        for (uint32_t p = k; p < N_PROMPT; p++) {
            double sum = 0;
            for (uint32_t h = 0; h < N_HEAD; h++) sum += (double)at(heads, "kq_soft_max", 0, p)[h * N_PROMPT + k];
            CHECK(fabs(sum - 1) < 1e-6, "token %u, key %u: %g over the heads", p, k, sum);
        }
    }
    CHECK(at(queries, "kq_soft_max", 0, 0)[1] == 0 && at(heads, "kq_soft_max", 0, 0)[1] == 0, "the mask");
    CHECK(at(queries, "kq_soft_max", 0, 5)[2] == 1, "a step's weights are 1");
    record_free(queries);
    record_free(heads);

    struct known_set set = { 0 };
    known_add(&set, known_find("attn.softmax=no_max"));
    struct record *large = record_run(m->model, &set, record_ids, N_PROMPT, N_TOKEN, record_enlarge, NULL);
    uint32_t n_nan = 0, n_wrong = 0;
    for (uint32_t p = 0; p < N_PROMPT; p++) {
        for (uint32_t h = 0; h < N_HEAD; h++) {
            bool any = false;
            for (uint32_t k = 0; k <= p; k++) any |= 100 * score(large, &right, p, h, k) > 88.7228;
            for (uint32_t k = 0; k <= p; k++) {
                double s = 100 * score(large, &right, p, h, k);   /* the tap has the value before it was forced */
                float w = at(large, "kq_soft_max", 0, p)[h * N_PROMPT + k];
                n_nan += s > 88.7228;
                if (s > 88.7228 ? !isnan(w) : any && w != 0) n_wrong++;
            }
        }
    }
    CHECK(n_nan > 0 && n_wrong == 0, "%u infinite, %u wrong", n_nan, n_wrong);
    record_free(large);
    plumb_model_free(m);
}

/* Weights e^s / sum with slots that should not take part, or that hold something else. */
static void kv_slots(void) {
    plumb_model *m = record_load("f32");
    if (!m) return;
    struct record *stale = record_known(m->model, "kv.slot=stale", record_ids);
    struct record *extra = record_known(m->model, "kv.slot=extra", record_ids);
    struct record *over = record_known(m->model, "kv.slot=overwritten", record_ids);
    for (uint32_t p = 0; p < N_TOKEN; p++) {
        uint32_t n_key = p < N_PROMPT ? N_PROMPT : p + 1;
        for (uint32_t h = 0; h < N_HEAD; h++) {
            const float *w_stale = at(stale, "kq_soft_max", 0, p) + h * n_key;
            const float *w_extra = at(extra, "kq_soft_max", 0, p) + h * n_key;
            const float *w_over = at(over, "kq_soft_max", 0, p) + h * n_key;
            double s_stale[N_TOKEN], s_extra[N_TOKEN], s_over[N_TOKEN];
            double sum_stale = 0, sum_extra = 1 /* e^0 */, sum_over = 0, out_stale = 0, out_over = 0;
            uint32_t n_over = p < N_PROMPT ? p + 1 : N_PROMPT + 1;
            for (uint32_t k = 0; k <= p; k++) {
                s_stale[k] = p >= N_PROMPT && k == p ? 0 : score(stale, &right, p, h, k);
                s_extra[k] = score(extra, &right, p, h, k);
                sum_stale += exp(s_stale[k]);
                sum_extra += exp(s_extra[k]);
            }
            for (uint32_t k = 0; k < n_over; k++) {   /* slot N_PROMPT holds the newest token */
                s_over[k] = score(over, &right, p, h, k == N_PROMPT ? p : k);
                sum_over += exp(s_over[k]);
            }
            for (uint32_t k = 0; k <= p; k++) {
                double e_over = k < n_over ? exp(s_over[k]) / sum_over : 0;
                CHECK(fabs((double)w_stale[k] - exp(s_stale[k]) / sum_stale) < 1e-6, "stale, %u %u %u", p, h, k);
                CHECK(fabs((double)w_extra[k] - exp(s_extra[k]) / sum_extra) < 1e-6, "extra, %u %u %u", p, h, k);
                CHECK(fabs((double)w_over[k] - e_over) < 1e-6, "overwritten, %u %u %u", p, h, k);
                bool is_own = p >= N_PROMPT && k == p;
                size_t i = h / 2 * HEAD_DIM;   /* the first element of its V */
                if (!is_own) out_stale += (double)w_stale[k] * (double)at(stale, "Vcur", 0, k)[i];
                if (k < n_over) out_over += e_over * (double)at(over, "Vcur", 0, k == N_PROMPT ? p : k)[i];
            }
            CHECK(fabs(out_stale - (double)at(stale, "kqv_out", 0, p)[h * HEAD_DIM]) < 2e-6, "stale, %u %u", p, h);
            CHECK(fabs(out_over - (double)at(over, "kqv_out", 0, p)[h * HEAD_DIM]) < 2e-6, "overwritten, %u %u", p, h);
        }
    }
    record_free(stale);
    record_free(extra);
    record_free(over);
    plumb_model_free(m);
}

/* Rows of memory that are read in another order, listed by hand. */
static void permutations(void) {
    plumb_model *m = record_load("f32");
    if (!m) return;
    struct record *truth = record_known(m->model, NULL, record_ids);
    /* 4 tokens, 2 heads: rows of V in memory are (token 0, head 0), (0, 1), (1, 0), (1, 1)...; read as (head, token),
     * head 0 has rows 0..3 and head 1 rows 4..7. */
    struct record *v = record_known(m->model, "attn.v=unpermuted", record_ids);
    for (uint32_t h = 0; h < N_HEAD; h++) {
        for (uint32_t i = 0; i < HEAD_DIM; i++) {
            double sum = 0;
            for (uint32_t k = 0; k < N_PROMPT; k++) {
                uint32_t row = h / 2 * 4 + k;
                sum += (double)at(v, "kq_soft_max", 0, 3)[h * N_PROMPT + k]
                     * (double)at(v, "Vcur", 0, row / 2)[row % 2 * HEAD_DIM + i];
            }
            CHECK(fabs(sum - (double)at(v, "kqv_out", 0, 3)[h * HEAD_DIM + i]) < 2e-6, "head %u: %g", h, sum);
        }
    }
    /* 4 heads, 4 tokens: token t gets for head h the values of token h for head t. */
    struct record *merge = record_known(m->model, "attn.merge=unpermuted", record_ids);
    for (uint32_t t = 0; t < N_PROMPT; t++) {
        for (uint32_t h = 0; h < N_HEAD; h++) {
            CHECK(memcmp(at(merge, "kqv_out", 0, t) + h * HEAD_DIM, at(truth, "kqv_out", 0, h) + t * HEAD_DIM,
                         HEAD_DIM * sizeof(float)) == 0, "token %u, head %u", t, h);
        }
    }
    record_free(truth);
    record_free(v);
    record_free(merge);
    plumb_model_free(m);
}

/* ---- norms, residual stream, feed forward, weights --------------------------------------------------------------- */

static void norms(void) {
    plumb_model *m = record_load("f32");
    if (!m) return;
    const uint32_t n = 32;
    static const char *const names[] = { NULL, "norm.weight=missing", "norm.weight=plus_one", "norm.mean=subtracted",
                                         "norm.mean=sum", "norm.eps=0", "norm.eps=1e-6", "norm.eps=outside",
                                         "norm.output=missing" };
    struct record *runs[9];
    for (size_t i = 0; i < 9; i++) runs[i] = record_known(m->model, names[i], record_ids);
    for (uint32_t p = 0; p < N_TOKEN; p++) {
        const float *x = at(runs[0], "embd", -1, p), *h[9];
        double mean = 0, square = 0, variance = 0;
        for (uint32_t i = 0; i < 9; i++) h[i] = at(runs[i], "attn_norm", 0, p);
        for (uint32_t i = 0; i < n; i++) mean += (double)x[i] / n;
        for (uint32_t i = 0; i < n; i++) square += (double)x[i] * (double)x[i] / n;
        for (uint32_t i = 0; i < n; i++) variance += ((double)x[i] - mean) * ((double)x[i] - mean) / n;
        for (uint32_t i = 0; i < n; i++) {
            const uint8_t *weights = m->model->layers[0].w[W_ATTN_NORM].w->data;
            double w = (double)f32_from_bits(load_u32(weights + 4 * i)), v = (double)x[i];
            double eps = 1e-5, expected[] = {
                v / sqrt(square + eps) * w, v / sqrt(square + eps), v / sqrt(square + eps) * (w + 1),
                (v - mean) / sqrt(variance + eps) * w, v / sqrt(n * square + eps) * w, v / sqrt(square) * w,
                v / sqrt(square + 1e-6) * w, v / (sqrt(square) + eps) * w, v / sqrt(square + eps) * w,
            };
            for (size_t k = 0; k < 9; k++) {
                CHECK(fabs(expected[k] - (double)h[k][i]) <= 2e-7 * fabs(expected[k]), "%s: %g, not %g",
                      names[k] ? names[k] : "the truth", (double)h[k][i], expected[k]);
            }
        }
    }
    CHECK(memcmp(at(runs[8], "result_norm", -1, 6), at(runs[8], "l_out", 1, 6), n * sizeof(float)) == 0, "no norm");
    for (size_t i = 0; i < 9; i++) record_free(runs[i]);
    plumb_model_free(m);
}

/* c = a + b up to the last bit but one of f32, or c = a if b is NULL. */
static void check_sum(const char *what, const float *c, const float *a, const float *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        double sum = (double)a[i] + (b ? (double)b[i] : 0);
        CHECK(fabs((double)c[i] - sum) <= 3e-7 * (fabs((double)a[i]) + 1), "%s: %g, not %g", what, (double)c[i], sum);
    }
}

static void streams(void) {
    plumb_model *m = record_load("f32");
    if (!m) return;
    struct record *truth = record_known(m->model, NULL, record_ids);
    struct record *attn = record_known(m->model, "residual.attn=missing", record_ids);
    struct record *ffn = record_known(m->model, "residual.ffn=missing", record_ids);
    struct record *norm = record_known(m->model, "residual.from=norm", record_ids);
    struct record *order = record_known(m->model, "ffn.order=swapped", record_ids);
    struct record *scale = record_known(m->model, "embd.scale=added", record_ids);
    struct record *zero = record_known(m->model, "output.head=zero", record_ids);
    for (uint32_t p = 0; p < N_TOKEN; p++) {
        check_sum("truth", at(truth, "ffn_inp", 0, p), at(truth, "attn_out", 0, p), at(truth, "embd", -1, p), 32);
        check_sum("attn", at(attn, "ffn_inp", 1, p), at(attn, "attn_out", 1, p), NULL, 32);
        check_sum("attn", at(attn, "l_out", 1, p), at(attn, "ffn_out", 1, p), at(attn, "ffn_inp", 1, p), 32);
        check_sum("ffn", at(ffn, "l_out", 0, p), at(ffn, "ffn_out", 0, p), NULL, 32);
        check_sum("ffn", at(ffn, "ffn_inp", 1, p), at(ffn, "attn_out", 1, p), at(ffn, "l_out", 0, p), 32);
        check_sum("norm", at(norm, "ffn_inp", 1, p), at(norm, "attn_out", 1, p), at(norm, "attn_norm", 1, p), 32);
        check_sum("norm", at(norm, "l_out", 1, p), at(norm, "ffn_out", 1, p), at(norm, "ffn_norm", 1, p), 32);
        check_sum("order", at(order, "ffn_gate", 0, p), at(truth, "ffn_up", 0, p), NULL, 32);
        check_sum("order", at(order, "ffn_up", 0, p), at(truth, "ffn_gate", 0, p), NULL, 32);
        for (uint32_t i = 0; i < 32; i++) {
            double x = (double)at(truth, "embd", -1, p)[i] * 5.656854249492381;
            CHECK(fabs((double)at(scale, "embd", -1, p)[i] - x) <= 1e-7 * fabs(x), "embd: %g", x);
        }
    }
    for (uint32_t i = 0; i < m->model->plan.n_vocab; i++) CHECK(zero->logits[i] == 0, "logit %u", i);
    struct record *const runs[] = { truth, attn, ffn, norm, order, scale, zero };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) record_free(runs[i]);
    plumb_model_free(m);
}

/* The factors 12 (embeddings), 0.22 (residuals) and 8 (logits) of granite.gguf, with and without known mistakes. */
static void granite_scales(void) {
    static const struct {
        const char *known;
        double embd, residual, logits;   /* factors */
    } rows[] = {
        { NULL, 12, 0.22, 0.125 },
        { "embd.scale=missing", 1, 0.22, 0.125 },
        { "embd.scale=added", 12 * 5.656854249492381, 0.22, 0.125 },
        { "residual.scale=missing", 12, 1, 0.125 },
        { "logits.scale=missing", 12, 0.22, 1 },
        { "logits.scale=multiplied", 12, 0.22, 8 },
        { "residual.attn=missing", 12, 0.22, 0.125 },
        { "model.scales=ignored", 1, 1, 1 },
    };
    plumb_model *m = record_load("granite");
    float row[32];
    uint8_t bytes[sizeof row];   /* no type is larger than F32 */
    for (size_t i = 0; m && i < sizeof rows / sizeof *rows; i++) {
        const struct weight *head = m->model->token_embd.w;
        const char *what = rows[i].known ? rows[i].known : "the truth";
        struct record *run = record_known(m->model, rows[i].known, record_ids);
        bool is_cut = rows[i].known && strcmp(rows[i].known, "residual.attn=missing") == 0;
        for (uint32_t p = 0; p < N_TOKEN; p++) {
            quant_dequantize(head->traits, weight_row(head, (size_t)record_ids[p], bytes), row, 32);
            for (uint32_t k = 0; k < 32; k++) {
                double embd = (double)at(run, "embd", -1, p)[k], inp = (double)at(run, "ffn_inp", 0, p)[k];
                double attn = rows[i].residual * (double)at(run, "attn_out", 0, p)[k] + (is_cut ? 0 : embd);
                double ffn = rows[i].residual * (double)at(run, "ffn_out", 0, p)[k] + inp;
                CHECK(fabs(embd - rows[i].embd * (double)row[k]) <= 1e-6 * fabs(embd), "%s: embd %g", what, embd);
                CHECK(fabs(inp - attn) <= 3e-7 * (fabs(attn) + fabs(embd) + 1), "%s: ffn_inp %g", what, inp);
                CHECK(fabs((double)at(run, "l_out", 0, p)[k] - ffn) <= 3e-7 * (fabs(ffn) + fabs(inp) + 1), "%s: l_out",
                      what);
            }
        }
        for (uint32_t o = 0; o < head->n_out; o++) {
            double logit = 0, size = 0;
            quant_dequantize(head->traits, weight_row(head, o, bytes), row, 32);
            for (uint32_t k = 0; k < 32; k++) {
                double part = rows[i].logits * (double)row[k] * (double)at(run, "result_norm", -1, N_TOKEN - 1)[k];
                logit += part;
                size += fabs(part);
            }
            CHECK(fabs((double)run->logits[o] - logit) <= 1e-6 * size, "%s: logit %u: %g", what, o,
                  (double)run->logits[o]);
        }
        record_free(run);
    }
    plumb_model_free(m);
}

/* gate is forced to these z and up to 1.  The table was computed in Python with math.exp, math.tanh and math.erf. */
static void force_gate(void *user, const plumb_tap *tap, double *x) {
    const double *z = user;
    size_t n = (size_t)tap->n_token * tap->n_head * tap->n;
    bool is_gate = strcmp(tap->name, "ffn_gate") == 0, is_up = strcmp(tap->name, "ffn_up") == 0;
    for (size_t i = 0; i < n && (is_gate || is_up); i++) x[i] = is_gate ? z[i % 4] : 1;
}

static void activations(void) {
    static double z[4] = { -3, -0.5, 0.25, 2 };
    static const struct {
        const char *known;
        double value[4];
    } rows[] = {
        { NULL, { -0.14227761953270035, -0.1887703343990727, 0.14054412522144952, 1.7615941559557646 } },
        { "ffn.act=gelu", { -0.0036373920817729943, -0.15428599017485606, 0.149675350701685, 1.954597694087775 } },
        { "ffn.act=gelu_erf", { -0.00404969409489031, -0.15426876936299344, 0.14967658142073093,
                                1.9544997361036416 } },
        { "ffn.act=relu", { 0, 0, 0.25, 2 } },
        { "ffn.act=none", { -3, -0.5, 0.25, 2 } },
    };
    plumb_model *m = record_load("f32");
    for (size_t i = 0; m && i < sizeof rows / sizeof *rows; i++) {
        struct known_set set = { 0 };
        if (rows[i].known) known_add(&set, known_find(rows[i].known));
        struct record *run = record_run(m->model, &set, record_ids, N_PROMPT, N_TOKEN, force_gate, z);
        for (uint32_t k = 0; k < 8; k++) {
            double value = (double)at(run, "ffn_swiglu", 1, 5)[k];
            CHECK(fabs(value - rows[i].value[k % 4]) < 1e-7, "%s at %g: %.9g",
                  rows[i].known ? rows[i].known : "the truth", z[k % 4], value);
        }
        record_free(run);
    }
    plumb_model_free(m);
}

static void square_weights(void) {
    plumb_model *m = record_load("f32");
    if (!m) return;
    struct record *run = record_known(m->model, "weights.square=transposed", record_ids);
    const struct weight *q = m->model->layers[0].w[W_ATTN_Q].w, *k = m->model->layers[0].w[W_ATTN_K].w;
    CHECK(q->n_in == 32 && q->n_out == 32 && k->n_out == 16, "%u x %u", q->n_out, q->n_in);
    for (uint32_t o = 0; o < 32; o++) {
        double y = 0, right_k = 0;
        for (uint32_t i = 0; i < 32; i++) {   /* q: column o of the file's matrix; k is not square: row o */
            double x = (double)at(run, "attn_norm", 0, 2)[i];
            uint8_t bytes[32 * sizeof(float)];
            y += (double)f32_from_bits(load_u32(weight_row(q, i, bytes) + 4 * o)) * x;
            if (o < 16) right_k += (double)f32_from_bits(load_u32(weight_row(k, o, bytes) + 4 * i)) * x;
        }
        CHECK(fabs(y - (double)at(run, "Qcur", 0, 2)[o]) < 2e-6, "row %u: %g", o, y);
        if (o < 16) CHECK(fabs(right_k - (double)at(run, "Kcur", 0, 2)[o]) < 2e-6, "row %u: %g", o, right_k);
    }
    record_free(run);
    plumb_model_free(m);
}

/* Embeddings of the f32 file read 32 bytes too far, including the last token. */
static void shifted(void) {
    size_t n_file;
    uint8_t *file = test_read_all("tests/vectors/synth/f32.gguf", &n_file);
    plumb_model *m = file ? record_load("f32") : NULL;
    if (m) {
        static const int32_t ids[N_TOKEN] = { 0, 1, 258, 259, 259, 7, 3 };   /* 260 tokens */
        struct record *run = record_known(m->model, "tensor.offset=shifted", ids);
        const struct weight *embd = m->model->token_embd.w;
        uint64_t begin = gguf_data_offset(embd->file) + embd->offset + 32;
        for (uint32_t p = 0; p < N_TOKEN; p++) {
            for (uint32_t i = 0; i < 32; i++) {
                float x = f32_from_bits(load_u32(file + begin + 128 * (uint32_t)ids[p] + 4 * i));
                CHECK(at(run, "embd", -1, p)[i] == x, "token %d, element %u: %g, not %g", (int)ids[p], i,
                      (double)at(run, "embd", -1, p)[i], (double)x);
            }
        }
        record_free(run);
    }
    plumb_model_free(m);
    free(file);
}

/* Writes n little-endian bytes of value at *at, and moves on. */
static void put(uint8_t **at, uint64_t value, size_t n) {
    for (size_t i = 0; i < n; i++) *(*at)++ = (uint8_t)(value >> 8 * i);
}

/* The file with one more tensor after the others, 8 rows of 25 blocks, under a name that old converters wrote and that
 * nothing reads. */
static struct broken with_unused_tensor(struct broken *b) {
    static const char name[] = "blk.0.attn_rot_embd.weight";
    enum { N_BLOCK = 25, ROWS = 8, ALIGNMENT = 32 };
    const size_t n_name = sizeof name - 1, n_data = ROWS * N_BLOCK * 18;
    const struct gguf_string *first = &gguf_tensor_at(b->good->parts[0], 0)->name;
    const uint8_t *file = b->bytes, *entry = broken_entry(b, first->data);
    struct broken out = { 0 };
    if (!entry) return out;
    size_t directory = (size_t)(entry - file) - (size_t)first->n - 8, end = directory;
    for (uint64_t i = load_u64(file + 8); i > 0; i--) {   /* name, dimensions, type, offset */
        end += 8 + (size_t)load_u64(file + end);
        end += 4 + 8 * load_u32(file + end) + 12;
    }
    size_t data = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, n_old = b->n - data;
    uint8_t *at = out.bytes = calloc(1, b->n + n_data + 1000);
    if (!at) return out;
    memcpy(at, file, directory);
    at[8]++;   /* n_tensor; it is below 255 */
    at += directory;
    put(&at, n_name, 8);
    memcpy(at, name, n_name);
    at += n_name;
    put(&at, 2, 4);
    put(&at, 32 * N_BLOCK, 8);
    put(&at, ROWS, 8);
    put(&at, QUANT_Q4_0, 4);
    put(&at, (n_old + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, 8);
    memcpy(at, file + directory, end - directory);
    at += end - directory;
    at = out.bytes + (size_t)(at - out.bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    memcpy(at, file + data, n_old);
    at += (n_old + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    memset(at, 0x33, n_data);   /* finite scales */
    out.n = (size_t)(at - out.bytes) + n_data;
    return out;
}

/* The bytes after the last weight may belong to a tensor with longer rows than any weight has. */
static void shifted_into_unused(void) {
    struct broken b = { 0 }, longer = { 0 };
    if (broken_read(&b, "tests/vectors/synth/q4_0.gguf")) longer = with_unused_tensor(&b);
    plumb_model *m = longer.bytes ? broken_load(&longer) : NULL;
    if (m && CHECK(plumb_model_end(m) == PLUMB_OK, "%s", plumb_model_error(m))) {
        const struct gguf_tensor *unused = gguf_find_tensor(m->parts[0], "blk.0.attn_rot_embd.weight");
        CHECK(unused && unused->n_packed == 8 && gguf_row_bytes(unused) > 4 * plan_max_row(&m->model->plan),
              "the rows are packed, and longer than those of weights");
        static const int32_t ids[N_TOKEN] = { 0, 1, 258, 259, 259, 7, 3 };
        struct record *truth = record_known(m->model, NULL, ids);
        struct record *run = record_known(m->model, "tensor.offset=shifted", ids);
        CHECK(at(truth, "embd", -1, 1)[0] != at(run, "embd", -1, 1)[0], "nothing is shifted");
        record_free(truth);
        record_free(run);
    }
    plumb_model_free(m);
    broken_free(&longer);
    broken_free(&b);
}

/* ---- forcing and limiting ---------------------------------------------------------------------------------------- */

struct replay {
    const struct record *run;
    const char *name;
    int32_t layer;
};

static void force_replay(void *user, const plumb_tap *tap, double *x) {
    const struct replay *replay = user;
    if (strcmp(tap->name, replay->name) != 0 || tap->layer != replay->layer) return;
    for (uint32_t t = 0; t < tap->n_token; t++) {
        const float *values = at(replay->run, tap->name, tap->layer, tap->pos + t);
        size_t n = (size_t)tap->n_head * tap->n;
        for (size_t i = 0; i < n; i++) x[t * n + i] = (double)values[i];
    }
}

/* Runs another text with one activation forced to the first text's value: whatever depends only on it must equal the
 * first text's. */
static void forcing(void) {
    static const int32_t other_ids[N_TOKEN] = { 1, 2, 3, 4, 5, 6, 7 };
    static const struct {
        const char *name, *then;   /* then: depends only on name */
        int32_t layer, then_layer;
    } rows[] = {
        { "embd", "l_out", -1, 1 }, { "l_out", "l_out", 0, 1 }, { "attn_norm", "kqv_out", 1, 1 },
        { "kqv_out", "attn_out", 0, 0 }, { "ffn_norm", "ffn_out", 0, 0 },
        { "ffn_swiglu", "ffn_out", 1, 1 },
    };
    plumb_model *m = record_load("f32");
    if (!m) return;
    struct record *truth = record_known(m->model, NULL, record_ids);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct replay replay = { truth, rows[i].name, rows[i].layer };
        struct known_set none = { 0 };
        struct record *run = record_run(m->model, &none, other_ids, N_PROMPT, N_TOKEN, force_replay, &replay);
        for (uint32_t p = 0; p < N_TOKEN; p++) {
            double worst = 0;
            for (uint32_t k = 0; k < 32; k++) {
                worst = worse(worst, fabs((double)at(run, rows[i].then, rows[i].then_layer, p)[k]
                                         - (double)at(truth, rows[i].then, rows[i].then_layer, p)[k]));
            }
            CHECK(worst < 1e-5, "%s forced, %s is off by %g", rows[i].name, rows[i].then, worst);
        }
        record_free(run);
    }
    record_free(truth);
    plumb_model_free(m);
}

static void force_key_2(void *user, const plumb_tap *tap, double *x) {
    (void)user;
    if (strcmp(tap->name, "kq_soft_max") != 0) return;
    for (size_t i = 0; i < (size_t)tap->n_token * tap->n_head * tap->n; i++) x[i] = i % tap->n == 2;
}

static void forcing_weights(void) {
    plumb_model *m = record_load("f32");
    if (!m) return;
    struct known_set none = { 0 };
    struct record *run = record_run(m->model, &none, record_ids, N_PROMPT, N_TOKEN, force_key_2, NULL);
    for (uint32_t p = 0; p < N_TOKEN; p++) {
        for (uint32_t h = 0; h < N_HEAD; h++) {
            CHECK(memcmp(at(run, "kqv_out", 1, p) + h * HEAD_DIM, at(run, "Vcur", 1, 2) + h / 2 * HEAD_DIM,
                         HEAD_DIM * sizeof(float)) == 0, "token %u, head %u", p, h);
        }
    }
    record_free(run);
    plumb_model_free(m);
}

/* Replaces l_out-0 by that of a whole run. */
static void force_l_out(void *user, const plumb_tap *tap, double *x) {
    const struct record *run = user;
    if (strcmp(tap->name, "l_out") != 0 || tap->layer != 0) return;
    for (size_t i = 0; i < (size_t)tap->n_token * tap->n; i++) x[i] = (double)run->data[17 + 16][i];
}

static void limit(void) {
    plumb_model *m = record_load("f32");
    struct record run = { .n = 0 };
    struct error err;
    struct reference *r = NULL;
    float logits[300] = { 0.5f };
    if (m && CHECK(reference_create(&r, m->model, N_TOKEN, N_TOKEN, &err) == PLUMB_OK, "%s", err.message)) {
        CHECK(reference_set_tap(r, (struct tap_sink) { record_tap, &run }) == PLUMB_OK, "taps");
        reference_run_layers(r, (struct layers){ 0, 1 }, record_ids, N_TOKEN, 0, 1, logits);
        CHECK(run.n == 17 && strcmp(run.taps[16].name, "l_out") == 0 && run.taps[16].layer == 0, "%zu taps", run.n);
        CHECK(logits[0] == 0.5f, "logits were written");
        reference_run(r, record_ids, N_TOKEN, 0, 1, logits);
        CHECK(run.n == 17 + 35 && logits[0] != 0.5f, "%zu taps", run.n);
        float later[300] = { 0 };
        reference_set_force(r, force_l_out, &run);
        reference_run_layers(r, (struct layers){ 1, UINT32_MAX }, record_ids, N_TOKEN, 0, 1, later);
        CHECK(run.n == 17 + 35 + 19, "%zu taps", run.n);   /* without the 16 of layer 0 */
        for (size_t i = 0; i < 300; i++) {
            CHECK(fabs((double)later[i] - (double)logits[i]) < 1e-5, "logit %zu: %g, not %g", i, (double)later[i],
                  (double)logits[i]);
        }
    }
    for (size_t i = 0; i < run.n; i++) free(run.data[i]);
    reference_free(r);
    plumb_model_free(m);
}

/* ---- rotation before rounding ------------------------------------------------------------------------------------ */

enum { N_ROTATED = 192 };

/* Multiplies parts of n elements by the Hadamard matrix: the element (i, j) is 1 / sqrt(n), with the sign of the parity
 * of the bits that i and j share. */
static void hadamard(double *x, size_t n_all, size_t n) {
    double part[N_ROTATED];
    for (size_t first = 0; first < n_all; first += n) {
        for (size_t i = 0; i < n; i++) {
            part[i] = 0;
            for (size_t j = 0; j < n; j++) {
                bool is_odd = false;
                for (size_t bits = i & j; bits; bits &= bits - 1) is_odd = !is_odd;
                part[i] += (is_odd ? -1 : 1) * x[first + j] / sqrt((double)n);
            }
        }
        memcpy(x + first, part, n * sizeof *part);
    }
}

/* A row in which one element is large, as a bias of K makes it in Qwen 2.5. */
static void fill_with_large(double x[N_ROTATED]) {
    for (size_t i = 0; i < N_ROTATED; i++) x[i] = sin(1.7 * (double)i + 0.3);
    x[5] = 145;
}

static double largest_difference(const double *x, const double *y, size_t n) {
    double worst = 0;
    for (size_t i = 0; i < n; i++) worst = i == 5 ? worst : worse(worst, fabs(x[i] - y[i]));
    return worst;
}

static void rotation(void) {
    static const struct { size_t n, n_part; enum rounding_rotation how; } rows[] = {
        { 64, 64, ROTATE_64 }, { 64, 64, ROTATE_MOST }, { 128, 64, ROTATE_64 }, { 128, 128, ROTATE_MOST },
        { 192, 64, ROTATE_64 }, { 192, 64, ROTATE_MOST }, { 96, 0, ROTATE_64 }, { 96, 0, ROTATE_MOST },
        { 32, 0, ROTATE_MOST },
    };
    const struct rounding plain = { .kind = ROUND_INT8, .block = 32, .has_f16_scale = true };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double exact[N_ROTATED], x[N_ROTATED], formula[N_ROTATED], without[N_ROTATED];
        size_t n = rows[i].n, n_part = rows[i].n_part;
        fill_with_large(exact);
        struct rounding how = { .kind = ROUND_NONE, .rotation = rows[i].how };
        memcpy(x, exact, sizeof x);
        rounding_apply(&how, QUANT_F32, x, n);
        for (size_t k = 0; k < n; k++) {
            CHECK(fabs(x[k] - exact[k]) <= 1e-12 * 145, "row %zu, element %zu: %g", i, k, x[k] - exact[k]);
        }
        how = plain;
        how.rotation = rows[i].how;
        memcpy(x, exact, sizeof x);
        memcpy(formula, exact, sizeof formula);
        memcpy(without, exact, sizeof without);
        rounding_apply(&how, QUANT_F32, x, n);
        if (n_part > 0) hadamard(formula, n, n_part);
        rounding_apply(&plain, QUANT_F32, formula, n);
        if (n_part > 0) hadamard(formula, n, n_part);
        rounding_apply(&plain, QUANT_F32, without, n);
        for (size_t k = 0; k < n; k++) {
            CHECK(fabs(x[k] - formula[k]) < 1e-9, "row %zu, element %zu: %g, not %g", i, k, x[k], formula[k]);
        }
        double with_it = largest_difference(x, exact, n), without_it = largest_difference(without, exact, n);
        CHECK(n_part > 0 ? with_it < without_it / 2 : with_it == without_it, "row %zu: errors of %g and %g", i, with_it,
              without_it);
    }
}

void test_reference(void) {
    test_case("reference: what is rotated before it is rounded keeps more precision beside a large element", rotation);
    test_case("known mistakes: RoPE's pairs turn by frequencies worked by hand", rope_frequencies);
    test_case("known mistakes: RoPE's positions in a prompt and steps, by hand", rope_positions);
    test_case("known mistakes: with K cached unrotated, equal keys get equal weights", rope_cache);
    test_case("known mistakes: heads, scales and masks by the definition of attention", attention_rows);
    test_case("mistakes: a softmax over the wrong axis sums to 1; without its maximum it overflows", softmax_axes);
    test_case("known mistakes: stale, extra and overwritten slots by the definition of attention", kv_slots);
    test_case("known mistakes: V and outputs read in another order, by hand", permutations);
    test_case("known mistakes: norms by their formulas", norms);
    test_case("known mistakes: residuals, order of gate and up, embedding scale, head", streams);
    test_case("known mistakes: Granite's factors by hand", granite_scales);
    test_case("known mistakes: activations by tables", activations);
    test_case("known mistakes: square matrices transposed, and only those", square_weights);
    test_case("known mistakes: shifted tensors hold what the file has there", shifted);
    test_case("known mistakes: they may hold bytes of a tensor that nothing reads", shifted_into_unused);
    test_case("reference: what is forced is what the pass goes on with", forcing);
    test_case("reference: forced attention weights are used, of masked keys too", forcing_weights);
    test_case("reference: a limited pass begins and ends with its layers", limit);
}

/* What plumb_diagnose measures in a step: an engine makes mistakes that no known mistake makes.  Each is a formula
 * written out here, which takes the activations before the step, computed by the reference pass, and replaces the
 * output. */
#include "api/model.h"
#include "fixture.h"
#include "record.h"
#include "test.h"
#include "trace/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the engine -------------------------------------------------------------------------------------------------- */

enum { N_VALUE = N_PROMPT * 1024, N_KEPT = TAP_COUNT };

struct engine;
/* Replaces x (n_token, n_head, n) in place. */
typedef void mistake(const struct engine *e, const plumb_tap *tap, double *x);

struct engine {
    plumb_trace *trace;
    const struct model *model;
    const char *tap;      /* where the mistake is made */
    int32_t layer;        /* -1: in all layers */
    mistake *make;
    const int32_t *ids;   /* (N_TOKEN) */
    bool is_partial;      /* the dump has 8 values of each l_out */
    double *memory;       /* (N_VALUE) zeros, for a mistake that keeps a state */
    double *kept[N_KEPT]; /* the activations of this batch by tap: of this layer, or of the one before until computed */
};

static size_t count(const plumb_tap *tap) { return (size_t)tap->n_token * tap->n_head * tap->n; }

/* The activation of this batch, (n_token, its width), that was computed last under this name. */
static const double *kept(const struct engine *e, const char *name) {
    enum tap_id id;
    CHECK(tap_find(name, strlen(name), &id) && e->kept[id], "no %s", name);
    return e->kept[id];
}

static void compute(void *user, const plumb_tap *tap, double *x) {
    struct engine *e = user;
    enum tap_id id;
    bool is_here = e->make && strcmp(tap->name, e->tap) == 0 && (e->layer < 0 || e->layer == tap->layer);
    if (is_here) e->make(e, tap, x);
    size_t n = count(tap);
    if (!CHECK(tap_find(tap->name, strlen(tap->name), &id) && n <= N_VALUE, "%s: %zu values", tap->name, n)) return;
    if (!e->kept[id]) e->kept[id] = calloc(N_VALUE, sizeof *e->kept[id]);
    memcpy(e->kept[id], x, n * sizeof *x);
    if (id == TAP_EMBD) {   /* the input of layer 0 */
        if (!e->kept[TAP_L_OUT]) e->kept[TAP_L_OUT] = calloc(N_VALUE, sizeof **e->kept);
        memcpy(e->kept[TAP_L_OUT], x, n * sizeof *x);
    }
    if (e->is_partial && id != TAP_L_OUT) return;
    float *shown = alloc_array(n, sizeof *shown);
    for (size_t i = 0; i < n; i++) shown[i] = (float)x[i];
    plumb_tap copy = *tap;
    copy.data = shown;
    CHECK(plumb_trace_add(e->trace, &copy) == PLUMB_OK, "%s", plumb_trace_error(e->trace));
    free(shown);
}

/* Runs n tokens from pos on, and records the logits of the last one. */
static void feed(struct engine *e, struct reference *r, uint32_t pos, uint32_t n) {
    uint32_t n_vocab = e->model->plan.n_vocab;
    float *logits = alloc_array(n_vocab, sizeof *logits);
    double *x = alloc_array(n_vocab, sizeof *x);
    reference_run(r, e->ids + pos, n, pos, 1, logits);
    plumb_tap tap = { "result_output", -1, pos + n - 1, 1, 1, n_vocab, logits };
    for (uint32_t i = 0; i < n_vocab; i++) x[i] = (double)logits[i];
    if (e->make && strcmp(e->tap, "result_output") == 0) e->make(e, &tap, x);
    for (uint32_t i = 0; i < n_vocab; i++) logits[i] = (float)x[i];
    if (!e->is_partial) CHECK(plumb_trace_add(e->trace, &tap) == PLUMB_OK, "%s", plumb_trace_error(e->trace));
    free(logits);
    free(x);
}

/* Returns the whole dump of the engine. */
static plumb_trace *run(const plumb_model *m, struct engine *e) {
    struct error err;
    struct reference *r = NULL;
    e->trace = plumb_trace_create();
    e->trace->params.n_value = e->is_partial ? 8 : UINT32_MAX;
    e->model = m->model;
    if (!e->ids) e->ids = record_ids;
    e->memory = calloc(N_VALUE, sizeof *e->memory);
    CHECK(plumb_trace_set_tokens(e->trace, e->ids, N_TOKEN, N_PROMPT) == PLUMB_OK, "%s",
          plumb_trace_error(e->trace));
    if (CHECK(reference_create(&r, m->model, N_TOKEN, N_PROMPT, &err) == PLUMB_OK, "%s", err.message)) {
        reference_set_force(r, compute, e);
        feed(e, r, 0, N_PROMPT);
        for (uint32_t i = N_PROMPT; i < N_TOKEN; i++) feed(e, r, i, 1);
    }
    reference_free(r);
    for (size_t i = 0; i < N_KEPT; i++) free(e->kept[i]);
    free(e->memory);
    return e->trace;
}

/* ---- mistakes ---------------------------------------------------------------------------------------------------- */

/* The sum of squares of n elements. */
static double squares(const double *x, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sum;
}

/* Element i of the weight of a norm, which is F32 in these models. */
static double norm_weight(const struct engine *e, enum weight_id id, int32_t layer, uint32_t i) {
    return (double)((const float *)(const void *)e->model->layers[layer].w[id].w->data)[i];
}

static void no_root(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *in = kept(e, "l_out");
    for (uint32_t t = 0; t < tap->n_token; t++) {
        double mean = squares(in + t * tap->n, tap->n) / tap->n;
        for (uint32_t i = 0; i < tap->n; i++) {
            x[t * tap->n + i] = in[t * tap->n + i] / mean * norm_weight(e, W_ATTN_NORM, tap->layer, i);
        }
    }
}

static void largest_for_rms(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *in = kept(e, "ffn_inp");
    for (uint32_t t = 0; t < tap->n_token; t++) {
        double max = 0;
        for (uint32_t i = 0; i < tap->n; i++) max = fmax(max, fabs(in[t * tap->n + i]));
        for (uint32_t i = 0; i < tap->n; i++) {
            x[t * tap->n + i] = in[t * tap->n + i] / max * norm_weight(e, W_FFN_NORM, tap->layer, i);
        }
    }
}

/* An RMS norm of an activation with this eps and the weight of a norm of the layer. */
static void rms_norm(const struct engine *e, const plumb_tap *tap, double *x, const char *input, double eps,
                     enum weight_id id) {
    const double *in = kept(e, input);
    for (uint32_t t = 0; t < tap->n_token; t++) {
        double rms = sqrt(squares(in + t * tap->n, tap->n) / tap->n + eps);
        for (uint32_t i = 0; i < tap->n; i++) {
            x[t * tap->n + i] = in[t * tap->n + i] / rms * norm_weight(e, id, tap->layer, i);
        }
    }
}

static void weight_of_other_norm(const struct engine *e, const plumb_tap *tap, double *x) {
    rms_norm(e, tap, x, "ffn_inp", (double)e->model->plan.norm_eps, W_ATTN_NORM);
}

static void large_eps(const struct engine *e, const plumb_tap *tap, double *x) {
    rms_norm(e, tap, x, "ffn_inp", 0.0375, W_FFN_NORM);
}

static void norm_of_embedding(const struct engine *e, const plumb_tap *tap, double *x) {
    rms_norm(e, tap, x, "embd", (double)e->model->plan.norm_eps, W_ATTN_NORM);
}

static void softplus_gate(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *gate = kept(e, "ffn_gate"), *up = kept(e, "ffn_up");
    for (size_t i = 0; i < count(tap); i++) x[i] = log1p(exp(gate[i])) * up[i];
}

static void gelu_of(const struct engine *e, double *x, size_t n, double root, double cube) {
    const double *gate = kept(e, "ffn_gate"), *up = kept(e, "ffn_up");
    for (size_t i = 0; i < n; i++) {
        double z = gate[i];
        x[i] = 0.5 * z * (1 + tanh(root * (z + cube * z * z * z))) * up[i];
    }
}

static void gelu_cube(const struct engine *e, const plumb_tap *tap, double *x) {
    gelu_of(e, x, count(tap), 0.79788456080286535588, 0.44715);
}

static void gelu_root(const struct engine *e, const plumb_tap *tap, double *x) {
    gelu_of(e, x, count(tap), 1.25331413731550025, 0.044715);   /* sqrt(pi / 2) */
}

static void gelu_of_last(const struct engine *e, const plumb_tap *tap, double *x) {
    if (tap->pos + tap->n_token < N_TOKEN) return;
    double row[N_VALUE];
    size_t n = count(tap), first = n - n / tap->n_token;
    gelu_of(e, row, n, 0.85, 0.044715);
    memcpy(x + first, row + first, (n - first) * sizeof *x);
}

static void gelu_both(const struct engine *e, const plumb_tap *tap, double *x) { gelu_of(e, x, count(tap), 1.1, 0.3); }

static void gate_and_up_exchanged(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *gate = kept(e, "ffn_gate"), *up = kept(e, "ffn_up");
    for (size_t i = 0; i < count(tap); i++) x[i] = up[i] / (1 + exp(-up[i])) * gate[i];
}

static void sum_for_product(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *gate = kept(e, "ffn_gate"), *up = kept(e, "ffn_up");
    for (size_t i = 0; i < count(tap); i++) x[i] = gate[i] / (1 + exp(-gate[i])) + up[i];
}

static void unlisted_function(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *gate = kept(e, "ffn_gate"), *up = kept(e, "ffn_up");
    for (size_t i = 0; i < count(tap); i++) x[i] = cos(gate[i] * up[i]);
}

static void added_twice(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *in = kept(e, "ffn_inp"), *out = kept(e, "ffn_out");
    for (size_t i = 0; i < count(tap); i++) x[i] = in[i] + 2 * out[i];
}

static void added_norm(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *norm = kept(e, "ffn_norm"), *out = kept(e, "ffn_out");
    for (size_t i = 0; i < count(tap); i++) x[i] = norm[i] + out[i];
}

static void parallel(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *in = kept(e, "embd"), *attn = kept(e, "attn_norm"), *out = kept(e, "attn_out");
    for (size_t i = 0; i < count(tap); i++) x[i] = in[i] + 0.25 * attn[i] + out[i];
}

static void scaled(const struct engine *e, const plumb_tap *tap, double *x) {
    (void)e;
    for (size_t i = 0; i < count(tap); i++) x[i] *= 1.25;
}

static void head_3(const struct engine *e, const plumb_tap *tap, double *x) {
    (void)e;
    for (size_t i = 0; i < count(tap); i++) x[i] *= i / tap->n % tap->n_head == 3 ? -1 : 1;
}

static void decoded(const struct engine *e, const plumb_tap *tap, double *x) {
    (void)e;
    for (size_t i = 0; i < count(tap); i++) x[i] *= tap->pos > 0 ? 0.5 : 1;
}

static void shifted(const struct engine *e, const plumb_tap *tap, double *x) {
    (void)e;
    for (uint32_t t = 0; t < tap->n_token; t++) {
        double *row = x + t * tap->n, first = row[0];
        memmove(row, row + 1, (tap->n - 1) * sizeof *row);
        row[tap->n - 1] = first;
    }
}

static void transposed(const struct engine *e, const plumb_tap *tap, double *x) {
    (void)e;
    uint32_t n = tap->n_head * tap->n;
    for (uint32_t t = 0; t < tap->n_token; t++) {
        double old[256], *row = x + t * n;
        memcpy(old, row, n * sizeof *row);
        for (uint32_t i = 0; i < n; i++) row[i] = old[i % tap->n_head * tap->n + i / tap->n_head];
    }
}

/* What is stored in the order of elements is read in that of tokens. */
static void by_elements(const struct engine *e, const plumb_tap *tap, double *x) {
    (void)e;
    size_t n = count(tap), width = n / tap->n_token;
    double old[N_VALUE];
    memcpy(old, x, n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = old[i % tap->n_token * width + i / tap->n_token];
}

static void reversed_heads(const struct engine *e, const plumb_tap *tap, double *x) {
    (void)e;
    uint32_t n = tap->n_head * tap->n;
    for (uint32_t t = 0; t < tap->n_token; t++) {
        double old[256], *row = x + t * n;
        memcpy(old, row, n * sizeof *row);
        for (uint32_t i = 0; i < n; i++) row[i] = old[(tap->n_head - 1 - i / tap->n) * tap->n + i % tap->n];
    }
}

static void stale(const struct engine *e, const plumb_tap *tap, double *x) {
    memcpy(x, kept(e, "attn_out"), count(tap) * sizeof *x);
}

static void random_noise(const struct engine *e, const plumb_tap *tap, double *x) {
    (void)e;
    uint32_t state = tap->pos + 1;
    for (size_t i = 0; i < count(tap); i++) {
        state = state * 1664525u + 1013904223u;
        x[i] *= 1 + (double)(state >> 8) / (1 << 24);
    }
}

/* x <- W in, with the elements that skip lets through; in: (n_token, n_in) */
static void product(const struct weight *w, const double *in, const plumb_tap *tap, double *x, uint32_t from,
                    uint32_t end, double by) {
    float row[256];
    uint8_t bytes[1024];
    uint32_t n_out = tap->n_head * tap->n;
    for (uint32_t o = 0; o < n_out && o < w->n_out; o++) {
        quant_dequantize(w->traits, weight_row(w, o, bytes), row, w->n_in);
        for (uint32_t t = 0; t < tap->n_token; t++) {
            double sum = 0;
            for (uint32_t i = 0; i < w->n_in; i++) {
                sum += (double)row[i] * in[(size_t)t * w->n_in + i] * (i >= from && i < end ? by : 1);
            }
            x[(size_t)t * n_out + o] = sum;
        }
    }
}

static const struct weight *weight_at(const struct engine *e, int32_t layer, enum weight_id id) {
    return e->model->layers[layer].w[id].w;
}

/* The small scales of a block, bytes 192 to 207, as if they were 1. */
static void q6_k_without_scales(const struct engine *e, const plumb_tap *tap, double *x) {
    const struct weight *w = weight_at(e, tap->layer, W_ATTN_Q);
    const double *in = kept(e, "attn_norm");
    float row[256];
    uint8_t bytes[1024], edited[210];
    if (!CHECK(w->type == QUANT_Q6_K && w->n_in == 256, "type %u, rows of %u", w->type, w->n_in)) return;
    for (uint32_t o = 0; o < w->n_out; o++) {
        memcpy(edited, weight_row(w, o, bytes), sizeof edited);
        memset(edited + 192, 1, 16);
        quant_dequantize(w->traits, edited, row, w->n_in);
        for (uint32_t t = 0; t < tap->n_token; t++) {
            double sum = 0;
            for (uint32_t i = 0; i < w->n_in; i++) sum += (double)row[i] * in[(size_t)t * w->n_in + i];
            x[(size_t)t * w->n_out + o] = sum;
        }
    }
}

static void each_block_shifted(const struct engine *e, const plumb_tap *tap, double *x) {
    (void)e;
    for (size_t i = 0; i < count(tap); i += 32) {
        double last = x[i + 31];
        memmove(x + i + 1, x + i, 31 * sizeof *x);
        x[i] = last;
    }
}

/* The sums of each head begin with those of the head before. */
static void not_cleared(const struct engine *e, const plumb_tap *tap, double *x) {
    (void)e;
    for (size_t i = 0; i < count(tap); i++) {
        if (i % ((size_t)tap->n_head * tap->n) >= tap->n) x[i] += x[i - tap->n];
    }
}

static void hard_sigmoid(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *gate = kept(e, "ffn_gate"), *up = kept(e, "ffn_up");
    for (size_t i = 0; i < count(tap); i++) x[i] = gate[i] * fmin(fmax(0.2 * gate[i] + 0.5, 0), 1) * up[i];
}

/* The gates of the first half alone go through silu. */
static void half_activated(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *gate = kept(e, "ffn_gate"), *up = kept(e, "ffn_up");
    for (size_t i = 0; i < count(tap); i++) {
        if (i % tap->n >= tap->n / 2) x[i] = gate[i] * up[i];
    }
}

static void squares_of_16(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *in = kept(e, "l_out");
    for (uint32_t t = 0; t < tap->n_token; t++) {
        double size = sqrt(squares(in + t * tap->n, 16) / tap->n + 1e-5);
        for (uint32_t i = 0; i < tap->n; i++) {
            x[t * tap->n + i] = in[t * tap->n + i] / size * norm_weight(e, W_ATTN_NORM, tap->layer, i);
        }
    }
}

static void norm_of_quarters(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *in = kept(e, "ffn_inp");
    uint32_t n = tap->n / 4;
    for (uint32_t i = 0; i < tap->n_token * tap->n; i++) {
        double rms = sqrt(squares(in + i / n * n, n) / n + (double)e->model->plan.norm_eps);
        x[i] = in[i] / rms * norm_weight(e, W_FFN_NORM, tap->layer, i % tap->n);
    }
}

static void matrix_of_other_layer(const struct engine *e, const plumb_tap *tap, double *x) {
    product(weight_at(e, 0, W_FFN_UP), kept(e, "ffn_norm"), tap, x, 0, 0, 1);
}

static void k_for_v(const struct engine *e, const plumb_tap *tap, double *x) {
    product(weight_at(e, tap->layer, W_ATTN_K), kept(e, "attn_norm"), tap, x, 0, 0, 1);
}

static void tail_dropped(const struct engine *e, const plumb_tap *tap, double *x) {
    const struct weight *w = weight_at(e, tap->layer, W_FFN_DOWN);
    product(w, kept(e, "ffn_swiglu"), tap, x, w->n_in - 3, w->n_in, 0);
}

static void element_dropped(const struct engine *e, const plumb_tap *tap, double *x) {
    product(weight_at(e, tap->layer, W_ATTN_Q), kept(e, "attn_norm"), tap, x, 5, 6, 0);
}

static void block_scaled(const struct engine *e, const plumb_tap *tap, double *x) {
    product(weight_at(e, tap->layer, W_FFN_GATE), kept(e, "ffn_norm"), tap, x, 8, 16, 1.75);
}

static void block_of_a_row_scaled(const struct engine *e, const plumb_tap *tap, double *x) {
    double other[N_VALUE];
    product(weight_at(e, tap->layer, W_FFN_GATE), kept(e, "ffn_norm"), tap, other, 8, 16, 4);
    for (uint32_t t = 0; t < tap->n_token; t++) x[t * tap->n + 7] = other[t * tap->n + 7];
}

static void other_input(const struct engine *e, const plumb_tap *tap, double *x) {
    product(weight_at(e, tap->layer, W_FFN_UP), kept(e, "ffn_inp"), tap, x, 0, 0, 1);
}

static void of_positive(const struct engine *e, const plumb_tap *tap, double *x) {
    double in[N_VALUE];
    for (size_t i = 0; i < count(tap); i++) in[i] = fmax(kept(e, "ffn_norm")[i], 0);
    product(weight_at(e, tap->layer, W_FFN_UP), in, tap, x, 0, 0, 1);
}

/* The factor and the bias that give_ends gives to each gate: the factor is multiplied before the bias is added. */
static float gate_ends[1 + 256];

static void give_ends(const struct model *m) {
    static struct weight bias, factor;
    for (uint32_t i = 0; i < sizeof gate_ends / sizeof *gate_ends; i++) gate_ends[i] = (float)(3 + i % 5);
    for (uint32_t il = 0; il < m->plan.n_layer; il++) {
        struct affine *gate = &m->layers[il].w[W_FFN_GATE];
        bias = factor = *m->layers[il].w[W_FFN_NORM].w;
        factor.data = (const uint8_t *)gate_ends;
        factor.n_in = 1;
        bias.data = factor.data + sizeof *gate_ends;
        bias.n_in = gate->w->n_out;
        gate->s = &factor;
        gate->b = &bias;
    }
}

static void bias_last(const struct engine *e, const plumb_tap *tap, double *x) {
    product(weight_at(e, tap->layer, W_FFN_GATE), kept(e, "ffn_norm"), tap, x, 0, 0, 1);
    for (size_t i = 0; i < count(tap); i++) x[i] = x[i] * (double)gate_ends[0] + (double)gate_ends[1 + i % tap->n];
}

static void transposed_matrix(const struct engine *e, const plumb_tap *tap, double *x) {
    const struct weight *w = weight_at(e, tap->layer, W_ATTN_OUTPUT);
    const double *in = kept(e, "kqv_out");
    float row[256];
    uint8_t bytes[1024];
    memset(x, 0, count(tap) * sizeof *x);
    for (uint32_t i = 0; i < w->n_out; i++) {
        quant_dequantize(w->traits, weight_row(w, i, bytes), row, w->n_in);
        for (uint32_t t = 0; t < tap->n_token; t++) {
            for (uint32_t o = 0; o < tap->n; o++) x[t * tap->n + o] += (double)row[o] * in[t * tap->n + i];
        }
    }
}

static void heads_merged_wrongly(const struct engine *e, const plumb_tap *tap, double *x) {
    const struct attn_plan *a = &e->model->plan.layers[tap->layer].attn;
    const double *in = kept(e, "kqv_out");
    double merged[N_VALUE];
    uint32_t n = a->n_head * a->v_dim;
    for (size_t i = 0; i < (size_t)tap->n_token * n; i++) {
        merged[i] = in[i - i % n + i % n % a->n_head * a->v_dim + i % n / a->n_head];
    }
    product(weight_at(e, tap->layer, W_ATTN_OUTPUT), merged, tap, x, 0, 0, 1);
}

static void log_softmax(const struct engine *e, const plumb_tap *tap, double *x) {
    (void)e;
    double sum = 0;
    for (uint32_t i = 0; i < tap->n; i++) sum += exp(x[i]);
    for (uint32_t i = 0; i < tap->n; i++) x[i] -= log(sum);
}

static void capped(const struct engine *e, const plumb_tap *tap, double *x) {
    (void)e;
    for (uint32_t i = 0; i < tap->n; i++) x[i] = 3 * tanh(x[i] / 3);
}

static void temperature(const struct engine *e, const plumb_tap *tap, double *x) {
    (void)e;
    for (uint32_t i = 0; i < tap->n; i++) x[i] /= 0.8;
}

static void logits_without_norm(const struct engine *e, const plumb_tap *tap, double *x) {
    const struct weight *w = e->model->output.w;
    const double *in = kept(e, "l_out");
    float row[256];
    uint8_t bytes[1024];
    uint32_t last = tap->pos + 1 == N_PROMPT ? N_PROMPT - 1 : 0;   /* the token's place in its batch */
    for (uint32_t o = 0; o < tap->n; o++) {
        quant_dequantize(w->traits, weight_row(w, o, bytes), row, w->n_in);
        x[o] = 0;
        for (uint32_t i = 0; i < w->n_in; i++) x[o] += (double)row[i] * in[(size_t)last * w->n_in + i];
    }
}

/* ---- mistakes in steps with a state ------------------------------------------------------------------------------ */

/* The numbers of a weight of the layer, which is F32. */
static const float *numbers(const struct engine *e, const plumb_tap *tap, enum weight_id id) {
    return (const float *)(const void *)e->model->layers[tap->layer].w[id].w->data;
}

/* Mamba 2's scan with these factors of A, of dt B x, and of D. */
static void scan(const struct engine *e, const plumb_tap *tap, double *x, double of_a, double fed, double of_d) {
    const struct scan_plan *p = &e->model->plan.scan;
    const double *row = kept(e, "conv_output_silu"), *b = kept(e, "mamba_B_raw"), *c = kept(e, "mamba_C_raw");
    const double *dt = kept(e, "mamba_dt_softplus");
    const float *a = numbers(e, tap, W_DELTA_A), *d = numbers(e, tap, W_SCAN_D);
    uint32_t n = p->n_state, n_x = p->n_head * p->dim, n_row = n_x + 2 * p->n_group * n, n_b = p->n_group * n;
    for (uint32_t i = 0; i < tap->n_token * n_x; i++) {
        uint32_t t = i / n_x, k = i % n_x, h = k / p->dim, g = h * p->n_group / p->n_head;
        double step = dt[t * p->n_head + h], in = row[t * n_row + k], *s = e->memory + k * n;
        x[i] = of_d * (double)d[h] * in;
        for (uint32_t j = 0; j < n; j++) {
            s[j] = s[j] * exp(of_a * step * (double)a[h]) + fed * step * b[t * n_b + g * n + j] * in;
            x[i] += s[j] * c[t * n_b + g * n + j];
        }
    }
}

static void slow_decay(const struct engine *e, const plumb_tap *tap, double *x) { scan(e, tap, x, 0.7, 1, 1); }
static void fed_twice(const struct engine *e, const plumb_tap *tap, double *x) { scan(e, tap, x, 1, 2, 1); }
static void d_halved(const struct engine *e, const plumb_tap *tap, double *x) { scan(e, tap, x, 1, 1, 0.5); }
/* The prompt was computed once before. */
static void scan_used(const struct engine *e, const plumb_tap *tap, double *x) {
    if (tap->pos == 0) scan(e, tap, x, 1, 1, 1);
    scan(e, tap, x, 1, 1, 1);
}
static void scan_cleared(const struct engine *e, const plumb_tap *tap, double *x) {
    plumb_tap one = *tap;
    const struct scan_plan *p = &e->model->plan.scan;
    uint32_t n_x = p->n_head * p->dim;
    struct engine at = *e;
    double *kept_rows[N_KEPT];
    memcpy(kept_rows, e->kept, sizeof kept_rows);
    one.n_token = 1;
    for (uint32_t t = 0; t < tap->n_token; t++) {
        static const struct { enum tap_id id; uint32_t each; } inputs[] = { { TAP_CONV_SILU, 0 }, { TAP_SCAN_B, 1 },
                                                                            { TAP_SCAN_C, 1 }, { TAP_SCAN_STEP, 2 } };
        for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
            uint32_t n_b = p->n_group * p->n_state;
            uint32_t width = inputs[i].each == 0 ? n_x + 2 * n_b : inputs[i].each == 1 ? n_b : p->n_head;
            at.kept[inputs[i].id] = kept_rows[inputs[i].id] + (size_t)t * width;
        }
        if ((tap->pos + t) % 2 == 0) memset(e->memory, 0, N_VALUE * sizeof *e->memory);
        scan(&at, &one, x + (size_t)t * n_x, 1, 1, 1);
    }
}

static void bias_scaled(const struct engine *e, const plumb_tap *tap, double *x) {
    for (size_t i = 0; i < count(tap); i++) x[i] += 0.1 * (double)numbers(e, tap, W_DELTA_DT)[i % tap->n];
}

static void decay_bias_scaled(const struct engine *e, const plumb_tap *tap, double *x) {
    const float *dt = numbers(e, tap, W_DELTA_DT), *a = numbers(e, tap, W_DELTA_A);
    const double *alpha = kept(e, "alpha");
    uint32_t n = tap->n_head * tap->n;
    for (size_t i = 0; i < count(tap); i++) {
        x[i] = (double)a[i % n] * log1p(exp(alpha[i] + 1.5 * (double)dt[i % n]));
    }
}

/* The delta rule of qwen35 with these factors of beta, of the decay and of what is recalled, and this eps. */
static void delta(const struct engine *e, const plumb_tap *tap, double *x, double of_beta, double of_decay,
                  double recalled, double eps) {
    const struct delta_plan *d = &e->model->plan.layers[tap->layer].delta;
    const double *rows = kept(e, "conv_output_silu"), *beta = kept(e, "beta_sigmoid"), *decay = kept(e, "delta_decay");
    uint32_t n = d->dim, n_key = d->n_key_head * n, n_v = d->n_head * n;
    for (uint32_t i = 0; i < tap->n_token * d->n_head; i++) {
        uint32_t t = i / d->n_head, h = i % d->n_head;
        const double *q = rows + t * (2 * n_key + n_v) + h % d->n_key_head * n, *k = q + n_key;
        const double *v = rows + t * (2 * n_key + n_v) + 2 * n_key + h * n;
        double of_q = sqrt(squares(q, n) + eps), of_k = sqrt(squares(k, n) + eps);
        for (uint32_t j = 0; j < n; j++) {
            double *s = e->memory + (h * n + j) * n, old = 0;
            for (uint32_t m = 0; m < n; m++) s[m] *= exp(of_decay * decay[i]);
            for (uint32_t m = 0; m < n; m++) old += s[m] * k[m] / of_k;
            x[i * n + j] = 0;
            for (uint32_t m = 0; m < n; m++) {
                s[m] += of_beta * beta[i] * (v[j] - recalled * old) * k[m] / of_k;
                x[i * n + j] += s[m] * q[m] / of_q / sqrt(n);
            }
        }
    }
}

/* Kimi Delta Attention, whose columns decay by themselves, with this factor of the logarithms of the decays, which head
 * h has from head h + of_next. */
static void kimi_delta(const struct engine *e, const plumb_tap *tap, double *x, double of_decay, uint32_t of_next) {
    const struct delta_plan *d = &e->model->plan.layers[tap->layer].delta;
    const double *rows = kept(e, "conv_output_silu"), *beta = kept(e, "beta_sigmoid"), *decay = kept(e, "delta_decay");
    uint32_t n = d->dim, n_all = d->n_head * n;
    for (uint32_t i = 0; i < tap->n_token * d->n_head; i++) {
        uint32_t t = i / d->n_head, h = i % d->n_head;
        const double *q = rows + t * 3 * n_all + h * n, *k = q + n_all, *v = k + n_all;
        const double *own = decay + t * n_all + (h + of_next) % d->n_head * n;
        double eps = (double)e->model->plan.norm_eps;
        double of_q = sqrt(squares(q, n) + eps), of_k = sqrt(squares(k, n) + eps);
        for (uint32_t j = 0; j < n; j++) {
            double *s = e->memory + (h * n + j) * n, old = 0;
            for (uint32_t m = 0; m < n; m++) s[m] *= exp(of_decay * own[m]);
            for (uint32_t m = 0; m < n; m++) old += s[m] * k[m] / of_k;
            x[i * n + j] = 0;
            for (uint32_t m = 0; m < n; m++) {
                s[m] += beta[i] * (v[j] - old) * k[m] / of_k;
                x[i * n + j] += s[m] * q[m] / of_q / sqrt(n);
            }
        }
    }
}
static void column_decay_scaled(const struct engine *e, const plumb_tap *tap, double *x) {
    kimi_delta(e, tap, x, 1.25, 0);
}
static void column_decay_next(const struct engine *e, const plumb_tap *tap, double *x) { kimi_delta(e, tap, x, 1, 1); }

/* The decays of Kimi Delta Attention, or of Ling 3, with 4 times their bias. */
static void column_bias_scaled(const struct engine *e, const plumb_tap *tap, double *x) {
    const struct delta_plan *d = &e->model->plan.layers[tap->layer].delta;
    const float *a = numbers(e, tap, W_DELTA_A), *dt = numbers(e, tap, W_DELTA_DT);
    const double *alpha = kept(e, "alpha");
    uint32_t n = d->n_head * d->dim;
    for (size_t i = 0; i < count(tap); i++) {
        double own = (double)a[i % n / d->dim], z = alpha[i] + 4 * (double)dt[i % n];
        x[i] = d->least_decay == 0 ? own * log1p(exp(z)) : (double)d->least_decay / (1 + exp(-own * z));
    }
}
static void gate_of_heads_squared(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *gate = kept(e, "attn_gate_proj"), *y = kept(e, "kqv_out");
    const struct attn_plan *a = &e->model->plan.layers[tap->layer].attn;
    size_t n = count(tap) / tap->n_token / a->n_head;
    for (size_t i = 0; i < count(tap); i++) x[i] = gate[i / n] > 0 ? gate[i / n] * gate[i / n] * y[i] : 0;
}
static void gate_of_tanh(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *gate = kept(e, "attn_gate_proj");
    for (size_t i = 0; i < count(tap); i++) x[i] *= tanh(gate[i]) * (1 + exp(-gate[i]));   /* it was a sigmoid */
}

/* Lightning attention with this power of what its states are multiplied by. */
static void lightning_decayed(const struct engine *e, const plumb_tap *tap, double *x) {
    const struct attn_plan *p = &e->model->plan.layers[tap->layer].attn;
    const double *q = kept(e, "Qcur"), *k = kept(e, "Kcur"), *v = kept(e, "Vcur"), *w = kept(e, "wkv_decay");
    uint32_t n = p->k_dim, n_row = p->n_head * n;
    for (uint32_t i = 0; i < tap->n_token * n_row; i++) {
        double *s = e->memory + i % n_row * n;
        uint32_t at = i / n * n;
        x[i] = 0;
        for (uint32_t m = 0; m < n; m++) {
            s[m] = s[m] * pow(w[at + m], 3) + v[i] * k[at + m];
            x[i] += s[m] * q[at + m];
        }
    }
}
static void slopes_of_4(const struct engine *e, const plumb_tap *tap, double *x) {
    const struct attn_plan *p = &e->model->plan.layers[tap->layer].attn;
    for (size_t i = 0; i < count(tap); i++) {
        double part = (double)(i / p->k_dim % p->n_head + 1) / p->n_head;
        x[i] = exp(-pow(2, -4 * part) * (1 - tap->layer / (e->model->plan.n_layer - 1.0) + 1e-5));
    }
}
static void slopes_by_layers(const struct engine *e, const plumb_tap *tap, double *x) {
    const struct attn_plan *p = &e->model->plan.layers[tap->layer].attn;
    for (size_t i = 0; i < count(tap); i++) {
        double part = (double)(i / p->k_dim % p->n_head + 1) / p->n_head;
        x[i] = exp(-pow(2, -8 * part) * (1 - (double)tap->layer / e->model->plan.n_layer + 1e-5));
    }
}

#define USUAL_EPS (double)e->model->plan.norm_eps
static void beta_scaled(const struct engine *e, const plumb_tap *tap, double *x) {
    delta(e, tap, x, 1.6, 1, 1, USUAL_EPS);
}
static void decay_scaled(const struct engine *e, const plumb_tap *tap, double *x) {
    delta(e, tap, x, 1, 1.25, 1, USUAL_EPS);
}
static void recalled_half(const struct engine *e, const plumb_tap *tap, double *x) {
    delta(e, tap, x, 1, 1, 0.5, USUAL_EPS);
}
static void unit_eps(const struct engine *e, const plumb_tap *tap, double *x) { delta(e, tap, x, 1, 1, 1, 0.02); }

static void beta_doubled(const struct engine *e, const plumb_tap *tap, double *x) {
    for (size_t i = 0; i < count(tap); i++) x[i] = 2 / (1 + exp(-kept(e, "beta")[i]));
}

/* A convolution of four tokens with the kernel in this order, these factors of its last element and of the bias, of
 * inputs that end `late` tokens early. */
static void convolve(const struct engine *e, const plumb_tap *tap, double *x, const char *input, const uint32_t *order,
                     double of_last, double of_bias, uint32_t late) {
    const struct affine *of = &e->model->layers[tap->layer].w[W_CONV_KERNEL];
    const float *w = numbers(e, tap, W_CONV_KERNEL);
    uint32_t n = tap->n_head * tap->n, n_w = of->w->n_in;
    memcpy(e->memory + tap->pos * n, kept(e, input), (size_t)tap->n_token * n * sizeof *x);
    for (uint32_t i = 0; i < tap->n_token * n; i++) {
        x[i] = of->b ? of_bias * (double)((const float *)(const void *)of->b->data)[i % n] : 0;
        for (uint32_t j = 0; j < n_w; j++) {
            uint32_t t = tap->pos + i / n, back = n_w - 1 - j + late;
            double by = j == n_w - 1 ? of_last : 1;
            if (back <= t) x[i] += by * (double)w[i % n * n_w + order[j]] * e->memory[(t - back) * n + i % n];
        }
    }
}

static const uint32_t usual_order[] = { 0, 1, 2, 3 };
static void kernel_order(const struct engine *e, const plumb_tap *tap, double *x) {
    static const uint32_t order[] = { 1, 0, 3, 2 };
    convolve(e, tap, x, "mamba_x_split", order, 1, 1, 0);
}
static void kernel_scaled(const struct engine *e, const plumb_tap *tap, double *x) {
    convolve(e, tap, x, "mamba_x_split", usual_order, 0.4, 1, 0);
}
static void conv_bias(const struct engine *e, const plumb_tap *tap, double *x) {
    convolve(e, tap, x, "mamba_x_split", usual_order, 1, 1.3, 0);
}
static void inputs_early(const struct engine *e, const plumb_tap *tap, double *x) {
    convolve(e, tap, x, "linear_attn_qkv_mixed", usual_order, 1, 1, 1);
}

/* The convolution of Kimi Delta Attention, with the kernel's elements in another order. */
static void kernels_of_columns(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *in = kept(e, "linear_attn_qkv_mixed");
    uint32_t n = tap->n_head * tap->n, n_w = e->model->layers[tap->layer].w[W_CONV_Q].w->n_in;
    memcpy(e->memory + tap->pos * n, in, (size_t)tap->n_token * n * sizeof *x);
    for (uint32_t i = 0; i < tap->n_token * n; i++) {
        enum weight_id part = (enum weight_id)(W_CONV_Q + i % n / (n / 3));
        const float *w = (const float *)(const void *)e->model->layers[tap->layer].w[part].w->data + i % (n / 3) * n_w;
        x[i] = 0;
        for (uint32_t j = 0; j < n_w; j++) {
            uint32_t t = tap->pos + i / n, back = n_w - 1 - j;
            if (back <= t) x[i] += (double)w[(j + 1) % n_w] * e->memory[(t - back) * n + i % n];
        }
    }
}

static void gate_of_gelu(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *z = kept(e, "mamba_z_split"), *y = kept(e, "mamba2_y_add_d");
    for (size_t i = 0; i < count(tap); i++) x[i] = 0.5 * z[i] * (1 + erf(z[i] / sqrt(2))) * y[i];
}

/* RWKV 7 with these factors of the exponents of its decays and of its rates. */
static void wkv(const struct engine *e, const plumb_tap *tap, double *x, double exponent, double of_rate) {
    const struct attn_plan *p = &e->model->plan.layers[tap->layer].attn;
    const double *r = kept(e, "Qcur"), *w = kept(e, "wkv_decay"), *k = kept(e, "wkv_key");
    const double *v = kept(e, tap->layer == 0 ? "Vcur" : "wkv_value"), *a = kept(e, "wkv_rate");
    const double *removal = kept(e, "wkv_removal");
    uint32_t n = p->k_dim;
    for (uint32_t i = 0; i < tap->n_token * p->n_head * n; i++) {
        double *s = e->memory + i % (p->n_head * n) * n, old = 0;
        uint32_t at = i / n * n;
        for (uint32_t m = 0; m < n; m++) old += s[m] * removal[at + m];
        x[i] = 0;
        for (uint32_t m = 0; m < n; m++) {
            s[m] = s[m] * pow(w[at + m], exponent) - of_rate * old * a[at + m] * removal[at + m] + v[i] * k[at + m];
            x[i] += s[m] * r[at + m];
        }
    }
}
static void rate_scaled(const struct engine *e, const plumb_tap *tap, double *x) { wkv(e, tap, x, 1, 0.5); }
static void exponent_scaled(const struct engine *e, const plumb_tap *tap, double *x) { wkv(e, tap, x, 2.5, 1); }

/* RWKV 6's recurrence with this factor of the bonus. */
static void bonus_scaled(const struct engine *e, const plumb_tap *tap, double *x) {
    const struct attn_plan *p = &e->model->plan.layers[tap->layer].attn;
    const double *r = kept(e, "Qcur"), *w = kept(e, "wkv_decay"), *k = kept(e, "Kcur"), *v = kept(e, "Vcur");
    const float *bonus = numbers(e, tap, W_BONUS);
    uint32_t n = p->k_dim, n_row = p->n_head * n;
    for (uint32_t i = 0; i < tap->n_token * n_row; i++) {
        double *s = e->memory + i % n_row * n;
        uint32_t at = i / n * n;
        x[i] = 0;
        for (uint32_t m = 0; m < n; m++) {
            double fed = v[i] * k[at + m];
            x[i] += (s[m] + 0.25 * (double)bonus[(at + m) % n_row] * fed) * r[at + m];
            s[m] = s[m] * w[at + m] + fed;
        }
    }
}

static void eps_of_heads(const struct engine *e, const plumb_tap *tap, double *x) {
    const struct affine *of = &e->model->layers[tap->layer].w[W_HEADS_NORM];
    const double *in = kept(e, "wkv_output");
    uint32_t n = e->model->plan.layers[tap->layer].attn.v_dim;
    for (size_t at = 0; at < count(tap); at += n) {
        double mean = 0, variance = 0;
        for (uint32_t i = 0; i < n; i++) mean += in[at + i] / n;
        for (uint32_t i = 0; i < n; i++) variance += (in[at + i] - mean) * (in[at + i] - mean) / n;
        for (uint32_t i = 0; i < n; i++) {
            size_t k = (at + i) % of->w->n_in;
            x[at + i] = (in[at + i] - mean) / sqrt(variance + 2e-3) * (double)numbers(e, tap, W_HEADS_NORM)[k]
                      + (double)((const float *)(const void *)of->b->data)[k];
        }
    }
}

/* The second part of a row takes the place of the first. */
static void other_gate(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *in = kept(e, "conv_in");
    const float *w = numbers(e, tap, W_CONV_KERNEL);
    uint32_t n = tap->n_head * tap->n;
    for (uint32_t i = 0; i < tap->n_token * n; i++) {
        uint32_t t = tap->pos + i / n, row = i / n * 3 * n, k = i % n;
        e->memory[t * n + k] = in[row + n + k] * in[row + 2 * n + k];
        x[i] = 0;
        for (uint32_t back = 0; back < 3 && back <= t; back++) {
            x[i] += (double)w[k * 3 + 2 - back] * e->memory[(t - back) * n + k];
        }
    }
}

/* Scores times 1 / sqrt(4), the elements of a head that are not rotated, not 1 / sqrt(8). */
static void scaled_scores(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *q = kept(e, "Qcur_rope");
    const uint32_t dim = e->model->plan.layers[tap->layer].attn.k_dim, n_row = tap->n_head * dim;
    memcpy(e->memory + tap->pos * n_row, kept(e, "Kcur_rope"), (size_t)tap->n_token * n_row * sizeof *x);
    for (uint32_t i = 0; i < tap->n_token * tap->n_head; i++) {
        uint32_t own = tap->pos + i / tap->n_head, h = i % tap->n_head;
        double sum = 0, *row = x + (size_t)i * tap->n;
        for (uint32_t j = 0; j < tap->n; j++) {
            double dot = 0;
            for (uint32_t k = 0; k < dim; k++) dot += q[i * dim + k] * e->memory[j * n_row + h * dim + k];
            row[j] = j <= own ? exp(dot / sqrt(4)) : 0;
            sum += row[j];
        }
        for (uint32_t j = 0; j < tap->n; j++) row[j] /= sum;
    }
}

/* The embeddings of the tokens without their factor sqrt(n), which is 32 here. */
static void rows_halved(const struct engine *e, const plumb_tap *tap, double *x) {
    const struct weight *w = e->model->per_layer_embd.w;
    float row[256];
    uint8_t bytes[1024];
    for (uint32_t t = 0; t < tap->n_token; t++) {
        quant_dequantize(w->traits, weight_row(w, (size_t)e->ids[tap->pos + t], bytes), row, w->n_in);
        for (uint32_t i = 0; i < w->n_in; i++) x[t * w->n_in + i] -= (double)row[i] * sqrt(32) / 2 / sqrt(2);
    }
}

static void own_of_next_but_one(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *all = kept(e, "inp_per_layer"), *gated = kept(e, "first_prediction_gated");
    uint32_t n_layer = e->model->plan.n_layer, next = (uint32_t)tap->layer + 2;
    for (size_t i = 0; i < count(tap); i++) x[i] = gated[i] * all[(i / tap->n * n_layer + next) * tap->n + i % tap->n];
}

/* The first elements of a head of Q are rotated in neighbouring pairs, not the last ones, and without factors. */
static void first_rotated(const struct engine *e, const plumb_tap *tap, double *x) {
    const double *q = kept(e, "q");
    const struct rope_plan *p = &e->model->plan.ropes[e->model->plan.layers[tap->layer].attn.rope];
    for (size_t i = 0; i < count(tap); i++) x[i] = q[i];
    for (size_t at = 0; at < count(tap); at += tap->n) {
        double pos = tap->pos + (double)(at / tap->n / tap->n_head);
        for (uint32_t i = 0; i < p->n_rot / 2; i++) {
            double angle = pos * pow((double)p->freq_base, -2.0 * i / p->n_rot);
            double a = q[at + 2 * i], b = q[at + 2 * i + 1];
            x[at + 2 * i] = a * cos(angle) - b * sin(angle);
            x[at + 2 * i + 1] = a * sin(angle) + b * cos(angle);
        }
    }
}

/* ---- findings ---------------------------------------------------------------------------------------------------- */

enum { N_SAID = 3 };

static const struct row {
    const char *name, *tap;
    int32_t layer;
    mistake *make;
    const char *says[N_SAID], *not[N_SAID];
} rows[] = {
    { "fit: nothing is measured in a right pass", NULL, 0, NULL, { "verdict: agrees" }, { "measured", "their " } },
    { "fit: a norm without the square root", "attn_norm", -1, no_root,
      { "verdict: their attn_norm-0 is x / (mean(x^2) + eps) * w: the square root is missing, eps is 0 (error ",
        "attn_norm is wrong in all layers; it was measured in layer 0" }, { "cannot tell them apart" } },
    { "fit: a norm by the largest element", "ffn_norm", 1, largest_for_rms,
      { "verdict: their ffn_norm-1 is x / (max(|x|) + eps) * w: the largest |x| takes the place of the root",
        "ffn_norm is wrong in layer 1;" }, { "cannot tell" } },
    { "fit: a norm with the weight of another one", "ffn_norm", 1, weight_of_other_norm,
      { "verdict: their ffn_norm-1 has the weight blk.1.attn_norm.weight instead of blk.1.ffn_norm.weight" },
      { NULL } },
    { "fit: a norm with another eps", "ffn_norm", -1, large_eps,
      { "verdict: their ffn_norm-0 is the norm with an eps of 0.0375 instead of 1e-05" }, { NULL } },
    { "fit: a norm of another activation", "attn_norm", 1, norm_of_embedding,
      { "verdict: their attn_norm-1 is the norm of embd instead of its input" }, { NULL } },
    { "fit: another activation function", "ffn_swiglu", -1, softplus_gate,
      { "verdict: their ffn_swiglu-0 is softplus(gate) * up (error " }, { NULL } },
    { "fit: gate and up projection exchanged", "ffn_swiglu", -1, gate_and_up_exchanged,
      { "verdict: their ffn_swiglu-0 is gate * silu(up) (error " }, { NULL } },
    { "fit: gate and up projection added", "ffn_swiglu", -1, sum_for_product,
      { "verdict: their ffn_swiglu-0 is silu(gate) + up: the sum" }, { NULL } },
    { "fit: a function that no table has", "ffn_swiglu", -1, unlisted_function,
      { "verdict: no set of up to 3 known mistakes", "the first wrong step is ffn_swiglu-0" }, { "measured" } },
    { "fit: what is added twice", "l_out", -1, added_twice,
      { "verdict: their l_out-0 is ffn_inp-0 + 2 * ffn_out-0 (error " }, { NULL } },
    { "fit: the norm added instead of its input", "l_out", -1, added_norm,
      { "l_out-0 is ffn_norm-0 + ffn_out-0 (error " }, { NULL } },
    { "fit: three activations added", "ffn_inp", 0, parallel,
      { "verdict: their ffn_inp-0 is 0.25 * attn_norm-0 + attn_out-0 + embd (error " }, { NULL } },
    { "fit: a product times a number", "Qcur", -1, scaled,
      { "verdict: their Qcur-0 is 1.25 times what it should be (error ", "Qcur is wrong in all layers" }, { NULL } },
    { "fit: one head", "Qcur", -1, head_3,
      { "verdict: their Qcur-0 has the wrong sign, only in head 3 (error " }, { NULL } },
    { "fit: decoded tokens", "Vcur", -1, decoded,
      { "verdict: their Vcur-0 is 0.5 times what it should be, only in tokens that were decoded one by one (error " },
      { NULL } },
    { "fit: shifted elements", "ffn_out", -1, shifted,
      { "verdict: their ffn_out-0 has the elements of each row shifted by 1 (error " }, { NULL } },
    { "fit: transposed heads", "Qcur", 1, transposed,
      { "verdict: their Qcur-1 has the elements of each row in the order of the transposed (4, 8) (error " },
      { NULL } },
    { "fit: reversed heads", "Qcur", -1, reversed_heads,
      { "verdict: their Qcur-0 has the heads in reverse order (error " }, { NULL } },
    { "fit: the output of the layer before", "attn_out", 1, stale,
      { "verdict: their attn_out-1 is attn_out-0 (error " }, { NULL } },
    { "fit: a matrix of another layer", "ffn_up", 1, matrix_of_other_layer,
      { "verdict: their ffn_up-1 is the product with blk.0.ffn_up.weight instead of blk.1.ffn_up.weight" }, { NULL } },
    { "fit: K for V", "Vcur", -1, k_for_v,
      { "verdict: their Vcur-0 is the product with blk.0.attn_k.weight instead of blk.0.attn_v.weight" }, { NULL } },
    { "fit: dot products without their ends", "ffn_out", -1, tail_dropped,
      { "verdict: their ffn_out-0 is a product in which each of the elements 29-31 of 32 is left out" }, { NULL } },
    { "fit: dot products without an element", "Qcur", -1, element_dropped,
      { "verdict: their Qcur-0 is a product in which element 5 of 32 is left out" }, { NULL } },
    { "fit: a scaled block", "ffn_gate", 0, block_scaled,
      { "verdict: their ffn_gate-0 is a product in which each of the elements 8-15 of 32 counts 1.75 times" },
      { NULL } },
    { "fit: a scaled block of one row", "ffn_gate", 0, block_of_a_row_scaled,
      { "verdict: their ffn_gate-0 is a product in which each of the elements 8-15 of 32 counts 4 times, only in "
        "element 7 of each row" }, { NULL } },
    { "fit: a product with another input", "ffn_up", -1, other_input,
      { "verdict: their ffn_up-0 is the product with ffn_inp-0 instead of its input" }, { NULL } },
    { "fit: a product of what is not negative", "ffn_up", -1, of_positive,
      { "verdict: their ffn_up-0 is a product whose negative inputs are taken as 0" }, { NULL } },
    { "fit: a bias that is added after the factor", "ffn_gate", -1, bias_last,
      { "verdict: their ffn_gate-0 is the product with its bias and factor in exchanged order" }, { NULL } },
    { "fit: a transposed matrix", "attn_out", -1, transposed_matrix,
      { "verdict: their attn_out-0 is the product with the transposed matrix" }, { NULL } },
    { "fit: heads merged wrongly", "attn_out", -1, heads_merged_wrongly,
      { "attn_out-0 is a product whose inputs are in the order of the transposed (4, 8)" }, { NULL } },
    { "fit: the logarithm of the softmax for logits", "result_output", -1, log_softmax,
      { "verdict: their result_output is the logarithm of the softmax of the logits (error " }, { NULL } },
    { "fit: a softcap that the model does not have", "result_output", -1, capped,
      { "verdict: their result_output has a softcap of 3; the model has 0 (error " }, { NULL } },
    { "fit: logits divided by a temperature", "result_output", -1, temperature,
      { "verdict: their result_output is 1.25 times what it should be (error " }, { NULL } },
    { "fit: logits of the last layer's output", "result_output", -1, logits_without_norm,
      { "result_output is the product with l_out-1 instead of its input (error " }, { NULL } },
    { "fit: sums that are not cleared between heads", "kqv_out", -1, not_cleared,
      { "their kqv_out-0 has sums that are not cleared between heads: each is added to those before (error " },
      { NULL } },
    { "fit: a hard sigmoid", "ffn_swiglu", -1, hard_sigmoid,
      { "their ffn_swiglu-0 is gate * hard sigmoid(gate) * up, with a slope of 0.2 (error " }, { NULL } },
    { "fit: a sum of squares of some elements", "attn_norm", -1, squares_of_16,
      { "their attn_norm-0 has the squares of the first 16 elements of a row alone in its sum (error " }, { NULL } },
    { "fit: an activation of half of the elements", "ffn_swiglu", -1, half_activated,
      { "verdict: their ffn_swiglu-0 is gate * up, only in elements 16-31 of each row (error " }, { NULL } },
    { "fit: a norm of quarters", "ffn_norm", -1, norm_of_quarters,
      { "verdict: their ffn_norm-0 is x / sqrt(mean(x^2) + eps) * w: over each quarter (error " }, { NULL } },
    { "fit: noise that nothing explains", "ffn_out", -1, random_noise,
      { "verdict: no set of up to 3 known mistakes", "the first wrong step is ffn_out-0" }, { "measured" } },
};

/* Llama's activation is SiLU. */
static const struct row silu[] = {
    { "fit: a model with SiLU has no constant of GELU", "ffn_swiglu", -1, gelu_root,
      { "the first wrong step is ffn_swiglu-0" }, { "for its constant", "for sqrt(2/pi)" } },
};

/* In Gemma 3, whose activation is GELU. */
static const struct row gelu[] = {
    { "fit: GELU with another constant of the cube", "ffn_swiglu", -1, gelu_cube,
      { "verdict: their ffn_swiglu-0 is gelu(gate) * up with 0.44715 for its constant 0.044715 (error " }, { NULL } },
    { "fit: GELU with another constant of the argument", "ffn_swiglu", -1, gelu_root,
      { "verdict: their ffn_swiglu-0 is gelu(gate) * up with 1.25331 for its constant sqrt(2/pi) (error " }, { NULL } },
    { "fit: GELU with two other constants", "ffn_swiglu", -1, gelu_both,
      { "verdict: their ffn_swiglu-0 is gelu(gate) * up with 1.1 for sqrt(2/pi) and 0.3 for 0.044715 (error " },
      { NULL } },
};
/* Within the tolerance, and measured nevertheless. */
static const struct row small_gelu[] = {
    { "fit: GELU with another constant in the last token alone", "ffn_swiglu", -1, gelu_of_last,
      { "measured: their ffn_swiglu-0 is gelu(gate) * up with 0.85 for its constant sqrt(2/pi), only in token 6" },
      { NULL } },
};
static const struct row partial_gelu[] = {
    { "fit: partial: GELU with another constant of the cube", "ffn_swiglu", -1, gelu_cube,
      { "their ffn_swiglu-0 is gelu(gate) * up with 0.447" }, { "times what it should be" } },
    { "fit: partial: GELU with another constant of the argument", "ffn_swiglu", -1, gelu_root,
      { "their ffn_swiglu-0 is gelu(gate) * up with 1.253" }, { "times what it should be" } },
};

static const struct row quantized[] = {
    { "fit: small scales of Q6_K left out", "Qcur", -1, q6_k_without_scales,
      { "verdict: their Qcur-0 is of a misread blk.0.attn_q.weight: Q6_K: the scales of the parts of a block are taken "
        "as 1 (error " }, { NULL } },
    { "fit: shifted elements of the embedding", "embd", -1, each_block_shifted,
      { "verdict: their embd has its elements taken shifted back by one, in each group of 32 (error " }, { NULL } },
};

/* Dumps with 8 values of each l_out: the step is not in the dump. */
static const struct row partial[] = {
    { "fit: nothing is supposed in a right partial dump", NULL, 0, NULL, { "verdict: agrees" }, { "their " } },
    { "fit: partial: a norm without the square root", "attn_norm", -1, no_root,
      { "verdict: their attn_norm-0 is x / mean(x^2) * w: the square root is missing (error " }, { NULL } },
    { "fit: partial: gate and up projection exchanged in a layer", "ffn_swiglu", 1, gate_and_up_exchanged,
      { "their ffn_swiglu-1 is silu(up) * gate: gate and up are exchanged, only in layer 1 (error " }, { NULL } },
    { "fit: partial: gate and up projection added", "ffn_swiglu", 1, sum_for_product,
      { "their ffn_swiglu-1 is silu(gate) + up: the sum instead of the product, only in layer 1 (error " }, { NULL } },
    { "fit: partial: what is added twice", "l_out", -1, added_twice,
      { "is 2 * ffn_out + ffn_inp (error ", "is 2 times what it should be (error " }, { NULL } },
    { "fit: partial: a product times a number", "ffn_up", -1, scaled,
      { "their ffn_up-0 is 1.25 times what it should be (error " }, { NULL } },
    { "fit: partial: elements in the order of tokens", "ffn_up", -1, by_elements,
      { "their ffn_up-0 has its elements in a transposed order: stored as (" }, { NULL } },
    { "fit: partial: one head", "Qcur", -1, head_3,
      { "their Qcur-0 has the wrong sign: it is -1 times what it should be, only in head 3 (error " }, { NULL } },
    { "fit: partial: decoded tokens", "Vcur", -1, decoded,
      { "their Vcur-0 is 0.5 times what it should be, only in tokens that were decoded one by one (error " },
      { NULL } },
    { "fit: partial: reversed heads", "Qcur", -1, reversed_heads,
      { "their Qcur-0 has its heads in reverse order (error " }, { NULL } },
    { "fit: partial: a matrix of another layer", "ffn_up", 1, matrix_of_other_layer,
      { "their ffn_up-1 has the matrix blk.0.ffn_up.weight instead of blk.1.ffn_up.weight" }, { NULL } },
    { "fit: partial: K for V", "Vcur", -1, k_for_v,
      { "their Vcur-0 has the matrix blk.0.attn_k.weight instead of blk.0.attn_v.weight" }, { NULL } },
    { "fit: partial: a product with what is not normalized", "ffn_up", -1, other_input,
      { "their ffn_up-0 is computed from ffn_inp-0 instead of its input (error " }, { NULL } },
    { "fit: partial: the norm added instead of its input", "l_out", 1, added_norm,
      { "their l_out-1 is computed from ffn_norm-1 instead of the residual" }, { NULL } },
    { "fit: partial: sums that are not cleared between heads", "kqv_out", -1, not_cleared,
      { "their kqv_out-0 has sums that are not cleared between heads: each is added to those before (error " },
      { NULL } },
    { "fit: partial: a hard sigmoid", "ffn_swiglu", -1, hard_sigmoid,
      { "their ffn_swiglu-0 is gate * hard sigmoid(gate) * up, with a slope of 0.2 (error " }, { NULL } },
    { "fit: partial: a sum of squares of some elements", "attn_norm", -1, squares_of_16,
      { "their attn_norm-0 has the squares of the first 16 elements of a row alone in its sum (error " }, { NULL } },
    { "fit: partial: a function that no table has", "ffn_swiglu", -1, unlisted_function,
      { "verdict: no set of up to 3 known mistakes", "the first wrong step is l_out-0" }, { "verdict: their " } },
    { "fit: partial: noise that nothing explains", "ffn_out", -1, random_noise,
      { "verdict: no set of up to 3 known mistakes", "the first wrong step is l_out-0" }, { "verdict: their " } },
};

/* Three steps explain it equally well, in an order that the host's rounding decides. */
static const struct row partial_state = { "fit: partial: a factor in RWKV", "attn_out", 1, scaled,
      { "their wkv_norm-1 is 1.25 times what it should be, only in layer 1 (error ",
        "their attn_out-1 is 1.25 times what it should be, only in layer 1 (error " }, { NULL } };

/* In the models with these files in tests/vectors/archs. */
static const struct arch_row { const char *arch; struct row row; } states[] = {
    { "mamba2", { "fit: nothing is measured in a right scan", "conv", 0, NULL, { "verdict: agrees" },
      { "measured" } } },
    { "mamba2", { "fit: a decay of a scan", "mamba2_y_add_d", 0, slow_decay,
      { "verdict: their mamba2_y_add_d-0 multiplies its state by e^(f dt A), where f is 0.7, not 1 (error " },
      { NULL } } },
    { "mamba2", { "fit: what is added to a state", "mamba2_y_add_d", 1, fed_twice,
      { "verdict: their mamba2_y_add_d-1 adds f dt B x to its state, where f is 2, not 1 (error " }, { NULL } } },
    { "mamba2", { "fit: a factor of D", "mamba2_y_add_d", 0, d_halved,
      { "verdict: their mamba2_y_add_d-0 adds f D x to its output, where f is 0.5, not 1 (error " }, { NULL } } },
    { "mamba2", { "fit: a state that begins with that after the prompt", "mamba2_y_add_d", 2, scan_used,
      { "verdict: their mamba2_y_add_d-2 begins with f times the state after the prompt, where f is 1, not 0 (error " },
      { NULL } } },
    { "mamba2", { "fit: a state that is cleared too often", "mamba2_y_add_d", 0, scan_cleared,
      { "verdict: their mamba2_y_add_d-0 clears its state before every 2 tokens (error " }, { NULL } } },
    { "mamba2", { "fit: a bias of time steps", "mamba_dt_proj", 0, bias_scaled,
      { "verdict: their mamba_dt_proj-0 has 1.1 times its bias (error " }, { NULL } } },
    { "mamba2", { "fit: the order of a kernel", "conv", 0, kernel_order,
      { "verdict: their conv-0 has the elements of its kernel in the order 1 0 3 2 (error " }, { NULL } } },
    { "mamba2", { "fit: an element of a kernel", "conv", 0, kernel_scaled,
      { "verdict: their conv-0 counts element 3 of its kernel of 4 0.4 times (error " }, { NULL } } },
    { "mamba2", { "fit: the bias of a convolution", "conv", 0, conv_bias,
      { "verdict: their conv-0 has 1.3 times its bias (error " }, { NULL } } },
    { "mamba2", { "fit: the gate of a scan", "mamba_y_swiglu_z", 0, gate_of_gelu,
      { "verdict: their mamba_y_swiglu_z-0 is gelu(z) with erf * y (error " }, { NULL } } },
    { "mamba2", { "fit: the matrix after a scan", "mamba_out", 1, scaled,
      { "verdict: their mamba_out-1 is 1.25 times what it should be (error " }, { NULL } } },
    { "qwen35", { "fit: inputs of a convolution that end early", "conv", 0, inputs_early,
      { "verdict: their conv-0 is the convolution of inputs that end 1 token early (error " }, { NULL } } },
    { "qwen35", { "fit: a factor of beta", "delta_rule", 0, beta_scaled,
      { "verdict: their delta_rule-0 uses f beta for beta, where f is 1.6, not 1 (error " }, { NULL } } },
    { "qwen35", { "fit: the decay of a delta net", "delta_rule", 0, decay_scaled,
      { "verdict: their delta_rule-0 multiplies its state by e^(f decay), where f is 1.25, not 1 (error " },
      { NULL } } },
    { "qwen35", { "fit: what a delta net recalls", "delta_rule", 0, recalled_half,
      { "verdict: their delta_rule-0 subtracts f times what the state has for K from V, where f is 0.5, not 1" },
      { NULL } } },
    { "qwen35", { "fit: eps of the lengths of Q and K", "delta_rule", 0, unit_eps,
      { "verdict: their delta_rule-0 divides Q and K by sqrt(sum of squares + f), where f is 0.02, not " },
      { NULL } } },
    { "qwen35", { "fit: a doubled sigmoid", "beta_sigmoid", 0, beta_doubled,
      { "verdict: their beta_sigmoid-0 is 2 times what it should be (error " }, { NULL } } },
    { "qwen35", { "fit: the bias of a decay", "delta_decay", 0, decay_bias_scaled,
      { "verdict: their delta_decay-0 is a softplus(alpha + f dt), where f is 1.5, not 1 (error " }, { NULL } } },
    { "kimi-linear", { "fit: decays of columns", "delta_rule", 0, column_decay_scaled,
      { "verdict: their delta_rule-0 multiplies its state by e^(f decay), where f is 1.25, not 1 (error " },
      { NULL } } },
    { "kimi-linear", { "fit: decays of the columns of another head", "delta_rule", 2, column_decay_next,
      { "verdict: their delta_rule-2 uses decays of the next head (error " }, { NULL } } },
    { "kimi-linear", { "fit: the order of the kernels of Q, K and V", "conv", 0, kernels_of_columns,
      { "verdict: their conv-0 has the elements of its kernel in the order 1 2 3 0 (error " }, { NULL } } },
    { "kimi-linear", { "fit: the bias of decays of columns", "delta_decay", 0, column_bias_scaled,
      { "verdict: their delta_decay-0 is a softplus(alpha + f dt), where f is 4, not 1 (error " }, { NULL } } },
    { "kimi-linear", { "fit: the gate of Kimi Delta Attention", "final_output", 0, gate_of_tanh,
      { "verdict: their final_output-0 is tanh(gate) * norm (error " }, { NULL } } },
    { "bailingmoe3", { "fit: the bias of decays with a lower bound", "delta_decay", 2, column_bias_scaled,
      { "verdict: their delta_decay-2 is bound * sigmoid(a (alpha + f dt)), where f is 4, not 1 (error " },
      { NULL } } },
    { "bailingmoe3", { "fit: a gate for each head", "attn_gated", 1, gate_of_heads_squared,
      { "verdict: their attn_gated-1 is relu(gate)^2 * y (error " }, { NULL } } },
    { "minimax-01", { "fit: decays of lightning attention", "wkv_output", 0, lightning_decayed,
      { "verdict: their wkv_output-0 multiplies its state by w^f, where f is 3, not 1 (error " }, { NULL } } },
    { "minimax-01", { "fit: slopes of the heads of lightning attention", "wkv_decay", 0, slopes_of_4,
      { "verdict: their wkv_decay-0 has slopes of 2^(-f (head + 1) / heads), where f is 4, not 8 (error " },
      { NULL } } },
    { "minimax-01", { "fit: slopes of the layers of lightning attention", "wkv_decay", 2, slopes_by_layers,
      { "verdict: their wkv_decay-2 has slopes times 1 - layer / layers, not layer / (layers - 1) (error " },
      { NULL } } },
    { "rwkv7", { "fit: rates of RWKV", "wkv_output", 1, rate_scaled,
      { "verdict: their wkv_output-1 uses f times the in-context learning rate, where f is 0.5, not 1" }, { NULL } } },
    { "rwkv7", { "fit: decays of RWKV", "wkv_output", 0, exponent_scaled,
      { "verdict: their wkv_output-0 multiplies its state by w^f, where f is 2.5, not 1 (error " }, { NULL } } },
    { "rwkv7", { "fit: eps of the norms of heads", "wkv_norm", 0, eps_of_heads,
      { "verdict: their wkv_norm-0 is the norm with an eps of 0.002 instead of 0.00064 (error " },
      { NULL } } },
    { "gemma3n", { "fit: embeddings for each layer with half of their factor", "inp_per_layer", -1, rows_halved,
      { "verdict: their inp_per_layer has 1 times the product with per_layer_model_proj and 0.5 times the rows of "
        "per_layer_token_embd that it should have (error " }, { NULL } } },
    { "gemma4", { "fit: the embedding of another layer", "first_prediction_scaled", 2, own_of_next_but_one,
      { "verdict: their first_prediction_scaled-2 uses the embedding of layer 4 (error " }, { NULL } } },
    { "lfm2", { "fit: the gate of a convolution before it", "conv", 1, other_gate,
      { "verdict: their conv-1 convolves the second third of its input times the last, not the first (error " },
      { NULL } } },
    { "rwkv6", { "fit: the bonus of RWKV 6", "wkv_output", 0, bonus_scaled,
      { "verdict: their wkv_output-0 uses f times the bonus of the own token, where f is 0.25, not 1" }, { NULL } } },
    { "minicpm3", { "fit: a scale of latent attention", "kq_soft_max", 0, scaled_scores,
      { "verdict: their kq_soft_max-0 has dot products of Q and K times 0.5 " }, { NULL } } },
    { "minicpm3", { "fit: the part of a latent head that is rotated", "Qcur_rope", 0, first_rotated,
      { "verdict: their Qcur_rope-0 is rotated by frequencies without the factors of pairs, and the pairs are elements "
        "2i and 2i + 1 of a head, not 4 + i and 6 + i (error " }, { NULL } } },
};

static void check_verdict(const struct row *row, const char *arch, const char *model, bool is_partial,
                          plumb_verdict right) {
    static const int32_t arch_ids[N_TOKEN] = { 7, 1, 33, 60, 2, 19, 48 };
    char path[120];
    snprintf(path, sizeof path, "tests/vectors/archs/%s.gguf", arch);
    plumb_model *m = *arch ? fixture_load_f32(path) : record_load(model);
    if (!m) return;
    if (row->make == bias_last) give_ends(m->model);
    struct engine engine = { .tap = row->tap, .layer = row->layer, .make = row->make, .ids = *arch ? arch_ids : NULL,
                             .is_partial = is_partial };
    plumb_trace *theirs = run(m, &engine);
    struct capture text = { 0 };
    plumb_report r = { .format = PLUMB_FORMAT_TEXT, .write = capture_write, .user = &text };
    plumb_verdict verdict;
    CHECK(plumb_diagnose(m, theirs, 0, &r, &verdict) == PLUMB_OK && verdict == right, "%s", plumb_model_error(m));
    for (size_t i = 0; i < N_SAID && row->says[i] && text.text; i++) {
        CHECK(strstr(text.text, row->says[i]), "no \"%s\": %s", row->says[i], text.text);
    }
    for (size_t i = 0; i < N_SAID && row->not[i] && text.text; i++) {
        CHECK(!strstr(text.text, row->not[i]), "\"%s\": %s", row->not[i], text.text);
    }
    capture_free(&text);
    plumb_trace_free(theirs);
    plumb_model_free(m);
}

static void check(const struct row *row, const char *model, bool is_partial) {
    check_verdict(row, "", model, is_partial, row->make ? PLUMB_VERDICT_DIFFERS : PLUMB_VERDICT_AGREES);
}

static void check_row(const void *row) { check(row, "f32", false); }
static void check_quantized(const void *row) { check(row, "q6_k", false); }
static void check_gelu(const void *row) { check(row, "gemma3", false); }
static void check_small_gelu(const void *row) { check_verdict(row, "", "gemma3", false, PLUMB_VERDICT_AGREES); }
static void check_partial_gelu(const void *row) { check(row, "gemma3", true); }
static void check_partial(const void *row) { check(row, "f32", true); }

/* RWKV has K and V, but no cache: a dump in part must be diagnosed without one. */
static void check_partial_state(const void *row) {
    check_verdict(row, "rwkv6", "", true, PLUMB_VERDICT_DIFFERS);
}

static void check_state(const void *row) {
    const struct arch_row *a = row;
    check_verdict(&a->row, a->arch, "", false, a->row.make ? PLUMB_VERDICT_DIFFERS : PLUMB_VERDICT_AGREES);
}

void test_fit(void) {
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) test_row(states[i].row.name, check_state, &states[i]);
    test_row(partial_state.name, check_partial_state, &partial_state);
    TEST_REPEATED_ROWS("", check_row, rows);
    TEST_REPEATED_ROWS("", check_quantized, quantized);
    TEST_REPEATED_ROWS("", check_partial, partial);
    TEST_REPEATED_ROWS("", check_row, silu);
    TEST_REPEATED_ROWS("", check_gelu, gelu);
    TEST_REPEATED_ROWS("", check_small_gelu, small_gelu);
    TEST_REPEATED_ROWS("", check_partial_gelu, partial_gelu);
}

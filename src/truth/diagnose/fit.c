/* See fit.h. */
#include "diagnose/fit.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* WRONG: a block is wrong if the error of the right step is larger than the floor by this factor, because the errors of
 *     single blocks vary.  UNEXPLAINED: a hypothesis with a block that is worse than this many floors is no verdict.
 * NEAR: what leaves a larger part of the error of the right step is near by chance, and no finding.
 * FACTOR: a verdict reduces the error of the right step by it.
 * TIED, TIED_NOISE: hypotheses whose errors differ by less than this factor are tied; the second is for dumps with
 *     noise, where the error of the best one is mostly noise.
 * ROUNDING: an error of a single step up to this may be the rounding of f32.
 * VALUES: values of theirs for each number that is fitted to them. */
#define WRONG 3.0
#define UNEXPLAINED 10.0
#define NEAR 0.5
#define FACTOR 5.0
#define TIED 1.5
#define TIED_NOISE 1.1
#define ROUNDING 1e-5
enum { VALUES = 8 };

/* ---- the table of analysers -------------------------------------------------------------------------------------- */

#define NORMS (TAP_SET(ATTN_NORM) | TAP_SET(QCUR_NORMED) | TAP_SET(KCUR_NORMED) | TAP_SET(ATTN_SUB_NORM) \
               | TAP_SET(ATTN_POST_NORM) | TAP_SET(FFN_NORM) | TAP_SET(FFN_SUB_NORM) | TAP_SET(FFN_POST_NORM) \
               | TAP_SET(SCAN_NORM) | TAP_SET(SCAN_B_NORMED) | TAP_SET(SCAN_C_NORMED) | TAP_SET(SCAN_RANK_NORMED) \
               | TAP_SET(WKV_NORM) | TAP_SET(RESULT_NORM))

#define PRODUCTS (TAP_SET(QCUR) | TAP_SET(KCUR) | TAP_SET(VCUR) | TAP_SET(ATTN_GATE) | TAP_SET(ATTN_OUT) \
                  | TAP_SET(FFN_ROUTER) | TAP_SET(FFN_GATE) | TAP_SET(FFN_UP) | TAP_SET(FFN_OUT) \
                  | TAP_SET(LATENT_Q) | TAP_SET(LATENT_KV) | TAP_SET(LATENT_KV_B) | TAP_SET(CONV_IN) \
                  | TAP_SET(CONV_OUT) | TAP_SET(DELTA_IN) | TAP_SET(DELTA_BETA) | TAP_SET(DELTA_ALPHA) \
                  | TAP_SET(DELTA_OUT) | TAP_SET(SCAN_IN) | TAP_SET(SCAN_BCDT) | TAP_SET(SCAN_OUT) \
                  | TAP_SET(RESULT_OUTPUT))
#define GATED (TAP_SET(SCAN_GATED) | TAP_SET(DELTA_GATED) | TAP_SET(CONV_GATED) | TAP_SET(ATTN_GATED) \
               | TAP_SET(CONV_SILU) | TAP_SET(SCAN_STEP) | TAP_SET(DELTA_BETA_SIGMOID))

static const struct { id_set taps; void (*analyse)(struct fit *f); } analysers[] = {
    { NORMS, fit_norm },
    { PRODUCTS, fit_linear },
    { TAP_SET(EMBD), fit_embedding },
    { TAP_SET(QCUR) | TAP_SET(KCUR) | TAP_SET(VCUR), fit_rope_early },
    { TAP_SET(QCUR_ROPE) | TAP_SET(KCUR_ROPE), fit_rope },
    { TAP_SET(KQ_SOFT_MAX), fit_attention_weights },
    { TAP_SET(KQV_OUT), fit_attention_output },
    { TAP_SET(RESULT_OUTPUT), fit_logits },
    { TAP_SET(FFN_SWIGLU) | TAP_SET(EXPERT_SWIGLU), fit_activation },
    { GATED, fit_gated },
    { TAP_SET(FFN_INP) | TAP_SET(L_OUT), fit_residual },
    { TAP_SET(SCAN), fit_scan },
    { TAP_SET(DELTA), fit_delta },
    { TAP_SET(WKV), fit_wkv },
    { TAP_SET(CONV), fit_convolution },
    { TAP_SET(SCAN_DT), fit_bias },
    { TAP_SET(DELTA_DECAY), fit_decay },
    { TAP_SET(WKV_DECAY), fit_fade },
    { TAP_SET(PER_LAYER), fit_per_layer },
    { TAP_SET(OWN_SCALED), fit_own },
    { ALL_IDS, fit_any },
    { ALL_IDS, fit_listed },
};

/* ---- memory, activations, weights -------------------------------------------------------------------------------- */

void *fit_new(struct fit *f, uint64_t n, size_t size) {
    void *p = ARRAY_GROW(f->owned, f->n_owned, &f->cap) ? alloc_array(n, size) : NULL;
    f->out_of_memory |= !p;
    if (!p) return NULL;
    f->owned[f->n_owned++] = p;
    return memset(p, 0, (size_t)n * size);
}

void fit_free(struct fit *f) {
    for (size_t i = 0; i < f->n_owned; i++) free(f->owned[i]);
    free(f->owned);
    f->owned = NULL;
    f->n_owned = f->cap = 0;
}

/* Copies the whole rows of a tap.  shape: a row with the shape that they have; a file may have lost the heads. */
static bool copy_rows(struct fit *f, const struct trace_tap *tap, const struct trace_row *shape,
                      struct fit_rows *rows) {
    size_t width = (size_t)shape->n_head * shape->n;
    uint32_t *pos = fit_new(f, tap->n_row, sizeof *pos);
    float *x = fit_new(f, (uint64_t)tap->n_row * width, sizeof *x);
    *rows = (struct fit_rows){ 0, shape->n_head, shape->n, pos, x };
    if (!pos || !x) return false;
    for (uint32_t i = 0; i < tap->n_row; i++) {
        const struct trace_row *row = &tap->rows[i];
        if (!trace_is_whole(row, width) || row->pos >= f->dump->n_token) continue;
        memcpy(x + rows->n_token * width, row->values, width * sizeof *x);
        pos[rows->n_token++] = row->pos;
    }
    return rows->n_token > 0;
}

bool fit_tap(struct fit *f, enum tap_id id, int32_t layer, struct fit_rows *rows) {
    const struct trace_tap *theirs = trace_find_tap(f->dump, id, layer);
    const struct trace_tap *right = trace_find_tap(f->right, id, layer);
    if (theirs && theirs->n_row > 0) {
        const struct trace_row *shape = right && right->n_row > 0 ? right->rows : theirs->rows;
        bool has_shape = shape->n_head > 0 && shape->n > 0 && (uint64_t)shape->n_head * shape->n <= UINT32_MAX;
        if (has_shape && copy_rows(f, theirs, shape, rows)) return true;
    }
    return right && right->n_row > 0 && copy_rows(f, right, right->rows, rows);
}

bool fit_align(struct fit *f, struct fit_rows *rows) {
    const struct fit_rows *like = &f->theirs;
    size_t width = fit_width(rows);
    float *x = fit_new(f, (uint64_t)like->n_token * width, sizeof *x);
    if (!x) return false;
    uint32_t from = 0;
    for (uint32_t t = 0; t < like->n_token; t++) {
        while (from < rows->n_token && rows->pos[from] < like->pos[t]) from++;
        if (from == rows->n_token || rows->pos[from] != like->pos[t]) return false;
        memcpy(x + t * width, rows->x + from * width, width * sizeof *x);
    }
    rows->n_token = like->n_token;
    rows->pos = like->pos;
    rows->x = x;
    return true;
}

bool fit_find_input(struct fit *f, id_set among, struct fit_rows *rows) {
    id_set inputs = model_tap_inputs(f->model, f->id, f->layer) & among;
    for (uint32_t i = 0; i < TAP_COUNT; i++) {
        if (!(inputs >> i & 1)) continue;
        if (i == TAP_L_OUT && f->model->plan.has_states) return false;   /* the input of a layer is a sum of states */
        struct tap_input input = model_tap_input(f->model, f->id, f->layer, (enum tap_id)i);
        return fit_tap(f, input.id, input.layer, rows);
    }
    return false;
}

bool fit_input(struct fit *f, id_set among, struct fit_rows *rows) {
    return fit_find_input(f, among, rows) && fit_align(f, rows);
}

const struct affine *fit_weight(const struct fit *f, enum weight_id id) {
    static const struct affine none = { 0 };
    if (id < W_LAYER_COUNT) return f->layer < 0 ? &none : &f->model->layers[f->layer].w[id];
    switch (id) {
    case W_TOKEN_EMBD: return &f->model->token_embd;
    case W_TOKEN_EMBD_NORM: return &f->model->token_embd_norm;
    case W_OUTPUT_NORM: return &f->model->output_norm;
    case W_OUTPUT: return &f->model->output;
    default: return &none;
    }
}

const struct step *fit_step(const struct fit *f) {
    const struct program *p = f->layer >= 0 ? f->model->layers[f->layer].program : NULL;
    for (uint32_t i = 0; p && i < p->n; i++) {
        if (p->steps[i].tap == f->id) return &p->steps[i];
    }
    return NULL;
}

bool fit_weight_row(struct fit *f, const struct weight *w, size_t i, float *row) {
    if (f->row_bytes_cap < w->row_bytes) {
        f->row_bytes = fit_new(f, w->row_bytes, 1);
        f->row_bytes_cap = f->row_bytes ? w->row_bytes : 0;
    }
    if (!f->row_bytes) return false;
    quant_dequantize(w->traits, weight_row(w, i, f->row_bytes), row, w->n_in);
    return true;
}

const float *fit_floats(struct fit *f, const struct weight *w) {
    uint64_t n;
    float *x = w && mul_u64(w->n_in, w->n_out, &n) ? fit_new(f, n, sizeof *x) : NULL;
    for (size_t i = 0; x && i < w->n_out; i++) {
        if (!fit_weight_row(f, w, i, x + i * w->n_in)) return NULL;
    }
    return x;
}

/* ---- comparing with theirs --------------------------------------------------------------------------------------- */

/* The squared relative error of a block of n values.  It is relative to the larger of theirs and the right ones, so
 * that a block that is zero on one side can be compared. */
static double block_error2(const double *y, const float *theirs, const float *truth, uint32_t n) {
    double sum = 0, norm = 0, norm_truth = 0;
    for (uint32_t i = 0; i < n; i++) {
        double d = y[i] - (double)theirs[i];
        sum += d * d;
        norm += (double)theirs[i] * (double)theirs[i];
        norm_truth += (double)truth[i] * (double)truth[i];
    }
    if (norm_truth > norm) norm = norm_truth;
    if (!(sum < INFINITY) || !(norm < INFINITY)) return INFINITY;   /* also if there is a NaN */
    return norm > 0 ? sum / norm : sum > 0 ? 1 : 0;
}

/* Fills f->wrong_elements, those of a row that the right step has wrong for some token. */
static bool find_wrong_elements(struct fit *f) {
    size_t width = fit_width(&f->theirs);
    f->wrong_elements = fit_new(f, width, sizeof *f->wrong_elements);
    if (!f->wrong_elements) return false;
    for (uint32_t t = 0; t < f->theirs.n_token; t++) {
        const float *theirs = fit_row(&f->theirs, t), *truth = fit_row(&f->truth, t);
        double square = 0;
        for (size_t i = 0; i < width; i++) square += (double)truth[i] * (double)truth[i] / (double)width;
        double limit = WRONG * f->floor * sqrt(square);
        for (size_t i = 0; i < width; i++) {
            f->wrong_elements[i] |= !(fabs((double)theirs[i] - (double)truth[i]) <= limit);   /* true for NaN too */
        }
    }
    size_t first = width, end = 0;
    for (size_t i = 0; i < width; i++) {
        if (!f->wrong_elements[i]) continue;
        if (f->n_wrong_element++ == 0) first = i;
        end = i + 1;
    }
    /* The rows of a matrix are computed apart.  Of other steps, what is right in some places says little. */
    bool is_product = PRODUCTS >> f->id & 1, is_range = end - first == f->n_wrong_element && f->id != TAP_KQ_SOFT_MAX;
    f->has_wrong_part = f->n_wrong_element > 0 && f->n_wrong_element < width && (is_product || is_range);
    return true;
}

/* Fills f->wrong, the blocks in which the right step is wrong, and f->right_error. */
static bool find_wrong(struct fit *f) {
    size_t n_block = (size_t)f->theirs.n_token * f->theirs.n_head, n_wrong = 0;
    uint32_t n = f->theirs.n;
    double *truth = f->block = fit_new(f, n, sizeof *truth), *errors = fit_new(f, n_block, sizeof *errors);
    f->wrong = fit_new(f, n_block, sizeof *f->wrong);
    if (!truth || !errors || !f->wrong) return false;
    for (size_t b = 0; b < n_block; b++) {
        for (uint32_t i = 0; i < n; i++) truth[i] = (double)f->truth.x[b * n + i];
        errors[b] = block_error2(truth, f->theirs.x + b * n, f->truth.x + b * n, n);
        n_wrong += f->wrong[b] = errors[b] > WRONG * WRONG * f->floor * f->floor;
    }
    double sum = 0;
    for (size_t b = 0; b < n_block; b++) {
        if (n_wrong == 0) f->wrong[b] = true;
        if (f->wrong[b]) sum += errors[b];
    }
    f->n_wrong = n_wrong > 0 ? n_wrong : n_block;
    f->right_error = sqrt(sum / (double)f->n_wrong);
    return find_wrong_elements(f);
}

/* Appends "tokens 4-6" or "head 3": the indices whose flag is set, at most a few ranges of them. */
static void append_indices(char *text, size_t *length, const char *noun, const bool *is_in, const uint32_t *names,
                           uint32_t n) {
    uint32_t n_in = 0, n_range = 0;
    for (uint32_t i = 0; i < n; i++) n_in += is_in[i];
    report_append(text, FIT_WHERE, length, "%s%s", noun, n_in == 1 ? "" : "s");
    for (uint32_t first = 0, end; first < n; first = end + 1) {
        for (end = first; end < n && is_in[end]; end++);
        if (end == first) continue;
        if (n_range++ == 4) {
            report_append(text, FIT_WHERE, length, "...");
            return;
        }
        report_append(text, FIT_WHERE, length, "%s%u", n_range == 1 ? " " : ", ", names ? names[first] : first);
        if (end - first > 1) report_append(text, FIT_WHERE, length, "-%u", names ? names[end - 1] : end - 1);
    }
}

/* Writes which blocks are wrong, for a hypothesis that is wrong in the others. */
static bool write_where(struct fit *f, char *text) {
    uint32_t n_token = f->theirs.n_token, n_head = f->theirs.n_head, n_t = 0, n_h = 0;
    bool *tokens = fit_new(f, n_token, sizeof *tokens), *heads = fit_new(f, n_head, sizeof *heads);
    if (!tokens || !heads) return false;
    for (uint32_t t = 0; t < n_token; t++) {
        for (uint32_t h = 0; h < n_head; h++) {
            if (f->wrong[(size_t)t * n_head + h]) tokens[t] = heads[h] = true;
        }
    }
    uint32_t n_prompt_right = 0, n_decoded_wrong = 0, n_decoded = 0;
    for (uint32_t t = 0; t < n_token; t++) {
        bool is_decoded = f->theirs.pos[t] >= f->n_prompt;
        n_t += tokens[t];
        n_decoded += is_decoded;
        n_decoded_wrong += is_decoded && tokens[t];
        n_prompt_right += !is_decoded && !tokens[t];
    }
    for (uint32_t h = 0; h < n_head; h++) n_h += heads[h];
    size_t n = 0;
    text[0] = '\0';
    if (f->n_wrong == (size_t)n_token * n_head) return true;
    report_append(text, FIT_WHERE, &n, (size_t)n_t * n_h == f->n_wrong ? "only in " : "only in some of ");
    if (n_h < n_head) append_indices(text, &n, "head", heads, NULL, n_head);
    bool has_both = n_h < n_head && n_t < n_token;
    if (has_both) report_append(text, FIT_WHERE, &n, " of ");
    if (n_h < n_head && !has_both) return true;
    bool is_decoding = n_decoded > 0 && n_decoded_wrong == n_decoded && n_t == n_decoded && n_prompt_right > 0;
    if (is_decoding) report_append(text, FIT_WHERE, &n, "tokens that were decoded one by one");
    else append_indices(text, &n, "token", tokens, f->theirs.pos, n_token);
    return true;
}

/* Appends which elements of a row are wrong, for a hypothesis that is wrong in the others. */
static void write_elements(const struct fit *f, char *text) {
    size_t first = 0, end = fit_width(&f->theirs), n = strlen(text);
    while (!f->wrong_elements[first]) first++;
    while (!f->wrong_elements[end - 1]) end--;
    report_append(text, FIT_WHERE, &n, "%s", n == 0 ? "only in " : ", ");
    if (f->n_wrong_element == 1) report_append(text, FIT_WHERE, &n, "element %zu of each row", first);
    else if (end - first == f->n_wrong_element) {
        report_append(text, FIT_WHERE, &n, "elements %zu-%zu of each row", first, end - 1);
    } else report_append(text, FIT_WHERE, &n, "%zu elements of each row", f->n_wrong_element);
}

static void insert(struct fit *f, const struct finding *finding) {
    uint32_t at = f->n_finding;
    for (uint32_t i = 0; i < f->n_finding; i++) {
        struct finding *other = &f->findings[i];
        if (!(fabs(other->print - finding->print) <= 1e-12 * fabs(finding->print))) continue;
        bool is_simpler = finding->cost != other->cost ? finding->cost < other->cost
                                                       : strlen(finding->sentence) < strlen(other->sentence);
        if (is_simpler) *other = *finding;
        return;
    }
    while (at > 0 && f->findings[at - 1].error > finding->error) at--;
    if (at == FIT_FINDINGS) return;
    if (f->n_finding < FIT_FINDINGS) f->n_finding++;
    memmove(&f->findings[at + 1], &f->findings[at], (f->n_finding - 1 - at) * sizeof *f->findings);
    f->findings[at] = *finding;
}

/* How far a hypothesis is from theirs. */
struct distance { double error, worst, worst_right, print; };

/* Measures y, or, if `masked`, the right step with the elements of y that are wrong in it. */
static struct distance measure(const struct fit *f, const double *y, double *masked) {
    uint32_t n = f->theirs.n, weight = 0;
    size_t n_block = (size_t)f->theirs.n_token * f->theirs.n_head, width = fit_width(&f->theirs);
    struct distance d = { 0 };
    for (size_t b = 0; b < n_block; b++) {
        const double *block = y + b * n;
        for (uint32_t i = 0; i < n && masked; i++) {
            masked[i] = f->wrong_elements[(b * n + i) % width] ? block[i] : (double)f->truth.x[b * n + i];
        }
        if (masked) block = masked;
        double e = block_error2(block, f->theirs.x + b * n, f->truth.x + b * n, n);
        for (uint32_t i = 0; i < n; i++) {
            weight = weight * 1664525u + 1013904223u;
            d.print += block[i] * (1 + (double)weight);
        }
        if (f->wrong[b]) d.error += e;
        if (f->wrong[b]) d.worst = fmax(d.worst, sqrt(e));
        else d.worst_right = fmax(d.worst_right, sqrt(e));
    }
    d.error = sqrt(d.error / (double)f->n_wrong);
    return d;
}

static bool explains(const struct fit *f, const struct distance *d) {
    return d->error <= f->floor && d->worst <= UNEXPLAINED * f->floor && d->error * FACTOR <= f->right_error;
}

double fit_propose(struct fit *f, uint32_t cost, const double *y, const char *format, ...) {
    uint32_t n = f->theirs.n;
    struct distance d = measure(f, y, NULL);
    double error = d.error;
    bool is_part = false;   /* y explains the elements that are wrong, and not the others */
    if (f->has_wrong_part && !explains(f, &d)) {
        struct distance of_part = measure(f, y, f->block);
        is_part = explains(f, &of_part);
        if (is_part) d = of_part;
    }
    struct finding finding = { .error = d.error, .right_error = f->right_error, .cost = cost, .print = d.print };
    bool is_closer = finding.error < NEAR * f->right_error;   /* false for NaN too */
    if (!is_closer || (uint64_t)cost * VALUES > (uint64_t)f->n_wrong * n) return error;
    finding.explains = explains(f, &d);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding.sentence, sizeof finding.sentence, format, arguments);
    va_end(arguments);
    bool is_everywhere = d.worst_right <= WRONG * f->floor;
    finding.cost += (is_everywhere ? 0u : 1u) + (is_part ? 1u : 0u);
    if (!is_everywhere && !write_where(f, finding.where)) return error;
    if (is_part) write_elements(f, finding.where);
    insert(f, &finding);
    return error;
}

const char *fit_say(struct fit *f, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(f->text, sizeof f->text, format, arguments);
    va_end(arguments);
    return f->text;
}

double fit_scale(const struct fit *f, const double *y) {
    double ab = 0, aa = 0;
    uint32_t n = f->theirs.n;
    for (size_t b = 0; b < (size_t)f->theirs.n_token * f->theirs.n_head; b++) {
        double of_b = 0, of_a = 0, norm = 0;
        for (size_t i = b * n; i < (b + 1) * n; i++) {
            of_b += y[i] * (double)f->theirs.x[i];
            of_a += y[i] * y[i];
            norm += (double)f->theirs.x[i] * (double)f->theirs.x[i];
        }
        if (!f->wrong[b] || !(norm > 0) || !isfinite(of_a) || !isfinite(norm)) continue;
        ab += of_b / norm;
        aa += of_a / norm;
    }
    return aa > 0 ? ab / aa : (double)NAN;
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

static int by_cost(const void *a, const void *b) {
    const struct finding *x = a, *y = b;
    if (x->cost != y->cost) return x->cost < y->cost ? -1 : 1;
    return (x->error > y->error) - (x->error < y->error);
}

/* The verdict is the simplest of the hypotheses whose errors are as small as that of the best one, or no larger than
 * rounding.  Equally simple ones whose errors are alike are tied. */
static void judge(struct fit *f) {
    f->n_clear = 0;
    if (f->n_finding == 0 || !f->findings[0].explains) return;
    double factor = f->floor > 1e-4 ? TIED_NOISE : TIED, limit = fmax(f->findings[0].error * factor, ROUNDING);
    uint32_t n_tied = 0;
    while (n_tied < f->n_finding && f->findings[n_tied].error <= limit && f->findings[n_tied].explains) n_tied++;
    qsort(f->findings, n_tied, sizeof *f->findings, by_cost);
    limit = f->findings[0].error * factor + 2e-7;
    for (f->n_clear = 1; f->n_clear < n_tied; f->n_clear++) {
        const struct finding *next = &f->findings[f->n_clear];
        if (next->cost != f->findings[0].cost || next->error > limit) break;
    }
}

plumb_status fit_analyse(struct fit *f, struct error *err) {
    f->n_finding = f->n_clear = 0;
    if (find_wrong(f)) {
        for (size_t i = 0; i < sizeof analysers / sizeof *analysers && !f->out_of_memory; i++) {
            if (analysers[i].taps >> f->id & 1) analysers[i].analyse(f);
        }
    }
    if (f->out_of_memory) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: measuring a step");
    judge(f);
    return PLUMB_OK;
}

bool fit_begin(struct fit *f) {
    const struct trace_tap *right = trace_find_tap(f->right, f->id, f->layer);
    const struct trace_tap *theirs = trace_find_tap(f->dump, f->id, f->layer);
    if (!right || right->n_row == 0 || !theirs) return false;
    if (!copy_rows(f, theirs, right->rows, &f->theirs) || !copy_rows(f, right, right->rows, &f->truth)) return false;
    return fit_align(f, &f->truth);
}

/* See mistake.h.  Each compute_* function is the formula of one kind of step, with the places where a mistake changes
 * it.  Without a mistake it gives what the reference pass gives: mistakes_step checks that, and leaves alone the steps
 * of models that compute more than these formulas. */
#include "mistakes/mistake.h"
#include "reference/softmax.h"

#include <math.h>
#include <stdlib.h>

/* A step that differs from the reference pass by more than this computes something that is not in its formula here. */
#define SAME 1e-9

enum { ROWS_K, ROWS_V, ROWS_K_BEFORE_ROPE, N_ROWS };

/* What a step computes, and its weight in a layer. */
static const struct { enum operation operation; enum weight_id weight; } steps[TAP_COUNT] = {
    [TAP_EMBD] = { OP_EMBD, W_COUNT },
    [TAP_ATTN_NORM] = { OP_NORM, W_ATTN_NORM },
    [TAP_QCUR] = { OP_LINEAR, W_ATTN_Q }, [TAP_KCUR] = { OP_LINEAR, W_ATTN_K }, [TAP_VCUR] = { OP_LINEAR, W_ATTN_V },
    [TAP_QCUR_NORMED] = { OP_NORM, W_ATTN_Q_NORM }, [TAP_KCUR_NORMED] = { OP_NORM, W_ATTN_K_NORM },
    [TAP_VCUR_NORMED] = { OP_NORM, W_ATTN_V_NORM },
    [TAP_QCUR_ROPE] = { OP_ROPE, W_COUNT }, [TAP_KCUR_ROPE] = { OP_ROPE, W_COUNT },
    [TAP_KQ_SOFT_MAX] = { OP_SCORES, W_COUNT }, [TAP_KQV_OUT] = { OP_VALUES, W_COUNT },
    [TAP_ATTN_OUT] = { OP_LINEAR, W_ATTN_OUTPUT }, [TAP_ATTN_POST_NORM] = { OP_NORM, W_ATTN_POST_NORM },
    [TAP_FFN_INP] = { OP_SUM, W_COUNT }, [TAP_FFN_NORM] = { OP_NORM, W_FFN_NORM },
    [TAP_FFN_GATE] = { OP_LINEAR, W_FFN_GATE }, [TAP_FFN_UP] = { OP_LINEAR, W_FFN_UP },
    [TAP_FFN_SWIGLU] = { OP_GATE, W_COUNT }, [TAP_EXPERT_SWIGLU] = { OP_GATE, W_COUNT },
    [TAP_FFN_OUT] = { OP_LINEAR, W_FFN_DOWN }, [TAP_FFN_POST_NORM] = { OP_NORM, W_FFN_POST_NORM },
    [TAP_L_OUT] = { OP_SUM, W_COUNT }, [TAP_RESULT_NORM] = { OP_NORM, W_OUTPUT_NORM },
};

enum operation mistake_operation(enum tap_id id) { return steps[id].operation; }
enum weight_id mistake_weight(enum tap_id id) { return steps[id].operation ? steps[id].weight : W_COUNT; }

/* ---- the inputs of a step ---------------------------------------------------------------------------------------- */

/* A step of a batch.  x (n_token, n_head, n) is its result. */
struct made_tap {
    struct mistakes *s;
    const struct mistake *wrong;
    enum tap_id id;
    int32_t layer;
    uint32_t pos, n_token, n_head, n;
    double *x;
};

/* The mistake, if it is of this kind; NULL: it is not. */
static const struct mistake *of_kind(const struct made_tap *st, enum mistake_kind kind) {
    return st->wrong && st->wrong->kind == kind ? st->wrong : NULL;
}

static bool reserve(struct mistakes *s, double **p, size_t *cap, uint64_t n) {
    if (n <= *cap) return true;
    double *bigger = alloc_array(n, sizeof *bigger);
    s->out_of_memory |= !bigger;
    if (!bigger) return false;
    free(*p);
    *p = bigger;
    *cap = (size_t)n;
    return true;
}

/* The results of a step that were computed last, for the tokens of the batch.  L_OUT is the input of the layer as long
 * as it is not computed; other steps that come later are those of the layer before.  NULL: there are none of this
 * width. */
static const double *held(const struct made_tap *st, enum tap_id id, uint32_t width) {
    const struct mistakes *s = st->s;
    if (id == TAP_L_OUT) id = model_tap_input(s->model, st->id, st->layer, id).id;
    /* The steps behind all layers are computed for the last tokens of a batch only. */
    uint32_t n_skip = st->layer < 0 && s->n_held[id] > st->n_token ? s->n_held[id] - st->n_token : 0;
    bool is_there = width > 0 && s->n_head[id] * s->width[id] == width && s->n_held[id] == st->n_token + n_skip;
    return is_there ? s->held[id] + (size_t)n_skip * width : NULL;
}

/* Input number i of the usual inputs of a step, (n_token, width): first those of the sublayer, last the residual. */
static const double *input_of(const struct made_tap *st, uint32_t i, uint32_t width) {
    const struct mistake *m = of_kind(st, MISTAKE_INPUT);
    if (m && m->at == i) return held(st, m->input, width);
    id_set inputs = model_tap_inputs(st->s->model, st->id, st->layer);
    enum tap_id ids[2] = { TAP_COUNT, TAP_COUNT };
    uint32_t n = 0;
    for (uint32_t k = 0; k < TAP_COUNT && n < 2; k++) {
        if (inputs >> k & 1) ids[n++] = (enum tap_id)k;
    }
    if (mistake_operation(st->id) == OP_SUM && n == 2 && (ids[0] == TAP_FFN_INP || ids[0] == TAP_L_OUT)) {
        enum tap_id residual = ids[0];
        ids[0] = ids[1];
        ids[1] = residual;
    }
    return i < n ? held(st, ids[i], width) : NULL;
}

static const struct layer_plan *plan_of(const struct made_tap *st) {
    return &st->s->model->plan.layers[st->layer < 0 ? 0 : st->layer];
}

/* The weight of the step, or the one that the mistake uses instead. */
static const struct affine *weight_of(const struct made_tap *st) {
    const struct model *model = st->s->model;
    if (st->id == TAP_RESULT_NORM) return &model->output_norm;
    int32_t layer = st->layer;
    enum weight_id id = mistake_weight(st->id);
    const struct mistake *tensor = of_kind(st, MISTAKE_TENSOR), *other = of_kind(st, MISTAKE_LAYER);
    bool is_exchanged = tensor && tensor->from_layer < 0 && id == tensor->weight;
    if (tensor) id = is_exchanged ? mistake_weight(tensor->input) : tensor->weight;
    if (tensor && tensor->from_layer >= 0) layer = tensor->from_layer;
    if (other) layer = (int32_t)mistake_layer(other, (uint32_t)layer, model->plan.n_layer);
    return &model->layers[layer].w[id];
}

uint32_t mistake_layer(const struct mistake *m, uint32_t layer, uint32_t n_layer) {
    uint32_t other = (uint32_t)m->from_layer, as_text = 0;
    switch (m->variant) {
    case MAP_ONE: return layer == m->first ? other : layer;
    case MAP_EXCHANGED: return layer == m->first ? other : layer == other ? m->first : layer;
    case MAP_ALL: return other;
    case MAP_NEXT: return (layer + 1) % n_layer;
    case MAP_BEFORE: return (layer + n_layer - 1) % n_layer;
    case MAP_REVERSED: return n_layer - 1 - layer;
    default:   /* "0", "1", "10", "11", "2" ... */
        for (uint32_t i = 0; i < layer; i++) {
            if (as_text > 0 && as_text * 10 < n_layer) {
                as_text *= 10;
                continue;
            }
            if (as_text + 1 >= n_layer) as_text /= 10;
            as_text++;
            while (as_text % 10 == 0) as_text /= 10;
        }
        return as_text;
    }
}

bool mistake_is_in(const struct mistake *m, int32_t layer, uint32_t n_layer) {
    if (m->kind == MISTAKE_LAYER) return mistake_layer(m, (uint32_t)layer, n_layer) != (uint32_t)layer;
    return m->layer == EVERYWHERE || m->layer == layer;
}

/* The first token of the chunk of a token, and the one after its last; each decoded token is one. */
static uint32_t chunk_first(const struct mistakes *s, uint32_t size, uint32_t token) {
    return token >= s->n_prompt || size == 0 ? token : token - token % size;
}
static uint32_t chunk_end(const struct mistakes *s, uint32_t size, uint32_t token) {
    uint32_t end = chunk_first(s, size, token) + size;
    return token >= s->n_prompt ? token + 1 : end < s->n_prompt ? end : s->n_prompt;
}

static const float *weight_floats(struct mistakes *s, const struct weight *w, uint32_t i) {
    quant_dequantize(w->traits, weight_row(w, i, s->bytes), s->row, w->n_in);
    return s->row;
}

/* ---- orders ------------------------------------------------------------------------------------------------------ */

/* y (n_token, n_head, n) = x with its elements, heads or tokens in another order */
static void reorder(const struct mistake *m, enum axis axis, const double *x, uint32_t n_token, uint32_t n_head,
                    uint32_t n, double *y) {
    for (uint32_t t = 0; t < n_token; t++) {
        uint32_t from_t = axis == AXIS_TOKENS && n_token > 1 ? array_place(m->variant, t, n_token) : t;
        for (uint32_t h = 0; h < n_head; h++) {
            uint32_t from_h = axis == AXIS_HEADS && n_head > 1 ? array_place(m->variant, h, n_head) : h;
            for (uint32_t i = 0; i < n; i++) {
                uint32_t from = axis == AXIS_ELEMENTS && n > 1 ? array_place(m->variant, i, n) : i;
                bool is_zero = from_t == UINT32_MAX || from_h == UINT32_MAX || from == UINT32_MAX;
                y[((size_t)t * n_head + h) * n + i] = is_zero ? 0 : x[((size_t)from_t * n_head + from_h) * n + from];
            }
        }
    }
}

/* The result as if it were stored in one order of its axes and read in another. */
static void lay_out(const struct made_tap *st, double *y) {
    size_t n_token = st->n_token, n_head = st->n_head, n = st->n, width = n_head * n;
    for (size_t k = 0; k < n_token * width; k++) {
        size_t t = k / width, i = k % width, from = k;
        switch (st->wrong->variant) {
        case LAYOUT_ELEMENT_HEAD: from = t * width + i % n_head * n + i / n_head; break;
        case LAYOUT_HEAD_ELEMENT: from = t * width + i % n * n_head + i / n; break;
        case LAYOUT_ELEMENT_TOKEN: from = k % n_token * width + k / n_token; break;
        case LAYOUT_TOKEN_ELEMENT: from = i * n_token + t; break;
        case LAYOUT_HEAD_TOKEN: from = (i / n * n_token + t) * n + i % n; break;
        case LAYOUT_TOKEN_HEAD: from = (k / n % n_token * n_head + k / n / n_token) * n + k % n; break;
        default: break;
        }
        y[k] = st->x[from];
    }
}

/* ---- linear ------------------------------------------------------------------------------------------------------ */

/* The matrices of which row o of the step is taken instead, and which row of it, if the rows of several matrices are
 * taken for those of one. */
static const struct weight *fused_row(const struct made_tap *st, uint32_t o, uint32_t *row) {
    const struct affine *w = st->s->model->layers[st->layer].w;
    const struct attn_plan *a = &plan_of(st)->attn;
    bool is_ffn = st->id == TAP_FFN_GATE || st->id == TAP_FFN_UP;
    const struct weight *parts[3] = { w[is_ffn ? W_FFN_GATE : W_ATTN_Q].w, w[is_ffn ? W_FFN_UP : W_ATTN_K].w,
                                      is_ffn ? NULL : w[W_ATTN_V].w };
    uint32_t n[3] = { 0 }, at, dim = a->k_dim, group = a->n_head / a->n_head_kv;
    for (size_t i = 0; i < 3; i++) n[i] = parts[i] ? parts[i]->n_out : 0;
    uint32_t which = st->id == TAP_QCUR || st->id == TAP_FFN_GATE ? 0 : st->id == TAP_VCUR ? 2 : 1;
    uint32_t own = o + (which > 0 ? n[0] : 0) + (which > 1 ? n[1] : 0), head, part;
    switch (st->wrong->variant) {
    case FUSED_READ_BY_GROUP:   /* stored as Q, K, V */
        head = o / dim;
        at = which == 0 ? head / group * (group + 2) + head % group : head * (group + 2) + group + which - 1;
        at = at * dim + o % dim;
        break;
    case FUSED_STORED_BY_GROUP:
        head = own / dim % (group + 2), part = own / dim / (group + 2);
        at = head < group ? part * group + head : head == group ? a->n_head + part : a->n_head + a->n_head_kv + part;
        at = at * dim + own % dim;
        break;
    case FUSED_ALTERNATE: at = 2 * o + which; break;
    default: at = own / 2 + own % 2 * n[0]; break;   /* stored in turn, read in halves */
    }
    for (size_t i = 0; i < 3; at -= n[i++]) {
        *row = at;
        if (at < n[i]) return parts[i];
    }
    return NULL;
}

/* y (n_token, n_out) = x (n_token, n_in) W^T s + b */
static bool compute_linear(const struct made_tap *st, double *y) {
    struct mistakes *s = st->s;
    const struct mistake *order = of_kind(st, MISTAKE_ORDER), *bias_of = of_kind(st, MISTAKE_BIAS);
    const struct affine *of = weight_of(st), *own = of;
    if (of_kind(st, MISTAKE_TENSOR)) own = &s->model->layers[st->layer].w[mistake_weight(st->id)];
    uint32_t width = of->w ? of->w->n_in : 0, n_out = st->n_head * st->n;
    const double *x = input_of(st, 0, width);
    if (!x || of->w->n_out != n_out || of->w->n_matrix > 1 || own->s) return false;
    if (!reserve(s, &s->x, &s->n_x, (uint64_t)st->n_token * width)) return false;
    if (order && order->axis == AXIS_INPUT) reorder(order, AXIS_ELEMENTS, x, st->n_token, 1, width, s->x);
    else memcpy(s->x, x, (size_t)st->n_token * width * sizeof *x);
    for (uint32_t t = 0; t < st->n_token; t++) {
        rounding_apply(&s->rounding, of->w->type, s->x + (size_t)t * width, width);
    }
    bool is_rows = order && order->axis == AXIS_WEIGHT, is_columns = order && order->axis == AXIS_COLUMNS;
    memset(y, 0, (size_t)st->n_token * n_out * sizeof *y);
    for (uint32_t o = 0; o < n_out; o++) {
        uint32_t from = is_rows ? array_place(order->variant, o, n_out) : o;
        if (from == UINT32_MAX) continue;
        const struct weight *w = of_kind(st, MISTAKE_FUSED) ? fused_row(st, o, &from) : of->w;
        if (!w || w->n_in != width) return false;
        const float *row = weight_floats(s, w, from);
        for (uint32_t t = 0; t < st->n_token; t++) {
            const double *xt = s->x + (size_t)t * width;
            double *yt = y + (size_t)t * n_out, sum = 0;
            /* Transposed: element (o, i) is the one at (i, o) of an array with rows of n_out. */
            if (of_kind(st, MISTAKE_TRANSPOSED)) {
                for (uint32_t i = 0; i < width; i++) {
                    size_t at = (size_t)o * width + i;
                    yt[at % n_out] += (double)row[i] * xt[at / n_out];
                }
                continue;
            }
            for (uint32_t i = 0; i < width; i++) {
                uint32_t column = is_columns ? array_place(order->variant, i, width) : i;
                if (column != UINT32_MAX) sum += (double)row[column] * xt[i];
            }
            yt[o] = sum;
        }
    }
    const struct weight *b = own->b;
    if (bias_of && bias_of->weight != W_COUNT) b = s->model->layers[st->layer].w[bias_of->weight].b;
    if (bias_of && (!b || b->n_in != n_out)) return false;
    const float *bias = b ? weight_floats(s, b, 0) : NULL;
    double times = bias_of ? bias_of->number : 1;
    uint32_t n_bias = bias_of && bias_of->variant ? st->n : n_out;   /* that of the first head in all */
    for (size_t k = 0; bias && k < (size_t)st->n_token * n_out; k++) y[k] += times * (double)bias[k % n_out % n_bias];
    return true;
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

static bool compute_norm(const struct made_tap *st, double *y) {
    struct mistakes *s = st->s;
    const struct plan *p = &s->model->plan;
    const struct affine *of = weight_of(st);
    const struct mistake *m = of_kind(st, MISTAKE_NORM), *order = of_kind(st, MISTAKE_ORDER);
    const struct mistake *other_eps = of_kind(st, MISTAKE_EPS);
    enum norm_mistake v = m ? (enum norm_mistake)m->variant : N_NORM_MISTAKE;
    const struct variant right = { .form = FORM_RMS }, *how = m ? &mistake_norms[v] : &right;
    uint32_t n = st->n_head * st->n, n_in = of->w ? of->w->n_in : n, n_part = how->n_part > 0 ? how->n_part : 1;
    const double *x = input_of(st, 0, n);
    if (!x || p->norm != NORM_RMS || !of->w || of->b || of->w->n_out != 1 || n % n_in || n_in % n_part) return false;
    size_t n_row = (size_t)st->n_token * n / n_in, unit = n_in / n_part;
    double eps = other_eps ? other_eps->number : (double)plan_norm_eps(p, mistake_weight(st->id));
    const float *weight = weight_floats(s, of->w, 0);
    if (v == NORM_WEIGHT_FIRST) {
        if (!reserve(s, &s->x, &s->n_x, (uint64_t)n_row * n_in)) return false;
        for (size_t k = 0; k < n_row * n_in; k++) s->x[k] = x[k] * (double)weight[k % n_in];
        x = s->x;
    }
    for (size_t at = 0; v != NORM_TOKENS && v != NORM_ACROSS_TOKENS && at < n_row * n_in; at += unit) {
        norm_divide(how->form, m ? m->number : 0, eps, x + at, x + at, unit, 1, y + at);
        if (v == NORM_TWICE) norm_divide(FORM_RMS, 0, eps, y + at, y + at, unit, 1, y + at);
    }
    if (v == NORM_TOKENS) norm_divide(FORM_RMS, 0, eps, x, x, n_row * n_in, 1, y);
    for (uint32_t i = 0; v == NORM_ACROSS_TOKENS && i < n_in; i++) {
        norm_divide(FORM_RMS, 0, eps, x + i, x + i, n_row, n_in, y + i);
    }
    double square = 0;
    for (size_t k = 0; v == NORM_ADDED_UP && k < n_row; k++) {   /* the mean squares of a chunk */
        uint32_t pos = st->pos + (uint32_t)k;
        if (n_row != st->n_token || chunk_first(s, m->chunk, pos) == pos) square = 0;
        for (uint32_t i = 0; i < n_in; i++) square += x[k * n_in + i] * x[k * n_in + i] / n_in;
        for (uint32_t i = 0; i < n_in; i++) y[k * n_in + i] = x[k * n_in + i] / sqrt(square + eps);
    }
    for (size_t k = 0; k < n_row * n_in; k++) {
        uint32_t i = (uint32_t)(k % n_in), from = order ? array_place(order->variant, i, n_in) : i;
        double w = from == UINT32_MAX ? 0 : (double)weight[from];
        if (v == NORM_NO_WEIGHT || v == NORM_WEIGHT_FIRST) w = 1;
        if (v == NORM_WEIGHT_TWICE) w *= w;
        if (v == NORM_WEIGHT_PLUS_1) w += 1;
        y[k] *= w;
    }
    return true;
}

/* ---- RoPE -------------------------------------------------------------------------------------------------------- */

/* Rotates x (n) of a head to a position. */
static void rotate(const struct rope_plan *p, const float *factors, const struct mistake *m, double position, double *x,
                   uint32_t n) {
    enum rope_mistake v = m ? (enum rope_mistake)m->variant : N_ROPE_MISTAKE;
    bool is_neox = (p->pairing == ROPE_NEOX) != (v == ROPE_OTHER_PAIRS);
    bool is_part = v == ROPE_PART || v == ROPE_SMALL_HEAD || v == ROPE_SECOND_PART;
    uint32_t n_rot = is_part ? (uint32_t)(p->n_rot * m->number) / 2 * 2 : p->n_rot;
    uint32_t first = v == ROPE_SECOND_PART && n_rot <= n ? n - n_rot : 0;
    double base = v == ROPE_BASE ? m->number : (double)p->freq_base, sign = v == ROPE_BACKWARD ? -1 : 1;
    for (uint32_t i = 0; i < n_rot / 2; i++) {
        double exponent = -2.0 * i / (v == ROPE_PART ? p->n_rot : n_rot);
        if (v == ROPE_EXPONENT) exponent *= m->number;
        double angle = sign * position * (double)p->freq_scale * pow(base, exponent);
        if (factors && i < p->n_rot / 2) {
            angle *= v == ROPE_FACTORS_MULTIPLIED ? (double)factors[i] : 1 / (double)factors[i];
        }
        if (!plan_rope_rotates(p, i)) angle = 0;
        angle *= plan_yarn_factor(p, i);
        if (v == ROPE_SCALED) angle *= m->number;
        if (v == ROPE_TWICE) angle *= 2;
        if (v == ROPE_DEGREES) angle *= 0.017453292519943295;
        double size = (double)p->magnitude, c = cos(angle) * size, d = sin(angle) * size;
        if (v == ROPE_EXCHANGED) c = sin(angle) * size, d = cos(angle) * size;
        if (v == ROPE_NO_SINE) d = 0;
        if (v == ROPE_NO_COSINE) c = 0;
        uint32_t a = first + (is_neox ? i : 2 * i), b = first + (is_neox ? i + n_rot / 2 : 2 * i + 1);
        double xa = x[a], xb = x[b];
        x[a] = xa * c - xb * d;
        x[b] = (v == ROPE_IN_PLACE ? x[a] : xa) * d + xb * c;
    }
}

static bool compute_rope(const struct made_tap *st, double *y) {
    const struct attn_plan *a = &plan_of(st)->attn;
    const struct mistake *m = of_kind(st, MISTAKE_ROPE);
    enum rope_mistake v = m ? (enum rope_mistake)m->variant : N_ROPE_MISTAKE;
    uint32_t n = st->n_head * st->n;
    const double *x = input_of(st, 0, n);
    if (!x || a->rope == ROPE_NONE) return false;
    const struct rope_plan *p = &st->s->model->plan.ropes[a->rope];
    if (p->n_rot > st->n) return false;
    const float *factors = p->has_factors ? model_rope_factors(st->s->model, a->rope, st->s->n_token) : NULL;
    memcpy(y, x, (size_t)st->n_token * n * sizeof *y);
    for (uint32_t t = 0; t < st->n_token; t++) {
        double position = st->pos + t;
        if (v == ROPE_OFFSET) position += m->number;
        if (v == ROPE_BATCH) position = t;
        if (v == ROPE_SAME_POSITION) position = st->pos;
        if (v == ROPE_CHUNK) position -= chunk_first(st->s, m->chunk, st->pos + t);
        if (v == ROPE_CHUNK_SAME) position = chunk_first(st->s, m->chunk, st->pos + t);
        if (v == ROPE_FROZEN && position > st->s->n_prompt) position = st->s->n_prompt;
        for (uint32_t h = 0; h < st->n_head; h++, position += v == ROPE_BY_HEAD) {
            rotate(p, factors, m, position, y + ((size_t)t * st->n_head + h) * st->n, st->n);
        }
    }
    return true;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static const double *rows_of(const struct mistakes *s, uint32_t which, int32_t layer) {
    const struct plan *p = &s->model->plan;
    uint64_t width = which == ROWS_V ? p->max_v : p->max_k;
    return s->rows[which] + (uint64_t)((uint32_t)layer - p->layers[layer].kv_back) * s->n_token * width;
}

static uint32_t head_read(const struct made_tap *st, uint32_t h) {
    const struct mistake *m = of_kind(st, MISTAKE_HEADS);
    return kv_head_by(m ? (enum kv_rule)m->variant : N_KV_RULE, h, st->n_head, plan_of(st)->attn.n_head_kv);
}

/* Returns the token whose K and V are read from slot `slot` when the token `own` attends and n_filled tokens are there;
 * UINT32_MAX: the slot is empty. */
static uint32_t stored(const struct made_tap *st, uint32_t slot, uint32_t own, uint32_t n_filled) {
    const struct mistake *m = of_kind(st, MISTAKE_CACHE);
    if (!m) return slot;
    uint32_t token = slot, n_prompt = st->s->n_prompt;
    switch (m->variant) {
    case CACHE_NOT_DECODED: return slot < n_prompt ? slot : UINT32_MAX;
    case CACHE_EARLY:   /* each decoded token is written over the one before it */
        if (slot + 1 < n_prompt) return slot;
        token = slot + 1;
        break;
    case CACHE_LATE:
        if (slot < n_prompt) return slot;
        if (slot == n_prompt) return UINT32_MAX;
        token = slot - 1;
        break;
    case CACHE_ONE_SLOT:
        if (slot + 1 < n_prompt) return slot;
        return slot + 1 == n_prompt ? (own >= n_prompt ? own : slot) : UINT32_MAX;
    case CACHE_PROMPT_REVERSED: return slot < n_prompt ? n_prompt - 1 - slot : slot;
    case CACHE_ONLY_OWN: return own < n_prompt || slot == own ? slot : UINT32_MAX;
    case CACHE_REPEATED: return slot / (st->n_head / plan_of(st)->attn.n_head_kv);
    case CACHE_CHUNK_CLEARED: return own < n_prompt && slot < chunk_first(st->s, m->chunk, own) ? UINT32_MAX : slot;
    case CACHE_CHUNK_FROM_0:   /* what the last chunk that was written leaves in the slot */
        for (token = chunk_end(st->s, m->chunk, own); token-- > 0;) {
            if (token - chunk_first(st->s, m->chunk, token) == slot) return token;
        }
        return UINT32_MAX;
    default: break;
    }
    if (token < n_filled) return token;
    return slot < n_prompt && n_filled <= n_prompt ? slot : UINT32_MAX;
}

/* Where the row of a token and head begins, if the mistake is another order of the rows. */
static size_t row_place(const struct made_tap *st, size_t token, size_t g, size_t n_slot, size_t dim) {
    const struct mistake *m = of_kind(st, MISTAKE_CACHE);
    enum cache_order order = !m ? ORDER_RIGHT : m->variant == CACHE_ROWS_BY_HEAD ? ORDER_ROWS_BY_HEAD
                           : m->variant == CACHE_ROWS_BY_SLOT ? ORDER_ROWS_BY_SLOT : ORDER_RIGHT;
    return cache_place(order, n_slot, plan_of(st)->attn.n_head_kv, 1, dim, token, g, 0);
}

/* Where a step reads its keys or values.  A mistake may let it read another tap's rows, for all tokens or for those of
 * one part of the chunks. */
struct source {
    const double *right, *wrong;   /* NULL: they are not known */
};

static struct source read_rows(const struct made_tap *st, uint32_t right, size_t dim) {
    const struct mistake *input = of_kind(st, MISTAKE_INPUT), *cache = of_kind(st, MISTAKE_CACHE);
    int32_t layer = st->layer;
    uint32_t which = right;
    if (input && input->at == 1) {
        which = input->input == TAP_VCUR ? ROWS_V : input->input == TAP_KCUR ? ROWS_K_BEFORE_ROPE : ROWS_K;
        layer -= input->is_before;
    }
    if (cache && cache->variant == CACHE_EXCHANGED) which = right == ROWS_V ? ROWS_K : ROWS_V;
    const struct layer_plan *l = layer >= 0 ? &st->s->model->plan.layers[layer] : NULL;
    bool is_known = l && plan_attends(l) && l->attn.n_bucket == 0
                 && l->attn.n_head_kv == plan_of(st)->attn.n_head_kv
                 && (which == ROWS_V ? l->attn.v_dim : l->attn.k_dim) == dim;
    return (struct source){ rows_of(st->s, right, st->layer), is_known ? rows_of(st->s, which, layer) : NULL };
}

/* The rows of which the token `own` reads a slot. */
static const double *rows_for(const struct made_tap *st, const struct source *from, uint32_t own, uint32_t slot) {
    const struct mistake *m = of_kind(st, MISTAKE_INPUT);
    if (!m || m->chunk == 0) return from->wrong;
    bool is_past = slot < chunk_first(st->s, m->chunk, own);
    return is_past == (m->variant == CHUNK_PAST) ? from->wrong : from->right;
}

/* How many slots are in use when a token attends. */
static uint32_t slots_of(const struct made_tap *st, uint32_t own, uint32_t n_key) {
    uint32_t end = st->wrong && st->wrong->chunk > 0 ? chunk_end(st->s, st->wrong->chunk, own) : n_key;
    return end < n_key ? end : n_key;
}

/* Whether the token `own` sees key i. */
static bool sees(const struct made_tap *st, enum scores_mistake v, uint32_t own, uint32_t i) {
    const struct mistakes *s = st->s;
    const struct mistake *m = st->wrong;
    uint32_t number = m ? (uint32_t)m->number : 0, chunk = m ? m->chunk : 0;
    int64_t end = plan_of(st)->attn.is_causal ? (int64_t)own + 1 : st->n;
    if (v == SCORES_LATE) end += number;
    if (v == SCORES_EARLY || v == SCORES_EARLY_ZEROS) end -= number;
    if (v == SCORES_NO_MASK) end = st->n;
    if (v == SCORES_CHUNK_FUTURE) end = chunk_end(s, chunk, own);
    if (v == SCORES_CHUNK_FROM_0 && own < s->n_prompt) end -= chunk_first(s, chunk, own);
    if (v == SCORES_CHUNK_ALONE && own < s->n_prompt && i < chunk_first(s, chunk, own)) return false;
    if (v == SCORES_HIDDEN && i == number && own != i) return false;
    if (v == SCORES_TWO_HIDDEN && (i == number || i == (uint32_t)m->other) && own != i) return false;
    if (v == SCORES_WINDOW && own - i >= number && i <= own) return false;
    if (v == SCORES_WINDOW) return (int64_t)i < end;
    return (v == SCORES_MASK_LATE || (int64_t)i < end) && plan_window_has(&plan_of(st)->attn, own, i);
}

/* The sink of head h; -INFINITY: there is none */
static double sink_of(const struct made_tap *st, const float *sinks, enum scores_mistake v, uint32_t h, double scale) {
    if (!sinks) return -INFINITY;
    if (v == SCORES_SINK_BEFORE) h = (h + st->n_head - 1) % st->n_head;
    if (v == SCORES_SINK_NEXT) h = (h + 1) % st->n_head;
    double sink = (double)sinks[h];
    return v == SCORES_SINK_SCALED ? sink * scale : v == SCORES_SINK_PLAIN ? log(fabs(sink)) : sink;
}

/* y (n_token, n_head, n_key): n_key is st->n, the tokens so far */
static bool compute_scores(const struct made_tap *st, double *y) {
    struct mistakes *s = st->s;
    const struct attn_plan *a = &plan_of(st)->attn;
    const struct mistake *m = of_kind(st, MISTAKE_SCORES);
    uint32_t n_key = st->n, n_head = st->n_head;
    const double *q = input_of(st, 0, n_head * a->k_dim);
    struct source keys = read_rows(st, ROWS_K, a->k_dim);
    const struct weight *sink_weight = s->model->layers[st->layer].w[W_ATTN_SINKS].w;
    const float *sinks = sink_weight && sink_weight->n_in == n_head ? weight_floats(s, sink_weight, 0) : NULL;
    if (!q || !keys.wrong || (sink_weight && !sinks)) return false;
    enum scores_mistake v = m ? (enum scores_mistake)m->variant : N_SCORES_MISTAKE;
    double scale = a->scale != 0 ? (double)a->scale : 1 / sqrt(a->k_dim), number = m ? m->number : 0;
    double softcap = v == SCORES_SOFTCAP ? number : (double)a->softcap;
    if (v == SCORES_SCALE) scale *= number;
    for (uint32_t t = 0; t < st->n_token; t++) {
        uint32_t own = st->pos + t;
        for (uint32_t h = 0; h < n_head; h++) {
            uint32_t g = head_read(st, h), n_there = slots_of(st, own, n_key);
            double *row = y + ((size_t)t * n_head + h) * n_key, slope = (double)plan_alibi_slope(a, h);
            bool none = true;
            for (uint32_t i = n_there; i < n_key; i++) row[i] = -INFINITY;
            for (uint32_t i = 0; i < n_there; i++) {
                uint32_t token = stored(st, i, own, n_key);
                const double *k = rows_for(st, &keys, own, i), *q_h = q + ((size_t)t * n_head + h) * a->k_dim;
                size_t at = row_place(st, token, g, n_there, a->k_dim);
                bool is_seen = sees(st, v, own, i);
                double dot = 0;
                for (uint32_t e = 0; token != UINT32_MAX && e < a->k_dim; e++) dot += q_h[e] * k[at + e];
                double score = dot * scale;
                if (softcap != 0) score = softcap * tanh(score / softcap);
                score -= slope * fabs((double)own - i);
                if (v == SCORES_HIDDEN_WEAKLY && !is_seen) score += number;
                if (v == SCORES_HIDDEN_AT_0 && !is_seen) score = 0;
                row[i] = is_seen || v == SCORES_HIDDEN_WEAKLY || v == SCORES_HIDDEN_AT_0 ? score : -INFINITY;
                none = none && row[i] == -INFINITY;
            }
            if (none) memset(row, 0, n_key * sizeof *row);   /* the softmax of equal scores, or zeros */
            if (none && v == SCORES_EARLY_ZEROS) continue;
            struct softmax_sum of = { sink_of(st, sinks, v, h, scale), 0, v == SCORES_CLAMPED ? number : -INFINITY,
                                      softmax_exp };
            if (v == SCORES_ZEROS) of.n_zero = n_key - 1 - own;
            if (v == SCORES_PADDED) of.n_zero = ((uint32_t)number - n_there % (uint32_t)number) % (uint32_t)number;
            if (v == SCORES_NO_SOFTMAX) {
                for (uint32_t i = 0; i < n_key; i++) row[i] = row[i] == -INFINITY ? 0 : row[i];
            } else if (v != SCORES_OVER_HEADS && v != SCORES_OVER_TOKENS) {
                softmax_with(row, n_key, 1, of);
            }
            for (uint32_t i = 0; v == SCORES_MASK_LATE && i < n_key; i++) row[i] = i <= own ? row[i] : 0;
        }
    }
    for (uint32_t t = 0; v == SCORES_OVER_HEADS && t < st->n_token; t++) {
        for (uint32_t i = 0; i < n_key; i++) softmax(y + (size_t)t * n_head * n_key + i, n_head, n_key);
    }
    for (size_t c = 0; v == SCORES_OVER_TOKENS && c < (size_t)n_head * n_key; c++) {
        softmax(y + c, st->n_token, (size_t)n_head * n_key);
    }
    return true;
}

/* Changes the n weights of a row to those by which online softmax multiplies V if it makes a mistake between tiles of
 * keys: each weight is e^(score - maximum so far), times the factors by which later tiles rescale the sums. */
static void change_tiles(const struct mistake *m, double *weights, uint32_t n) {
    uint32_t size = (uint32_t)m->number, n_used = n;
    double total = 0, largest = 0, before = 0;
    if (m->variant == VALUES_WITHOUT_TAIL && n > size) n_used = n - n % size;
    for (uint32_t i = n_used; i < n; i++) weights[i] = 0;
    for (uint32_t first = 0; first < n_used; first += size, before = largest) {
        uint32_t end = first + size < n_used ? first + size : n_used;
        for (uint32_t i = first; i < end; i++) largest = fmax(largest, weights[i]);
        double right = before > 0 ? before / largest : 1, inverse = 1 / right;   /* e^(old maximum - new maximum) */
        bool is_right = m->variant == VALUES_NOT_DIVIDED || m->variant == VALUES_WITHOUT_TAIL;
        bool has_sum = is_right || m->variant == VALUES_ONLY_SUM_RESCALED;
        bool has_values = is_right || m->variant == VALUES_SUM_NOT_RESCALED;
        bool is_inverse = m->variant == VALUES_RESCALED_INVERSELY;
        total *= is_inverse ? inverse : has_sum ? right : 1;
        for (uint32_t i = 0; i < first; i++) weights[i] *= is_inverse ? inverse : has_values ? right : 1;
        for (uint32_t i = first; i < end && largest > 0; i++) {
            weights[i] /= largest;
            total += weights[i];
        }
    }
    for (uint32_t i = 0; i < n && total > 0 && m->variant != VALUES_NOT_DIVIDED; i++) weights[i] /= total;
}

/* y (n_token, n_head, v_dim): the sums of V, weighted by the weights (n_token, n_head, n_key) */
static bool compute_values(const struct made_tap *st, double *y) {
    struct mistakes *s = st->s;
    const struct attn_plan *a = &plan_of(st)->attn;
    const struct mistake *m = of_kind(st, MISTAKE_VALUES);
    uint32_t n_key = s->width[TAP_KQ_SOFT_MAX], n_head = st->n_head;
    const double *weights = held(st, TAP_KQ_SOFT_MAX, n_head * n_key);
    struct source values = read_rows(st, ROWS_V, a->v_dim);
    if (!weights || !values.wrong || a->v_dim != st->n) return false;
    if (!reserve(s, &s->x, &s->n_x, n_key)) return false;
    for (uint32_t t = 0; t < st->n_token; t++) {
        for (uint32_t h = 0; h < n_head; h++) {
            uint32_t g = head_read(st, h), n_there = slots_of(st, st->pos + t, n_key);
            double *out = y + ((size_t)t * n_head + h) * st->n;
            memset(out, 0, st->n * sizeof *out);
            memcpy(s->x, weights + ((size_t)t * n_head + h) * n_key, n_key * sizeof *s->x);
            if (m) change_tiles(m, s->x, n_key);
            for (uint32_t i = 0; i < n_key; i++) {
                uint32_t token = stored(st, i, st->pos + t, n_key);
                const double *v = rows_for(st, &values, st->pos + t, i);
                double weight = s->x[i];
                if (weight == 0 || token == UINT32_MAX) continue;
                size_t at = row_place(st, token, g, n_there, a->v_dim);
                for (uint32_t e = 0; e < st->n; e++) out[e] += weight * v[at + e];
            }
        }
    }
    return true;
}

/* ---- the feed-forward network, sums, embeddings ------------------------------------------------------------------ */

/* activation(gate) * up; oai: as in gpt-oss, with its own limit */
static double gate_of(const struct mistake *m, enum gate_mistake own, bool is_oai, double limit, double g, double u) {
    enum gate_mistake v = m ? (enum gate_mistake)m->variant : own;
    double number = m ? m->number : 0;
    if (v == GLU_LIMITED || v == GLU_GATE_LIMITED) limit = number;
    bool is_limited = is_oai ? limit > 0 || v == GLU_LIMITED : v == GLU_LIMITED || v == GLU_GATE_LIMITED;
    if (is_limited) {
        g = fmin(g, limit);
        if (v == GLU_GATE_LIMITED && is_oai) g = fmax(g, -limit);
        if (v == GLU_LIMITED || is_oai) u = fmax(fmin(u, limit), -limit);
    }
    if (is_oai) {
        double alpha = v == GLU_NO_ALPHA ? 1 : 1.702;
        return g / (1 + exp(-alpha * g)) * (v == GLU_NO_1 ? u : u + 1);
    }
    double (*f)(double z) = mistake_gates[mistake_gates[v].activation ? v : own].activation;
    switch (v) {
    case GLU_EXCHANGED: return f(u) * g;
    case GLU_LATE: return f(g * u);
    case GLU_SUM: return f(g) + u;
    case GLU_ALONE: return f(g);
    case GLU_UP_ALONE: return u;
    case GLU_GELU_ROOT: return gelu_with(g, number, GELU_CUBE) * u;
    case GLU_GELU_CUBE: return gelu_with(g, GELU_ROOT, number) * u;
    case GLU_EXP_CLAMPED: return g / (1 + exp(-fmax(fmin(g, number), -number))) * u;
    default: return f(g) * u;
    }
}

static bool compute_gate(const struct made_tap *st, double *y) {
    uint32_t width = st->n_head * st->n, row = st->n;
    const double *gate = input_of(st, 0, width), *up = input_of(st, 1, width);
    const struct ffn_plan *p = &plan_of(st)->ffn;
    bool is_expert = st->id == TAP_EXPERT_SWIGLU, is_oai = p->activation == ACT_SWIGLU_OAI;
    double limit = (double)(is_expert ? p->limit : p->limit_shared);
    bool is_known = is_oai || (limit == 0 && (p->activation == ACT_SILU || p->activation == ACT_GELU_TANH));
    if (!gate || !up || !is_known || p->limit_late) return false;
    const struct mistake *m = of_kind(st, MISTAKE_GATE);
    enum gate_mistake own = p->activation == ACT_GELU_TANH ? GLU_GELU_TANH : GLU_SILU;
    bool is_alternate = m && m->variant == GLU_ALTERNATE;
    for (size_t i = 0; i < (size_t)st->n_token * width; i++) {
        size_t at = i % row, first = i - at, even = 2 * at, odd = 2 * at + 1;
        double g = gate[i], u = up[i];
        if (is_alternate) g = even < row ? gate[first + even] : up[first + even - row];
        if (is_alternate) u = odd < row ? gate[first + odd] : up[first + odd - row];
        y[i] = gate_of(m, own, is_oai, limit, g, u);
    }
    return true;
}

/* Replaces each n values of the result y by their norm with this weight; W_COUNT: without one. */
static bool norm_rows(const struct made_tap *st, enum weight_id id, uint32_t n, double *y) {
    struct mistakes *s = st->s;
    const struct weight *w = id == W_COUNT ? NULL : s->model->layers[st->layer].w[id].w;
    if (id != W_COUNT && (!w || w->n_in != n || w->n_out != 1)) return false;
    const float *weight = w ? weight_floats(s, w, 0) : NULL;
    for (size_t at = 0; at < (size_t)st->n_token * st->n_head * st->n; at += n) {
        norm_divide(FORM_RMS, 0, (double)s->model->plan.norm_eps, y + at, y + at, n, 1, y + at);
        for (uint32_t i = 0; weight && i < n; i++) y[at + i] *= (double)weight[i];
    }
    return true;
}

static bool compute_sum(const struct made_tap *st, double *y) {
    uint32_t width = st->n_head * st->n;
    bool from_norm = st->s->model->plan.steps == steps_from_norm;   /* a norm times the factor, and an output */
    const double *a = input_of(st, 0, width), *b = input_of(st, 1, width);
    const struct mistake *other = of_kind(st, MISTAKE_INPUT);
    bool is_other = other && other->at == 1;
    if (from_norm && !is_other) b = held(st, st->id == TAP_FFN_INP ? TAP_ATTN_NORM : TAP_FFN_NORM, width);
    if (!a || !b) return false;
    const struct mistake *m = of_kind(st, MISTAKE_SUM);
    bool is_normed = m && m->weight != W_COUNT;   /* of what no norm was applied to before */
    if (is_normed) a = held(st, st->id == TAP_FFN_INP ? TAP_ATTN_OUT : TAP_FFN_OUT, width);
    if (!a) return false;
    double scale = (double)st->s->model->plan.residual_scale;
    double of_a = m ? m->number : from_norm ? 1 : scale, of_b = m ? m->other : from_norm ? scale : 1;
    for (size_t i = 0; i < (size_t)st->n_token * width; i++) y[i] = of_a * a[i] + of_b * b[i];
    return !is_normed || norm_rows(st, m->weight, width, y);
}

static bool compute_embedding(const struct made_tap *st, double *y) {
    struct mistakes *s = st->s;
    const struct weight *w = s->model->token_embd.w;
    const struct mistake *m = of_kind(st, MISTAKE_TOKEN);
    enum token_mistake v = m ? (enum token_mistake)m->variant : N_TOKEN_MISTAKE;
    for (uint32_t t = 0; t < st->n_token; t++) {
        int64_t further = v == TOKEN_FURTHER ? (int64_t)m->number : v == TOKEN_EARLIER ? -(int64_t)m->number : 0;
        int64_t at = (int64_t)st->pos + t + further, n_row = w->n_out;
        int64_t id = s->tokens[at < 0 ? 0 : at >= s->n_token ? s->n_token - 1 : at];
        switch (v) {
        case TOKEN_NEXT_ID: id = (id + 1) % n_row; break;
        case TOKEN_ID_BEFORE: case TOKEN_ROW_EARLY: id = (id + n_row - 1) % n_row; break;
        case TOKEN_LOW_BYTE: id &= 255; break;
        case TOKEN_HALF: id %= n_row > 1 ? n_row / 2 : 1; break;
        default: break;
        }
        bool is_moved = v == TOKEN_ROW_EARLY || v == TOKEN_ROW_LATE;
        uint32_t half = is_moved ? st->n / 2 : 0;
        for (uint32_t part = 0; part < (is_moved ? 2 : 1); part++) {   /* the end of one row, the start of the next */
            const float *row = weight_floats(s, w, (uint32_t)((id + part) % n_row));
            for (uint32_t i = part ? st->n - half : 0; i < (part || !is_moved ? st->n : st->n - half); i++) {
                y[(size_t)t * st->n + i] = (double)row[part ? i - (st->n - half) : i + half]
                                         * (double)s->model->plan.embedding_scale;
            }
        }
    }
    return true;
}

static bool compute(const struct made_tap *st, double *y) {
    switch (mistake_operation(st->id)) {
    case OP_EMBD: return compute_embedding(st, y);
    case OP_NORM: return compute_norm(st, y);
    case OP_LINEAR: return compute_linear(st, y);
    case OP_ROPE: return compute_rope(st, y);
    case OP_SCORES: return compute_scores(st, y);
    case OP_VALUES: return compute_values(st, y);
    case OP_GATE: return compute_gate(st, y);
    case OP_SUM: return compute_sum(st, y);
    default: return false;
    }
}

/* ---- a step with a mistake --------------------------------------------------------------------------------------- */

/* y <- the sums of the results of the heads so far, or of the tokens of a chunk */
static void add_up(const struct made_tap *st, double *y) {
    const struct mistake *m = st->wrong;
    size_t width = (size_t)st->n_head * st->n, back = m->axis == AXIS_HEADS ? st->n : width;
    for (size_t k = 0; k < (size_t)st->n_token * width; k++) {
        uint32_t pos = st->pos + (uint32_t)(k / width);
        bool is_first = m->axis == AXIS_HEADS ? k % width < back
                      : k < back || chunk_first(st->s, m->chunk, pos) == pos;
        y[k] = st->x[k] + (is_first ? 0 : y[k - back]);
    }
}

/* y <- Q or K after RoPE, without the norm that comes before it */
static bool rotate_unnormed(const struct made_tap *st, double *y) {
    const struct mistake other = { .kind = MISTAKE_INPUT, .input = st->id == TAP_QCUR_ROPE ? TAP_QCUR : TAP_KCUR };
    struct made_tap of = *st;
    of.wrong = &other;
    return compute(&of, y);
}

/* Writes the result with the mistake to y.  Returns false if the mistake does not fit the step. */
static bool compute_wrong(const struct made_tap *st, double *y) {
    const struct mistake *m = st->wrong;
    uint32_t width = st->n_head * st->n;
    size_t n = (size_t)st->n_token * width;
    const double *input;
    switch (m->kind) {
    case MISTAKE_ORDER:
        if (m->axis >= AXIS_INPUT) break;
        reorder(m, m->axis, st->x, st->n_token, st->n_head, st->n, y);
        return true;
    case MISTAKE_SCALE:
        for (size_t i = 0; i < n; i++) y[i] = m->number * st->x[i];
        return true;
    case MISTAKE_LAYOUT: lay_out(st, y); return true;
    case MISTAKE_NORMED:
        memcpy(y, st->x, n * sizeof *y);
        if (mistake_operation(st->id) == OP_ROPE && !rotate_unnormed(st, y)) return false;
        return norm_rows(st, m->weight, m->variant ? width : st->n, y);
    case MISTAKE_ADDED_UP: add_up(st, y); return true;
    case MISTAKE_SKIP: case MISTAKE_LEFT_OUT:   /* l_out of this layer is not held yet */
        input = m->kind == MISTAKE_SKIP ? input_of(st, 0, width) : held(st, TAP_L_OUT, width);
        if (input) memcpy(y, input, n * sizeof *y);
        return input != NULL;
    default: break;
    }
    return (st->s->supported >> st->id & 1) && compute(st, y);
}

static bool is_in_scope(const struct mistakes *s, const struct mistake *m, uint32_t pos, uint32_t head) {
    if (m->head != EVERYWHERE && (uint32_t)m->head != head) return false;
    switch (m->tokens) {
    case TOKENS_DECODED: return pos >= s->n_prompt;
    case TOKENS_PROMPT: return pos < s->n_prompt;
    case TOKENS_FIRST: return pos == 0;
    case TOKENS_LAST: return pos + 1 == s->n_token;
    default: return true;
    }
}

bool mistakes_change(const struct mistakes *s, enum tap_id id, int32_t layer) {
    const struct mistake *m = s->mistake;
    return m && (m->taps >> id & 1) && (m->layer == EVERYWHERE || m->layer == layer);
}

static void change(const struct made_tap *st) {
    struct mistakes *s = st->s;
    uint64_t n = (uint64_t)st->n_token * st->n_head * st->n;
    if (!reserve(s, &s->y, &s->n_y, n) || !compute_wrong(st, s->y)) return;
    for (size_t block = 0; block < (size_t)st->n_token * st->n_head; block++) {
        uint32_t pos = st->pos + (uint32_t)(block / st->n_head), head = (uint32_t)(block % st->n_head);
        if (!is_in_scope(s, st->wrong, pos, head)) continue;
        memcpy(st->x + block * st->n, s->y + block * st->n, st->n * sizeof *st->x);
    }
}

/* Sets or clears the step's bit in s->supported. */
static void check(const struct made_tap *st) {
    struct mistakes *s = st->s;
    uint64_t n = (uint64_t)st->n_token * st->n_head * st->n;
    if (!reserve(s, &s->y, &s->n_y, n)) return;
    bool is_same = compute(st, s->y);
    double sum = 0, norm = 0;
    for (uint64_t i = 0; is_same && i < n; i++) {
        sum += (s->y[i] - st->x[i]) * (s->y[i] - st->x[i]);
        norm += st->x[i] * st->x[i];
    }
    is_same = is_same && sum <= s->same * s->same * norm;
    if (!is_same) s->supported &= ~ID_SET(st->id);
}

/* Keeps the result of a step for the steps after it. */
static void hold(struct mistakes *s, const plumb_tap *tap, enum tap_id id, const double *x) {
    uint64_t n = (uint64_t)tap->n_token * tap->n_head * tap->n;
    s->n_head[id] = s->width[id] = s->n_held[id] = 0;
    if (!reserve(s, &s->held[id], &s->cap[id], n)) return;
    memcpy(s->held[id], x, (size_t)n * sizeof *x);
    s->n_head[id] = tap->n_head;
    s->width[id] = tap->n;
    s->n_held[id] = tap->n_token;
    uint32_t which = id == TAP_KCUR_ROPE ? ROWS_K : id == TAP_KCUR ? ROWS_K_BEFORE_ROPE
                   : id == TAP_VCUR || id == TAP_VCUR_NORMED ? ROWS_V : N_ROWS;
    /* Layers with states have K and V too, which are wider than there is room for. */
    if (which == N_ROWS || tap->layer < 0 || !plan_attends(&s->model->plan.layers[tap->layer])) return;
    size_t width = (size_t)tap->n_head * tap->n;
    double *rows = s->rows[which] + (rows_of(s, which, tap->layer) - s->rows[which]);
    for (uint32_t t = 0; t < tap->n_token && tap->pos + t < s->n_token; t++) {
        memcpy(rows + (tap->pos + t) * width, x + t * width, width * sizeof *x);
    }
}

void mistakes_begin(struct mistakes *s, const struct mistake *m) {
    s->mistake = m;
    memset(s->n_held, 0, sizeof s->n_held);
}

void mistakes_step(struct mistakes *s, const plumb_tap *tap, enum tap_id id, double *x) {
    struct made_tap st = { s, s->mistake, id, tap->layer, tap->pos, tap->n_token, tap->n_head, tap->n, x };
    if (tap_holds_indices(id)) return;   /* it stays without a width, so no mistake of it is listed */
    if (s->is_checking) {
        st.wrong = NULL;
        if (s->checked >> id & 1) check(&st);
    } else if (mistakes_change(s, id, tap->layer)) {
        change(&st);
    }
    hold(s, tap, id, x);
}

void mistakes_compute(struct mistakes *s, const plumb_tap *tap, enum tap_id id, double *x) {
    struct made_tap st = { s, NULL, id, tap->layer, tap->pos, tap->n_token, tap->n_head, tap->n, x };
    uint64_t n = (uint64_t)tap->n_token * tap->n_head * tap->n;
    if (reserve(s, &s->y, &s->n_y, n) && compute(&st, s->y)) memcpy(x, s->y, (size_t)n * sizeof *x);
}

/* ---- create, free ------------------------------------------------------------------------------------------------ */

plumb_status mistakes_create(struct mistakes **out, const struct model *m, const int32_t *tokens, uint32_t n_token,
                             uint32_t n_prompt, struct error *err) {
    const struct plan *p = &m->plan;
    struct mistakes *s = calloc(1, sizeof *s);
    *out = s;
    uint64_t n_row = (uint64_t)p->n_layer * n_token, n_k, n_v;
    if (!s || !mul_u64(n_row, p->max_k, &n_k) || !mul_u64(n_row, p->max_v, &n_v)
        || !(s->rows[ROWS_K] = alloc_array(n_k, sizeof **s->rows))
        || !(s->rows[ROWS_K_BEFORE_ROPE] = alloc_array(n_k, sizeof **s->rows))
        || !(s->rows[ROWS_V] = alloc_array(n_v, sizeof **s->rows))
        || !(s->row = alloc_array(plan_max_row(p), sizeof *s->row))
        || !(s->bytes = alloc_array(plan_max_row(p), sizeof *s->row))) {
        mistakes_free(s);
        *out = NULL;
        return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the keys and values of %u tokens", n_token);
    }
    s->model = m;
    s->tokens = tokens;
    s->n_token = n_token;
    s->n_prompt = n_prompt;
    s->order = model_tap_order(m);
    s->supported = s->checked = ALL_IDS;
    s->same = SAME;
    return PLUMB_OK;
}

void mistakes_free(struct mistakes *s) {
    if (!s) return;
    for (uint32_t i = 0; i < TAP_COUNT; i++) free(s->held[i]);
    for (uint32_t i = 0; i < N_ROWS; i++) free(s->rows[i]);
    free(s->y);
    free(s->x);
    free(s->row);
    free(s->bytes);
    free(s);
}

/* Measures which values attention added up, by which weights.  A head of the output is the sum of weight_j * V_j over
 * the keys j.  Their weights and V are known, so every other V or weight that an engine could take is tried in their
 * place.  The heads and slots of V are those that leave the least.
 */
#include "diagnose/fit_heads.h"

#include <math.h>
#include <stdio.h>

struct values {
    struct fit *f;
    struct fit_rows w, v;      /* (n_token, n_head, n_key) of the tokens of the output; (n_key, n_kv, dim) */
    uint32_t n_token, n_head, n_kv, n_key, dim;
    uint32_t *right_heads, *heads;   /* (n_head) the head of V of each head; those of a hypothesis, n_kv: zeros */
    uint32_t *slots;           /* (n_key) the slot that is read for each key; n_key or more: zeros */
    uint32_t *token_slots;     /* (n_token, n_key) the same for each token */
    float *other;              /* (n_token, n_head, n_key) the weights of a hypothesis */
    double *y;                 /* (n_token, n_head, dim) */
};

static uint32_t pos_of(const struct values *a, uint32_t t) { return a->f->theirs.pos[t]; }

/* Fills y.  heads (n_head) and slots (n_token, n_key) may be NULL: the right ones. */
static void combine(const struct values *a, const float *w, const float *v, const uint32_t *heads,
                    const uint32_t *slots) {
    for (uint32_t row = 0; row < a->n_token * a->n_head; row++) {
        double *out = a->y + (size_t)row * a->dim;
        uint32_t h = row % a->n_head, g = heads ? heads[h] : a->right_heads[h];
        memset(out, 0, a->dim * sizeof *out);
        for (uint32_t j = 0; j < a->n_key && g < a->n_kv; j++) {
            double weight = (double)w[(size_t)row * a->n_key + j];
            uint32_t slot = slots ? slots[(size_t)(row / a->n_head) * a->n_key + j] : j;
            if (weight == 0 || slot >= a->n_key) continue;   /* 0 * NaN would reach it */
            const float *from = v + ((size_t)slot * a->n_kv + g) * a->dim;
            for (uint32_t i = 0; i < a->dim; i++) out[i] += weight * (double)from[i];
        }
    }
}

/* Fills y with the same slots (n_key) for every token. */
static void combine_slots(const struct values *a, const uint32_t *slots) {
    for (size_t i = 0; i < (size_t)a->n_token * a->n_key; i++) a->token_slots[i] = slots[i % a->n_key];
    combine(a, a->w.x, a->v.x, NULL, a->token_slots);
}

static void propose(const struct values *a, uint32_t cost, const char *text) {
    fit_propose(a->f, cost, a->y, "%s", text);
}

/* ---- heads ------------------------------------------------------------------------------------------------------- */

/* The squared error of head h of y where the right step is wrong. */
static double head_error2(const struct values *a, uint32_t h) {
    double sum = 0;
    for (uint32_t t = 0; t < a->n_token; t++) {
        size_t row = (size_t)t * a->n_head + h;
        for (uint32_t i = 0; i < a->dim && a->f->wrong[row]; i++) {
            double d = a->y[row * a->dim + i] - (double)a->f->theirs.x[row * a->dim + i];
            sum += d * d;
        }
    }
    return sum;
}

static void try_heads(struct values *a) {
    uint32_t n_kv = a->n_kv, group = a->n_head / n_kv;
    double *least = fit_new(a->f, a->n_head, sizeof *least);
    uint32_t *solved = fit_new(a->f, a->n_head, sizeof *solved);
    char text[FIT_SENTENCE], rule[FIT_HEAD_TEXT];
    if (!least || !solved) return;
    for (uint32_t r = 0; r < FIT_HEAD_RULES; r++) {
        if (!fit_head_rule(r, a->n_head, n_kv, a->heads, rule)) continue;
        snprintf(text, sizeof text, "has head h read head %s of V, not h / %u", rule, group);
        combine(a, a->w.x, a->v.x, a->heads, NULL);
        propose(a, r == 3 ? 1 : 0, text);
    }
    for (uint32_t g = 0; g <= n_kv; g++) {   /* n_kv: none */
        for (uint32_t h = 0; h < a->n_head; h++) a->heads[h] = g;
        combine(a, a->w.x, a->v.x, a->heads, NULL);
        for (uint32_t h = 0; h < a->n_head; h++) {
            double error = head_error2(a, h);
            if (g > 0 && !(error < least[h])) continue;
            least[h] = error;
            solved[h] = g;
        }
    }
    fit_keep_right_heads(a->f, a->right_heads, a->n_head, solved);
    uint32_t cost = fit_say_heads(text, sizeof text, "V", solved, a->n_head, n_kv);
    combine(a, a->w.x, a->v.x, solved, NULL);
    propose(a, cost, text);
}

/* ---- other weights ----------------------------------------------------------------------------------------------- */

/* Element (t, h, j) of the weights of a hypothesis. */
typedef double other_weight(const struct values *a, uint32_t t, uint32_t h, uint32_t j);

static double weight_at(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    return t < a->n_token && j < a->n_key ? (double)a->w.x[((size_t)t * a->n_head + h) * a->n_key + j] : 0;
}
static double transposed(const struct values *a, uint32_t t, uint32_t h, uint32_t j) { return weight_at(a, j, h, t); }
static double first_head(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    (void)h;
    return weight_at(a, t, 0, j);
}
static double next_head(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    return weight_at(a, t, (h + 1) % a->n_head, j);
}
static double previous_head(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    return weight_at(a, t, (h + a->n_head - 1) % a->n_head, j);
}
static double mean_of_heads(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    double sum = 0;
    (void)h;
    for (uint32_t i = 0; i < a->n_head; i++) sum += weight_at(a, t, i, j);
    return sum / a->n_head;
}
static double by_head(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {   /* (h, t) read as (t, h) */
    uint32_t row = t * a->n_head + h;
    return weight_at(a, row % a->n_token, row / a->n_token, j);
}
static double largest(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    for (uint32_t i = 0; i < a->n_key; i++) {
        if (weight_at(a, t, h, i) > weight_at(a, t, h, j)) return 0;
    }
    return 1;
}
static double equal(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_key; i++) n += weight_at(a, t, h, i) != 0;
    return weight_at(a, t, h, j) != 0 ? 1.0 / n : 0;
}
static double without_last(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    return j < pos_of(a, t) ? weight_at(a, t, h, j) : 0;
}
static double without_first(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    return j > 0 ? weight_at(a, t, h, j) : 0;
}
static double decoded_without_last(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    return pos_of(a, t) < a->f->n_prompt ? weight_at(a, t, h, j) : without_last(a, t, h, j);
}
static double of_prompt(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    return j < a->f->n_prompt ? weight_at(a, t, h, j) : 0;
}
static double squared(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    return weight_at(a, t, h, j) * weight_at(a, t, h, j);
}

static void try_weights(struct values *a) {
    static const struct { other_weight *weight; const char *text; } ways[] = {
        { transposed, "has the weights read as (key, token)" },
        { first_head, "has the weights of head 0 in every head" },
        { next_head, "has the weights of the next head in each head" },
        { previous_head, "has the weights of the head before in each head" },
        { mean_of_heads, "has the mean of the weights of all heads in every head" },
        { by_head, "has rows of the weights, stored as (head, token), read as (token, head)" },
        { largest, "is the V with the largest weight alone" },
        { equal, "is the mean of the V that are seen, without weights" },
        { without_last, "has sums that leave out the V of the token itself" },
        { without_first, "has sums that leave out the V of the first token" },
        { decoded_without_last, "has sums that leave out the V of the token itself after the prompt: it is not in the "
          "cache yet" },
        { of_prompt, "has sums over the tokens of the prompt alone" },
        { squared, "has the squares of the weights" },
    };
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        size_t n = 0;
        for (uint32_t t = 0; t < a->n_token; t++) {
            for (uint32_t h = 0; h < a->n_head; h++) {
                for (uint32_t j = 0; j < a->n_key; j++) a->other[n++] = (float)ways[k].weight(a, t, h, j);
            }
        }
        combine(a, a->other, a->v.x, NULL, NULL);
        propose(a, 0, ways[k].text);
    }
}

/* ---- other V ----------------------------------------------------------------------------------------------------- */

/* V in other orders: those of all tokens, or of the tokens that are there when a token attends. */
static void try_orders(struct values *a) {
    char text[FIT_SENTENCE];
    for (int order = ORDER_RIGHT + 1; order < N_CACHE_ORDER; order++) {
        fit_say_order(text, sizeof text, (enum cache_order)order, "V");
        for (int is_whole = 0; is_whole < 2; is_whole++) {
            for (uint32_t row = 0; row < a->n_token * a->n_head; row++) {
                uint32_t n = is_whole ? a->n_key : fit_filled(a->f, pos_of(a, row / a->n_head), a->n_key);
                uint32_t g = a->right_heads[row % a->n_head];
                double *out = a->y + (size_t)row * a->dim;
                memset(out, 0, a->dim * sizeof *out);
                for (uint32_t j = 0; j < n; j++) {
                    double weight = (double)a->w.x[(size_t)row * a->n_key + j];
                    for (uint32_t i = 0; weight != 0 && i < a->dim; i++) {
                        size_t from = cache_place((enum cache_order)order, n, a->n_kv, a->n_head / a->n_kv, a->dim, j,
                                                  g, i);
                        if (from != SIZE_MAX) out[i] += weight * (double)a->v.x[from];
                    }
                }
            }
            propose(a, 0, text);
        }
    }
}

/* The V of other slots: shifted, or, one after the other, those that leave the least. */
static void try_slots(struct values *a) {
    char text[160];
    for (int by = -1; by <= 1; by += 2) {
        for (uint32_t j = 0; j < a->n_key; j++) a->slots[j] = (uint32_t)((int64_t)j + by);   /* -1: zeros */
        combine_slots(a, a->slots);
        propose(a, 0, by < 0 ? "has V of the token before each key" : "has V of the token after each key");
    }
    for (size_t i = 0; i < (size_t)a->n_token * a->n_key; i++) {
        uint32_t pos = pos_of(a, (uint32_t)(i / a->n_key)), j = (uint32_t)(i % a->n_key), n_prompt = a->f->n_prompt;
        a->token_slots[i] = j == n_prompt && pos > n_prompt ? pos : j;
    }
    combine(a, a->w.x, a->v.x, NULL, a->token_slots);
    snprintf(text, sizeof text, "has the V of every token after the prompt in the same slot, %u, where it overwrites "
             "the one before", a->f->n_prompt);
    propose(a, 0, text);
    size_t n_row = (size_t)a->n_token * a->n_head;
    if (a->n_key > 64) return;   /* the search takes the square of it */
    for (uint32_t j = 0; j < a->n_key; j++) a->slots[j] = j;
    for (uint32_t n_other = 1; n_other <= 3; n_other++) {
        double most = 0;
        uint32_t at = 0, slot = 0;
        combine_slots(a, a->slots);
        for (uint32_t j = 0; j < a->n_key; j++) {
            for (uint32_t s = 0; s <= a->n_key && a->slots[j] == j; s++) {   /* n_key: zeros */
                double gain = 0;
                for (size_t row = 0; row < n_row; row++) {
                    double weight = (double)a->w.x[row * a->n_key + j];
                    uint32_t g = a->right_heads[row % a->n_head];
                    if (weight == 0 || !a->f->wrong[row]) continue;
                    const float *own = a->v.x + ((size_t)j * a->n_kv + g) * a->dim;
                    const float *other = s < a->n_key ? a->v.x + ((size_t)s * a->n_kv + g) * a->dim : NULL;
                    for (uint32_t i = 0; i < a->dim; i++) {
                        double left = (double)a->f->theirs.x[row * a->dim + i] - a->y[row * a->dim + i];
                        double d = weight * ((other ? (double)other[i] : 0) - (double)own[i]);
                        gain += d * (2 * left - d);
                    }
                }
                if (gain > most) most = gain, at = j, slot = s;
            }
        }
        if (!(most > 0)) return;
        a->slots[at] = slot < a->n_key ? slot : UINT32_MAX;
        combine_slots(a, a->slots);
        const char *more = n_other == 1 ? "" : ", as the last of several such tokens";
        if (slot < a->n_key) snprintf(text, sizeof text, "has V of token %u at token %u%s", slot, at, more);
        else snprintf(text, sizeof text, "has V of zeros at token %u%s", at, more);
        propose(a, n_other, text);
    }
}

static void try_activations(struct values *a) {
    static const struct { enum tap_id id; const char *text; } ways[] = {
        { TAP_KCUR, "has K before RoPE instead of V" }, { TAP_KCUR_ROPE, "has K instead of V" },
        { TAP_QCUR, "has Q before RoPE instead of V" }, { TAP_QCUR_ROPE, "has Q instead of V" },
    };
    char text[64];
    struct fit_rows other;
    size_t width = (size_t)a->n_kv * a->dim;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (!fit_tap(a->f, ways[i].id, a->f->layer, &other)) continue;
        if (fit_width(&other) != width || other.n_token != a->n_key) continue;
        combine(a, a->w.x, other.x, NULL, NULL);
        propose(a, 0, ways[i].text);
    }
    for (int32_t il = 0; il < (int32_t)a->f->model->plan.n_layer; il++) {
        if (il == a->f->layer || !trace_find_tap(a->f->dump, TAP_VCUR, il)) continue;
        if (!fit_tap(a->f, TAP_VCUR, il, &other) || fit_width(&other) != width || other.n_token != a->n_key) continue;
        combine(a, a->w.x, other.x, NULL, NULL);
        snprintf(text, sizeof text, "has V of layer %d", (int)il);
        propose(a, 0, text);
    }
}

/* ---- heads put together ------------------------------------------------------------------------------------------ */

/* The outputs of a batch are stored as (head, token) and read as (token, head), or the reverse. */
static void try_merges(struct values *a) {
    uint32_t n_batch = 0;
    while (n_batch < a->n_token && pos_of(a, n_batch) < a->f->n_prompt) n_batch++;
    for (int way = 0; way < 2; way++) {
        for (size_t i = 0; i < (size_t)a->n_token * a->n_head * a->dim; i++) {
            uint32_t row = (uint32_t)(i / a->dim), from = row, n_head = a->n_head;
            if (row < n_batch * n_head) {
                from = way == 0 ? row % n_batch * n_head + row / n_batch : row % n_head * n_batch + row / n_head;
            }
            a->y[i] = (double)a->f->truth.x[(size_t)from * a->dim + i % a->dim];
        }
        propose(a, 0, way == 0 ? "has rows, stored as (head, token), read as (token, head)"
                               : "has rows, stored as (token, head), read as (head, token)");
    }
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

void fit_attention_output(struct fit *f) {
    const struct attn_plan *p = &f->model->plan.layers[f->layer].attn;
    struct values a = { .f = f, .n_token = f->theirs.n_token, .n_head = p->n_head, .n_kv = p->n_head_kv,
                        .dim = p->v_dim };
    if (!fit_input(f, TAP_SET(KQ_SOFT_MAX), &a.w) || !fit_tap(f, TAP_VCUR, f->layer, &a.v)) return;
    a.n_key = a.v.n_token;
    bool is_right = f->theirs.n_head == a.n_head && f->theirs.n == a.dim && a.w.n_head == a.n_head
                 && a.w.n == a.n_key && fit_width(&a.v) == (size_t)a.n_kv * a.dim
                 && a.v.pos[a.n_key - 1] + 1 == a.n_key;
    if (!is_right) return;
    a.right_heads = fit_new(f, a.n_head, sizeof *a.right_heads);
    a.heads = fit_new(f, a.n_head, sizeof *a.heads);
    a.slots = fit_new(f, a.n_key, sizeof *a.slots);
    a.token_slots = fit_new(f, (uint64_t)a.n_token * a.n_key, sizeof *a.token_slots);
    a.other = fit_new(f, (uint64_t)a.n_token * a.n_head * a.n_key, sizeof *a.other);
    a.y = fit_new(f, (uint64_t)a.n_token * a.n_head * a.dim, sizeof *a.y);
    if (f->out_of_memory) return;
    for (uint32_t h = 0; h < a.n_head; h++) a.right_heads[h] = h / (a.n_head / a.n_kv);
    try_heads(&a);
    try_weights(&a);
    try_orders(&a);
    try_slots(&a);
    try_activations(&a);
    try_merges(&a);
}

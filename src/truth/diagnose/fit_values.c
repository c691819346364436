/* Measures which values attention added up, by which weights.  A head of the output is the sum of weight_j * V_j over
 * the keys j.  Their weights and V are known, so every other V or weight that an engine could take is tried in their
 * place.  The heads and slots of V are those that leave the least.
 */
#include "diagnose/fit_heads.h"

#include <math.h>
#include <stdio.h>

struct values {
    struct reader r;           /* of V; the first member, so that it leads back to this */
    struct fit_rows w;         /* (n_token, n_head, n_key) of the tokens of the output */
    float *other;              /* (n_token, n_head, n_key) the weights of a hypothesis */
    double *y;                 /* (n_token, n_head, dim) */
};

static uint32_t pos_of(const struct values *a, uint32_t t) { return a->r.f->theirs.pos[t]; }

/* Fills y with the sums of what is read of V, weighted by w. */
static void combine(const struct values *a, const float *w, const struct reading *how) {
    for (uint32_t row = 0; row < a->r.n_token * a->r.n_head; row++) {
        double *out = a->y + (size_t)row * a->r.dim;
        memset(out, 0, a->r.dim * sizeof *out);
        for (uint32_t j = 0; j < a->r.n_key; j++) {
            double weight = (double)w[(size_t)row * a->r.n_key + j];
            if (weight == 0) continue;   /* 0 * NaN would reach it */
            const float *v = reader_row(&a->r, how, row / a->r.n_head, row % a->r.n_head, j);
            for (uint32_t i = 0; v && i < a->r.dim; i++) out[i] += weight * (double)v[i];
        }
    }
}

static void read_v(struct reader *r, const struct reading *how) {
    const struct values *a = (const struct values *)r;
    combine(a, a->w.x, how);
}

static void propose_v(struct reader *r, uint32_t cost, const char *text) {
    fit_propose(r->f, cost, ((const struct values *)r)->y, "%s", text);
}

static double error_of_v(struct reader *r, uint32_t h) {
    const struct values *a = (const struct values *)r;
    double sum = 0;
    for (uint32_t t = 0; t < r->n_token; t++) {
        size_t row = (size_t)t * r->n_head + h;
        for (uint32_t i = 0; i < r->dim && r->f->wrong[row]; i++) {
            double d = a->y[row * r->dim + i] - (double)r->f->theirs.x[row * r->dim + i];
            sum += d * d;
        }
    }
    return sum;
}

/* ---- other weights ----------------------------------------------------------------------------------------------- */

/* Element (t, h, j) of the weights of a hypothesis. */
typedef double other_weight(const struct values *a, uint32_t t, uint32_t h, uint32_t j);

static double weight_at(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    return t < a->r.n_token && j < a->r.n_key ? (double)a->w.x[((size_t)t * a->r.n_head + h) * a->r.n_key + j] : 0;
}
static double transposed(const struct values *a, uint32_t t, uint32_t h, uint32_t j) { return weight_at(a, j, h, t); }
static double first_head(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    (void)h;
    return weight_at(a, t, 0, j);
}
static double next_head(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    return weight_at(a, t, (h + 1) % a->r.n_head, j);
}
static double previous_head(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    return weight_at(a, t, (h + a->r.n_head - 1) % a->r.n_head, j);
}
static double mean_of_heads(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    double sum = 0;
    (void)h;
    for (uint32_t i = 0; i < a->r.n_head; i++) sum += weight_at(a, t, i, j);
    return sum / a->r.n_head;
}
static double by_head(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {   /* (h, t) read as (t, h) */
    uint32_t row = t * a->r.n_head + h;
    return weight_at(a, row % a->r.n_token, row / a->r.n_token, j);
}
static double largest(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    for (uint32_t i = 0; i < a->r.n_key; i++) {
        if (weight_at(a, t, h, i) > weight_at(a, t, h, j)) return 0;
    }
    return 1;
}
static double equal(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->r.n_key; i++) n += weight_at(a, t, h, i) != 0;
    return weight_at(a, t, h, j) != 0 ? 1.0 / n : 0;
}
static double without_last(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    return j < pos_of(a, t) ? weight_at(a, t, h, j) : 0;
}
static double without_first(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    return j > 0 ? weight_at(a, t, h, j) : 0;
}
static double decoded_without_last(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    return pos_of(a, t) < a->r.f->n_prompt ? weight_at(a, t, h, j) : without_last(a, t, h, j);
}
static double of_prompt(const struct values *a, uint32_t t, uint32_t h, uint32_t j) {
    return j < a->r.f->n_prompt ? weight_at(a, t, h, j) : 0;
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
        for (uint32_t t = 0; t < a->r.n_token; t++) {
            for (uint32_t h = 0; h < a->r.n_head; h++) {
                for (uint32_t j = 0; j < a->r.n_key; j++) a->other[n++] = (float)ways[k].weight(a, t, h, j);
            }
        }
        combine(a, a->other, &(struct reading){ 0 });
        propose_v(&a->r, 0, ways[k].text);
    }
}

/* ---- other V ----------------------------------------------------------------------------------------------------- */

/* The V of other slots: shifted, or, one after the other, those that leave the least. */
static void try_slots(struct values *a) {
    struct reader *r = &a->r;
    uint32_t *slots = fit_new(r->f, r->n_key, sizeof *slots);
    if (!slots) return;
    reader_try_shifts(r);
    reader_overwrite(r);
    read_v(r, &(struct reading){ .slots = r->slots });
    propose_v(r, 0, fit_say(r->f, "has the V of every token after the prompt in the same slot, %u, where it overwrites "
                            "the one before", r->f->n_prompt));
    size_t n_row = (size_t)r->n_token * r->n_head;
    if (r->n_key > 64) return;   /* the search takes the square of it */
    for (uint32_t j = 0; j < r->n_key; j++) slots[j] = j;
    read_v(r, &(struct reading){ 0 });
    for (uint32_t n_other = 1; n_other <= 3; n_other++) {
        double most = 0;
        uint32_t at = 0, slot = 0;
        for (uint32_t j = 0; j < r->n_key; j++) {
            for (uint32_t s = 0; s <= r->n_key && slots[j] == j; s++) {   /* n_key: zeros */
                double gain = 0;
                for (size_t row = 0; row < n_row; row++) {
                    double weight = (double)a->w.x[row * r->n_key + j];
                    uint32_t g = r->right_heads[row % r->n_head];
                    if (weight == 0 || !r->f->wrong[row]) continue;
                    const float *own = r->rows.x + ((size_t)j * r->n_kv + g) * r->dim;
                    const float *other = s < r->n_key ? r->rows.x + ((size_t)s * r->n_kv + g) * r->dim : NULL;
                    for (uint32_t i = 0; i < r->dim; i++) {
                        double left = (double)r->f->theirs.x[row * r->dim + i] - a->y[row * r->dim + i];
                        double d = weight * ((other ? (double)other[i] : 0) - (double)own[i]);
                        gain += d * (2 * left - d);
                    }
                }
                if (gain > most) most = gain, at = j, slot = s;
            }
        }
        if (!(most > 0)) return;
        slots[at] = slot < r->n_key ? slot : UINT32_MAX;
        reader_try_slots(r, slots, at, n_other);
    }
}

static void try_activations(struct values *a) {
    static const struct { enum tap_id id; const char *text; } ways[] = {
        { TAP_KCUR, "has K before RoPE instead of V" }, { TAP_KCUR_ROPE, "has K instead of V" },
        { TAP_QCUR, "has Q before RoPE instead of V" }, { TAP_QCUR_ROPE, "has Q instead of V" },
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct fit_rows other;
        if (!reader_take(&a->r, ways[i].id, a->r.f->layer, &other)) continue;
        read_v(&a->r, &(struct reading){ .rows = &other });
        propose_v(&a->r, 0, ways[i].text);
    }
    reader_try_layers(&a->r);
}

/* ---- heads put together ------------------------------------------------------------------------------------------ */

/* The outputs of a batch are stored as (head, token) and read as (token, head), or the reverse. */
static void try_merges(struct values *a) {
    uint32_t n_batch = 0;
    while (n_batch < a->r.n_token && pos_of(a, n_batch) < a->r.f->n_prompt) n_batch++;
    for (int way = 0; way < 2; way++) {
        for (size_t i = 0; i < (size_t)a->r.n_token * a->r.n_head * a->r.dim; i++) {
            uint32_t row = (uint32_t)(i / a->r.dim), from = row, n_head = a->r.n_head;
            if (row < n_batch * n_head) {
                from = way == 0 ? row % n_batch * n_head + row / n_batch : row % n_head * n_batch + row / n_head;
            }
            a->y[i] = (double)a->r.f->truth.x[(size_t)from * a->r.dim + i % a->r.dim];
        }
        propose_v(&a->r, 0, way == 0 ? "has rows, stored as (head, token), read as (token, head)"
                               : "has rows, stored as (token, head), read as (head, token)");
    }
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

void fit_attention_output(struct fit *f) {
    const struct layer_plan *l = &f->model->plan.layers[f->layer];
    const struct attn_plan *p = &l->attn;
    bool is_normed = f->model->plan.bare_norms >> W_ATTN_V_NORM & 1;
    struct values a = { .r = { .f = f, .of = "V", .by = "head h", .id = is_normed ? TAP_VCUR_NORMED : TAP_VCUR,
                               .n_token = f->theirs.n_token,
                               .n_head = p->n_head, .n_kv = p->n_head_kv, .dim = p->v_dim, .read = read_v,
                               .error = error_of_v, .propose = propose_v } };
    struct reader *r = &a.r;
    int32_t of = f->layer - (int32_t)l->kv_back;
    if (!fit_input(f, TAP_SET(KQ_SOFT_MAX), &a.w) || !fit_tap(f, r->id, of, &r->rows)) return;
    r->n_key = r->rows.n_token;
    bool is_right = f->theirs.n_head == r->n_head && f->theirs.n == r->dim && a.w.n_head == r->n_head
                 && a.w.n == r->n_key && fit_width(&r->rows) == (size_t)r->n_kv * r->dim
                 && r->rows.pos[r->n_key - 1] + 1 == r->n_key;
    if (!is_right) return;
    reader_begin(r);
    a.other = fit_new(f, (uint64_t)r->n_token * r->n_head * r->n_key, sizeof *a.other);
    a.y = fit_new(f, (uint64_t)r->n_token * r->n_head * r->dim, sizeof *a.y);
    if (f->out_of_memory) return;
    reader_try_heads(r);
    try_weights(&a);
    reader_try_orders(r);
    try_slots(&a);
    try_activations(&a);
    try_merges(&a);
}

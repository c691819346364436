/* Checks of attention, of a trace of all taps: what RoPE does, the weights, the first token, and that latent attention
 * computes absorbed what it would compute plain. */
#include "check/selfcheck.h"

#include <math.h>
#include <stdlib.h>

static double length_of(const float *x, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* ---- RoPE -------------------------------------------------------------------------------------------------------- */

/* What RoPE does to the heads of Q or K of a layer: elements first_before .. first_before + n of a head of `before`, or
 * of its only head, become elements first_after .. of that of `after`.  The first n_rot of them are rotated and
 * multiplied by magnitude.  In latent attention other elements are before these: those of the same head of `rest`, or
 * of its only head; NULL: nothing says what they must be. */
struct roped {
    const struct trace_tap *before, *after, *rest;
    uint32_t first_before, first_after, n, n_rot;
    double magnitude;
};

/* Returns the tap of Q or K that is the input of RoPE: the normed one, if the layer has that norm before RoPE. */
static const struct trace_tap *before_rope(const struct check *c, const struct plumb_trace *t, bool is_k,
                                           int32_t layer) {
    bool is_late = plan_norms_roped(&c->model->plan.layers[layer].attn);
    const struct trace_tap *normed = trace_find_tap(t, is_k ? TAP_KCUR_NORMED : TAP_QCUR_NORMED, layer);
    return normed && !is_late ? normed : trace_find_tap(t, is_k ? TAP_KCUR : TAP_QCUR, layer);
}

static bool has_shape(const struct trace_tap *tap, uint32_t n_row, uint32_t n_head, uint32_t n) {
    return tap && tap->n_row == n_row && tap->rows[0].n >= n
        && (tap->rows[0].n_head == n_head || tap->rows[0].n_head == 1);
}

static bool has_same_shape(const struct trace_tap *a, const struct trace_tap *b) {
    return a && b && a->rows[0].n == b->rows[0].n && a->rows[0].n_head == b->rows[0].n_head;
}

/* Returns false if the pass does not have the taps, in shapes that fit. */
static bool find_roped(const struct check *c, const struct plumb_trace *t, bool is_k, int32_t layer,
                       struct roped *r) {
    const struct attn_plan *a = &c->model->plan.layers[layer].attn;
    const struct latent_plan *l = &a->latent;
    *r = (struct roped) { .after = trace_find_tap(t, is_k ? TAP_KCUR_ROPE : TAP_QCUR_ROPE, layer), .magnitude = 1 };
    if (!r->after) return false;
    if (l->n_kv == 0) {
        r->before = before_rope(c, t, is_k, layer);
        r->n = r->after->rows[0].n;
        if (!has_same_shape(r->before, r->after)) return false;
    } else {
        bool has_rest = is_k || !l->is_absorbed;   /* Q is multiplied by attn_k_b, which the check of that is for */
        enum tap_id rest = !is_k ? TAP_LATENT_Q : l->is_absorbed ? TAP_LATENT : TAP_LATENT_KV_B;
        r->before = trace_find_tap(t, is_k ? TAP_LATENT_KV : TAP_LATENT_Q, layer);
        r->first_before = is_k ? l->n_kv : l->n_plain;
        r->first_after = plan_rotated_from(a);
        r->n = l->n_rotated;
        if (has_rest) r->rest = trace_find_tap(t, rest, layer);
        if (has_rest && !has_shape(r->rest, r->after->n_row, r->after->rows[0].n_head, r->first_after)) return false;
    }
    if (a->rope != ROPE_NONE) {
        const struct rope_plan *rope = &c->model->plan.ropes[a->rope];
        r->n_rot = rope->n_rot < r->n ? rope->n_rot : r->n;
        r->magnitude = (double)rope->magnitude;
    }
    return has_shape(r->before, r->after->n_row, r->after->rows[0].n_head, r->first_before + r->n)
        && r->after->rows[0].n >= r->first_after + r->n;
}

static const float *head_or_only(const struct trace_row *row, uint32_t h) {
    return check_head(row, row->n_head == 1 ? 0 : h);
}

/* sin, cos and every product are rounded to f32, which leaves an error of 2e-7. */
#define ROPE_BOUND 1e-5

static bool is_same(float a, float b) { return a == b || (isnan(a) && isnan(b)); }

/* Checks that elements of a head are the same before RoPE, in x, as after it, in y.  first: the number of y[0]. */
static void check_rest(struct check *c, const struct roped *r, uint32_t pos, uint32_t h, const float *x, const float *y,
                       uint32_t first, uint32_t n) {
    struct tap_text name;
    for (uint32_t i = 0; i < n; i++) {
        if (is_same(x[i], y[i])) continue;
        check_detail(c, "%s: token %u, head %u: RoPE rotates %u elements, but element %u is %.9g before it and %.9g "
                     "after", tap_show(&name, r->before->id, r->before->layer), pos, h, r->n_rot, first + i,
                     (double)x[i], (double)y[i]);
        return;
    }
}

/* Checks head h of a row, and adds a detail if it is wrong.  Returns the relative error of its norm. */
static double check_rotation(struct check *c, const struct roped *r, uint32_t row, uint32_t h) {
    const struct trace_row *before = &r->before->rows[row], *after = &r->after->rows[row];
    const float *x = head_or_only(before, h) + r->first_before, *y = check_head(after, h) + r->first_after;
    double a = length_of(x, r->n_rot) * r->magnitude, b = length_of(y, r->n_rot);
    double error = a == b ? 0 : fabs(a - b) / a;
    struct tap_text name;
    if (isnan(error)) error = INFINITY;
    if (error > ROPE_BOUND) {
        check_detail(c, "%s: token %u, head %u: norm %.6g before RoPE, %.6g after",
                     tap_show(&name, r->before->id, r->before->layer), before->pos, h, a / r->magnitude, b);
    }
    check_rest(c, r, before->pos, h, x + r->n_rot, y + r->n_rot, r->first_after + r->n_rot, r->n - r->n_rot);
    if (!r->rest) return error;
    check_rest(c, r, before->pos, h, head_or_only(&r->rest->rows[row], h), check_head(after, h), 0, r->first_after);
    return error;
}

void selfcheck_rope(struct check *c, const struct plumb_trace *t) {
    double worst = 0;
    size_t n_head = 0;
    for (size_t i = 0; i < t->n_tap; i++) {
        const struct trace_tap *of = &t->taps[i];
        bool is_k = of->id == TAP_KCUR || of->id == TAP_LATENT_KV;
        if (!is_k && of->id != TAP_QCUR && of->id != TAP_LATENT_Q) continue;
        if (c->model && !plan_attends(&c->model->plan.layers[of->layer])) continue;   /* RWKV */
        struct roped r;
        if (!find_roped(c, t, is_k, of->layer, &r)) {
            struct tap_text name;
            check_detail(c, "%s: the pass has no %s of the same shape", tap_show(&name, of->id, of->layer),
                         tap_spec(is_k ? TAP_KCUR_ROPE : TAP_QCUR_ROPE)->name);
            continue;
        }
        for (uint32_t row = 0; row < r.after->n_row; row++) {
            for (uint32_t h = 0; h < r.after->rows[row].n_head; h++, n_head++) {
                worst = fmax(worst, check_rotation(c, &r, row, h));
            }
        }
    }
    if (n_head == 0 && c->n_detail == 0) check_set(c, VERDICT_SKIP, "the pass has no attention");
    else if (c->n_detail == 0) check_set(c, VERDICT_OK, "%zu heads: what is rotated has the norm that it must have, "
                                         "within %.1g (bound %g); the rest is the same", n_head, worst, ROPE_BOUND);
    else check_set(c, VERDICT_FAIL, "%u faults in %zu heads: a norm that changes, or an element that must not",
                   c->n_detail, n_head);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Each of the n weights of a row is rounded to f32, with a relative error of 6e-8. */
#define SOFTMAX_BOUND 1e-5

/* Whether token pos of n may attend to token p. */
static bool sees(const struct check *c, int32_t layer, uint32_t pos, uint32_t p) {
    const struct attn_plan *a = &c->model->plan.layers[layer].attn;
    return (!a->is_causal || p <= pos) && plan_window_has(a, pos, p);
}

/* Checks the attention weights of head h of a row, and adds a detail if they are wrong.  Returns how far their sum is
 * from what it should be; 0 if a single weight is wrong. */
static double check_attention(struct check *c, int32_t layer, const struct trace_row *row, uint32_t h) {
    const float *w = check_head(row, h);
    bool has_sink = c->model->layers[layer].w[W_ATTN_SINKS].w != NULL;
    uint32_t p = 0;
    double sum = 0;
    while (p < row->n && w[p] >= 0 && (sees(c, layer, row->pos, p) || w[p] == 0)) sum += (double)w[p++];
    if (p < row->n) {
        bool is_causal = c->model->plan.layers[layer].attn.is_causal;
        const char *why = sees(c, layer, row->pos, p) ? "" : p < row->pos ? ", which is before the window"
                        : is_causal ? ", which is a later token" : ", which is after the window";
        check_detail(c, "kq_soft_max-%d: token %u, head %u: the weight of token %u is %g%s", (int)layer, row->pos, h, p,
                     (double)w[p], why);
        return 0;
    }
    double error = has_sink && sum < 1 ? 0 : fabs(sum - 1);
    if (!(error <= SOFTMAX_BOUND)) {
        check_detail(c, "kq_soft_max-%d: token %u, head %u: the weights sum to %.6g", (int)layer, row->pos, h, sum);
    }
    return error;
}

void selfcheck_softmax(struct check *c, const struct plumb_trace *t) {
    double worst = 0;
    size_t n_row = 0;
    for (size_t i = 0; i < t->n_tap; i++) {
        const struct trace_tap *tap = &t->taps[i];
        if (tap->id != TAP_KQ_SOFT_MAX) continue;
        for (uint32_t row = 0; row < tap->n_row; row++) {
            for (uint32_t h = 0; h < tap->rows[row].n_head; h++, n_row++) {
                worst = fmax(worst, check_attention(c, tap->layer, &tap->rows[row], h));
            }
        }
    }
    if (n_row == 0) check_set(c, VERDICT_SKIP, "the pass has no attention weights");
    else if (c->n_detail == 0) check_set(c, VERDICT_OK, "%zu rows are >= 0, are 0 where a token sees nothing, and sum "
                                         "to 1 (with sinks to less) within %.1g (bound %g)", n_row, worst,
                                         SOFTMAX_BOUND);
    else check_set(c, VERDICT_FAIL, "%u of %zu rows of attention weights are wrong", c->n_detail, n_row);
}

/* ---- position 0 -------------------------------------------------------------------------------------------------- */

/* The KV cache stores V as 16-bit codes.  The error relative to the head's largest value is at most that of half a code
 * plus the f32 rounding of the single attention weight. */
#define V_BOUND 1.6e-5
/* A magnitude that RoPE multiplies by is rounded to f32. */
#define MAGNITUDE_BOUND 1e-6

/* Elements of a head of the first token, from `first` on. */
struct part { const struct trace_tap *tap; uint32_t head, first; };

static struct part part_of(const struct trace_tap *tap, uint32_t h, uint32_t first) {
    return (struct part) { tap, tap->rows[0].n_head == 1 ? 0 : h, first };
}

/* Returns true if n elements of a equal those of b, of which the first n_factor are multiplied by factor, within bound
 * times the largest value of b.  Otherwise adds a detail with the first difference. */
static bool same_part(struct check *c, struct part a, struct part b, uint32_t n, double factor, uint32_t n_factor,
                      double bound) {
    const float *x = check_head(&a.tap->rows[0], a.head) + a.first;
    const float *y = check_head(&b.tap->rows[0], b.head) + b.first;
    double largest = 0;
    for (uint32_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)y[i]));
    for (uint32_t i = 0; i < n; i++) {
        double expected = (double)y[i] * (i < n_factor ? factor : 1);
        if (fabs((double)x[i] - expected) <= bound * largest) continue;
        check_detail(c, "layer %d, position 0: %s[head %u, %u] is %.9g, %s[head %u, %u] is %.9g", (int)a.tap->layer,
                     tap_spec(a.tap->id)->name, a.head, a.first + i, (double)x[i], tap_spec(b.tap->id)->name, b.head,
                     b.first + i, (double)y[i]);
        return false;
    }
    return true;
}

static bool begins(const struct trace_tap *tap) { return tap && tap->rows[0].pos == 0; }

/* Checks the first token in a layer.  Sets *is_known to false if the trace does not have the taps.  Returns whether it
 * is right. */
static bool check_first(struct check *c, const struct plumb_trace *t, int32_t il, bool *is_known) {
    const struct layer_plan *l = &c->model->plan.layers[il];
    int32_t of = il - (int32_t)l->kv_back;   /* K and V may be those of another layer */
    enum tap_id heads = l->attn.latent.is_absorbed ? TAP_LATENT_HEADS : TAP_KQV_OUT;
    const struct trace_tap *v = trace_find_tap(t, TAP_VCUR_NORMED, of), *kqv = trace_find_tap(t, heads, il);
    const struct trace_tap *weights = trace_find_tap(t, TAP_KQ_SOFT_MAX, il);
    if (!v) v = trace_find_tap(t, TAP_VCUR, of);
    bool ok = true;
    *is_known = begins(v) && begins(kqv) && weights && v->rows[0].n == kqv->rows[0].n
             && kqv->rows[0].n_head % v->rows[0].n_head == 0;
    for (int is_k = 0; is_k < (of == il ? 2 : 1) && *is_known; is_k++) {
        struct roped r;
        *is_known = find_roped(c, t, is_k, il, &r) && begins(r.before) && begins(r.after);
        for (uint32_t h = 0; *is_known && h < r.after->rows[0].n_head; h++) {
            double bound = r.magnitude == 1 ? 0 : MAGNITUDE_BOUND;
            ok = same_part(c, part_of(r.before, h, r.first_before), part_of(r.after, h, r.first_after), r.n,
                           1 / r.magnitude, r.n_rot, bound) && ok;
        }
    }
    if (!*is_known) return false;
    uint32_t n_group = kqv->rows[0].n_head / v->rows[0].n_head;
    for (uint32_t h = 0; h < kqv->rows[0].n_head; h++) {
        double weight = (double)check_head(&weights->rows[0], h)[0];   /* less than 1 if there is a sink */
        ok = same_part(c, part_of(kqv, h, 0), part_of(v, h / n_group, 0), kqv->rows[0].n, weight, UINT32_MAX, V_BOUND)
          && ok;
    }
    return ok;
}

void selfcheck_first(struct check *c, const struct plumb_trace *t) {
    uint32_t n_layer = 0, n_bad = 0;
    for (size_t k = 0; k < t->n_tap; k++) {
        int32_t il = t->taps[k].layer;
        if (t->taps[k].id != TAP_QCUR && t->taps[k].id != TAP_LATENT_Q) continue;
        const struct layer_plan *l = &c->model->plan.layers[il];
        if (!plan_attends(l) || !l->attn.is_causal) continue;   /* it sees more */
        bool is_known;
        n_layer++;
        n_bad += !check_first(c, t, il, &is_known);
        if (is_known) continue;
        check_set(c, VERDICT_SKIP, "layer %d: the heads cannot be compared", (int)il);
        return;
    }
    if (n_layer == 0) check_set(c, VERDICT_SKIP, "the pass has no attention");
    else if (n_bad == 0) check_set(c, VERDICT_OK, "in %u layers, RoPE rotates nothing, and attention returns V within "
                                   "%g", n_layer, V_BOUND);
    else check_set(c, VERDICT_FAIL, "wrong in %u of %u layers", n_bad, n_layer);
}

/* ---- latent attention -------------------------------------------------------------------------------------------- */

/* The fast pass rounds what it multiplies, and K and V, to 16 bits. */
#define ABSORBED_BOUND 0.003

/* The taps of a layer that attention in the plain form is computed from, and what the layer has computed absorbed. */
struct absorbed {
    const struct attn_plan *plan;
    const struct affine *w;
    const struct trace_tap *q, *q_roped, *latent, *k_roped, *out;
    uint32_t n;          /* tokens */
    /* Of one head, as the weights give it: (n, n_plain) and (n, v_dim).  scores: (n).  row: of a matrix, as floats, and
     * bytes (row_bytes). */
    double *k, *v, *scores;
    float *row;
    uint8_t *bytes;
};

static bool find_absorbed(const struct plumb_trace *t, int32_t il, struct absorbed *a) {
    a->q = trace_find_tap(t, TAP_LATENT_Q, il);
    a->q_roped = trace_find_tap(t, TAP_QCUR_ROPE, il);
    a->latent = trace_find_tap(t, TAP_LATENT, il);
    a->k_roped = trace_find_tap(t, TAP_KCUR_ROPE, il);
    a->out = trace_find_tap(t, TAP_KQV_OUT, il);
    if (!a->q || !a->q_roped || !a->latent || !a->k_roped || !a->out) return false;
    const struct latent_plan *l = &a->plan->latent;
    a->n = a->out->n_row;
    return has_shape(a->q, a->n, a->plan->n_head, l->n_plain + l->n_rotated)
        && has_shape(a->q_roped, a->n, a->plan->n_head, l->n_kv + l->n_rotated)
        && has_shape(a->latent, a->n, 1, l->n_kv) && has_shape(a->k_roped, a->n, 1, l->n_kv + l->n_rotated)
        && has_shape(a->out, a->n, a->plan->n_head, l->v_dim);
}

static bool allocate_absorbed(struct absorbed *a) {
    const struct latent_plan *l = &a->plan->latent;
    const struct weight *k_b = a->w[W_LATENT_K_B].w, *v_b = a->w[W_LATENT_V_B].w;
    a->k = alloc_array((uint64_t)a->n * l->n_plain, sizeof *a->k);
    a->v = alloc_array((uint64_t)a->n * l->v_dim, sizeof *a->v);
    a->scores = alloc_array(a->n, sizeof *a->scores);
    a->row = alloc_array(k_b->n_in > v_b->n_in ? k_b->n_in : v_b->n_in, sizeof *a->row);
    a->bytes = alloc_array(k_b->row_bytes > v_b->row_bytes ? k_b->row_bytes : v_b->row_bytes, 1);
    return a->k && a->v && a->scores && a->row && a->bytes;
}

static void free_absorbed(struct absorbed *a) {
    free(a->k);
    free(a->v);
    free(a->scores);
    free(a->row);
    free(a->bytes);
}

/* K = attn_k_b^T c and V = attn_v_b c of head h, for the latent vectors c of all tokens. */
static void unfold_head(struct absorbed *a, uint32_t h) {
    const struct latent_plan *l = &a->plan->latent;
    const struct weight k_b = weight_expert(a->w[W_LATENT_K_B].w, h), v_b = weight_expert(a->w[W_LATENT_V_B].w, h);
    memset(a->k, 0, (size_t)a->n * l->n_plain * sizeof *a->k);
    memset(a->v, 0, (size_t)a->n * l->v_dim * sizeof *a->v);
    for (uint32_t i = 0; i < l->n_kv; i++) {
        quant_dequantize(k_b.traits, weight_row(&k_b, i, a->bytes), a->row, l->n_plain);
        for (uint32_t p = 0; p < a->n; p++) {
            double c = (double)a->latent->rows[p].values[i], *k = a->k + (size_t)p * l->n_plain;
            for (uint32_t j = 0; j < l->n_plain; j++) k[j] += c * (double)a->row[j];
        }
    }
    for (uint32_t i = 0; i < l->v_dim; i++) {
        quant_dequantize(v_b.traits, weight_row(&v_b, i, a->bytes), a->row, l->n_kv);
        for (uint32_t p = 0; p < a->n; p++) {
            const float *c = a->latent->rows[p].values;
            for (uint32_t j = 0; j < l->n_kv; j++) a->v[(size_t)p * l->v_dim + i] += (double)a->row[j] * (double)c[j];
        }
    }
}

/* Adds the squared error of head h of token t to *d2, and the square of what it should be to *s2. */
static void add_head_error(struct absorbed *a, uint32_t t, uint32_t h, double *d2, double *s2) {
    const struct latent_plan *l = &a->plan->latent;
    const float *q = check_head(&a->q->rows[t], h), *q_roped = check_head(&a->q_roped->rows[t], h) + l->n_kv;
    const float *out = check_head(&a->out->rows[t], h);
    double top = -INFINITY, sum = 0, scale = (double)a->plan->scale;
    scale *= (double)plan_temperature(a->plan, a->q->rows[t].pos);
    for (uint32_t p = 0; p <= t; p++) {
        const double *k = a->k + (size_t)p * l->n_plain;
        const float *k_roped = a->k_roped->rows[p].values + l->n_kv;
        double score = 0;
        for (uint32_t j = 0; j < l->n_plain; j++) score += (double)q[j] * k[j];
        for (uint32_t j = 0; j < l->n_rotated; j++) score += (double)q_roped[j] * (double)k_roped[j];
        a->scores[p] = score * scale;
        top = fmax(top, a->scores[p]);
    }
    for (uint32_t p = 0; p <= t; p++) sum += a->scores[p] = exp(a->scores[p] - top);
    for (uint32_t i = 0; i < l->v_dim; i++) {
        double y = 0;
        for (uint32_t p = 0; p <= t; p++) y += a->scores[p] / sum * a->v[(size_t)p * l->v_dim + i];
        *d2 += (y - (double)out[i]) * (y - (double)out[i]);
        *s2 += y * y;
    }
}

void selfcheck_absorbed(struct check *c, const struct plumb_trace *t) {
    double worst = 0;
    uint32_t n_layer = 0;
    for (uint32_t il = 0; il < c->model->plan.n_layer && !c->out_of_memory; il++) {
        const struct layer_plan *layer = &c->model->plan.layers[il];
        struct absorbed a = { .plan = &layer->attn, .w = c->model->layers[il].w };
        if (!plan_attends(layer) || !layer->attn.latent.is_absorbed || !find_absorbed(t, (int32_t)il, &a)) continue;
        c->out_of_memory = !allocate_absorbed(&a);
        n_layer++;
        for (uint32_t h = 0; h < a.plan->n_head && !c->out_of_memory; h++) {
            double d2 = 0, s2 = 0;
            unfold_head(&a, h);
            for (uint32_t row = 0; row < a.n; row++) add_head_error(&a, row, h, &d2, &s2);
            double error = s2 > 0 ? sqrt(d2 / s2) : d2 > 0 ? INFINITY : 0;
            if (isnan(error)) error = INFINITY;
            worst = fmax(worst, error);
            if (error <= ABSORBED_BOUND) continue;
            check_detail(c, "kqv_out-%u: head %u: relative error %.2g against K and V of its own", il, h, error);
        }
        free_absorbed(&a);
    }
    if (n_layer == 0) check_set(c, VERDICT_SKIP, "attention is not absorbed in any layer");
    else if (c->n_detail == 0) check_set(c, VERDICT_OK, "in %u layers, heads that share one vector give what heads "
                                         "with K and V of their own give, within %.1g (bound %g)", n_layer, worst,
                                         ABSORBED_BOUND);
    else check_set(c, VERDICT_FAIL, "%u heads in %u layers differ from heads with K and V of their own", c->n_detail,
                   n_layer);
}

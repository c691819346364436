/* Checks whether the weights are where they belong, by properties that trained models have:
 *
 *   - RoPE rotates two rows of Q and K together, so training gives both similar lengths; rows of V are not rotated;
 *   - the weights of a norm change slowly from layer to layer.
 *
 * The bounds were tried on three models: SmolLM2 135M (Q4_1), Gemma 3 270M and Qwen2.5-Coder 1.5B (Q4_K_M).  The
 * comment on each bound gives the values that these have. */
#include "check/selfcheck.h"

#include "base/decimal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- pairs of rows ----------------------------------------------------------------------------------------------- */

/* The correlation of the lengths of two rows that RoPE rotates together, over all heads of a matrix. */
struct pairs {
    double own, other;   /* with the pairing of the architecture, and with the other one (plan.h) */
    double n;            /* pairs */
};

/* Accumulates a correlation. */
struct correlation { double n, x, y, xx, yy, xy; };

static void add_point(struct correlation *c, double x, double y) {
    c->n++;
    c->x += x;
    c->y += y;
    c->xx += x * x;
    c->yy += y * y;
    c->xy += x * y;
}

static double correlate(const struct correlation *c) {
    double xx = c->xx - c->x * c->x / c->n, yy = c->yy - c->y * c->y / c->n, xy = c->xy - c->x * c->y / c->n;
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

/* Measures the rows of a matrix of n_head heads of head_dim rows, of which n_rot are rotated.  Returns false if out of
 * memory. */
static bool measure_pairs(struct pairs *out, const struct weight *w, uint32_t head_dim, uint32_t n_rot,
                          enum rope_pairing pairing) {
    struct correlation sums[2] = { { 0 } };   /* by enum rope_pairing */
    float *row = alloc_array(w->n_in, sizeof *row);
    uint8_t *bytes = alloc_array(w->row_bytes, 1);
    double *level = alloc_array(head_dim, sizeof *level);   /* logarithms of the lengths, less their mean */
    bool ok = row && bytes && level;
    for (uint32_t first = 0; ok && first + head_dim <= w->n_out; first += head_dim) {
        double mean = 0;
        for (uint32_t r = 0; r < n_rot; r++) {
            double sum = 0;
            quant_dequantize(w->traits, weight_row(w, first + r, bytes), row, w->n_in);
            for (uint32_t i = 0; i < w->n_in; i++) sum += (double)row[i] * (double)row[i];
            level[r] = 0.5 * log(sum + 1e-20);
            mean += level[r] / n_rot;
        }
        for (uint32_t r = 0; r < n_rot; r++) level[r] -= mean;
        for (uint32_t i = 0; i < n_rot / 2; i++) {
            add_point(&sums[ROPE_NORM], level[2 * i], level[2 * i + 1]);
            add_point(&sums[ROPE_NEOX], level[i], level[i + n_rot / 2]);
        }
    }
    free(row);
    free(bytes);
    free(level);
    if (ok) *out = (struct pairs) { correlate(&sums[pairing]), correlate(&sums[!pairing]), sums[pairing].n };
    return ok;
}

/* Bounds of a correlation in which there is none, over n pairs: 5 standard deviations and a bit for a layer, 6 for the
 * mean over all layers.  V has at most 0.29 with 96 pairs (bound 0.56) and 0.26 with 128 (bound 0.49), and 0.03 in the
 * mean. */
static double bound_of_layer(double n) { return 0.05 + 5 / sqrt(n); }
static double bound_of_mean(double n) { return 0.1 + 6 / sqrt(n); }
/* By how much the correlation of V must exceed that of K, or that of the other pairing that of its own, in one layer.
 * In the three models these are at most 0.36 (in the first layer, where V is below its bound) and 0.25. */
#define FAR_LAYER 0.4

/* What was seen of a model: means over its layers, weighted by pairs. */
struct seen_pairs { double q_own, q_other, k_own, k_other, v_own, n_q, n_k; uint32_t n_layer; };

static bool add_layer(struct check *c, uint32_t il, struct seen_pairs *sum) {
    const struct attn_plan *a = &c->model->plan.layers[il].attn;
    const struct affine *w = c->model->layers[il].w;
    const struct weight *q = w[W_ATTN_Q].w, *k = w[W_ATTN_K].w, *v = w[W_ATTN_V].w;
    if (!q || !k || !v || a->rope == ROPE_NONE || a->k_dim != a->v_dim) return true;
    if (q->n_out != a->n_head * a->k_dim || k->n_out != a->n_head_kv * a->k_dim || v->n_out != k->n_out) return true;
    const struct rope_plan *rope = &c->model->plan.ropes[a->rope];
    struct pairs of_q, of_k, of_v;
    if (!measure_pairs(&of_q, q, a->k_dim, rope->n_rot, rope->pairing)
        || !measure_pairs(&of_k, k, a->k_dim, rope->n_rot, rope->pairing)
        || !measure_pairs(&of_v, v, a->k_dim, rope->n_rot, rope->pairing)) return false;
    if (of_v.own > bound_of_layer(of_v.n) && of_v.own - of_k.own > FAR_LAYER) {
        check_detail(c, "layer %u: attn_v has RoPE's pairs of rows (correlation %.2f), attn_k does not (%.2f): are "
                     "they exchanged?", il, of_v.own, of_k.own);
    }
    const struct pairs *const both[] = { &of_q, &of_k };
    for (size_t i = 0; i < 2; i++) {
        if (both[i]->other <= bound_of_layer(both[i]->n) || both[i]->other - both[i]->own <= FAR_LAYER) continue;
        check_detail(c, "layer %u: the rows of attn_%c have the pairs of %s (correlation %.2f), not those of this "
                     "architecture (%.2f): are they permuted?", il, "qk"[i],
                     rope->pairing == ROPE_NORM ? "halves" : "neighbours", both[i]->other, both[i]->own);
    }
    sum->q_own += of_q.own * of_q.n;
    sum->q_other += of_q.other * of_q.n;
    sum->n_q += of_q.n;
    sum->k_own += of_k.own * of_k.n;
    sum->k_other += of_k.other * of_k.n;
    sum->v_own += of_v.own * of_k.n;
    sum->n_k += of_k.n;
    sum->n_layer++;
    return true;
}

void selfcheck_pairs(struct check *c) {
    struct seen_pairs s = { 0 };
    enum { MIN_PAIRS = 256 };
    for (uint32_t il = 0; il < c->model->plan.n_layer && !c->out_of_memory; il++) {
        c->out_of_memory = !add_layer(c, il, &s);
    }
    if (s.n_k < (double)MIN_PAIRS) {
        check_set(c, VERDICT_SKIP, "%.0f pairs of rows that RoPE rotates in attn_k are too few to compare with attn_v "
                  "(at least %d)", s.n_k, (int)MIN_PAIRS);
        return;
    }
    s.q_own /= s.n_q;
    s.q_other /= s.n_q;
    s.k_own /= s.n_k;
    s.k_other /= s.n_k;
    s.v_own /= s.n_k;
    if (s.v_own - s.k_own > bound_of_mean(s.n_k)) {
        check_set(c, VERDICT_FAIL, "in %u layers the rows of attn_v have RoPE's pairs (mean correlation %.2f), those "
                  "of attn_k do not (%.2f): are K and V exchanged?", s.n_layer, s.v_own, s.k_own);
    } else if (s.q_other - s.q_own > bound_of_mean(s.n_q) || s.k_other - s.k_own > bound_of_mean(s.n_k)) {
        bool is_q = s.q_other - s.q_own > bound_of_mean(s.n_q);
        check_set(c, VERDICT_FAIL, "in %u layers the rows of attn_%c are in the order of the other kind of RoPE (mean "
                  "correlation of its pairs %.2f, of this architecture's %.2f): were they permuted?", s.n_layer,
                  is_q ? 'q' : 'k', is_q ? s.q_other : s.k_other, is_q ? s.q_own : s.k_own);
    } else if (c->n_detail > 0) {
        check_set(c, VERDICT_WARN, "%u matrices of Q, K or V have rows that are unlike those of the other layers",
                  c->n_detail);
    } else {
        check_set(c, VERDICT_OK, "rows that RoPE rotates together have similar lengths in Q and K, not in V: mean "
                  "correlations %.2f, %.2f and %.2f in %u layers", s.q_own, s.k_own, s.v_own, s.n_layer);
    }
}

/* ---- norms by depth ---------------------------------------------------------------------------------------------- */

enum { MIN_LAYERS = 8, MAX_LAYERS = 256, MAX_KINDS = 8 };

/* By what part an exchange of two layers may shorten the way through the layers.  In the three models no exchange
 * shortens it by more than 0.022.  Of 40 random exchanges in each, 80 to 90 % shorten it by more than 0.05 if they are
 * undone, and then that is the best exchange. */
#define MAX_GAIN 0.06
/* How much more similar a norm may be to the other kind of its neighbours than to its own.  In the three models this is
 * at most 0.07, in the first layer, and -0.5 to -0.45 in the mean. */
#define MAX_FOREIGN 0.25

/* A kind of norm that every layer has. */
struct kind {
    char name[64];
    double *rows;       /* (n_layer, n) logarithms of the weights, centred, of length 1; owned */
};

/* 1 minus the correlation of two layers' norms. */
static double distance(const struct kind *a, uint32_t i, const struct kind *b, uint32_t j, uint64_t n) {
    double sum = 0;
    for (uint64_t k = 0; k < n; k++) sum += a->rows[i * n + k] * b->rows[j * n + k];
    return 1 - sum;
}

/* Reads the norm `rest` (".attn_norm.weight") of all layers.  Returns false if a layer lacks it, or if its weights are
 * not n F32 or are all equal; or if out of memory. */
static bool read_kind(struct check *c, struct kind *kind, const char *rest, const struct tensor_stats *stats, size_t n,
                      uint32_t n_layer, uint64_t n_value) {
    snprintf(kind->name, sizeof kind->name, "%.*s", (int)(strlen(rest + 1) - strlen(".weight")), rest + 1);
    kind->rows = alloc_array(n_layer * n_value, sizeof *kind->rows);
    c->out_of_memory |= !kind->rows;
    uint32_t n_found = 0;
    for (size_t i = 0; kind->rows && i < n; i++) {
        uint32_t layer;
        const char *other;
        const struct gguf_tensor *t = stats[i].tensor;
        if (!selfcheck_in_layer(t, &layer, &other) || strcmp(rest, other) != 0 || layer >= n_layer) continue;
        if (t->type != QUANT_F32 || t->n_elements != n_value || stats[i].n_nan + stats[i].n_inf > 0) break;
        double *row = kind->rows + layer * n_value, mean = 0, length = 0;
        for (uint64_t k = 0; k < n_value; k++) {
            row[k] = log(fabs((double)f32_from_bits(load_u32(t->data + 4 * k))) + 1e-6 * stats[i].rms + 1e-30);
            mean += row[k] / (double)n_value;
        }
        for (uint64_t k = 0; k < n_value; k++) length += (row[k] - mean) * (row[k] - mean);
        if (!(length > 1e-6)) break;
        for (uint64_t k = 0; k < n_value; k++) row[k] = (row[k] - mean) / sqrt(length);
        n_found++;
    }
    return n_found == n_layer;
}

/* Adds, for every two layers, by what part the way through all layers would be shorter if they were exchanged.  table:
 * (n_layer, n_layer) scratch.  gains: (n_layer, n_layer). */
static void add_gains(const struct kind *kind, uint32_t n_layer, uint64_t n, double share, double *table,
                      double *gains) {
    double way = 0;
    for (uint32_t i = 0; i < n_layer; i++) {
        for (uint32_t j = 0; j < n_layer; j++) table[i * n_layer + j] = i == j ? 0 : distance(kind, i, kind, j, n);
    }
    for (uint32_t i = 0; i + 1 < n_layer; i++) way += table[i * n_layer + i + 1];
    for (uint32_t i = 0; i < n_layer; i++) {
        for (uint32_t j = i + 1; j < n_layer; j++) {
            const uint32_t steps[] = { i - 1, i, j - 1, j };   /* from each of these to the next; -1 wraps */
            double gain = 0;
            for (size_t k = 0; k < 4; k++) {
                uint32_t from = steps[k], to = from + 1;
                if (from >= n_layer || to >= n_layer || (k == 2 && from == i)) continue;
                uint32_t from_now = from == i ? j : from == j ? i : from, to_now = to == i ? j : to == j ? i : to;
                gain += table[from * n_layer + to] - table[from_now * n_layer + to_now];
            }
            gains[i * n_layer + j] += share * gain / way;
        }
    }
}

/* Returns by how much the norms a and b of a layer are more similar to the other kind of the four nearest layers than
 * to their own. */
static double foreign(const struct kind *a, const struct kind *b, uint32_t il, uint32_t n_layer, uint64_t n) {
    double sum = 0;
    uint32_t n_near = 0;
    for (uint32_t near = il < 2 ? 0 : il - 2; near <= il + 2 && near < n_layer; near++) {
        if (near == il) continue;
        sum += distance(a, il, a, near, n) + distance(b, il, b, near, n);
        sum -= distance(a, il, b, near, n) + distance(b, il, a, near, n);
        n_near++;
    }
    return sum / n_near;
}

/* The two layers whose exchange makes the norms of all kinds change most slowly. */
struct exchange { double gain; uint32_t i, j; };

static struct exchange best_exchange(struct check *c, const struct kind *kinds, uint32_t n_kind, uint32_t n_layer,
                                     uint64_t n) {
    struct exchange best = { 0 };
    double *table = alloc_array((uint64_t)n_layer * n_layer, sizeof *table);
    double *gains = alloc_array((uint64_t)n_layer * n_layer, sizeof *gains);
    c->out_of_memory |= !table || !gains;
    if (!c->out_of_memory) {
        memset(gains, 0, (size_t)n_layer * n_layer * sizeof *gains);
        for (uint32_t k = 0; k < n_kind; k++) add_gains(&kinds[k], n_layer, n, 1.0 / n_kind, table, gains);
        for (uint32_t i = 0; i < n_layer; i++) {
            for (uint32_t j = i + 1; j < n_layer; j++) {
                double gain = gains[i * n_layer + j];
                if (gain > best.gain) best = (struct exchange) { gain, i, j };
            }
        }
    }
    free(table);
    free(gains);
    return best;
}

/* Judges norms that were read.  Sets the verdict. */
static void judge_depth(struct check *c, const struct kind *kinds, uint32_t n_kind, uint32_t n_layer, uint64_t n) {
    struct exchange best = best_exchange(c, kinds, n_kind, n_layer, n);
    double most = -INFINITY;
    for (uint32_t a = 0; a < n_kind; a++) {
        for (uint32_t b = a + 1; b < n_kind; b++) {
            for (uint32_t il = 0; il < n_layer; il++) {
                double excess = foreign(&kinds[a], &kinds[b], il, n_layer, n);
                most = fmax(most, excess);
                if (excess <= MAX_FOREIGN) continue;
                check_detail(c, "layer %u: %s and %s are more similar to each other's neighbours than to their own by "
                             "%.2f (bound %g): are they exchanged?", il, kinds[a].name, kinds[b].name, excess,
                             MAX_FOREIGN);
            }
        }
    }
    if (best.gain > MAX_GAIN) {
        check_detail(c, "layers %u and %u: with the norms of one in the place of the other's, all norms change more "
                     "slowly with depth, by %.0f %% (bound %.0f %%): are the layers exchanged?", best.i, best.j,
                     100 * best.gain, 100 * MAX_GAIN);
    }
    if (c->n_detail > 0) {
        check_set(c, VERDICT_WARN, "the norms of %u layers are not like those of their neighbours", n_layer);
    } else {
        check_set(c, VERDICT_OK, "%u kinds of norms in %u layers are most like those of the next layers: no exchange "
                  "of two layers would shorten the way through them by more than %.1f %% (bound %.0f %%)", n_kind,
                  n_layer, 100 * best.gain, 100 * MAX_GAIN);
    }
}

void selfcheck_depth(struct check *c, const struct tensor_stats *stats, size_t n) {
    struct kind kinds[MAX_KINDS];
    uint32_t n_kind = 0, layer, n_layer = 0;
    uint64_t n_value = 0;
    const char *rest;
    for (size_t i = 0; i < n; i++) {
        if (selfcheck_in_layer(stats[i].tensor, &layer, &rest) && layer >= n_layer) n_layer = layer + 1;
        if (strcmp(stats[i].tensor->name.data, "output_norm.weight") == 0) n_value = stats[i].tensor->n_elements;
    }
    for (size_t i = 0; i < n && n_layer >= MIN_LAYERS && n_layer <= MAX_LAYERS && n_value > 0; i++) {
        const struct gguf_tensor *t = stats[i].tensor;
        bool is_kind = selfcheck_in_layer(t, &layer, &rest) && layer == 0 && gguf_name_ends(t, "norm.weight");
        if (!is_kind || t->n_elements != n_value || n_kind == MAX_KINDS) continue;
        if (read_kind(c, &kinds[n_kind], rest, stats, n, n_layer, n_value)) n_kind++;
        else free(kinds[n_kind].rows);
    }
    if (n_kind < 2) check_set(c, VERDICT_SKIP, "fewer than 2 kinds of norms as wide as the model, with different "
                              "weights, in %d to %d layers", MIN_LAYERS, MAX_LAYERS);
    else judge_depth(c, kinds, n_kind, n_layer, n_value);
    for (uint32_t i = 0; i < n_kind; i++) free(kinds[i].rows);
}

/* Measures what attention did with Q and K (Vaswani et al. 2017, "Attention Is All You Need", eq. 1).  The logarithm of
 * an attention weight is the score less a number of the row, so the weights of a row say what the scores were.
 *
 *   keys: those with a weight other than 0 are seen: mask, window
 *   scores: a line through the logarithms and the dot products of Q and K has the scale as its slope; a softcap bends
 *       it
 *   sums: e^score / weight is the sum that the softmax divided by: zeros or sinks that take part, the axis
 *   K: the head, slot, order or activation whose dot products lie on the line
 */
#include "diagnose/fit_heads.h"

#include "reference/softmax.h"
#include "trace/report.h"

#include <math.h>
#include <stdio.h>

/* LINE_WEIGHTS: of how many weights a line takes account; it leaves out tokens if there are more.
 * PRODUCTS: other K are tried if the dot products of a layer have at most this many products. */
enum { LINE_WEIGHTS = 1 << 17, PRODUCTS = 1 << 28 };

/* How weights are made of scores. */
enum form {
    WEIGHTS_SOFTMAX,
    WEIGHTS_MASK_LATE,   /* the keys that are not seen take part in the sum */
    WEIGHTS_OVER_QUERIES, WEIGHTS_OVER_HEADS,
    WEIGHTS_NO_SUM,      /* e^(score - max) */
    WEIGHTS_EXP,         /* e^score */
    WEIGHTS_SCORES,
    WEIGHTS_TWICE,
    N_WEIGHTS
};

struct attention {
    struct fit *f;
    const struct attn_plan *plan;
    struct fit_rows q, k;
    uint32_t n_token, n_head, n_kv, n_key, dim;
    const float *sinks;        /* (n_head) or NULL */
    uint32_t *right_heads;     /* (n_head) the head of K of each head of Q */
    double *right_dots, *dots; /* (n_token, n_head, n_key) of Q and K */
    bool *right_seen, *seen;   /* (n_token, n_key) */
    uint32_t *slots;           /* (n_token, n_key) of a hypothesis: see multiply */
    double *y;                 /* (n_token, n_head, n_key) */
    double right_scale;
};

/* A hypothesis. */
struct way {
    const double *dots;
    const bool *seen;
    double scale, softcap;   /* softcap 0: none */
    const double *times;     /* (n_token) further factors of the dot products; NULL: there are none */
    double alibi;            /* the right slopes are multiplied by it */
    double extra, slots;     /* keys with a score of 0 that take part in each sum: as many, or so many that there are
                              * `slots` keys; 0: none */
    double hidden;           /* what is added to the scores of keys that are not seen; 0: they are not computed */
    bool has_sinks;
    enum form form;
};

static struct way right_way(const struct attention *a) {
    return (struct way){ .dots = a->right_dots, .seen = a->right_seen, .scale = a->right_scale,
                         .softcap = (double)a->plan->softcap, .alibi = 1, .has_sinks = a->sinks != NULL };
}


static uint32_t filled(const struct attention *a, uint32_t pos) { return fit_filled(a->f, pos, a->n_key); }

static uint32_t pos_of(const struct attention *a, uint32_t t) { return a->f->theirs.pos[t]; }
static const float *weights_of(const struct attention *a, uint32_t t, uint32_t h) {
    return a->f->theirs.x + ((size_t)t * a->n_head + h) * a->n_key;
}
static bool is_wrong(const struct attention *a, uint32_t t, uint32_t h) {
    return a->f->wrong[(size_t)t * a->n_head + h];
}

/* ---- hypotheses -------------------------------------------------------------------------------------------------- */

static double bend(double score, double softcap) { return softcap != 0 ? softcap * tanh(score / softcap) : score; }

static double score_of(const struct attention *a, const struct way *w, uint32_t t, uint32_t h, uint32_t j) {
    double dot = w->dots[((size_t)t * a->n_head + h) * a->n_key + j] * (w->times ? w->times[t] : 1);
    double distance = fabs((double)pos_of(a, t) - j), slope = (double)plan_alibi_slope(a->plan, h);
    bool is_hidden = !w->seen[(size_t)t * a->n_key + j];
    return bend(dot * w->scale, w->softcap) - w->alibi * slope * distance + (is_hidden ? w->hidden : 0);
}

/* Writes the weights of a hypothesis to a->y. */
static void weigh(const struct attention *a, const struct way *w) {
    uint32_t n_key = a->n_key;
    bool all = w->form == WEIGHTS_MASK_LATE || w->hidden != 0;
    for (uint32_t t = 0; t < a->n_token; t++) {
        uint32_t n = filled(a, pos_of(a, t));
        const bool *seen = w->seen + (size_t)t * n_key;
        for (uint32_t h = 0; h < a->n_head; h++) {
            double *row = a->y + ((size_t)t * a->n_head + h) * n_key, max = -INFINITY;
            for (uint32_t j = 0; j < n_key; j++) {
                row[j] = j < n && (all || seen[j]) ? score_of(a, w, t, h, j) : -INFINITY;
                max = fmax(max, row[j]);
            }
            switch (w->form) {
            case WEIGHTS_OVER_QUERIES: case WEIGHTS_OVER_HEADS: break;
            case WEIGHTS_SCORES:
                for (uint32_t j = 0; j < n_key; j++) row[j] = row[j] == -INFINITY ? 0 : row[j];
                break;
            case WEIGHTS_NO_SUM: case WEIGHTS_EXP:
                for (uint32_t j = 0; j < n_key; j++) row[j] = exp(row[j] - (w->form == WEIGHTS_EXP ? 0 : max));
                break;
            default:
                softmax_with(row, n_key, 1, (struct softmax_sum){
                    w->has_sinks ? (double)a->sinks[h] : -INFINITY,
                    w->slots > 0 ? w->slots - pos_of(a, t) - 1 : w->extra, -INFINITY, softmax_exp });
                for (uint32_t j = 0; w->form == WEIGHTS_MASK_LATE && j < n_key; j++) row[j] = seen[j] ? row[j] : 0;
                if (w->form != WEIGHTS_TWICE) break;
                for (uint32_t j = 0; j < n_key; j++) row[j] = seen[j] ? row[j] : -INFINITY;
                softmax(row, n_key, 1);
            }
        }
    }
    size_t n_column = (size_t)a->n_head * n_key, n_row = (size_t)a->n_token * n_key;
    for (size_t i = 0; w->form == WEIGHTS_OVER_HEADS && i < n_row; i++) {
        softmax(a->y + i / n_key * n_column + i % n_key, a->n_head, n_key);
    }
    for (uint32_t first = 0, end; w->form == WEIGHTS_OVER_QUERIES && first < a->n_token; first = end) {   /* batches */
        for (end = first + 1; end < a->n_token && pos_of(a, end) < a->f->n_prompt; end++);
        for (size_t i = 0; i < n_column; i++) {
            softmax(a->y + first * n_column + i, end - first, n_column);
        }
    }
}

#define propose(a, w, cost, ...) (weigh(a, w), fit_propose((a)->f, cost, (a)->y, __VA_ARGS__))

/* Fills dots.  heads (n_head): the head of K for each head of Q; n_kv: zeros.  slots (n_token, n_key): the slot that is
 * read for each token and key; n_key or more: zeros.  Both may be NULL.  n: how many elements are multiplied. */
static void multiply(const struct attention *a, const struct fit_rows *q, const struct fit_rows *k,
                     const uint32_t *heads, const uint32_t *slots, uint32_t n, double *dots) {
    for (uint32_t t = 0; t < a->n_token; t++) {
        for (uint32_t h = 0; h < a->n_head; h++) {
            const float *x = fit_row(q, t) + (size_t)h * a->dim;
            for (uint32_t j = 0; j < a->n_key; j++) {
                uint32_t slot = slots ? slots[(size_t)t * a->n_key + j] : j, g = heads ? heads[h] : a->right_heads[h];
                double dot = 0;
                for (uint32_t i = 0; slot < a->n_key && g < k->n_head && i < n; i++) {
                    dot += (double)x[i] * (double)fit_row(k, slot)[(size_t)g * a->dim + i];
                }
                dots[((size_t)t * a->n_head + h) * a->n_key + j] = dot;
            }
        }
    }
}

/* Fills a->dots with K in another order.  is_whole: of all tokens; otherwise of those that are there when a token
 * attends. */
static void multiply_in_order(const struct attention *a, enum cache_order order, bool is_whole) {
    for (uint32_t t = 0; t < a->n_token; t++) {
        uint32_t n = is_whole ? a->n_key : filled(a, pos_of(a, t));
        for (uint32_t h = 0; h < a->n_head; h++) {
            const float *x = fit_row(&a->q, t) + (size_t)h * a->dim;
            for (uint32_t j = 0; j < a->n_key; j++) {
                double dot = 0;
                for (uint32_t i = 0; j < n && i < a->dim; i++) {
                    size_t from = cache_place(order, n, a->n_kv, a->n_head / a->n_kv, a->dim, j, a->right_heads[h], i);
                    if (from != SIZE_MAX) dot += (double)x[i] * (double)a->k.x[from];
                }
                a->dots[((size_t)t * a->n_head + h) * a->n_key + j] = dot;
            }
        }
    }
}

/* ---- lines through logarithms ------------------------------------------------------------------------------------ */

/* A line, and the sum of the squared distances from it. */
struct line { double slope, error2; };

/* Of a row and a key: ln(weight) - known = slope * x, but for a number of the row. */
struct terms { double x, known; };
typedef struct terms line_terms(const struct attention *a, const struct way *w, uint32_t t, uint32_t h, uint32_t j);

/* Tokens and heads, up to those before the ends. */
struct part { uint32_t t, t_end, h, h_end; };
static struct part all_heads(const struct attention *a) { return (struct part){ 0, a->n_token, 0, a->n_head }; }

/* Fits a line to the rows of a part that are wrong.  A key counts as much as its weight.  If slope is NAN, finds the
 * best one. */
static struct line fit_line(const struct attention *a, const struct way *w, struct part part, line_terms *terms,
                            double slope) {
    double xx = 0, xy = 0, yy = 0;
    uint32_t n_row = part.t_end - part.t, every = (uint32_t)((uint64_t)n_row * a->n_head * a->n_key / LINE_WEIGHTS) + 1;
    for (uint32_t i = n_row - 1; i < n_row; i -= every) {   /* ends when i wraps around */
        uint32_t t = part.t + i;
        for (uint32_t h = part.h; h < part.h_end; h++) {
            const float *weights = weights_of(a, t, h);
            double n = 0, x = 0, y = 0, sx = 0, sy = 0, sxy = 0;
            for (uint32_t j = 0; j < a->n_key && is_wrong(a, t, h); j++) {
                double weight = (double)weights[j];
                if (!(weight > 1e-7) || !(weight < INFINITY) || !w->seen[(size_t)t * a->n_key + j]) continue;
                struct terms of = terms(a, w, t, h, j);
                double l = log(weight) - of.known;
                n += weight;
                x += weight * of.x;
                y += weight * l;
                sx += weight * of.x * of.x;
                sy += weight * l * l;
                sxy += weight * of.x * l;
            }
            if (!(n > 0)) continue;
            xx += sx - x * x / n;
            yy += sy - y * y / n;
            xy += sxy - x * y / n;
        }
    }
    struct line line = { .slope = isnan(slope) ? xx > 0 ? xy / xx : 0 : slope };
    line.error2 = fmax(yy - 2 * line.slope * xy + line.slope * line.slope * xx, 0);
    return line;
}

static struct terms by_dot(const struct attention *a, const struct way *w, uint32_t t, uint32_t h, uint32_t j) {
    double dot = w->dots[((size_t)t * a->n_head + h) * a->n_key + j];
    return (struct terms){ dot, score_of(a, w, t, h, j) - bend(dot * w->scale, w->softcap) };
}
static struct terms by_score(const struct attention *a, const struct way *w, uint32_t t, uint32_t h, uint32_t j) {
    return (struct terms){ score_of(a, w, t, h, j), 0 };
}
static struct terms by_slope(const struct attention *a, const struct way *w, uint32_t t, uint32_t h, uint32_t j) {
    double with = score_of(a, w, t, h, j);
    struct way none = *w;
    none.alibi = 0;
    double without = score_of(a, &none, t, h, j);
    return (struct terms){ with - without, without };
}

/* How far the logarithms are from a hypothesis with these two numbers. */
static double curve_error(const struct attention *a, struct way *w, double scale, double softcap) {
    w->scale = scale;
    w->softcap = softcap;
    return fit_line(a, w, all_heads(a), by_score, 1).error2;
}

/* Finds the minimum of curve_error over the logarithm of one number, from 1/1000 to 1000 times start. */
static double search(const struct attention *a, struct way *w, double start, double other, bool is_softcap) {
    double best = 0, least = INFINITY, step = log(1000) / 40;
    for (int i = -40; i <= 40; i++) {
        double x = start * exp(step * i), e = is_softcap ? curve_error(a, w, other, x) : curve_error(a, w, x, other);
        if (e < least) least = e, best = step * i;
    }
    double low = best - step, high = best + step;
    for (int i = 0; i < 40; i++) {
        double x1 = low + (high - low) / 3, x2 = high - (high - low) / 3, y1 = start * exp(x1), y2 = start * exp(x2);
        double e1 = is_softcap ? curve_error(a, w, other, y1) : curve_error(a, w, y1, other);
        double e2 = is_softcap ? curve_error(a, w, other, y2) : curve_error(a, w, y2, other);
        if (e1 < e2) high = x2;
        else low = x1;
    }
    return start * exp((low + high) / 2);
}

/* ---- the scale, the softcap, ALiBi ------------------------------------------------------------------------------- */

static void try_scale(struct attention *a, struct way w, double scale) {
    const struct plan *p = &a->f->model->plan;
    double right = a->right_scale, dim = a->dim, n_embd = p->n_embd, n_head = a->n_head;
    const struct { double scale; const char *name, *why; } named[] = {
        { 1, "", ": they are not scaled" }, { 1 / dim, " = 1 / head_dim", "" },
        { 1 / sqrt(dim), " = 1 / sqrt(head_dim)", "" }, { 1 / sqrt(n_embd), " = 1 / sqrt(n_embd)", "" },
        { 1 / n_embd, " = 1 / n_embd", "" }, { 1 / sqrt(n_head), " = 1 / sqrt(n_head)", "" },
        { 1 / sqrt(dim / 2), " = 1 / sqrt(head_dim / 2)", "" }, { 1 / sqrt(2 * dim), " = 1 / sqrt(2 head_dim)", "" },
        { sqrt(dim), " = sqrt(head_dim)", "" }, { right * right, "", ": the scale is applied twice" },
        { -right, "", ": the sign is wrong" }, { right * log(2), "", ": the exponentials are of base 2" },
        { right / log(2), "", ": log2(e) is multiplied in, and the exponentials are of base e" },
    };
    struct way of = w;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if (!fit_is_near(scale, named[i].scale, 5e-3) || fit_is_near(named[i].scale, right, 1e-5)) continue;
        of.scale = named[i].scale;
        propose(a, &of, 0, "has dot products of Q and K times %.6g%s, not times %.6g%s", named[i].scale,
                named[i].name, right, named[i].why);
    }
    of.scale = scale;
    if (!fit_is_near(scale, right, 1e-6)) {
        propose(a, &of, 1, "has dot products of Q and K times %.6g, not times %.6g", scale, right);
    }
}

static void try_scores(struct attention *a) {
    struct way w = right_way(a);
    double cap = (double)a->plan->softcap;
    if (cap == 0) try_scale(a, w, fit_line(a, &w, all_heads(a), by_dot, (double)NAN).slope);
    else try_scale(a, w, search(a, &w, a->right_scale, cap, false));
    w = right_way(a);
    w.softcap = 0;
    if (cap != 0) {
        propose(a, &w, 0, "has scores without a softcap; the right one is %.6g", cap);
        w.scale = fit_line(a, &w, all_heads(a), by_dot, (double)NAN).slope;
        propose(a, &w, 2, "has scores without a softcap, and dot products of Q and K times %.6g, not times %.6g",
                w.scale, a->right_scale);
    }
    w = right_way(a);
    double theirs = fit_nearest(1000 * search(a, &w, cap != 0 ? cap : 10, a->right_scale, true)) / 1000;
    w = right_way(a);
    w.softcap = theirs;
    bool is_whole = fit_is_near(theirs, fit_nearest(theirs), 2e-3) && theirs > 1;
    if (is_whole) w.softcap = fit_nearest(theirs);
    char right[40] = "";
    if (cap != 0) snprintf(right, sizeof right, ", not %.6g", cap);
    if (theirs > 0 && w.softcap != cap) propose(a, &w, is_whole ? 0 : 1, "has scores with a softcap of %.6g%s",
                                                w.softcap, right);
    w = right_way(a);
    if (a->plan->alibi == 0) return;
    double factor = fit_line(a, &w, all_heads(a), by_slope, (double)NAN).slope;
    w.alibi = fit_nearest(factor);
    if (w.alibi == 0) propose(a, &w, 0, "has scores without ALiBi");
    else if (w.alibi == -1) propose(a, &w, 0, "has scores to which ALiBi is added, not subtracted");
    w.alibi = factor;
    if (!fit_is_near(factor, 1, 1e-5)) propose(a, &w, 1, "has ALiBi's slopes times %.6g", factor);
}

/* A factor of Q for each token, as of a temperature that grows with the position. */
static void try_temperature(struct attention *a) {
    struct way w = right_way(a);
    double *times = fit_new(a->f, a->n_token, sizeof *times), low = INFINITY, high = -INFINITY;
    for (uint32_t t = 0; times && t < a->n_token; t++) {
        double slope = fit_line(a, &w, (struct part){ t, t + 1, 0, a->n_head }, by_score, (double)NAN).slope;
        times[t] = slope != 0 ? slope : 1;
        low = fmin(low, times[t]), high = fmax(high, times[t]);
    }
    if (!times || !(high > low)) return;
    w.times = times;
    propose(a, &w, a->n_token, "has queries times a factor of each token, from %.4g to %.4g, as of a temperature that "
            "grows with the position", low, high);
}

/* ---- which keys are seen ----------------------------------------------------------------------------------------- */

/* What a token sees, in steps from its own position: keys from `first` on and before `end`. */
struct span { int64_t first, end; };

static struct span right_span(const struct attention *a, uint32_t pos) {
    const struct attn_plan *p = a->plan;
    bool is_causal = a->f->model->plan.is_causal;
    struct span s = { 0, is_causal ? (int64_t)pos + 1 : filled(a, pos) };
    if (p->window == 0) return s;
    if (p->is_symmetric) {
        s.first = (int64_t)pos - p->window / 2;
        if (s.end > (int64_t)pos + p->window / 2 + 1) s.end = (int64_t)pos + p->window / 2 + 1;
    } else {
        s.first = p->is_chunked ? pos - pos % p->window : (int64_t)pos - p->window + 1;
    }
    return s;
}

static void set_seen(const struct attention *a, bool *seen, uint32_t t, struct span s) {
    for (uint32_t j = 0; j < a->n_key; j++) {
        seen[(size_t)t * a->n_key + j] = (int64_t)j >= s.first && (int64_t)j < s.end && j < filled(a, pos_of(a, t));
    }
}

/* The spans of the first key that they see and the key after the last one; both are 0 if they see none. */
static struct span their_span(const struct attention *a, uint32_t t) {
    struct span s = { 0, 0 };
    for (uint32_t j = 0; j < a->n_key; j++) {
        bool any = false;
        for (uint32_t h = 0; h < a->n_head; h++) any |= is_wrong(a, t, h) && (double)weights_of(a, t, h)[j] != 0;
        if (!any) continue;
        if (s.end == 0) s.first = j;
        s.end = (int64_t)j + 1;
    }
    return s;
}

/* Proposes the keys in a->seen, for scores that are right. */
static void propose_seen(struct attention *a, uint32_t cost, const char *text) {
    struct way w = right_way(a);
    w.seen = a->seen;
    propose(a, &w, cost, "%s", text);
}

static void try_windows(struct attention *a) {
    uint32_t right = a->plan->window, n_windows = 0, window = 0, chunk = 0;
    bool is_one = true;
    char text[160], was[40] = "there is none";
    for (uint32_t t = 0; t < a->n_token; t++) {
        struct span s = their_span(a, t);
        uint32_t pos = pos_of(a, t);
        if (s.end == 0 || s.first == 0 || s.first > pos) continue;
        uint32_t own = pos - (uint32_t)s.first + 1;
        is_one &= n_windows == 0 || own == window;
        window = own;
        n_windows++;
        if (chunk == 0) chunk = (uint32_t)s.first;   /* the first chunk after that of token 0 begins at its length */
    }
    if (right > 0) snprintf(was, sizeof was, "the right one is %u", right);
    for (int kind = 0; kind < 3; kind++) {   /* none; a window; a chunk */
        bool is_possible = kind == 0 ? right > 0 : kind == 1 ? is_one && n_windows > 0 : chunk > 0;
        if (!is_possible) continue;
        for (uint32_t t = 0; t < a->n_token; t++) {
            struct span s = right_span(a, pos_of(a, t));
            uint32_t pos = pos_of(a, t);
            s.first = kind == 0 ? 0 : kind == 1 ? (int64_t)pos - window + 1 : (int64_t)(pos - pos % chunk);
            set_seen(a, a->seen, t, s);
        }
        if (kind == 0) snprintf(text, sizeof text, "has no window: %s", was);
        else if (kind == 1) snprintf(text, sizeof text, "has a window of %u tokens: %s", window, was);
        else snprintf(text, sizeof text, "has chunks of %u tokens: the right window is %u", chunk, right);
        propose_seen(a, 0, text);
    }
}

static void try_masks(struct attention *a) {
    bool is_causal = a->f->model->plan.is_causal;
    char text[200];
    for (int64_t by = -2; by <= 2; by++) {
        for (uint32_t t = 0; t < a->n_token && by != 0; t++) {
            struct span s = right_span(a, pos_of(a, t));
            s.end = (int64_t)pos_of(a, t) + 1 + by;
            if (s.end < 1) s.end = 1;
            set_seen(a, a->seen, t, s);
        }
        if (by == -1) snprintf(text, sizeof text, "has weights of earlier tokens only: a token does not see itself");
        else snprintf(text, sizeof text, "has a mask that hides the tokens from p %c %d on from the token at p, not "
                      "from p + 1 on", by < -1 ? '-' : '+', (int)(by < -1 ? -by - 1 : by + 1));
        if (by != 0 && is_causal) propose_seen(a, 0, text);
    }
    for (uint32_t t = 0; t < a->n_token; t++) {
        struct span s = right_span(a, pos_of(a, t));
        s.end = is_causal ? filled(a, pos_of(a, t)) : (int64_t)pos_of(a, t) + 1;
        set_seen(a, a->seen, t, s);
    }
    propose_seen(a, 0, is_causal ? "has no mask: a token sees the later tokens of its batch too"
                                 : "has a causal mask: a token does not see the later ones");
    for (uint32_t t = 0; t < a->n_token; t++) {
        struct span s = right_span(a, pos_of(a, t));
        set_seen(a, a->seen, t, pos_of(a, t) < a->f->n_prompt ? s : (struct span){ 0, s.end - 1 });
    }
    propose_seen(a, 0, "has no weight of the token itself after the prompt: its K is not there yet");
    /* Whatever they see. */
    uint32_t n_other = 0, at_token = 0, at_key = 0;
    bool is_extra = false;
    for (uint32_t t = 0; t < a->n_token; t++) {
        for (uint32_t j = 0; j < a->n_key; j++) {
            bool any = false, right = a->right_seen[(size_t)t * a->n_key + j], is_judged = false;
            for (uint32_t h = 0; h < a->n_head; h++) {
                is_judged |= is_wrong(a, t, h);
                any |= is_wrong(a, t, h) && (double)weights_of(a, t, h)[j] != 0;
            }
            any = is_judged ? any : right;
            a->seen[(size_t)t * a->n_key + j] = any;
            if (any == right) continue;
            if (n_other++ == 0) at_token = pos_of(a, t), at_key = j, is_extra = any;
        }
    }
    if (n_other == 0) return;
    snprintf(text, sizeof text, "has other keys: token %u %s token %u, as the first of %u differences", at_token,
             is_extra ? "sees" : "does not see", at_key, n_other);
    propose_seen(a, n_other < 4 ? n_other : 4, text);
}

/* A mask that makes scores smaller, but not small enough. */
static void try_finite_mask(struct attention *a) {
    struct way w = right_way(a);
    double hidden = 0, n_hidden = 0;
    for (uint32_t t = 0; t < a->n_token; t++) {
        for (uint32_t h = 0; h < a->n_head; h++) {
            const float *weights = weights_of(a, t, h);
            double row = 0, n_row = 0;
            for (uint32_t j = 0; j < a->n_key && is_wrong(a, t, h); j++) {
                if (!a->right_seen[(size_t)t * a->n_key + j] || !(weights[j] > 0)) continue;
                row += (double)weights[j] * (log((double)weights[j]) - score_of(a, &w, t, h, j));
                n_row += (double)weights[j];
            }
            for (uint32_t j = 0; j < filled(a, pos_of(a, t)) && n_row > 0; j++) {
                if (a->right_seen[(size_t)t * a->n_key + j] || !(weights[j] > 0)) continue;
                hidden += log((double)weights[j]) - score_of(a, &w, t, h, j) - row / n_row;
                n_hidden++;
            }
        }
    }
    if (n_hidden == 0) return;
    w.hidden = hidden / n_hidden;
    if (fit_is_near(w.hidden, fit_nearest(w.hidden), 2e-3)) w.hidden = fit_nearest(w.hidden);
    if (w.hidden == 0) return;
    propose(a, &w, 1, "has keys that the mask should hide: it only adds %.6g to their scores", w.hidden);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static void try_sums(struct attention *a) {
    static const char *const texts[N_WEIGHTS] = {
        [WEIGHTS_MASK_LATE] = "has sums over all tokens of the batch: the mask is applied after the softmax",
        [WEIGHTS_OVER_QUERIES] = "has sums over the queries of a batch, not over the keys",
        [WEIGHTS_OVER_HEADS] = "has sums over the heads, not over the keys",
        [WEIGHTS_NO_SUM] = "is e^(score - max), not divided by the sum",
        [WEIGHTS_EXP] = "is e^score, not divided by the sum",
        [WEIGHTS_SCORES] = "is the scores, without a softmax",
        [WEIGHTS_TWICE] = "is the softmax of the softmax",
    };
    struct way w = right_way(a);
    for (int form = 1; form < N_WEIGHTS; form++) {
        w.form = (enum form)form;
        propose(a, &w, 0, "%s", texts[form]);
    }
    w = right_way(a);
    w.has_sinks = false;
    if (a->sinks) propose(a, &w, 0, "has no attention sinks in its sums");
    /* The weights of a row are smaller than they should be by the ratio of the sums. */
    double extra = 0, n = 0, low = INFINITY, high = -INFINITY, slots = 0;
    w = right_way(a);
    for (uint32_t t = 0; t < a->n_token; t++) {
        for (uint32_t h = 0; h < a->n_head; h++) {
            double theirs = 0, sum = 0;
            for (uint32_t j = 0; j < a->n_key && is_wrong(a, t, h); j++) {
                if (!a->right_seen[(size_t)t * a->n_key + j]) continue;
                theirs += (double)weights_of(a, t, h)[j];
                sum += exp(score_of(a, &w, t, h, j));
            }
            if (!(theirs > 0) || !(sum < INFINITY)) continue;
            double sink = a->sinks ? exp((double)a->sinks[h]) : 0, keys = sum / theirs - sum - sink;
            extra += keys;
            slots += keys + pos_of(a, t) + 1;
            low = fmin(low, keys);
            high = fmax(high, keys);
            n++;
        }
    }
    if (n == 0) return;
    extra /= n;
    slots = fit_nearest(slots / n);
    w.extra = fit_nearest(extra);
    if (w.extra > 0 && high - low < 0.5) {
        propose(a, &w, 0, "has sums with %.9g more key%s, whose score is 0, as of a K of zeros", w.extra,
                w.extra == 1 ? "" : "s");
    } else if (slots > a->n_key && slots < 1e6) {
        w.slots = slots;
        propose(a, &w, 1, "has sums over %.9g keys, as many as a cache may have slots; empty ones have a score of 0",
                slots);
    }
}

/* ---- which K is read --------------------------------------------------------------------------------------------- */

/* Proposes other dot products. */
static void propose_dots(struct attention *a, uint32_t cost, const char *text) {
    struct way w = right_way(a);
    w.dots = a->dots;
    propose(a, &w, cost, "%s", text);
}

/* Solves for the head of K that each head of Q reads: the one whose scores are closest to the logarithms. */
static void try_heads(struct attention *a) {
    uint32_t n_kv = a->n_kv, group = a->n_head / n_kv;
    char text[FIT_SENTENCE], rule[FIT_HEAD_TEXT];
    uint32_t *heads = fit_new(a->f, a->n_head, sizeof *heads), *all = fit_new(a->f, a->n_head, sizeof *all);
    double *least = fit_new(a->f, a->n_head, sizeof *least);
    if (!heads || !all || !least) return;
    for (uint32_t r = 0; r < FIT_HEAD_RULES; r++) {
        if (!fit_head_rule(r, a->n_head, n_kv, heads, rule)) continue;
        multiply(a, &a->q, &a->k, heads, NULL, a->dim, a->dots);
        snprintf(text, sizeof text, "has head h of Q read head %s of K, not h / %u", rule, group);
        propose_dots(a, r == 3 ? 1 : 0, text);   /* no engine is known for it: a list of heads is as likely */
    }
    struct way w = right_way(a);
    w.dots = a->dots;
    for (uint32_t g = 0; g <= n_kv; g++) {   /* n_kv: zeros */
        for (uint32_t h = 0; h < a->n_head; h++) all[h] = g;
        multiply(a, &a->q, &a->k, all, NULL, a->dim, a->dots);
        for (uint32_t h = 0; h < a->n_head; h++) {
            struct line line = fit_line(a, &w, (struct part){ 0, a->n_token, h, h + 1 }, by_score, 1);
            if (g > 0 && !(line.error2 < least[h])) continue;
            least[h] = line.error2;
            heads[h] = g;
        }
    }
    fit_keep_right_heads(a->f, a->right_heads, a->n_head, heads);
    uint32_t cost = fit_say_heads(text, sizeof text, "K", heads, a->n_head, n_kv);
    multiply(a, &a->q, &a->k, heads, NULL, a->dim, a->dots);
    propose_dots(a, cost, text);
}

/* Proposes the same slots (n_key) for every token. */
static void propose_slots(struct attention *a, const uint32_t *slots, uint32_t cost, const char *text) {
    for (size_t i = 0; i < (size_t)a->n_token * a->n_key; i++) a->slots[i] = slots[i % a->n_key];
    multiply(a, &a->q, &a->k, NULL, a->slots, a->dim, a->dots);
    propose_dots(a, cost, text);
}

/* Solves for the slot that is read for each key.  The scores of the other keys of a row, most of which are right, say
 * what number the logarithms of a row are off by. */
static void try_slots(struct attention *a) {
    uint32_t n_key = a->n_key;
    size_t n_row = (size_t)a->n_token * a->n_head;
    struct way w = right_way(a);
    char text[160];
    uint32_t *slots = fit_new(a->f, n_key, sizeof *slots), n_prompt = a->f->n_prompt;
    double *offsets = fit_new(a->f, n_row, sizeof *offsets), *sorted = fit_new(a->f, n_key, sizeof *sorted);
    if (!slots || !offsets || !sorted) return;
    for (int by = -1; by <= 1; by += 2) {   /* all of them are shifted */
        for (uint32_t j = 0; j < n_key; j++) slots[j] = (uint32_t)((int64_t)j + by);   /* -1: zeros */
        propose_slots(a, slots, 0, by < 0 ? "has K of the token before each key" : "has K of the token after each key");
    }
    for (size_t i = 0; i < (size_t)a->n_token * n_key; i++) {
        uint32_t pos = pos_of(a, (uint32_t)(i / n_key)), j = (uint32_t)(i % n_key);
        a->slots[i] = j == pos && pos >= n_prompt ? UINT32_MAX : j;
    }
    multiply(a, &a->q, &a->k, NULL, a->slots, a->dim, a->dots);
    propose_dots(a, 0, "has K of zeros for the token itself after the prompt: its K is not in the cache yet");
    for (size_t i = 0; i < (size_t)a->n_token * n_key; i++) {
        uint32_t pos = pos_of(a, (uint32_t)(i / n_key)), j = (uint32_t)(i % n_key);
        a->slots[i] = j == n_prompt && pos > n_prompt ? pos : j;
        a->seen[i] = a->right_seen[i] && j <= n_prompt;
    }
    multiply(a, &a->q, &a->k, NULL, a->slots, a->dim, a->dots);
    struct way overwritten = right_way(a);
    overwritten.dots = a->dots;
    overwritten.seen = a->seen;
    propose(a, &overwritten, 0, "has the K of every token after the prompt in the same slot, %u, where it overwrites "
            "the one before", n_prompt);
    for (size_t row = 0; row < n_row; row++) {
        const float *weights = a->f->theirs.x + row * n_key;
        uint32_t n = 0, t = (uint32_t)(row / a->n_head), h = (uint32_t)(row % a->n_head);
        for (uint32_t j = 0; j < n_key; j++) {
            if (!(weights[j] > 0) || !a->right_seen[(size_t)t * n_key + j]) continue;
            double x = log((double)weights[j]) - score_of(a, &w, t, h, j);
            uint32_t at = n++;
            for (; at > 0 && sorted[at - 1] > x; at--) sorted[at] = sorted[at - 1];
            sorted[at] = x;
        }
        /* The lower of two middle values: a key with zeros has too large a weight more often than too small a one. */
        offsets[row] = n > 2 ? sorted[(n - 1) / 2] : (double)NAN;
    }
    w.dots = a->right_dots;
    uint32_t n_other = 0, last = 0;
    for (uint32_t j = 0; j < n_key; j++) {
        double least = INFINITY, own = 0;
        slots[j] = j;
        for (uint32_t slot = 0; slot <= n_key; slot++) {   /* n_key: zeros */
            double error = 0;
            for (size_t row = 0; row < n_row; row++) {
                double weight = (double)a->f->theirs.x[row * n_key + j];
                uint32_t t = (uint32_t)(row / a->n_head), h = (uint32_t)(row % a->n_head);
                if (!(weight > 0) || isnan(offsets[row]) || !a->f->wrong[row]) continue;
                if (slot < n_key && slot >= filled(a, pos_of(a, t))) continue;
                double distance = fabs((double)pos_of(a, t) - j);
                double dot = slot < n_key ? a->right_dots[row * n_key + slot] : 0;
                double score = bend(dot * w.scale, w.softcap) - (double)plan_alibi_slope(a->plan, h) * distance;
                double d = log(weight) - score - offsets[row];
                error += weight * d * d;
            }
            if (slot == j) own = error;
            if (error < least) least = error, slots[j] = slot < n_key ? slot : UINT32_MAX;
        }
        if (own <= least * 4 + 1e-9) slots[j] = j;
        if (slots[j] != j) n_other++, last = j;
    }
    if (n_other == 0) return;
    const char *more = n_other == 1 ? "" : ", as the last of several such tokens";
    if (slots[last] == UINT32_MAX) snprintf(text, sizeof text, "has K of zeros at token %u%s", last, more);
    else snprintf(text, sizeof text, "has K of token %u at token %u%s", slots[last], last, more);
    propose_slots(a, slots, n_other, text);
}

/* K in other orders of tokens, heads and elements. */
static void try_orders(struct attention *a) {
    char text[FIT_SENTENCE];
    for (int order = ORDER_RIGHT + 1; order < N_CACHE_ORDER; order++) {
        fit_say_order(text, sizeof text, (enum cache_order)order, "K");
        for (int is_whole = 0; is_whole < 2; is_whole++) {
            multiply_in_order(a, (enum cache_order)order, is_whole);
            propose_dots(a, 0, text);
        }
    }
    size_t n_q = (size_t)a->n_token * a->n_head * a->dim;
    float *q = fit_new(a->f, n_q, sizeof *q);
    struct fit_rows other = a->q;
    for (size_t i = 0; q && i < n_q; i++) {
        size_t row = i / a->dim, h = row % a->n_head, t = row / a->n_head;
        q[i] = a->q.x[(h * a->n_token + t) * a->dim + i % a->dim];
    }
    if (!q) return;
    other.x = q;
    multiply(a, &other, &a->k, NULL, NULL, a->dim, a->dots);
    propose_dots(a, 0, "has rows of Q, stored as (token, head), read as (head, token)");
}

static bool is_alike(const struct fit_rows *x, const struct fit_rows *like) {
    return x->n_token == like->n_token && fit_width(x) == fit_width(like);
}

/* Other activations in the place of Q and K. */
static void try_activations(struct attention *a) {
    static const struct { enum tap_id q, k; const char *text; } ways[] = {
        { TAP_COUNT, TAP_KCUR, "has K as its product gives it" },
        { TAP_COUNT, TAP_KCUR_NORMED, "has K as its norm gives it" },
        { TAP_QCUR, TAP_COUNT, "has Q as its product gives it" },
        { TAP_QCUR_NORMED, TAP_COUNT, "has Q as its norm gives it" },
        { TAP_QCUR, TAP_KCUR, "has Q and K as their products give them" },
        { TAP_QCUR_NORMED, TAP_KCUR_NORMED, "has Q and K as their norms give them" },
        { TAP_QCUR_ROPE, TAP_COUNT, "has Q before its last factor" },
        { TAP_COUNT, TAP_VCUR, "has V instead of K" }, { TAP_COUNT, TAP_QCUR_ROPE, "has Q instead of K" },
    };
    const struct attn_plan *p = a->plan;
    char text[96];
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct fit_rows q = a->q, k = a->k;
        if (ways[i].q != TAP_COUNT && (!fit_tap(a->f, ways[i].q, a->f->layer, &q) || !fit_align(a->f, &q))) continue;
        if (ways[i].k != TAP_COUNT && !fit_tap(a->f, ways[i].k, a->f->layer, &k)) continue;
        if (!is_alike(&q, &a->q) || !is_alike(&k, &a->k)) continue;
        q.n_head = a->q.n_head, q.n = a->q.n;
        k.n_head = a->k.n_head, k.n = a->k.n;
        multiply(a, &q, &k, NULL, NULL, a->dim, a->dots);
        snprintf(text, sizeof text, "%s%s", ways[i].text, i < 6 && p->rope != ROPE_NONE ? ", without RoPE" : "");
        propose_dots(a, 0, text);
    }
    for (int32_t il = 0; il < (int32_t)a->f->model->plan.n_layer; il++) {
        struct fit_rows k;
        if (il == a->f->layer || !trace_find_tap(a->f->dump, TAP_KCUR_ROPE, il)) continue;
        if (!fit_tap(a->f, TAP_KCUR_ROPE, il, &k) || !is_alike(&k, &a->k)) continue;
        k.n_head = a->k.n_head, k.n = a->k.n;
        multiply(a, &a->q, &k, NULL, NULL, a->dim, a->dots);
        snprintf(text, sizeof text, "has K of layer %d", (int)il);
        propose_dots(a, 0, text);
    }
    for (uint32_t less = 1; less < a->dim; less = less < 4 ? less + 1 : 2 * less) {   /* 1, 2, 3, 4, 8, 16... */
        uint32_t n = a->dim - less;
        if (less >= 4 && 2 * less < a->dim && less > 16) continue;
        multiply(a, &a->q, &a->k, NULL, NULL, n, a->dots);
        snprintf(text, sizeof text, "has dot products of the first %u elements of heads alone, of %u", n, a->dim);
        propose_dots(a, 0, text);
    }
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static const uint64_t of_q = TAP_SET(QCUR) | TAP_SET(QCUR_NORMED) | TAP_SET(QCUR_ROPE) | TAP_SET(QCUR_SCALED);
static const uint64_t of_k = TAP_SET(KCUR) | TAP_SET(KCUR_NORMED) | TAP_SET(KCUR_ROPE);

/* Finds K at all positions.  Returns false if one is not known. */
static bool find_k(struct fit *f, struct fit_rows *k) {
    uint64_t inputs = model_tap_inputs(f->model, f->id, f->layer) & of_k;
    for (uint32_t i = 0; i < TAP_COUNT; i++) {
        if (inputs >> i & 1) return fit_tap(f, (enum tap_id)i, f->layer, k) && k->pos[k->n_token - 1] + 1 == k->n_token;
    }
    return false;
}

void fit_attention_weights(struct fit *f) {
    struct attention a = { .f = f, .plan = &f->model->plan.layers[f->layer].attn };
    const struct attn_plan *p = a.plan;
    if (!fit_input(f, of_q, &a.q) || !find_k(f, &a.k)) return;
    a.n_token = f->theirs.n_token;
    a.n_head = p->n_head;
    a.n_kv = p->n_head_kv;
    a.dim = p->k_dim;
    a.n_key = f->theirs.n;
    bool is_right = f->theirs.n_head == a.n_head && fit_width(&a.q) == (size_t)a.n_head * a.dim
                 && fit_width(&a.k) == (size_t)a.n_kv * a.dim && a.n_key == a.k.n_token;
    if (!is_right || a.n_key == 0 || f->theirs.pos[a.n_token - 1] >= a.n_key) return;
    a.q.n_head = a.n_head, a.q.n = a.dim;
    a.k.n_head = a.n_kv, a.k.n = a.dim;
    const struct weight *sinks = fit_weight(f, W_ATTN_SINKS)->w;
    a.sinks = sinks ? fit_floats(f, sinks) : NULL;
    a.right_scale = p->scale != 0 ? (double)p->scale : 1 / sqrt(p->k_dim);
    uint64_t n = (uint64_t)a.n_token * a.n_head * a.n_key, n_pair = (uint64_t)a.n_token * a.n_key;
    a.right_heads = fit_new(f, a.n_head, sizeof *a.right_heads);
    a.right_dots = fit_new(f, n, sizeof *a.right_dots);
    a.dots = fit_new(f, n, sizeof *a.dots);
    a.y = fit_new(f, n, sizeof *a.y);
    a.right_seen = fit_new(f, n_pair, sizeof *a.right_seen);
    a.seen = fit_new(f, n_pair, sizeof *a.seen);
    a.slots = fit_new(f, n_pair, sizeof *a.slots);
    if (f->out_of_memory) return;
    for (uint32_t h = 0; h < a.n_head; h++) a.right_heads[h] = h / (a.n_head / a.n_kv);
    for (uint32_t t = 0; t < a.n_token; t++) set_seen(&a, a.right_seen, t, right_span(&a, pos_of(&a, t)));
    multiply(&a, &a.q, &a.k, NULL, NULL, a.dim, a.right_dots);
    try_scores(&a);
    try_temperature(&a);
    try_windows(&a);
    try_masks(&a);
    try_finite_mask(&a);
    try_sums(&a);
    if (n > PRODUCTS / a.dim) return;
    try_heads(&a);
    try_slots(&a);
    try_orders(&a);
    try_activations(&a);
}

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
    struct reader r;           /* of K; the first member, so that it leads back to this */
    const struct attn_plan *plan;
    struct fit_rows q;
    const float *sinks;        /* (n_head) or NULL */
    double *right_dots, *dots; /* (n_token, n_head, n_key) of Q and K */
    bool *right_seen, *seen;   /* (n_token, n_key) */
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

static uint32_t pos_of(const struct attention *a, uint32_t t) { return a->r.f->theirs.pos[t]; }
static const float *weights_of(const struct attention *a, uint32_t t, uint32_t h) {
    return a->r.f->theirs.x + ((size_t)t * a->r.n_head + h) * a->r.n_key;
}
static bool is_wrong(const struct attention *a, uint32_t t, uint32_t h) {
    return a->r.f->wrong[(size_t)t * a->r.n_head + h];
}

/* ---- hypotheses -------------------------------------------------------------------------------------------------- */

static double bend(double score, double softcap) { return softcap != 0 ? softcap * tanh(score / softcap) : score; }

static double score_of(const struct attention *a, const struct way *w, uint32_t t, uint32_t h, uint32_t j) {
    double dot = w->dots[((size_t)t * a->r.n_head + h) * a->r.n_key + j] * (w->times ? w->times[t] : 1);
    double distance = fabs((double)pos_of(a, t) - j), slope = (double)plan_alibi_slope(a->plan, h);
    bool is_hidden = !w->seen[(size_t)t * a->r.n_key + j];
    return bend(dot * w->scale, w->softcap) - w->alibi * slope * distance + (is_hidden ? w->hidden : 0);
}

/* Writes the weights of a hypothesis to a->y. */
static void weigh(const struct attention *a, const struct way *w) {
    uint32_t n_key = a->r.n_key;
    bool all = w->form == WEIGHTS_MASK_LATE || w->hidden != 0;
    for (uint32_t t = 0; t < a->r.n_token; t++) {
        uint32_t n = reader_filled(&a->r, t);
        const bool *seen = w->seen + (size_t)t * n_key;
        for (uint32_t h = 0; h < a->r.n_head; h++) {
            double *row = a->y + ((size_t)t * a->r.n_head + h) * n_key, max = -INFINITY;
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
    size_t n_column = (size_t)a->r.n_head * n_key, n_row = (size_t)a->r.n_token * n_key;
    for (size_t i = 0; w->form == WEIGHTS_OVER_HEADS && i < n_row; i++) {
        softmax(a->y + i / n_key * n_column + i % n_key, a->r.n_head, n_key);
    }
    bool is_over_queries = w->form == WEIGHTS_OVER_QUERIES;
    for (uint32_t first = 0, end; is_over_queries && first < a->r.n_token; first = end) {   /* batches */
        for (end = first + 1; end < a->r.n_token && pos_of(a, end) < a->r.f->n_prompt; end++);
        for (size_t i = 0; i < n_column; i++) {
            softmax(a->y + first * n_column + i, end - first, n_column);
        }
    }
}

#define propose(a, w, cost, ...) (weigh(a, w), fit_propose((a)->r.f, cost, (a)->y, __VA_ARGS__))

/* Fills dots with the products of rows of Q and what is read of K. */
static void multiply(const struct attention *a, const struct fit_rows *q, const struct reading *how, double *dots) {
    uint32_t n = how->n > 0 ? how->n : a->r.dim;
    for (uint32_t t = 0; t < a->r.n_token; t++) {
        for (uint32_t h = 0; h < a->r.n_head; h++) {
            const float *x = fit_row(q, t) + (size_t)h * a->r.dim;
            for (uint32_t j = 0; j < a->r.n_key; j++) {
                const float *k = reader_row(&a->r, how, t, h, j);
                double dot = 0;
                for (uint32_t i = 0; k && i < n; i++) dot += (double)x[i] * (double)k[i];
                dots[((size_t)t * a->r.n_head + h) * a->r.n_key + j] = dot;
            }
        }
    }
}

static void read_k(struct reader *r, const struct reading *how) {
    const struct attention *a = (const struct attention *)r;
    multiply(a, &a->q, how, a->dots);
}

static void propose_k(struct reader *r, uint32_t cost, const char *text) {
    const struct attention *a = (const struct attention *)r;
    struct way w = right_way(a);
    w.dots = a->dots;
    propose(a, &w, cost, "%s", text);
}

/* ---- lines through logarithms ------------------------------------------------------------------------------------ */

/* A line, and the sum of the squared distances from it. */
struct line { double slope, error2; };

/* Of a row and a key: ln(weight) - known = slope * x, but for a number of the row. */
struct terms { double x, known; };
typedef struct terms line_terms(const struct attention *a, const struct way *w, uint32_t t, uint32_t h, uint32_t j);

/* Tokens and heads, up to those before the ends. */
struct part { uint32_t t, t_end, h, h_end; };
static struct part all_heads(const struct attention *a) { return (struct part){ 0, a->r.n_token, 0, a->r.n_head }; }

/* Fits a line to the rows of a part that are wrong.  A key counts as much as its weight.  If slope is NAN, finds the
 * best one. */
static struct line fit_line(const struct attention *a, const struct way *w, struct part part, line_terms *terms,
                            double slope) {
    double xx = 0, xy = 0, yy = 0;
    uint32_t n_row = part.t_end - part.t;
    uint32_t every = (uint32_t)((uint64_t)n_row * a->r.n_head * a->r.n_key / LINE_WEIGHTS) + 1;
    for (uint32_t i = n_row - 1; i < n_row; i -= every) {   /* ends when i wraps around */
        uint32_t t = part.t + i;
        for (uint32_t h = part.h; h < part.h_end; h++) {
            const float *weights = weights_of(a, t, h);
            double n = 0, x = 0, y = 0, sx = 0, sy = 0, sxy = 0;
            for (uint32_t j = 0; j < a->r.n_key && is_wrong(a, t, h); j++) {
                double weight = (double)weights[j];
                if (!(weight > 1e-7) || !(weight < INFINITY) || !w->seen[(size_t)t * a->r.n_key + j]) continue;
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
    double dot = w->dots[((size_t)t * a->r.n_head + h) * a->r.n_key + j];
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
    const struct plan *p = &a->r.f->model->plan;
    double right = a->right_scale, dim = a->r.dim, n_embd = p->n_embd, n_head = a->r.n_head;
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
    double *times = fit_new(a->r.f, a->r.n_token, sizeof *times), low = INFINITY, high = -INFINITY;
    for (uint32_t t = 0; times && t < a->r.n_token; t++) {
        double slope = fit_line(a, &w, (struct part){ t, t + 1, 0, a->r.n_head }, by_score, (double)NAN).slope;
        times[t] = slope != 0 ? slope : 1;
        low = fmin(low, times[t]), high = fmax(high, times[t]);
    }
    if (!times || !(high > low)) return;
    w.times = times;
    propose(a, &w, a->r.n_token, "has queries times a factor of each token, from %.4g to %.4g, as of a temperature "
            "that grows with the position", low, high);
}

/* ---- which keys are seen ----------------------------------------------------------------------------------------- */

/* What a token sees, in steps from its own position: keys from `first` on and before `end`. */
struct span { int64_t first, end; };

static struct span right_span(const struct attention *a, uint32_t t) {
    const struct attn_plan *p = a->plan;
    uint32_t pos = pos_of(a, t);
    bool is_causal = p->is_causal;
    struct span s = { 0, is_causal ? (int64_t)pos + 1 : reader_filled(&a->r, t) };
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
    for (uint32_t j = 0; j < a->r.n_key; j++) {
        seen[(size_t)t * a->r.n_key + j] = (int64_t)j >= s.first && (int64_t)j < s.end && j < reader_filled(&a->r, t);
    }
}

/* The spans of the first key that they see and the key after the last one; both are 0 if they see none. */
static struct span their_span(const struct attention *a, uint32_t t) {
    struct span s = { 0, 0 };
    for (uint32_t j = 0; j < a->r.n_key; j++) {
        bool any = false;
        for (uint32_t h = 0; h < a->r.n_head; h++) any |= is_wrong(a, t, h) && (double)weights_of(a, t, h)[j] != 0;
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
    char was[40] = "there is none";
    for (uint32_t t = 0; t < a->r.n_token; t++) {
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
        for (uint32_t t = 0; t < a->r.n_token; t++) {
            struct span s = right_span(a, t);
            uint32_t pos = pos_of(a, t);
            s.first = kind == 0 ? 0 : kind == 1 ? (int64_t)pos - window + 1 : (int64_t)(pos - pos % chunk);
            set_seen(a, a->seen, t, s);
        }
        propose_seen(a, 0, kind == 0 ? fit_say(a->r.f, "has no window: %s", was)
                         : kind == 1 ? fit_say(a->r.f, "has a window of %u tokens: %s", window, was)
                         : fit_say(a->r.f, "has chunks of %u tokens: the right window is %u", chunk, right));
    }
}

static void try_masks(struct attention *a) {
    bool is_causal = a->plan->is_causal;
    for (int64_t by = -2; by <= 2; by++) {
        for (uint32_t t = 0; t < a->r.n_token && by != 0; t++) {
            struct span s = right_span(a, t);
            s.end = (int64_t)pos_of(a, t) + 1 + by;
            if (s.end < 1) s.end = 1;
            set_seen(a, a->seen, t, s);
        }
        if (by == 0 || !is_causal) continue;
        propose_seen(a, 0, by == -1 ? "has weights of earlier tokens only: a token does not see itself"
            : fit_say(a->r.f, "has a mask that hides the tokens from p %c %d on from the token at p, not from p + 1 on",
                      by < -1 ? '-' : '+', (int)(by < -1 ? -by - 1 : by + 1)));
    }
    for (uint32_t t = 0; t < a->r.n_token; t++) {
        struct span s = right_span(a, t);
        s.end = is_causal ? reader_filled(&a->r, t) : (int64_t)pos_of(a, t) + 1;
        set_seen(a, a->seen, t, s);
    }
    propose_seen(a, 0, is_causal ? "has no mask: a token sees the later tokens of its batch too"
                                 : "has a causal mask: a token does not see the later ones");
    for (uint32_t t = 0; t < a->r.n_token; t++) {
        struct span s = right_span(a, t);
        set_seen(a, a->seen, t, pos_of(a, t) < a->r.f->n_prompt ? s : (struct span){ 0, s.end - 1 });
    }
    propose_seen(a, 0, "has no weight of the token itself after the prompt: its K is not there yet");
    /* Whatever they see. */
    uint32_t n_other = 0, at_token = 0, at_key = 0;
    bool is_extra = false;
    for (uint32_t t = 0; t < a->r.n_token; t++) {
        for (uint32_t j = 0; j < a->r.n_key; j++) {
            bool any = false, right = a->right_seen[(size_t)t * a->r.n_key + j], is_judged = false;
            for (uint32_t h = 0; h < a->r.n_head; h++) {
                is_judged |= is_wrong(a, t, h);
                any |= is_wrong(a, t, h) && (double)weights_of(a, t, h)[j] != 0;
            }
            any = is_judged ? any : right;
            a->seen[(size_t)t * a->r.n_key + j] = any;
            if (any == right) continue;
            if (n_other++ == 0) at_token = pos_of(a, t), at_key = j, is_extra = any;
        }
    }
    if (n_other == 0) return;
    propose_seen(a, n_other < 4 ? n_other : 4, fit_say(
        a->r.f, "has other keys: token %u %s token %u, as the first of %u differences", at_token,
        is_extra ? "sees" : "does not see", at_key, n_other));
}

/* A mask that makes scores smaller, but not small enough. */
static void try_finite_mask(struct attention *a) {
    struct way w = right_way(a);
    double hidden = 0, n_hidden = 0;
    for (uint32_t t = 0; t < a->r.n_token; t++) {
        for (uint32_t h = 0; h < a->r.n_head; h++) {
            const float *weights = weights_of(a, t, h);
            double row = 0, n_row = 0;
            for (uint32_t j = 0; j < a->r.n_key && is_wrong(a, t, h); j++) {
                if (!a->right_seen[(size_t)t * a->r.n_key + j] || !(weights[j] > 0)) continue;
                row += (double)weights[j] * (log((double)weights[j]) - score_of(a, &w, t, h, j));
                n_row += (double)weights[j];
            }
            for (uint32_t j = 0; j < reader_filled(&a->r, t) && n_row > 0; j++) {
                if (a->right_seen[(size_t)t * a->r.n_key + j] || !(weights[j] > 0)) continue;
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
    for (uint32_t t = 0; t < a->r.n_token; t++) {
        for (uint32_t h = 0; h < a->r.n_head; h++) {
            double theirs = 0, sum = 0;
            for (uint32_t j = 0; j < a->r.n_key && is_wrong(a, t, h); j++) {
                if (!a->right_seen[(size_t)t * a->r.n_key + j]) continue;
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
    } else if (slots > a->r.n_key && slots < 1e6) {
        w.slots = slots;
        propose(a, &w, 1, "has sums over %.9g keys, as many as a cache may have slots; empty ones have a score of 0",
                slots);
    }
}

/* ---- which K is read --------------------------------------------------------------------------------------------- */

static double error_of_k(struct reader *r, uint32_t h) {
    const struct attention *a = (const struct attention *)r;
    struct way w = right_way(a);
    w.dots = a->dots;
    return fit_line(a, &w, (struct part){ 0, r->n_token, h, h + 1 }, by_score, 1).error2;
}

/* Solves for the slot that is read for each key.  The scores of the other keys of a row, most of which are right, say
 * what number the logarithms of a row are off by. */
static void try_slots(struct attention *a) {
    uint32_t n_key = a->r.n_key;
    size_t n_row = (size_t)a->r.n_token * a->r.n_head;
    struct way w = right_way(a);
    uint32_t *slots = fit_new(a->r.f, n_key, sizeof *slots), n_prompt = a->r.f->n_prompt;
    double *offsets = fit_new(a->r.f, n_row, sizeof *offsets), *sorted = fit_new(a->r.f, n_key, sizeof *sorted);
    if (!slots || !offsets || !sorted) return;
    reader_try_shifts(&a->r);
    for (size_t i = 0; i < (size_t)a->r.n_token * n_key; i++) {
        uint32_t pos = pos_of(a, (uint32_t)(i / n_key)), j = (uint32_t)(i % n_key);
        a->r.slots[i] = j == pos && pos >= n_prompt ? UINT32_MAX : j;
    }
    read_k(&a->r, &(struct reading){ .slots = a->r.slots });
    propose_k(&a->r, 0, "has K of zeros for the token itself after the prompt: its K is not in the cache yet");
    reader_overwrite(&a->r);
    for (size_t i = 0; i < (size_t)a->r.n_token * n_key; i++) a->seen[i] = a->right_seen[i] && i % n_key <= n_prompt;
    read_k(&a->r, &(struct reading){ .slots = a->r.slots });
    struct way overwritten = right_way(a);
    overwritten.dots = a->dots;
    overwritten.seen = a->seen;
    propose(a, &overwritten, 0, "has the K of every token after the prompt in the same slot, %u, where it overwrites "
            "the one before", n_prompt);
    for (size_t row = 0; row < n_row; row++) {
        const float *weights = a->r.f->theirs.x + row * n_key;
        uint32_t n = 0, t = (uint32_t)(row / a->r.n_head), h = (uint32_t)(row % a->r.n_head);
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
                double weight = (double)a->r.f->theirs.x[row * n_key + j];
                uint32_t t = (uint32_t)(row / a->r.n_head), h = (uint32_t)(row % a->r.n_head);
                if (!(weight > 0) || isnan(offsets[row]) || !a->r.f->wrong[row]) continue;
                if (slot < n_key && slot >= reader_filled(&a->r, t)) continue;
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
    if (n_other > 0) reader_try_slots(&a->r, slots, last, n_other);
}

/* Rows of Q in another order of tokens and heads. */
static void try_order_of_q(struct attention *a) {
    size_t n_q = (size_t)a->r.n_token * a->r.n_head * a->r.dim;
    float *q = fit_new(a->r.f, n_q, sizeof *q);
    struct fit_rows other = a->q;
    for (size_t i = 0; q && i < n_q; i++) {
        size_t row = i / a->r.dim, h = row % a->r.n_head, t = row / a->r.n_head;
        q[i] = a->q.x[(h * a->r.n_token + t) * a->r.dim + i % a->r.dim];
    }
    if (!q) return;
    other.x = q;
    multiply(a, &other, &(struct reading){ 0 }, a->dots);
    propose_k(&a->r, 0, "has rows of Q, stored as (token, head), read as (head, token)");
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
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct fit_rows q = a->q, k = a->r.rows;
        if (ways[i].q != TAP_COUNT) {
            if (!fit_tap(a->r.f, ways[i].q, a->r.f->layer, &q) || !fit_align(a->r.f, &q)) continue;
            if (q.n_token != a->q.n_token || fit_width(&q) != fit_width(&a->q)) continue;
        }
        if (ways[i].k != TAP_COUNT && !reader_take(&a->r, ways[i].k, a->r.f->layer, &k)) continue;
        multiply(a, &q, &(struct reading){ .rows = &k }, a->dots);
        propose_k(&a->r, 0, fit_say(a->r.f, "%s%s", ways[i].text,
                                    i < 6 && a->plan->rope != ROPE_NONE ? ", without RoPE" : ""));
    }
    reader_try_layers(&a->r);
    for (uint32_t less = 1; less < a->r.dim; less = less < 4 ? less + 1 : 2 * less) {   /* 1, 2, 3, 4, 8, 16... */
        uint32_t n = a->r.dim - less;
        if (less >= 4 && 2 * less < a->r.dim && less > 16) continue;
        read_k(&a->r, &(struct reading){ .n = n });
        propose_k(&a->r, 0, fit_say(a->r.f, "has dot products of the first %u elements of heads alone, of %u", n,
                                    a->r.dim));
    }
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static const id_set of_q = TAP_SET(QCUR) | TAP_SET(QCUR_NORMED) | TAP_SET(QCUR_ROPE) | TAP_SET(QCUR_SCALED);
static const id_set of_k = TAP_SET(KCUR) | TAP_SET(KCUR_NORMED) | TAP_SET(KCUR_ROPE);

/* Finds K at all positions.  Returns false if one is not known. */
static bool find_k(struct fit *f, struct fit_rows *k) {
    id_set inputs = model_tap_inputs(f->model, f->id, f->layer) & of_k;
    for (uint32_t i = 0; i < TAP_COUNT; i++) {
        if (inputs >> i & 1) return fit_tap(f, (enum tap_id)i, f->layer, k) && k->pos[k->n_token - 1] + 1 == k->n_token;
    }
    return false;
}

void fit_attention_weights(struct fit *f) {
    const struct attn_plan *p = &f->model->plan.layers[f->layer].attn;
    struct attention a = {
        .r = { .f = f, .of = "K", .by = "head h of Q", .id = TAP_KCUR_ROPE, .n_token = f->theirs.n_token,
               .n_head = p->n_head, .n_kv = p->n_head_kv, .n_key = f->theirs.n, .dim = p->k_dim, .read = read_k,
               .error = error_of_k, .propose = propose_k },
        .plan = p, .right_scale = p->scale != 0 ? (double)p->scale : 1 / sqrt(p->k_dim),
    };
    const struct reader *r = &a.r;
    if (!fit_input(f, of_q, &a.q) || !find_k(f, &a.r.rows)) return;
    bool is_right = f->theirs.n_head == r->n_head && fit_width(&a.q) == (size_t)r->n_head * r->dim
                 && fit_width(&r->rows) == (size_t)r->n_kv * r->dim && r->n_key == r->rows.n_token;
    if (!is_right || r->n_key == 0 || f->theirs.pos[r->n_token - 1] >= r->n_key) return;
    a.q.n_head = r->n_head, a.q.n = r->dim;
    a.r.rows.n_head = r->n_kv, a.r.rows.n = r->dim;
    const struct weight *sinks = fit_weight(f, W_ATTN_SINKS)->w;
    a.sinks = sinks ? fit_floats(f, sinks) : NULL;
    uint64_t n = (uint64_t)r->n_token * r->n_head * r->n_key, n_pair = (uint64_t)r->n_token * r->n_key;
    reader_begin(&a.r);
    a.right_dots = fit_new(f, n, sizeof *a.right_dots);
    a.dots = fit_new(f, n, sizeof *a.dots);
    a.y = fit_new(f, n, sizeof *a.y);
    a.right_seen = fit_new(f, n_pair, sizeof *a.right_seen);
    a.seen = fit_new(f, n_pair, sizeof *a.seen);
    if (f->out_of_memory) return;
    for (uint32_t t = 0; t < r->n_token; t++) set_seen(&a, a.right_seen, t, right_span(&a, t));
    multiply(&a, &a.q, &(struct reading){ 0 }, a.right_dots);
    try_scores(&a);
    try_temperature(&a);
    try_windows(&a);
    try_masks(&a);
    try_finite_mask(&a);
    try_sums(&a);
    if (n > PRODUCTS / r->dim) return;
    reader_try_heads(&a.r);
    try_slots(&a);
    reader_try_orders(&a.r);
    try_order_of_q(&a);
    try_activations(&a);
}

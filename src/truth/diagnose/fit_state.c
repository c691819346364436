/* Steps that keep a state: selective scans, delta nets, RWKV, lightning attention, and the convolutions before them.
 * The recurrence is run again from theirs' inputs, with one of its numbers or rules exchanged:
 *
 *   scan          S <- e^(a dt A) S + f dt B x,  y = C S + d D x                  (reference/scan.c has the papers)
 *   delta rule    S <- S diag(e^(a decay)),  S <- S + b beta (v - r S k) k^T,  y = S q / sqrt(dim), where all columns
 *                 have the same decay but in Kimi Delta Attention
 *   RWKV 7        S <- S (diag(w^a) - removal^T (r rate * removal)) + f v^T k,  y = S q
 *   RWKV 6        y = S q + u (q . bonus k) v,  S <- S diag(w^a) + f v^T k
 *   lightning     S <- w^a S + f v^T k,  y = S q
 *   convolution   y_t = c b + sum over j of f_j w_j x_(t - L + 1 + j)
 *
 * The factors of a convolution are solved for as a linear system, a number of a recurrence is sought by least squares
 * from a few values on, and a rule is one of a list. */
#include "diagnose/fit.h"
#include "reference/steps.h"

#include <math.h>
#include <stdlib.h>

/* How many multiplications the search in a step may cost. */
#define MOST_WORK 6e9
enum { MAX_NUMBER = 6, MAX_ITERATION = 20, MAX_INPUT = 6, MAX_KERNEL = 8 };

/* A number f of a recurrence, what it does, and what it should be.  is_power: its logarithm is sought. */
struct number { const char *text; double right; bool is_power; };

struct recurrence {
    struct fit *f;
    void (*step)(struct recurrence *r, uint32_t t);   /* computes row t of y and advances the state */
    struct number numbers[MAX_NUMBER];
    uint32_t n_number;
    double of[MAX_NUMBER];             /* their values */
    const char *const *rules;          /* (n_rule) what else can be wrong */
    uint32_t n_rule;
    uint32_t rule;                     /* 1 for rules[0]; 0: none of them is */
    uint32_t chunk;                    /* the state is cleared before every so many tokens; 0: never */
    struct fit_rows in[MAX_INPUT];
    const float *a, *d;                /* weights: A and D of a scan, the bonus of RWKV */
    size_t n_state;
    double *state, *start, *y, *ahead, *row;
    double start_factor, work, cost;   /* the state begins as start times the factor */
};

#define N_RULES(rules) (sizeof (rules) / sizeof *(rules))

/* ---- runs and the search for a number ---------------------------------------------------------------------------- */

static void run(struct recurrence *r, double *y) {
    double *held = r->y;
    for (size_t i = 0; i < r->n_state; i++) r->state[i] = r->start_factor != 0 ? r->start_factor * r->start[i] : 0;
    r->y = y;
    for (uint32_t t = 0; t < r->f->theirs.n_token; t++) {
        if (r->chunk > 0 && t % r->chunk == 0) memset(r->state, 0, r->n_state * sizeof *r->state);
        r->step(r, t);
    }
    r->y = held;
    r->work += r->cost;
}

/* Sums over the blocks where the right step is wrong: of the squared distance of y to theirs, and, if ahead is not
 * NULL, of the products of that distance and of itself with d = (ahead - y) / h.  Blocks count alike. */
static double distance(const struct fit *f, const double *y, const double *ahead, double h, double *dr, double *dd) {
    double sum = 0;
    uint32_t n = f->theirs.n;
    *dr = *dd = 0;
    for (size_t b = 0; b < (size_t)f->theirs.n_token * f->theirs.n_head; b++) {
        double norm = 0, rr = 0, of_dr = 0, of_dd = 0;
        for (size_t i = b * n; i < (b + 1) * n && f->wrong[b]; i++) {
            double theirs = (double)f->theirs.x[i], distance = theirs - y[i];
            double d = ahead ? (ahead[i] - y[i]) / h : 0;
            norm += theirs * theirs;
            rr += distance * distance;
            of_dr += d * distance;
            of_dd += d * d;
        }
        if (!(norm > 0)) continue;
        sum += rr / norm;
        *dr += of_dr / norm;
        *dd += of_dd / norm;
    }
    return sum;
}

static double value_of(const struct number *n, double at) { return n->is_power ? exp(at) : at; }

/* Moves the number from `at` on to where y is closest to theirs, and proposes it: Gauss and Newton's method. */
static void seek(struct recurrence *r, double *number, const struct number *what, double at) {
    double dr, dd, best = INFINITY, best_at = at, step = 0;
    for (int i = 0; i < MAX_ITERATION && r->work < MOST_WORK; i++) {
        double h = 1e-5 * fmax(fabs(at), 1e-2);
        *number = value_of(what, at);
        run(r, r->y);
        double now = distance(r->f, r->y, NULL, 1, &dr, &dd);
        if (!(now < best)) {   /* too far: half of the way back */
            if (i == 0 || fabs(step) < 1e-9 * fmax(fabs(at), 1e-9)) break;
            at -= step /= 2;
            continue;
        }
        bool is_done = now >= best * (1 - 1e-9);
        best = now;
        best_at = at;
        if (is_done) break;
        *number = value_of(what, at + h);
        run(r, r->ahead);
        distance(r->f, r->y, r->ahead, h, &dr, &dd);
        if (!(dd > 0) || !isfinite(dr / dd)) break;
        step = dr / dd;
        double most = 2 * fmax(fabs(at), 0.5);
        step = fmin(fmax(step, -most), most);
        at += step;
    }
    *number = value_of(what, best_at);
    run(r, r->y);
    fit_propose(r->f, 1, r->y, "%s, where f is %.5g, not %g", what->text, *number, what->right);
}

static void try_numbers(struct recurrence *r) {
    static const double starts[] = { 1.0, 0.1, 8.0 };   /* a number is sought from the right one times these on */
    for (uint32_t k = 0; k < r->n_number; k++) {
        const struct number *what = &r->numbers[k];
        for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
            double from = what->is_power ? log(what->right) + 8 * log(starts[i]) : starts[i] * what->right;
            seek(r, &r->of[k], what, from);
        }
        r->of[k] = what->right;
    }
}

/* States that do not begin with zeros, or that are cleared too often. */
static void try_states(struct recurrence *r) {
    static const struct number again = { "begins with f times the state after its own text", 0, false };
    static const struct number prompt = { "begins with f times the state after the prompt", 0, false };
    uint32_t n = r->f->theirs.n_token, n_prompt = r->f->n_prompt < n ? r->f->n_prompt : n;
    for (r->chunk = 1; r->chunk < n && r->chunk <= 256; r->chunk *= 2) {
        run(r, r->y);
        fit_propose(r->f, 0, r->y, "clears its state before every %u tokens", r->chunk);
    }
    r->chunk = 0;
    for (int k = 0; k < 2; k++) {
        if (k == 0 && n_prompt == n) continue;
        for (size_t i = 0; i < r->n_state; i++) r->state[i] = 0;
        for (uint32_t t = 0; t < (k == 0 ? n_prompt : n); t++) r->step(r, t);
        memcpy(r->start, r->state, r->n_state * sizeof *r->state);
        seek(r, &r->start_factor, k == 0 ? &prompt : &again, 1);
        r->start_factor = 0;
    }
}

/* n_state: elements of the state.  work: multiplications of a run. */
static void analyse(struct recurrence *r, size_t n_state, double work) {
    struct fit *f = r->f;
    size_t n = (size_t)f->theirs.n_token * fit_width(&f->theirs);
    r->n_state = n_state;
    r->cost = work * f->theirs.n_token;
    r->state = fit_new(f, n_state, sizeof *r->state);
    r->start = fit_new(f, n_state, sizeof *r->start);
    r->y = fit_new(f, n, sizeof *r->y);
    r->ahead = fit_new(f, n, sizeof *r->ahead);
    if (f->out_of_memory) return;
    for (uint32_t k = 0; k < r->n_number; k++) r->of[k] = r->numbers[k].right;
    for (r->rule = 1; r->rule <= r->n_rule; r->rule++) {
        run(r, r->y);
        fit_propose(f, 0, r->y, "%s", r->rules[r->rule - 1]);
    }
    r->rule = 0;
    try_states(r);
    try_numbers(r);
}

/* Whether theirs has the rows of all tokens from the first one on. */
static bool is_whole(const struct fit *f) {
    for (uint32_t t = 0; t < f->theirs.n_token; t++) {
        if (f->theirs.pos[t] != t) return false;
    }
    return f->layer >= 0;
}

/* Finds input i, with rows of `width` elements. */
static bool find(struct recurrence *r, uint32_t i, id_set among, uint64_t width) {
    return fit_input(r->f, among, &r->in[i]) && fit_width(&r->in[i]) == width;
}
static const float *in(const struct recurrence *r, uint32_t i, uint32_t t) { return fit_row(&r->in[i], t); }
static uint32_t before(uint32_t t) { return t > 0 ? t - 1 : 0; }

/* ---- scans ------------------------------------------------------------------------------------------------------- */

enum { SCAN_DECAY, SCAN_FED, SCAN_TIME, SCAN_D };
enum { SCAN_RIGHT, SCAN_EXCHANGED, SCAN_C_BEFORE, SCAN_B_BEFORE, SCAN_READ_FIRST, SCAN_NEXT_A, SCAN_TIME_BEFORE };
static const char *const scan_rules[] = {
    [SCAN_EXCHANGED - 1] = "uses C as B and B as C", [SCAN_C_BEFORE - 1] = "reads its state by C of the token before",
    [SCAN_B_BEFORE - 1] = "adds dt B x with B of the token before",
    [SCAN_READ_FIRST - 1] = "reads its state before x is added", [SCAN_NEXT_A - 1] = "uses A of the next head",
    [SCAN_TIME_BEFORE - 1] = "uses dt of the token before" };

static void step_scan(struct recurrence *r, uint32_t t) {
    const struct scan_plan *p = &r->f->model->plan.scan;
    uint32_t n = p->n_state;
    const float *x = in(r, 0, t), *b = in(r, 1, r->rule == SCAN_B_BEFORE ? before(t) : t);
    const float *c = in(r, 2, r->rule == SCAN_C_BEFORE ? before(t) : t);
    const float *steps = in(r, 3, r->rule == SCAN_TIME_BEFORE ? before(t) : t);
    if (r->rule == SCAN_EXCHANGED) {
        const float *held = b;
        b = c, c = held;
    }
    for (uint32_t k = 0; k < plan_scan_width(p); k++) {
        uint32_t h = k / p->dim, of_a = r->rule == SCAN_NEXT_A ? (h + 1) % p->n_head : h;
        size_t group = (size_t)(h / (p->n_head / p->n_group)) * n;
        double dt = (double)steps[h] * r->of[SCAN_TIME], *s = r->state + (size_t)k * n, y = 0, decay = 0;
        double fed = r->of[SCAN_FED] * dt * (double)x[k];
        for (uint32_t i = 0; i < n; i++) {
            size_t at = p->kind == SCAN_MAMBA ? (size_t)of_a * n + i : of_a;
            if (i == 0 || p->kind == SCAN_MAMBA) decay = exp(r->of[SCAN_DECAY] * dt * (double)r->a[at]);
            s[i] *= decay;
            if (r->rule == SCAN_READ_FIRST) y += (double)c[group + i] * s[i];
            s[i] += fed * (double)b[group + i];
            if (r->rule != SCAN_READ_FIRST) y += (double)c[group + i] * s[i];
        }
        r->y[(size_t)t * plan_scan_width(p) + k] = y + r->of[SCAN_D] * (double)r->d[h] * (double)x[k];
    }
}

void fit_scan(struct fit *f) {
    const struct scan_plan *p = &f->model->plan.scan;
    uint32_t n_x = plan_scan_width(p);
    struct recurrence r = { .f = f, .step = step_scan, .rules = scan_rules,
                            .n_rule = N_RULES(scan_rules), .n_number = 4, .numbers = {
        [SCAN_DECAY] = { "multiplies its state by e^(f dt A)", 1, false },
        [SCAN_FED] = { "adds f dt B x to its state", 1, false },
        [SCAN_TIME] = { "uses f dt for dt", 1, false }, [SCAN_D] = { "adds f D x to its output", 1, false } } };
    if (!is_whole(f) || fit_width(&f->theirs) != n_x) return;
    if (!fit_input(f, TAP_SET(CONV_SILU), &r.in[0]) || fit_width(&r.in[0]) < n_x) return;
    if (!find(&r, 1, TAP_SET(SCAN_B) | TAP_SET(SCAN_B_NORMED), plan_scan_group_width(p))) return;
    if (!find(&r, 2, TAP_SET(SCAN_C) | TAP_SET(SCAN_C_NORMED), plan_scan_group_width(p))) return;
    if (!find(&r, 3, TAP_SET(SCAN_STEP), p->n_head)) return;
    r.a = fit_floats(f, fit_weight(f, W_DELTA_A)->w);
    r.d = fit_floats(f, fit_weight(f, W_SCAN_D)->w);
    if (r.a && r.d) analyse(&r, (size_t)n_x * p->n_state, 4.0 * n_x * p->n_state);
}

/* ---- delta nets -------------------------------------------------------------------------------------------------- */

enum { DELTA_BETA, DELTA_DECAY, DELTA_RECALL, DELTA_EPS };
enum { DELTA_RIGHT, DELTA_NO_UNIT, DELTA_NO_UNIT_K, DELTA_NO_UNIT_Q, DELTA_MEAN, DELTA_EXCHANGED, DELTA_READ_FIRST,
       DELTA_Q_BEFORE, DELTA_K_BEFORE, DELTA_DECAY_LATE, DELTA_DECAY_BEFORE, DELTA_DECAY_NEXT, DELTA_ROWS, DELTA_FIRST,
       DELTA_MEAN_DECAY, N_DELTA_RULE };
static const char *const delta_rules[] = {
    [DELTA_NO_UNIT - 1] = "divides neither Q nor K by its length", [DELTA_NO_UNIT_K - 1] = "does not divide K by its "
    "length", [DELTA_NO_UNIT_Q - 1] = "does not divide Q by its length", [DELTA_MEAN - 1] = "divides Q and K by the "
    "root of the mean, not of the sum, of their squares", [DELTA_EXCHANGED - 1] = "uses K as Q and Q as K",
    [DELTA_READ_FIRST - 1] = "reads its state before V is added", [DELTA_Q_BEFORE - 1] = "uses Q of the token before",
    [DELTA_K_BEFORE - 1] = "uses K of the token before", [DELTA_DECAY_LATE - 1] = "lets its state decay after V is "
    "added", [DELTA_DECAY_BEFORE - 1] = "uses decays of the token before", [DELTA_DECAY_NEXT - 1] = "uses decays of "
    "the next head", [DELTA_ROWS - 1] = "uses decays for the rows of its state, not for its columns", [DELTA_FIRST - 1]
    = "uses the decay of the first column of a head for all of them", [DELTA_MEAN_DECAY - 1] = "uses the mean of the "
    "decays of a head's columns for all of them" };
/* decays (n_decay) <- by what the columns of the state of head h are multiplied, or all of them. */
static void find_decays(const struct recurrence *r, const struct delta_plan *d, uint32_t t, uint32_t h,
                        double *decays) {
    uint32_t n = delta_n_decay(d) / d->n_head, of = r->rule == DELTA_DECAY_NEXT ? (h + 1) % d->n_head : h;
    const float *logs = in(r, 2, r->rule == DELTA_DECAY_BEFORE ? before(t) : t) + (size_t)of * n;
    double mean = 0;
    for (uint32_t i = 0; i < n; i++) mean += (double)logs[i] / n;
    for (uint32_t i = 0; i < n; i++) {
        double own = r->rule == DELTA_MEAN_DECAY ? mean : (double)logs[r->rule == DELTA_FIRST ? 0 : i];
        decays[i] = exp(r->of[DELTA_DECAY] * own);
    }
}

/* Writes a head of Q or K, divided by its length, to row (dim). */
static void make_unit(const struct recurrence *r, const float *x, uint32_t dim, bool is_k, double *row) {
    bool is_bare = r->rule == DELTA_NO_UNIT || r->rule == (is_k ? DELTA_NO_UNIT_K : DELTA_NO_UNIT_Q);
    double sum = 0;
    for (uint32_t i = 0; i < dim; i++) sum += (double)x[i] * (double)x[i];
    if (r->rule == DELTA_MEAN) sum /= dim;
    for (uint32_t i = 0; i < dim; i++) row[i] = is_bare ? (double)x[i] : (double)x[i] / sqrt(sum + r->of[DELTA_EPS]);
}

static void step_delta(struct recurrence *r, uint32_t t) {
    const struct delta_plan *d = &r->f->model->plan.layers[r->f->layer].delta;
    uint32_t dim = d->dim, n_key = d->n_key_head * dim, n_decay = delta_n_decay(d) / d->n_head;
    bool is_late = r->rule == DELTA_DECAY_LATE, is_first = r->rule == DELTA_READ_FIRST;
    const float *q_row = in(r, 0, r->rule == DELTA_Q_BEFORE ? before(t) : t);
    const float *k_row = in(r, 0, r->rule == DELTA_K_BEFORE ? before(t) : t) + n_key, *v = in(r, 0, t) + 2 * n_key;
    if (r->rule == DELTA_EXCHANGED) q_row += n_key, k_row -= n_key;
    double *q = r->row, *k = r->row + dim, *decays = k + dim;
    for (uint32_t h = 0; h < d->n_head; h++, v += dim) {
        uint32_t key = delta_key_head(d, h) * dim;
        make_unit(r, q_row + key, dim, false, q);
        make_unit(r, k_row + key, dim, true, k);
        double beta = r->of[DELTA_BETA] * (double)in(r, 1, t)[h];
        double *s = r->state + (size_t)h * dim * dim;
        find_decays(r, d, t, h, decays);
        for (uint32_t j = 0; j < dim; j++, s += dim) {
            double old = 0, read = 0, early = 0;
            for (uint32_t i = 0; i < dim; i++) {
                if (!is_late) s[i] *= decays[(r->rule == DELTA_ROWS ? j : i) % n_decay];
                old += s[i] * k[i];
                early += s[i] * q[i];
            }
            double added = beta * ((double)v[j] - r->of[DELTA_RECALL] * old);
            for (uint32_t i = 0; i < dim; i++) {
                s[i] = (s[i] + added * k[i]) * (is_late ? decays[i % n_decay] : 1);
                read += s[i] * q[i];
            }
            r->y[((size_t)t * d->n_head + h) * dim + j] = (is_first ? early : read) / sqrt(dim);
        }
    }
}

void fit_delta(struct fit *f) {
    struct recurrence r = { .f = f, .step = step_delta, .rules = delta_rules, .n_number = 4, .numbers = {
        [DELTA_BETA] = { "uses f beta for beta", 1, false },
        [DELTA_DECAY] = { "multiplies its state by e^(f decay)", 1, false },
        [DELTA_RECALL] = { "subtracts f times what the state has for K from V", 1, false },
        [DELTA_EPS] = { "divides Q and K by sqrt(sum of squares + f)", (double)f->model->plan.norm_eps, true } } };
    if (!is_whole(f)) return;
    const struct delta_plan *d = &f->model->plan.layers[f->layer].delta;
    r.n_rule = d->is_diagonal ? N_DELTA_RULE - 1 : DELTA_ROWS - 1;
    uint64_t n_row = (uint64_t)(2 * d->n_key_head + d->n_head) * d->dim;
    if (fit_width(&f->theirs) != (uint64_t)d->n_head * d->dim || !find(&r, 0, TAP_SET(CONV_SILU), n_row)) return;
    if (!find(&r, 1, TAP_SET(DELTA_BETA_SIGMOID), d->n_head)) return;
    if (!find(&r, 2, TAP_SET(DELTA_DECAY), delta_n_decay(d))) return;
    r.row = fit_new(f, 3 * (uint64_t)d->dim, sizeof *r.row);
    size_t n_state = (size_t)d->n_head * d->dim * d->dim;
    if (r.row) analyse(&r, n_state, 5.0 * (double)n_state);
}

/* ---- RWKV -------------------------------------------------------------------------------------------------------- */

enum { WKV_DECAY, WKV_FED, WKV_RATE, WKV_BONUS = WKV_RATE };
enum { WKV_RIGHT, WKV_READ_OTHER, WKV_K_BEFORE, WKV_Q_BEFORE, WKV_DECAY_BEFORE };
static const char *const wkv_rules[] = {
    [WKV_READ_OTHER - 1] = "reads its state on the other side of the addition of V", [WKV_K_BEFORE - 1] = "uses K of "
    "the token before", [WKV_Q_BEFORE - 1] = "uses R of the token before", [WKV_DECAY_BEFORE - 1] = "uses the decay "
    "of the token before" };

static void step_wkv(struct recurrence *r, uint32_t t) {
    const struct attn_plan *p = &r->f->model->plan.layers[r->f->layer].attn;
    enum rwkv_kind kind = r->f->model->plan.rwkv.kind;
    bool is_7 = kind == RWKV_7, has_bonus = kind == RWKV_6, reads_first = has_bonus != (r->rule == WKV_READ_OTHER);
    const float *all_q = in(r, 0, r->rule == WKV_Q_BEFORE ? before(t) : t);
    const float *all_w = in(r, 1, r->rule == WKV_DECAY_BEFORE ? before(t) : t);
    const float *all_k = in(r, 2, r->rule == WKV_K_BEFORE ? before(t) : t), *v = in(r, 3, t);
    for (uint32_t h = 0; h < p->n_head; h++) {
        size_t at = (size_t)h * p->k_dim;
        const float *q = all_q + at, *k = all_k + at;
        double own = 0;
        for (uint32_t m = 0; m < p->k_dim; m++) {
            r->row[m] = pow((double)all_w[at + m], r->of[WKV_DECAY]);
            if (has_bonus) own += r->of[WKV_BONUS] * (double)q[m] * (double)k[m] * (double)r->a[at + m];
        }
        for (uint32_t j = 0; j < p->v_dim; j++) {
            size_t out = (size_t)h * p->v_dim + j;
            double *s = r->state + out * p->k_dim, old = 0, read = 0, early = 0;
            for (uint32_t m = 0; m < p->k_dim; m++) early += s[m] * (double)q[m];
            for (uint32_t m = 0; m < p->k_dim && is_7; m++) old += s[m] * (double)in(r, 5, t)[at + m];
            for (uint32_t m = 0; m < p->k_dim; m++) {
                double removed = is_7 ? r->of[WKV_RATE] * old * (double)in(r, 4, t)[at + m]
                                        * (double)in(r, 5, t)[at + m] : 0;
                s[m] = s[m] * r->row[m] - removed + r->of[WKV_FED] * (double)v[out] * (double)k[m];
                read += s[m] * (double)q[m];
            }
            r->y[(size_t)t * p->n_head * p->v_dim + out] = (reads_first ? early : read) + own * (double)v[out];
        }
    }
}

void fit_wkv(struct fit *f) {
    enum rwkv_kind kind = f->model->plan.rwkv.kind;
    bool is_7 = kind == RWKV_7, has_bonus = kind == RWKV_6;
    struct recurrence r = { .f = f, .step = step_wkv, .rules = wkv_rules, .n_rule = N_RULES(wkv_rules), .numbers = {
        [WKV_DECAY] = { "multiplies its state by w^f", 1, false },
        [WKV_FED] = { "adds f v^T k to its state", 1, false },
        [WKV_RATE] = { is_7 ? "uses f times the in-context learning rate" : "uses f times the bonus of the own token",
                       1, false } } };
    r.n_number = is_7 || has_bonus ? 3 : 2;
    if (!is_whole(f) || kind == RWKV_LINEAR) return;
    const struct attn_plan *p = &f->model->plan.layers[f->layer].attn;
    uint64_t n_k = (uint64_t)p->n_head * p->k_dim, n_v = (uint64_t)p->n_head * p->v_dim;
    if (p->n_head != p->n_head_kv || fit_width(&f->theirs) != n_v) return;
    if (!find(&r, 0, TAP_SET(QCUR), n_k) || !find(&r, 1, TAP_SET(WKV_DECAY), n_k)) return;
    if (!find(&r, 2, is_7 ? TAP_SET(WKV_KEY) : TAP_SET(KCUR), n_k)) return;
    if (!find(&r, 3, TAP_SET(WKV_VALUE) | TAP_SET(VCUR), n_v)) return;
    if (is_7 && (!find(&r, 4, TAP_SET(WKV_RATE), n_k) || !find(&r, 5, TAP_SET(WKV_REMOVAL), n_k))) return;
    r.a = has_bonus ? fit_floats(f, fit_weight(f, W_BONUS)->w) : NULL;
    r.row = fit_new(f, p->k_dim, sizeof *r.row);
    if (r.row && (r.a || !has_bonus)) analyse(&r, (size_t)n_v * p->k_dim, 6.0 * (double)n_v * p->k_dim);
}

/* ---- convolutions ------------------------------------------------------------------------------------------------ */

struct convolution {
    struct fit *f;
    struct fit_rows in;
    const float *kernel, *bias;   /* (n, n_kernel), (n); NULL without */
    uint32_t n, n_kernel;
    bool has_gates;               /* in is b, c and x; b x is convolved, or the product of two other parts */
    uint32_t parts[2];
    double *y;
};

/* Element i of what is convolved at token t; zero before the first token. */
static double input_at(const struct convolution *c, int64_t t, uint32_t i) {
    if (t < 0 || t >= c->in.n_token) return 0;
    const float *row = fit_row(&c->in, (uint32_t)t);
    if (!c->has_gates) return (double)row[i];
    return (double)row[c->parts[0] * c->n + i] * (double)row[c->parts[1] * c->n + i];
}

/* y <- the convolution whose element j is order[j] of the kernel, belongs to the token n_kernel - 1 - j + late places
 * before, and counts factors[j] times; the last factor is that of the bias.  Inputs before a multiple of `chunk` tokens
 * are zeros; 0: only those before the first token. */
static void convolve(const struct convolution *c, const uint32_t *order, const double *factors, int late,
                     uint32_t chunk) {
    for (uint32_t t = 0; t < c->in.n_token; t++) {
        int64_t begin = chunk > 0 ? t / chunk * chunk : 0;
        for (uint32_t i = 0; i < c->n; i++) {
            double sum = c->bias ? factors[c->n_kernel] * (double)c->bias[i] : 0;
            for (uint32_t j = 0; j < c->n_kernel; j++) {
                int64_t at = (int64_t)t - (c->n_kernel - 1) + j - late;
                double w = (double)c->kernel[(size_t)i * c->n_kernel + order[j]];
                if (at >= begin) sum += factors[j] * w * input_at(c, at, i);
            }
            c->y[(size_t)t * c->n + i] = sum;
        }
    }
}

/* Solves the symmetric system a x = b of n unknowns; b becomes x.  Returns false if there is no single solution. */
static bool solve(double a[MAX_KERNEL + 1][MAX_KERNEL + 1], double *b, uint32_t n) {
    for (uint32_t k = 0; k < n; k++) {
        uint32_t best = k;
        for (uint32_t i = k + 1; i < n; i++) best = fabs(a[i][k]) > fabs(a[best][k]) ? i : best;
        if (!(fabs(a[best][k]) > 1e-12)) return false;
        for (uint32_t i = 0; i < n; i++) {
            double held = a[k][i];
            a[k][i] = a[best][i], a[best][i] = held;
        }
        double held = b[k];
        b[k] = b[best], b[best] = held;
        for (uint32_t i = 0; i < n; i++) {
            double by = a[i][k] / a[k][k];
            for (uint32_t j = k; j < n && i != k; j++) a[i][j] -= by * a[k][j];
            if (i != k) b[i] -= by * b[k];
        }
    }
    for (uint32_t k = 0; k < n; k++) b[k] /= a[k][k];
    return true;
}

/* Solves for the factors of the kernel's elements and of the bias, in the blocks where the right step is wrong. */
static void try_factors(const struct convolution *c, const uint32_t *order, uint32_t of) {
    double aa[MAX_KERNEL + 1][MAX_KERNEL + 1] = { { 0 } }, ab[MAX_KERNEL + 1] = { 0 }, z[MAX_KERNEL + 1];
    const struct fit *f = c->f;
    for (uint32_t t = 0; t < c->in.n_token; t++) {
        for (uint32_t i = 0; i < c->n; i++) {
            if (!f->wrong[((size_t)t * c->n + i) / f->theirs.n]) continue;
            for (uint32_t j = 0; j < c->n_kernel; j++) {
                z[j] = (double)c->kernel[(size_t)i * c->n_kernel + j]
                     * input_at(c, (int64_t)t - (c->n_kernel - 1) + j, i);
            }
            if (c->bias) z[c->n_kernel] = (double)c->bias[i];
            for (uint32_t j = 0; j < of; j++) {
                for (uint32_t k = 0; k < of; k++) aa[j][k] += z[j] * z[k];
                ab[j] += z[j] * (double)f->theirs.x[(size_t)t * c->n + i];
            }
        }
    }
    if (!solve(aa, ab, of)) return;
    double factors[MAX_KERNEL + 1] = { 0 };
    char text[FIT_SENTENCE / 2] = "";
    size_t length = 0;
    uint32_t n_other = 0, last = 0;
    for (uint32_t j = 0; j < of; j++) {
        bool is_right = fabs(ab[j] - 1) < 1e-4;
        factors[j] = is_right ? 1 : fabs(ab[j]) < 1e-4 ? 0 : ab[j];
        report_append(text, sizeof text, &length, "%s%.4g", j > 0 ? ", " : "", factors[j]);
        if (!is_right) n_other++, last = j;
    }
    convolve(c, order, factors, 0, 0);
    if (n_other == 1 && last == c->n_kernel) fit_propose(c->f, 1, c->y, "has %.5g times its bias", factors[last]);
    else if (n_other == 1) {
        fit_propose(c->f, 1, c->y, "counts element %u of its kernel of %u %.5g times", last, c->n_kernel,
                    factors[last]);
    } else {
        fit_propose(c->f, n_other, c->y, "counts the elements of its kernel%s %s times",
                    c->bias ? ", and then its bias," : "", text);
    }
}

/* Calls on each order of the elements from `from` on. */
static void try_orders(const struct convolution *c, uint32_t *order, uint32_t from, const double *factors) {
    if (from == c->n_kernel) {
        char text[FIT_SENTENCE / 4] = "";
        size_t length = 0;
        for (uint32_t j = 0; j < c->n_kernel; j++) report_append(text, sizeof text, &length, " %u", order[j]);
        convolve(c, order, factors, 0, 0);
        fit_propose(c->f, 0, c->y, "has the elements of its kernel in the order%s", text);
        return;
    }
    for (uint32_t i = from; i < c->n_kernel; i++) {
        uint32_t held = order[from];
        order[from] = order[i], order[i] = held;
        try_orders(c, order, from + 1, factors);
        order[i] = order[from], order[from] = held;
    }
}

/* (3 n, n_kernel) The kernels of Q, K and V of Kimi Delta Attention, of n elements each. */
static const float *kernels_apart(struct fit *f, uint32_t n, uint32_t n_kernel) {
    float *all = fit_new(f, 3 * (uint64_t)n * n_kernel, sizeof *all);
    for (uint32_t i = 0; all && i < 3; i++) {
        const struct weight *w = fit_weight(f, (enum weight_id)(W_CONV_Q + i))->w;
        memcpy(all + (size_t)i * n * n_kernel, reference_floats(w), (size_t)n * n_kernel * sizeof *all);
    }
    return all;
}

void fit_convolution(struct fit *f) {
    bool is_apart = !fit_weight(f, W_CONV_KERNEL)->w;
    const struct affine *of = fit_weight(f, is_apart ? W_CONV_Q : W_CONV_KERNEL);
    uint32_t order[MAX_KERNEL];
    double factors[MAX_KERNEL + 1];
    if (!is_whole(f) || !of->w || of->w->n_in > MAX_KERNEL || !plan_is_causal(&f->model->plan)) return;
    struct convolution c = { .f = f, .n = (uint32_t)fit_width(&f->theirs), .n_kernel = of->w->n_in,
                             .has_gates = f->model->plan.layers[f->layer].mixer == MIXER_CONVOLUTION,
                             .parts = { 0, 2 } };
    if ((is_apart ? c.n % 3 != 0 : of->w->n_out != c.n) || !fit_input(f, ALL_IDS, &c.in)) return;
    if (fit_width(&c.in) != (size_t)c.n * (c.has_gates ? 3 : 1)) return;
    c.y = fit_new(f, (uint64_t)c.in.n_token * c.n, sizeof *c.y);
    c.kernel = is_apart ? kernels_apart(f, c.n / 3, c.n_kernel) : fit_floats(f, of->w);
    c.bias = of->b ? fit_floats(f, of->b) : NULL;
    if (!c.y || !c.kernel || f->out_of_memory) return;
    for (uint32_t j = 0; j < MAX_KERNEL; j++) order[j] = j;
    for (uint32_t j = 0; j <= MAX_KERNEL; j++) factors[j] = 1;
    for (int late = -1; late <= 2; late++) {
        convolve(&c, order, factors, late, 0);
        if (late < 0) fit_propose(f, 0, c.y, "is the convolution of inputs one token further on");
        else if (late > 0) fit_propose(f, 0, c.y, "is the convolution of inputs that end %d token%s early", late,
                                       late == 1 ? "" : "s");
    }
    for (uint32_t chunk = 1; chunk < c.in.n_token && chunk <= 256; chunk *= 2) {
        convolve(&c, order, factors, 0, chunk);
        fit_propose(f, 0, c.y, "reads zeros before every %u tokens", chunk);
    }
    if (c.n_kernel <= 4) try_orders(&c, order, 0, factors);
    try_factors(&c, order, c.n_kernel + (c.bias ? 1 : 0));
    if (c.bias) {
        factors[c.n_kernel] = 0;
        convolve(&c, order, factors, 0, 0);
        fit_propose(f, 0, c.y, "has no bias");
        factors[c.n_kernel] = 1;
    }
    for (uint32_t k = 0; k < 2 && c.has_gates; k++) {
        static const struct { uint32_t parts[2]; const char *text; } others[] = {
            { { 1, 2 }, "convolves the second third of its input times the last, not the first" },
            { { 0, 1 }, "convolves the first third of its input times the second, not the last" } };
        memcpy(c.parts, others[k].parts, sizeof c.parts);
        convolve(&c, order, factors, 0, 0);
        fit_propose(f, 0, c.y, "%s", others[k].text);
    }
    c.parts[0] = 0, c.parts[1] = 2;
    for (uint32_t il = 0; il < f->model->plan.n_layer; il++) {
        const struct weight *other = f->model->layers[il].w[W_CONV_KERNEL].w;
        bool fits = other && other != of->w && other->n_in == of->w->n_in && other->n_out == of->w->n_out;
        if (!fits || !(c.kernel = fit_floats(f, other))) continue;
        convolve(&c, order, factors, 0, 0);
        fit_propose(f, 0, c.y, "has the kernel %s instead of %s", other->name, of->w->name);
    }
}

/* ---- time steps and decays --------------------------------------------------------------------------------------- */

/* y = x + f b, where the bias b is of the numbers of a row: theirs - truth is (f - 1) b. */
void fit_bias(struct fit *f) {
    size_t width = fit_width(&f->theirs);
    double *y = fit_new(f, f->theirs.n_token * width, sizeof *y), ab = 0, bb = 0;
    const struct weight *w = fit_weight(f, W_DELTA_DT)->w;
    const float *b = w ? fit_floats(f, w) : NULL;
    if (!y || !b || (size_t)w->n_in * w->n_out != width) return;
    for (size_t i = 0; i < f->theirs.n_token * width; i++) {
        double of_b = (double)b[i % width];
        if (!f->wrong[i / f->theirs.n]) continue;
        ab += of_b * ((double)f->theirs.x[i] - (double)f->truth.x[i]);
        bb += of_b * of_b;
    }
    double more = ab / bb;
    for (size_t i = 0; i < f->theirs.n_token * width && bb > 0; i++) {
        y[i] = (double)f->truth.x[i] + more * (double)b[i % width];
    }
    if (bb > 0) fit_propose(f, 1, y, "has %.5g times its bias", fabs(1 + more) < 1e-6 ? 0 : 1 + more);
}

enum { ALPHA_BIAS, ALPHA_FACTOR, ALPHA_A };
enum { ALPHA_RIGHT, ALPHA_BARE, ALPHA_EXP_A, ALPHA_OTHER_SIGN, ALPHA_NEXT_A, ALPHA_NEXT_BIAS };
static const char *const alpha_rules[] = {
    [ALPHA_BARE - 1] = "is a (alpha + dt): softplus is missing", [ALPHA_EXP_A - 1] = "has -e^a for a",
    [ALPHA_OTHER_SIGN - 1] = "has -a for a", [ALPHA_NEXT_A - 1] = "has a of the next head", [ALPHA_NEXT_BIAS - 1] =
    "has dt of the next head" };
static const char *const bounded_rules[] = {
    [ALPHA_BARE - 1] = "is a softplus(alpha + dt), not a lower bound times a sigmoid",
    [ALPHA_EXP_A - 1] = "has e^a for a", [ALPHA_OTHER_SIGN - 1] = "has -a for a",
    [ALPHA_NEXT_A - 1] = "has a of the next head",
    [ALPHA_NEXT_BIAS - 1] = "has dt of the next head" };

/* With a lower bound, of which sigmoid(a (alpha + dt)) is a part, or without. */
static void step_alpha(struct recurrence *r, uint32_t t) {
    const struct delta_plan *d = &r->f->model->plan.layers[r->f->layer].delta;
    uint32_t width = delta_n_decay(d), each = width / d->n_head;
    double least = (double)d->least_decay;
    for (uint32_t i = 0; i < width; i++) {
        uint32_t next = (i + each) % width, of_a = (r->rule == ALPHA_NEXT_A ? next : i) / each;
        double bias = r->of[ALPHA_BIAS] * (double)r->d[r->rule == ALPHA_NEXT_BIAS ? next : i];
        double z = r->of[ALPHA_FACTOR] * (double)in(r, 0, t)[i] + bias, a = (double)r->a[of_a];
        double softplus = z > 20 ? z : log1p(exp(z));
        if (r->rule == ALPHA_EXP_A) a = least == 0 ? -exp(a) : exp(a);
        if (r->rule == ALPHA_OTHER_SIGN) a = -a;
        double y = least == 0 ? a * (r->rule == ALPHA_BARE ? z : softplus)
                 : r->rule == ALPHA_BARE ? a * softplus : least / (1 + exp(-a * z));
        r->y[(size_t)t * width + i] = r->of[ALPHA_A] * y;
    }
}

/* decay = a softplus(alpha + dt), or lower bound * sigmoid(a (alpha + dt)) */
void fit_decay(struct fit *f) {
    static const struct number free[] = { [ALPHA_BIAS] = { "is a softplus(alpha + f dt)", 1, false },
        [ALPHA_FACTOR] = { "is a softplus(f alpha + dt)", 1, false },
        [ALPHA_A] = { "is f a softplus(alpha + dt)", 1, false } };
    static const struct number bounded[] = { [ALPHA_BIAS] = { "is bound * sigmoid(a (alpha + f dt))", 1, false },
        [ALPHA_FACTOR] = { "is bound * sigmoid(a (f alpha + dt))", 1, false },
        [ALPHA_A] = { "is f bound * sigmoid(a (alpha + dt))", 1, false } };
    struct recurrence r = { .f = f, .step = step_alpha, .n_rule = N_RULES(alpha_rules), .n_number = N_RULES(free) };
    const struct weight *a = fit_weight(f, W_DELTA_A)->w, *dt = fit_weight(f, W_DELTA_DT)->w;
    uint64_t width = fit_width(&f->theirs);
    if (!is_whole(f) || !a || !dt || !find(&r, 0, TAP_SET(DELTA_ALPHA), width)) return;
    const struct delta_plan *d = &f->model->plan.layers[f->layer].delta;
    if (width != delta_n_decay(d) || (uint64_t)dt->n_in * dt->n_out != width) return;
    if ((uint64_t)a->n_in * a->n_out != d->n_head) return;
    r.rules = d->least_decay == 0 ? alpha_rules : bounded_rules;
    memcpy(r.numbers, d->least_decay == 0 ? free : bounded, sizeof free);
    r.a = fit_floats(f, a);
    r.d = fit_floats(f, dt);
    if (r.a && r.d) analyse(&r, 0, (double)width);
}

/* ---- decays of RWKV and lightning attention ---------------------------------------------------------------------- */

/* A slope of lightning attention: 2^(-base (h + 1 - from) / n) (1 - layer / of_layers + 1e-5). */
struct slopes { double base, from, layer, of_layers; bool is_reversed; };

static double slope(const struct slopes *s, uint32_t h, uint32_t n) {
    double head = s->is_reversed ? n - 1.0 - h : h;
    return pow(2, -s->base * (head + 1 - s->from) / n) * (1 - s->layer / s->of_layers + 1e-5);
}

/* y (n_token, n_head, k_dim) <- e^-slope; is_linear: 1 - slope */
static void fade(const struct fit *f, const struct slopes *s, bool is_linear, double *y) {
    const struct attn_plan *a = &f->model->plan.layers[f->layer].attn;
    for (size_t i = 0; i < f->theirs.n_token * fit_width(&f->theirs); i++) {
        double of_head = slope(s, (uint32_t)(i / a->k_dim % a->n_head), a->n_head);
        y[i] = is_linear ? 1 - of_head : exp(-of_head);
    }
}

static void try_slopes(struct fit *f, double *y) {
    const struct attn_plan *a = &f->model->plan.layers[f->layer].attn;
    uint32_t n_layer = f->model->plan.n_layer;
    const struct slopes right = { 8, 0, f->layer, n_layer - 1.0, false };
    const struct { struct slopes of; bool is_linear; const char *text; } others[] = {
        { { 8, 1, f->layer, n_layer - 1.0, false }, false, "counts heads from 0 in its slopes: 2^(-8 h / n)" },
        { { 8, 0, f->layer, n_layer - 1.0, true }, false, "has the slopes of heads in reverse" },
        { { 8, 0, f->layer, n_layer, false }, false, "has slopes times 1 - layer / layers, not layer / (layers - 1)" },
        { { 8, 0, f->layer + 1.0, n_layer, false }, false, "has slopes times 1 - (layer + 1) / layers" },
        { right, true, "is 1 - slope, not e^-slope" } };
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        fade(f, &others[k].of, others[k].is_linear, y);
        fit_propose(f, 0, y, "%s", others[k].text);
    }
    for (uint32_t il = 0; il < n_layer; il++) {
        struct slopes of = right;
        of.layer = il;
        fade(f, &of, false, y);
        if ((int32_t)il != f->layer) fit_propose(f, 0, y, "has the slopes of layer %u", il);
    }
    /* log2 of a slope is linear in the head. */
    double ab = 0, bb = 0;
    for (size_t i = 0; i < f->theirs.n_token * fit_width(&f->theirs); i++) {
        double part = ((double)(i / a->k_dim % a->n_head) + 1) / a->n_head;
        double power = log2(-log((double)f->theirs.x[i]) / (1 - right.layer / right.of_layers + 1e-5));
        if (!isfinite(power)) continue;
        ab -= power * part;
        bb += part * part;
    }
    struct slopes of = right;
    of.base = ab / bb;
    if (!(bb > 0)) return;
    fade(f, &of, false, y);
    fit_propose(f, 1, y, "has slopes of 2^(-f (head + 1) / heads), where f is %.5g, not 8", of.base);
}

/* Theirs is w^f, or another function of d than w, which is e^-e^d or, in RWKV 7, e^(-0.606531 sigmoid(d)). */
void fit_fade(struct fit *f) {
    enum rwkv_kind kind = f->model->plan.rwkv.kind;
    size_t n = f->theirs.n_token * fit_width(&f->theirs);
    double *y = fit_new(f, n, sizeof *y), ab = 0, bb = 0;
    if (!y || f->layer < 0) return;
    for (size_t i = 0; i < n; i++) {
        double right = log((double)f->truth.x[i]), theirs = log((double)f->theirs.x[i]);
        if (!f->wrong[i / f->theirs.n] || !isfinite(right) || !isfinite(theirs)) continue;
        ab += right * theirs;
        bb += right * right;
    }
    double power = ab / bb;
    for (size_t i = 0; i < n && bb > 0; i++) y[i] = pow((double)f->truth.x[i], power);
    if (bb > 0) fit_propose(f, 1, y, "is w^f for what should be w, where f is %.5g", power);
    if (kind == RWKV_LIGHTNING) try_slopes(f, y);
    if (kind != RWKV_6 && kind != RWKV_LINEAR) return;
    for (size_t i = 0; i < n; i++) y[i] = -1 / log((double)f->truth.x[i]);   /* the logarithm is -e^d */
    fit_propose(f, 0, y, "is e^-d, not e^-e^d");
    for (size_t i = 0; i < n; i++) y[i] = 1 / (1 - log((double)f->truth.x[i]));
    fit_propose(f, 0, y, "is sigmoid(-d), not e^-e^d");
}

/* ---- embeddings for each layer ----------------------------------------------------------------------------------- */

/* x = a p + b e, where e is what the tokens' rows of the table give, and p what is a product of the usual embedding. */
void fit_per_layer(struct fit *f) {
    const struct plan *p = &f->model->plan;
    const struct weight *table = f->model->per_layer_embd.w;
    size_t width = fit_width(&f->theirs);
    size_t n = f->theirs.n_token * width;
    double *y = fit_new(f, n, sizeof *y), *e = fit_new(f, n, sizeof *e);
    float *row = table && table->n_in == width ? fit_new(f, width, sizeof *row) : NULL;
    double pp = 0, pe = 0, ee = 0, p_theirs = 0, e_theirs = 0;
    if (!y || !e || !row) return;
    for (uint32_t t = 0; t < f->theirs.n_token; t++) {
        if (!fit_weight_row(f, table, (size_t)f->tokens[f->theirs.pos[t]], row)) return;
        for (size_t i = 0; i < width; i++) {
            size_t at = t * width + i;
            e[at] = (double)row[i] * sqrt(p->n_per_layer / 2.0);
            double of_p = (double)f->truth.x[at] - e[at], theirs = (double)f->theirs.x[at];
            if (!f->wrong[at / f->theirs.n]) continue;
            pp += of_p * of_p;
            pe += of_p * e[at];
            ee += e[at] * e[at];
            p_theirs += of_p * theirs;
            e_theirs += e[at] * theirs;
        }
    }
    double det = pp * ee - pe * pe, of_p = (p_theirs * ee - e_theirs * pe) / det;
    double of_e = (e_theirs * pp - p_theirs * pe) / det;
    double tried[][2] = { { of_p, of_e }, { (p_theirs - pe) / pp, 1 }, { 1, (e_theirs - pe) / ee } };
    for (size_t k = 0; k < sizeof tried / sizeof *tried; k++) {
        double a = tried[k][0], b = tried[k][1];
        if (!isfinite(a) || !isfinite(b)) continue;
        for (size_t i = 0; i < n; i++) y[i] = a * ((double)f->truth.x[i] - e[i]) + b * e[i];
        fit_propose(f, k == 0 ? 2 : 1, y, "has %.5g times the product with per_layer_model_proj and %.5g times the "
                    "rows of per_layer_token_embd that it should have", fabs(a) < 1e-6 ? 0 : a, fabs(b) < 1e-6 ? 0 : b);
    }
}

/* The layer's own part, of another layer. */
void fit_own(struct fit *f) {
    const struct plan *p = &f->model->plan;
    struct fit_rows gate, all;
    size_t n = fit_width(&f->theirs);
    double *y = fit_new(f, f->theirs.n_token * n, sizeof *y);
    if (!y || f->layer < 0 || !fit_input(f, TAP_SET(OWN_GATED), &gate) || fit_width(&gate) != n) return;
    if (!fit_tap(f, TAP_PER_LAYER, -1, &all) || !fit_align(f, &all) || fit_width(&all) != p->n_layer * n) return;
    for (uint32_t il = 0; il < p->n_layer; il++) {
        for (size_t i = 0; i < f->theirs.n_token * n; i++) {
            y[i] = (double)gate.x[i] * (double)all.x[(i / n * p->n_layer + il) * n + i % n];
        }
        if ((int32_t)il != f->layer) fit_propose(f, 0, y, "uses the embedding of layer %u", il);
    }
}

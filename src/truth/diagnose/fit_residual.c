/* Residuals.  Theirs is taken as a sum of earlier activations with coefficients: the least squares over every set of up
 * to three of them. */
#include "diagnose/fit.h"

#include <math.h>

/* TERMS: activations that a sum may have.  SET: how many of them together. */
enum { TERMS = 24, SET = 3 };

struct terms {
    struct fit *f;
    const float *x[TERMS];         /* (n_token, width) each */
    char names[TERMS][48];
    uint32_t n;
    /* Their dot products with each other and with theirs, of the blocks in which the right step is wrong, each divided
     * by the square of its norm; and how many blocks these are. */
    double gram[TERMS][TERMS], with[TERMS], n_block;
    double best;                   /* the smallest squared error so far */
    double scale;                  /* the plan's factor of what is added */
};

static void add_term(struct terms *s, const struct fit_rows *rows, const char *name, int32_t layer) {
    if (s->n == TERMS) return;
    size_t n = 0;
    s->names[s->n][0] = '\0';
    report_append(s->names[s->n], sizeof s->names[s->n], &n, layer >= 0 ? "%s-%d" : "%s", name, (int)layer);
    s->x[s->n++] = rows->x;
}

/* Adds the activations of the layer up to the step, and those before the layer. */
static void find_terms(struct terms *s) {
    struct fit *f = s->f;
    uint64_t own = tap_place(f->dump->order, f->id, f->layer);
    for (int32_t back = 0; back < 3; back++) {
        for (int i = TAP_ATTN_NORM; i <= TAP_L_OUT; i++) {
            enum tap_id id = (enum tap_id)i;
            struct fit_rows rows;
            int32_t layer = f->layer - back;
            bool is_stream = id == TAP_L_OUT || id == TAP_FFN_INP;
            if (layer < 0 || (back > 0 && !is_stream) || tap_place(f->dump->order, id, layer) >= own) continue;
            if (!trace_find_tap(f->dump, id, layer) && !trace_find_tap(f->right, id, layer)) continue;
            if (!fit_tap(f, id, layer, &rows) || fit_width(&rows) != fit_width(&f->theirs)) continue;
            if (fit_align(f, &rows)) add_term(s, &rows, tap_spec(id)->name, layer);
        }
    }
    struct fit_rows rows;
    bool has_embd = fit_tap(f, TAP_EMBD, -1, &rows) && fit_width(&rows) == fit_width(&f->theirs);
    if (has_embd && fit_align(f, &rows)) add_term(s, &rows, "embd", -1);
}

/* Adds the two right terms as they are for the token before, for an engine that mixes up tokens. */
static void add_shifted(struct terms *s, id_set among, const char *name) {
    struct fit_rows rows;
    size_t width = fit_width(&s->f->theirs);
    if (!fit_input(s->f, among, &rows) || fit_width(&rows) != width) return;
    float *x = fit_new(s->f, rows.n_token * width, sizeof *x);
    if (!x) return;
    for (uint32_t t = 1; t < rows.n_token; t++) memcpy(x + t * width, fit_row(&rows, t - 1), width * sizeof *x);
    rows.x = x;
    add_term(s, &rows, name, -1);
}

static void sum_products(struct terms *s) {
    const struct fit *f = s->f;
    uint32_t n = f->theirs.n;
    for (size_t block = 0; block < (size_t)f->theirs.n_token * f->theirs.n_head; block++) {
        const float *theirs = f->theirs.x + block * n;
        double norm = 0;
        for (uint32_t i = 0; i < n; i++) norm += (double)theirs[i] * (double)theirs[i];
        if (!f->wrong[block] || !(norm > 0) || !isfinite(norm)) continue;
        s->n_block++;
        for (uint32_t a = 0; a < s->n; a++) {
            const float *x = s->x[a] + block * n;
            for (uint32_t i = 0; i < n; i++) s->with[a] += (double)x[i] * (double)theirs[i] / norm;
            for (uint32_t b = 0; b <= a; b++) {
                double dot = 0;
                for (uint32_t i = 0; i < n; i++) dot += (double)x[i] * (double)s->x[b][block * n + i];
                s->gram[a][b] += dot / norm;
            }
        }
    }
    for (uint32_t a = 0; a < s->n; a++) {
        for (uint32_t b = a + 1; b < s->n; b++) s->gram[a][b] = s->gram[b][a];
    }
    s->best = INFINITY;
}

/* Solves the normal equations of a set of n terms by Gaussian elimination.  Returns false if they depend on each
 * other. */
static bool solve(const struct terms *s, const uint32_t *set, uint32_t n, double *c) {
    double a[SET][SET + 1];
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < n; k++) a[i][k] = s->gram[set[i]][set[k]];
        a[i][n] = s->with[set[i]];
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!(a[i][i] > 1e-9 * s->gram[set[i]][set[i]])) return false;
        for (uint32_t k = i + 1; k < n; k++) {
            double by = a[k][i] / a[i][i];
            for (uint32_t j = i; j <= n; j++) a[k][j] -= by * a[i][j];
        }
    }
    for (uint32_t i = n; i-- > 0;) {
        c[i] = a[i][n];
        for (uint32_t k = i + 1; k < n; k++) c[i] -= a[i][k] * c[k];
        c[i] /= a[i][i];
    }
    return true;
}

/* Rounds a coefficient to what an engine may have meant: a multiple of 1/2, or of the plan's factor.  Returns false if
 * none is near. */
static bool snap(const struct terms *s, double *c) {
    const double units[] = { 0.5, s->scale, 0.70710678118654752440 };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        double nearest = round(*c / units[i]) * units[i];
        if (fabs(*c - nearest) > fmax(2e-4, s->f->floor) || fabs(nearest) > 8 * units[i]) continue;
        *c = nearest;
        return true;
    }
    return false;
}

static void try_set(struct terms *s, const uint32_t *set, uint32_t n, double *y) {
    struct fit *f = s->f;
    double c[SET];
    uint32_t cost = 0;
    if (!solve(s, set, n, c)) return;
    double error2 = s->n_block;
    for (uint32_t i = 0; i < n; i++) error2 -= c[i] * s->with[set[i]];
    error2 = fmax(error2, f->floor * f->floor * s->n_block);
    if (!(error2 <= s->best)) return;
    s->best = error2;
    size_t n_value = f->theirs.n_token * fit_width(&f->theirs), length = 0;
    char text[FIT_SENTENCE] = "";
    for (uint32_t i = 0; i < n; i++) {
        if (!snap(s, &c[i])) cost++;
        if (c[i] == 0) return;   /* a smaller set says the same */
        report_append(text, sizeof text, &length, "%s", i == 0 ? (c[i] < 0 ? "-" : "") : c[i] < 0 ? " - " : " + ");
        if (fabs(c[i]) != 1) report_append(text, sizeof text, &length, "%.6g * ", fabs(c[i]));
        report_append(text, sizeof text, &length, "%s", s->names[set[i]]);
    }
    for (size_t k = 0; k < n_value; k++) {
        y[k] = 0;
        for (uint32_t i = 0; i < n; i++) y[k] += c[i] * (double)s->x[set[i]][k];
    }
    fit_propose(f, cost, y, "is %s", text);
}

void fit_residual(struct fit *f) {
    struct terms *s = fit_new(f, 1, sizeof *s);
    double *y = fit_new(f, f->theirs.n_token * fit_width(&f->theirs), sizeof *y);
    if (!s || !y || f->layer < 0) return;
    s->f = f;
    s->scale = (double)f->model->plan.residual_scale;
    find_terms(s);
    const id_set added = TAP_SET(ATTN_POST_NORM) | TAP_SET(ATTN_OUT) | TAP_SET(FFN_POST_NORM) | TAP_SET(FFN_OUT);
    add_shifted(s, added, "what is added for the token before");
    add_shifted(s, ~added, "the residual of the token before");
    if (f->out_of_memory) return;
    sum_products(s);
    for (uint32_t a = 0; a < s->n; a++) try_set(s, &a, 1, y);
    for (uint32_t a = 0; a < s->n; a++) {
        for (uint32_t b = a + 1; b < s->n; b++) try_set(s, (uint32_t[]){ a, b }, 2, y);
    }
    if (f->n_finding > 0 && f->findings[0].explains) return;
    for (uint32_t a = 0; a < s->n; a++) {
        for (uint32_t b = a + 1; b < s->n; b++) {
            for (uint32_t c = b + 1; c < s->n; c++) try_set(s, (uint32_t[]){ a, b, c }, 3, y);
        }
    }
}

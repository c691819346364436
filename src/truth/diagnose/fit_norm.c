/* Norms.  A norm divides x by a statistic of it and multiplies the quotient by a weight.  Each part is exchanged for
 * what an engine could take instead:
 *
 *   input: the right one, or another activation
 *   over:  the elements that the statistic is computed over
 *   form:  the statistic and what is done with it
 *   eps
 *   weight: the right one, a function of it, or that of another norm of the file
 */
#include "diagnose/fit.h"
#include "mistakes/formulas.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum over { OVER_RIGHT, OVER_ROW, OVER_HEAD, OVER_HALF, OVER_QUARTER, OVER_EIGHTH, OVER_BATCH, OVER_TOKENS,
            OVER_BATCH_TOKENS, OVER_FIRST, OVER_PREVIOUS, N_OVER };

/* In a model with RMS norms, or with layer norms, what is wrong with the form; NULL: nothing. */
static const struct { const char *formula, *rms, *layer; } forms[N_FORM] = {
    [FORM_RMS] = { "x / sqrt(mean(x^2) + eps)", NULL, "the mean is not subtracted" },
    [FORM_LAYER] = { "(x - mean) / sqrt(variance + eps)", "the mean is subtracted", NULL },
    [FORM_CENTRED] = { "(x - mean) / sqrt(mean(x^2) + eps)", "the mean is subtracted from x",
                       "the mean is not subtracted under the root" },
    [FORM_VARIANCE] = { "x / sqrt(variance + eps)", "the variance takes the place of the mean square",
                        "the mean is subtracted only under the root" },
    [FORM_NO_ROOT] = { "x / (mean(x^2) + eps)", "the square root is missing",
                       "the mean is not subtracted and the square root is missing" },
    [FORM_LAYER_NO_ROOT] = { "(x - mean) / (variance + eps)",
                             "the mean is subtracted and the square root is missing", "the square root is missing" },
    [FORM_SUM] = { "x / sqrt(sum(x^2) + eps)", "the sum takes the place of the mean",
                   "the mean is not subtracted and the sum takes the place of the mean" },
    [FORM_LAYER_SUM] = { "(x - mean) / sqrt(sum((x - mean)^2) + eps)",
                         "the mean is subtracted and the sum takes the place of the mean",
                         "the sum takes the place of the mean" },
    [FORM_OUTSIDE] = { "x / (sqrt(mean(x^2)) + eps)", "eps is added outside the root",
                       "the mean is not subtracted and eps is added outside the root" },
    [FORM_LAYER_OUTSIDE] = { "(x - mean) / (sqrt(variance) + eps)",
                             "the mean is subtracted and eps is added outside the root",
                             "eps is added outside the root" },
    [FORM_N_1] = { "x / sqrt(sum(x^2) / (n - 1) + eps)", "the sum is divided by n - 1 instead of n",
                   "the mean is not subtracted and the sum is divided by n - 1 instead of n" },
    [FORM_LAYER_N_1] = { "(x - mean) / sqrt(sum((x - mean)^2) / (n - 1) + eps)",
                         "the mean is subtracted and the sum is divided by n - 1 instead of n",
                         "the sum is divided by n - 1 instead of n" },
    [FORM_LAST] = { "x / sqrt(mean(x^2) + eps)", "the sum leaves out the last element",
                    "the mean is not subtracted and the sum leaves out the last element" },
    [FORM_FIRST] = { "x / sqrt(mean(x^2) + eps)", "the sum leaves out the first element",
                     "the mean is not subtracted and the sum leaves out the first element" },
    [FORM_ABS] = { "x / (mean(|x|) + eps)", "the mean of |x| takes the place of the root of the mean square",
                   "the mean of |x| takes the place of the deviation" },
    [FORM_MAX] = { "x / (max(|x|) + eps)", "the largest |x| takes the place of the root of the mean square",
                   "the largest |x| takes the place of the deviation" },
    [FORM_MEAN] = { "x / (|mean(x)| + eps)", "the mean takes the place of the root of the mean square",
                    "the mean takes the place of the deviation" },
    [FORM_TIMES] = { "x * sqrt(mean(x^2) + eps)", "x is multiplied instead of divided",
                     "x is multiplied instead of divided" },
    [FORM_TWICE] = { "norm(norm(x) * w)", "the norm is applied twice", "the norm is applied twice" },
    [FORM_SUBTRACT] = { "x - mean", "only the mean is subtracted", "there is no division" },
    [FORM_NONE] = { "x", "there is no norm", "there is no norm" },
};
static const char *const overs[N_OVER] = {
    [OVER_RIGHT] = NULL, [OVER_ROW] = "over all heads together", [OVER_HEAD] = "over each head alone",
    [OVER_HALF] = "over each half", [OVER_QUARTER] = "over each quarter", [OVER_EIGHTH] = "over each eighth",
    [OVER_BATCH] = "over all tokens together", [OVER_TOKENS] = "over all tokens instead of the elements",
    [OVER_BATCH_TOKENS] = "over the tokens of a batch instead of the elements",
    [OVER_FIRST] = "with the statistic of the first token", [OVER_PREVIOUS] = "with the statistic of the token before",
};

enum by { BY_W, BY_1, BY_1_PLUS, BY_SQUARE, BY_INVERSE, BY_ABS, BY_MINUS_1, BY_REVERSED, BY_SHIFTED,
          BY_SHIFTED_BACK, BY_ADDED, N_BY };
static const struct { const char *formula, *comment; } bys[N_BY] = {
    [BY_W] = { " * w", NULL }, [BY_1] = { "", "the weight is missing" },
    [BY_1_PLUS] = { " * (1 + w)", "1 is added to the weight" },
    [BY_SQUARE] = { " * w^2", "the weight is applied twice" },
    [BY_INVERSE] = { " / w", "the weight divides instead of multiplying" },
    [BY_ABS] = { " * |w|", "the weight loses its sign" },
    [BY_MINUS_1] = { " * (w - 1)", "1 is subtracted from the weight" },
    [BY_REVERSED] = { " * w", "the weight is read in reverse" },
    [BY_SHIFTED] = { " * w", "the weight is read from one element too far on" },
    [BY_SHIFTED_BACK] = { " * w", "the weight is read from one element too early" },
    [BY_ADDED] = { " + w", "the weight is added instead of multiplied" },
};

struct norm {
    struct fit *f;
    struct fit_rows x;
    size_t width, unit;      /* elements of a row; of the right statistic */
    double eps;
    double *w, *b;           /* (width) weight and bias; b is NULL without */
    double *normed, *y;      /* (n_token, width) */
    bool is_layer;
    uint32_t head_dim;
};

/* ---- the parts --------------------------------------------------------------------------------------------------- */

/* h (n_token, width) <- x without weight and bias */
static void normalize(const struct norm *m, enum over over, enum norm_form form, double eps, const double *x,
                      double *h) {
    size_t n_token = m->x.n_token, width = m->width;
    if (over == OVER_BATCH) {
        norm_divide(form, 0, eps, x, x, n_token * width, 1, h);
        return;
    }
    if (over == OVER_TOKENS || over == OVER_BATCH_TOKENS) {
        for (size_t t = 0, n = n_token; t < n_token; t += n) {
            if (over == OVER_BATCH_TOKENS) {   /* the prompt is one batch, and each further token is one */
                for (n = 1; m->x.pos[t] < m->f->n_prompt && t + n < n_token && m->x.pos[t + n] < m->f->n_prompt; n++);
            }
            for (size_t i = t * width; i < (t + 1) * width; i++) {
                norm_divide(form, 0, eps, x + i, x + i, n, width, h + i);
            }
        }
        return;
    }
    size_t unit = over == OVER_ROW ? width : over == OVER_HEAD ? m->head_dim : over == OVER_HALF ? m->unit / 2
                : over == OVER_QUARTER ? m->unit / 4 : over == OVER_EIGHTH ? m->unit / 8 : m->unit;
    for (size_t t = 0; t < n_token; t++) {
        size_t from = over == OVER_FIRST ? 0 : over == OVER_PREVIOUS && t > 0 ? t - 1 : t;
        for (size_t i = 0; i + unit <= width; i += unit) {
            norm_divide(form, 0, eps, x + from * width + i, x + t * width + i, unit, 1, h + t * width + i);
        }
    }
}

/* y <- normed times a function of the weight, plus the bias */
static void apply(const struct norm *m, enum by by, const double *w, bool with_bias) {
    for (size_t i = 0; i < m->x.n_token * m->width; i++) {
        size_t at = i % m->width, next = (at + 1) % m->width, before = (at + m->width - 1) % m->width;
        double z = m->normed[i];
        switch (by) {
        case BY_W: z *= w[at]; break;
        case BY_1_PLUS: z *= 1 + w[at]; break;
        case BY_SQUARE: z *= w[at] * w[at]; break;
        case BY_INVERSE: z /= w[at]; break;
        case BY_ABS: z *= fabs(w[at]); break;
        case BY_MINUS_1: z *= w[at] - 1; break;
        case BY_REVERSED: z *= w[m->width - 1 - at]; break;
        case BY_SHIFTED: z *= w[next]; break;
        case BY_SHIFTED_BACK: z *= w[before]; break;
        case BY_ADDED: z += w[at]; break;
        default: break;
        }
        m->y[i] = z + (m->b && with_bias ? m->b[at] : 0);
    }
}

/* ---- the hypotheses ---------------------------------------------------------------------------------------------- */

/* Normalizes in one way and proposes it with each function of the weight. */
static void try_weights(const struct norm *m, enum over over, enum norm_form form, double eps, const char *eps_comment,
                        const double *x) {
    normalize(m, over, form, eps, x, m->normed);
    if (form == FORM_TWICE) {
        for (size_t i = 0; i < m->x.n_token * m->width; i++) {
            m->y[i] = m->normed[i] * m->w[i % m->width] + (m->b ? m->b[i % m->width] : 0);
        }
        normalize(m, over, m->is_layer ? FORM_LAYER : FORM_RMS, eps, m->y, m->normed);
    }
    const char *of_form = m->is_layer ? forms[form].layer : forms[form].rms;
    for (int by = 0; by < N_BY; by++) {
        for (int without = 0; without <= (m->b ? 1 : 0); without++) {
            const char *comments[] = { overs[over], of_form, eps_comment, bys[by].comment,
                                       without ? "the bias is missing" : NULL };
            char text[FIT_SENTENCE] = "";
            size_t n = 0, n_comment = 0;
            for (size_t i = 0; i < sizeof comments / sizeof *comments; i++) {
                if (comments[i]) report_append(text, sizeof text, &n, "%s%s", n_comment++ ? ", " : "", comments[i]);
            }
            if (n_comment == 0 || n_comment > 2) continue;
            apply(m, (enum by)by, m->w, !without);
            bool is_skipped = form == FORM_NONE && by == BY_1;
            uint32_t cost = is_skipped ? 0 : (uint32_t)n_comment - 1;
            if (is_skipped) report_append(text, (n = 0, sizeof text), &n, "the norm is skipped");
            fit_propose(m->f, cost, m->y, "is %s%s: %s", forms[form].formula, bys[by].formula, text);
        }
    }
}

static void try_forms(const struct norm *m, const double *x) {
    for (int over = 0; over < N_OVER; over++) {
        if (over == OVER_ROW && m->unit == m->width) continue;
        if (over == OVER_HEAD && (m->head_dim == m->unit || m->head_dim == 0 || m->width % m->head_dim)) continue;
        if (over >= OVER_HALF && over <= OVER_EIGHTH && m->unit % 8) continue;
        for (int form = 0; form < N_FORM; form++) {
            try_weights(m, (enum over)over, (enum norm_form)form, m->eps, NULL, x);
            try_weights(m, (enum over)over, (enum norm_form)form, 0, "eps is 0", x);
        }
    }
}

/* Other values of eps: the usual ones, and the one that fits best.  Where the weight is right, the quotient of theirs
 * and x is the divisor. */
static void try_eps(const struct norm *m, const double *x) {
    enum norm_form right = m->is_layer ? FORM_LAYER : FORM_RMS;
    const double usual[] = { 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10, 1e-12, sqrt(m->eps), m->eps * m->eps };
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        char comment[80];
        snprintf(comment, sizeof comment, "eps is %g instead of %g", usual[i], m->eps);
        if (fabs(usual[i] - m->eps) > 1e-3 * m->eps) try_weights(m, OVER_RIGHT, right, usual[i], comment, x);
    }
    normalize(m, OVER_RIGHT, right, 0, x, m->normed);
    double sum = 0, sum_1 = 0;
    for (size_t i = 0; i + m->unit <= m->x.n_token * m->width; i += m->unit) {
        double ab = 0, aa = 0, mean = 0, square = 0;
        for (size_t k = i; k < i + m->unit; k++) {
            double right_k = m->normed[k] * m->w[k % m->width], bias = m->b ? m->b[k % m->width] : 0;
            ab += right_k * ((double)m->f->theirs.x[k] - bias);
            aa += right_k * right_k;
            mean += x[k] / (double)m->unit;
            square += x[k] * x[k] / (double)m->unit;
        }
        double variance = m->is_layer ? square - mean * mean : square, factor = ab / aa;   /* sqrt(v / (v + eps)) */
        if (!(factor > 0) || !(variance > 0)) continue;
        double eps = variance * (1 / (factor * factor) - 1), certainty = 1 / (variance * variance);
        sum += eps * certainty;
        sum_1 += certainty;
    }
    double eps = sum / sum_1;
    if (!(sum_1 > 0) || !(eps > -INFINITY)) return;
    normalize(m, OVER_RIGHT, right, eps, x, m->normed);
    apply(m, BY_W, m->w, true);
    fit_propose(m->f, 1, m->y, "is the norm with an eps of %.3g instead of %g", eps, m->eps);
}

/* The weight of every other norm of the file that has as many elements. */
static void try_other_weights(struct norm *m, const double *x, const struct weight *own) {
    normalize(m, OVER_RIGHT, m->is_layer ? FORM_LAYER : FORM_RMS, m->eps, x, m->normed);
    float *row = fit_new(m->f, m->width, sizeof *row);
    double *w = fit_new(m->f, m->width, sizeof *w);
    for (size_t i = 0; row && w && i < m->f->model->n_weight; i++) {
        const struct weight *other = &m->f->model->weights[i];
        if (other->n_out != 1 || other->n_in != own->n_in || strcmp(other->name, own->name) == 0) continue;
        if (!fit_weight_row(m->f, other, 0, row)) return;
        for (size_t k = 0; k < m->width; k++) w[k] = (double)row[k % other->n_in];
        apply(m, BY_W, w, true);
        fit_propose(m->f, 0, m->y, "has the weight %s instead of %s", other->name, own->name);
    }
}

/* The norm of another activation with as many elements, of the layer or the one before. */
static void try_other_inputs(struct norm *m) {
    static const enum tap_id ids[] = { TAP_EMBD, TAP_ATTN_NORM, TAP_KQV_OUT, TAP_ATTN_OUT, TAP_ATTN_POST_NORM,
                                       TAP_FFN_INP, TAP_FFN_NORM, TAP_FFN_OUT, TAP_L_OUT, TAP_QCUR, TAP_KCUR,
                                       TAP_VCUR, TAP_QCUR_ROPE, TAP_KCUR_ROPE };
    struct fit *f = m->f;
    int32_t n_layer = (int32_t)f->model->plan.n_layer, own = f->layer < 0 ? n_layer : f->layer;
    double *x = fit_new(f, (uint64_t)m->x.n_token * m->width, sizeof *x);
    for (size_t i = 0; x && i < sizeof ids / sizeof *ids; i++) {
        bool in_layer = tap_spec(ids[i])->in_layer;
        for (int32_t back = 0; back < (in_layer ? 3 : 1); back++) {
            int32_t layer = in_layer ? own - back : -1;
            struct fit_rows rows;
            bool is_own = ids[i] == f->id && layer == f->layer;
            if (is_own || layer < -1 || (in_layer && (layer < 0 || layer >= n_layer))) continue;
            if (!fit_tap(f, ids[i], layer, &rows) || fit_width(&rows) != m->width) continue;
            if (!fit_align(f, &rows)) continue;
            for (size_t k = 0; k < m->x.n_token * m->width; k++) x[k] = (double)rows.x[k];
            struct tap_text name;
            normalize(m, OVER_RIGHT, m->is_layer ? FORM_LAYER : FORM_RMS, m->eps, x, m->normed);
            apply(m, BY_W, m->w, true);
            fit_propose(f, 0, m->y, "is the norm of %s instead of its input", tap_show(&name, ids[i], layer));
            fit_propose(f, 0, x, "is %s", tap_show(&name, ids[i], layer));
        }
    }
}

/* ---- the analyser ------------------------------------------------------------------------------------------------ */

/* The weight of element i of a row, (width); a norm of heads may have a weight, or one number, for each head. */
static double *spread(struct fit *f, const struct weight *w, size_t width, size_t unit) {
    double *out = fit_new(f, width, sizeof *out);
    const float *all = w ? fit_floats(f, w) : NULL;
    for (size_t i = 0; out && i < width; i++) {
        size_t n = w ? w->n_in : 1;
        out[i] = !all ? 1 : (double)(n == 1 ? all[i / unit % w->n_out] : all[i / n % w->n_out * n + i % n]);
    }
    return out;
}

void fit_norm(struct fit *f) {
    const struct plan *p = &f->model->plan;
    const struct step *step = fit_step(f);
    enum weight_id id = step ? step->weight : mistake_weight(f->id);
    bool is_of_heads = step && step->kind == STEP_NORM_HEADS;   /* a layer norm in any model */
    const struct affine *of = fit_weight(f, id);
    struct norm m = { .f = f, .is_layer = is_of_heads || p->norm == NORM_LAYER };
    if (!fit_input(f, ALL_IDS, &m.x) || fit_width(&m.x) != fit_width(&f->theirs)) return;
    m.width = fit_width(&m.x);
    const struct attn_plan *a = f->layer >= 0 ? &p->layers[f->layer].attn : &p->layers[0].attn;
    m.unit = step && step->n_norm > 0 ? step->n_norm : m.width;
    m.head_dim = a->k_dim;
    m.eps = (double)plan_norm_eps(p, id);
    size_t n = m.x.n_token * m.width;
    m.w = spread(f, of->w, m.width, m.unit);
    m.b = of->b ? spread(f, of->b, m.width, m.unit) : NULL;
    m.normed = fit_new(f, n, sizeof *m.normed);
    m.y = fit_new(f, n, sizeof *m.y);
    double *x = fit_new(f, n, sizeof *x);
    if (f->out_of_memory) return;
    for (size_t i = 0; i < n; i++) x[i] = (double)m.x.x[i];
    try_forms(&m, x);
    try_eps(&m, x);
    if (of->w) try_other_weights(&m, x, of->w);
    try_other_inputs(&m);
}

/* The activation of a feed-forward network, and other gates: theirs is taken as f(a) * g(b), where a and b are the gate
 * and the up projection, in either order, and f and g are functions of a table. */
#include "diagnose/fit.h"
#include "mistakes/formulas.h"

#include <math.h>

/* ---- functions --------------------------------------------------------------------------------------------------- */

static double leaky_01(double z) { return z > 0 ? z : 0.01 * z; }
static double leaky_1(double z) { return z > 0 ? z : 0.1 * z; }
static double elu(double z) { return z > 0 ? z : expm1(z); }
static double mish(double z) { return z * tanh(softplus(z)); }
static double hard_sigmoid(double z) { return fmin(fmax(z + 3, 0), 6) / 6; }
static double one(double z) { return (void)z, 1; }
static double square(double z) { return z * z; }
static double absolute(double z) { return fabs(z); }
static double minus(double z) { return -z; }
static double plus_1(double z) { return z + 1; }
static double minus_1(double z) { return z - 1; }
static double silu_of_minus(double z) { return silu(-z); }
static double silu_of_2(double z) { return silu(2 * z); }
static double silu_of_half(double z) { return silu(z / 2); }
static double silu_wrong_sign(double z) { return z / (1 + exp(z)); }
static double silu_minus(double z) { return z / (1 - exp(-z)); }
static double silu_derivative(double z) { return sigmoid(z) * (1 + z * (1 - sigmoid(z))); }
static double gelu_twice(double z) { return gelu_tanh(gelu_tanh(z)); }
static double gelu_no_half(double z) { return 2 * gelu_tanh(z); }
static double gelu_no_cube(double z) { return gelu_with(z, GELU_ROOT, 0); }
static double gelu_no_root(double z) { return gelu_with(z, 0.63661977236758134308, GELU_CUBE); }
static double gelu_bare(double z) { return gelu_with(z, 1, GELU_CUBE); }
static double gelu_square(double z) { return 0.5 * z * (1 + tanh(GELU_ROOT * (z + GELU_CUBE * z * z))); }
static double gelu_erf_no_root(double z) { return 0.5 * z * (1 + erf(z)); }
static double normal_cdf(double z) { return 0.5 * (1 + erf(z * 0.70710678118654752440)); }
static double relu_6(double z) { return fmin(fmax(z, 0), 6); }
static double softsign(double z) { return z / (1 + fabs(z)); }
static double sine(double z) { return sin(z); }

static const struct { const char *name; double (*f)(double z); } functions[] = {
    { "silu(%s)", silu }, { "gelu(%s) with tanh", gelu_tanh }, { "gelu(%s) with erf", gelu_erf },
    { "%s * sigmoid(1.702 %s)", gelu_quick }, { "relu(%s)", relu }, { "relu(%s)^2", relu_square },
    { "leaky relu(%s) of slope 0.01", leaky_01 }, { "leaky relu(%s) of slope 0.1", leaky_1 }, { "elu(%s)", elu },
    { "softplus(%s)", softplus }, { "mish(%s)", mish }, { "hard swish(%s)", hard_swish },
    { "hard sigmoid(%s)", hard_sigmoid }, { "sigmoid(%s)", sigmoid }, { "tanh(%s)", tanh }, { "%s", identity },
    { "|%s|", absolute }, { "%s^2", square }, { "exp(%s)", exp }, { "silu(-%s)", silu_of_minus },
    { "silu(2 %s)", silu_of_2 }, { "silu(%s / 2)", silu_of_half }, { "silu(silu(%s))", silu_twice },
    { "%s / (1 + e^%s)", silu_wrong_sign }, { "%s / (1 - e^-%s)", silu_minus },
    { "the derivative of silu(%s)", silu_derivative }, { "gelu(gelu(%s))", gelu_twice },
    { "gelu(%s) without its factor 1/2", gelu_no_half }, { "gelu(%s) without its cube", gelu_no_cube },
    { "gelu(%s) with 2/pi for its root", gelu_no_root }, { "gelu(%s) without sqrt(2/pi)", gelu_bare },
    { "gelu(%s) with a square for its cube", gelu_square }, { "gelu(%s) with erf(z) for erf(z/sqrt(2))",
      gelu_erf_no_root }, { "the normal distribution of %s", normal_cdf }, { "relu6(%s)", relu_6 },
    { "softsign(%s)", softsign }, { "sin(%s)", sine },
};
static const struct { const char *name; double (*g)(double z); } factors[] = {
    { " * %s", identity }, { "", one }, { " * (%s + 1)", plus_1 }, { " * (%s - 1)", minus_1 }, { " * %s^2", square },
    { " * -%s", minus }, { " * |%s|", absolute }, { " * silu(%s)", silu }, { " * gelu(%s)", gelu_tanh },
    { " * sigmoid(%s)", sigmoid }, { " * relu(%s)", relu }, { " * tanh(%s)", tanh },
};
enum { N_FUNCTION = sizeof functions / sizeof *functions, N_FACTOR = sizeof factors / sizeof *factors };

/* ---- hypotheses -------------------------------------------------------------------------------------------------- */

/* What f and g are applied to. */
struct operands { const float *a, *b; const char *a_name, *b_name, *comment; };

/* Writes a name of the tables, which has at most two %s. */
static void append_name(char *text, size_t *n, const char *pattern, const char *operand) {
    for (const char *c = pattern; *c; c++) {
        if (c[0] == '%') report_append(text, FIT_SENTENCE, n, "%s", operand);
        else report_append(text, FIT_SENTENCE, n, "%c", *c);
        c += c[0] == '%';
    }
}

/* Proposes f(a) * g(b), and that times a number. */
static void try_product(struct fit *f, const struct operands *of, size_t i, size_t k, double *y) {
    size_t n = f->theirs.n_token * fit_width(&f->theirs);
    for (size_t j = 0; j < n; j++) {
        y[j] = functions[i].f((double)of->a[j]) * (of->b ? factors[k].g((double)of->b[j]) : 1);
    }
    char text[FIT_SENTENCE] = "";
    size_t length = 0;
    append_name(text, &length, functions[i].name, of->a_name);
    if (of->b) append_name(text, &length, factors[k].name, of->b_name);
    if (of->comment) report_append(text, sizeof text, &length, ", %s", of->comment);
    double error = fit_propose(f, of->comment ? 1 : 0, y, "is %s", text), factor = fit_scale(f, y);
    if (!(error > f->floor) || !(fabs(factor) < 1e6)) return;
    for (size_t j = 0; j < n; j++) y[j] *= factor;
    fit_propose(f, of->comment ? 3 : 2, y, "is %.6g * %s", factor, text);
}

static void try_operands(struct fit *f, const struct operands *of, double *y) {
    for (size_t i = 0; i < N_FUNCTION; i++) {
        for (size_t k = 0; k < (of->b ? N_FACTOR : 1); k++) try_product(f, of, i, k, y);
    }
}

/* Proposes gelu(gate) * up with these constants. */
static void propose_gelu(struct fit *f, const float *gate, const float *up, double root, double cube, double *y) {
    size_t n = f->theirs.n_token * fit_width(&f->theirs);
    for (size_t j = 0; j < n; j++) y[j] = gelu_with((double)gate[j], root, cube) * (double)up[j];
    if (cube == GELU_CUBE) fit_propose(f, 1, y, "is gelu(gate) * up with %.6g for its constant sqrt(2/pi)", root);
    else if (root == GELU_ROOT) fit_propose(f, 1, y, "is gelu(gate) * up with %.6g for its constant 0.044715", cube);
    else fit_propose(f, 2, y, "is gelu(gate) * up with %.6g for sqrt(2/pi) and %.6g for 0.044715", root, cube);
}

/* GELU with other constants: the argument of tanh, which theirs shows, is root * z + root * cube * z^3.  Solves for
 * one of them or both by least squares, where theirs is wrong.  Each equation has the weight with which its error shows
 * in theirs. */
static void try_gelu(struct fit *f, const float *gate, const float *up, double *y) {
    if (f->model->plan.layers[f->layer].ffn.activation != ACT_GELU_TANH) return;
    size_t n = f->theirs.n_token * fit_width(&f->theirs);
    double zz = 0, zc = 0, cc = 0, zu = 0, cu = 0;   /* sums of products of z, c = z^3 and the argument u */
    for (size_t j = 0; j < n; j++) {
        double z = (double)gate[j], of_half = z * (double)up[j] / 2, tanh_u = (double)f->theirs.x[j] / of_half - 1;
        if (!f->wrong[j / f->theirs.n] || !(fabs(tanh_u) < 1)) continue;
        double u = atanh(tanh_u), c = z * z * z, weight = of_half * (1 - tanh_u * tanh_u);
        weight *= weight;
        zz += weight * z * z;
        zc += weight * z * c;
        cc += weight * c * c;
        zu += weight * z * u;
        cu += weight * c * u;
    }
    double root = (zu * cc - cu * zc) / (zz * cc - zc * zc), cube = (cu * zz - zu * zc) / (zu * cc - cu * zc);
    if (isfinite(root) && isfinite(cube)) propose_gelu(f, gate, up, root, cube, y);
    cube = (cu / GELU_ROOT - zc) / cc;
    if (isfinite(cube)) propose_gelu(f, gate, up, GELU_ROOT, cube, y);
    root = (zu + GELU_CUBE * cu) / (zz + 2 * GELU_CUBE * zc + GELU_CUBE * GELU_CUBE * cc);
    if (isfinite(root)) propose_gelu(f, gate, up, root, GELU_CUBE, y);
}

/* Forms of gate and up that are no product of functions of one of them. */
static void try_others(struct fit *f, const float *gate, const float *up, double *y) {
    static const struct { double (*f)(double z); const char *name; } usual[] = {
        { silu, "silu" }, { gelu_tanh, "gelu" }, { relu, "relu" }, { relu_square, "relu^2 of" }, { identity, "" } };
    size_t n = f->theirs.n_token * fit_width(&f->theirs);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        double (*a)(double z) = usual[i].f;
        for (size_t j = 0; j < n; j++) y[j] = a((double)gate[j]) + (double)up[j];
        fit_propose(f, 0, y, "is %s(gate) + up: the sum instead of the product", usual[i].name);
        for (size_t j = 0; j < n; j++) y[j] = a((double)gate[j] * (double)up[j]);
        fit_propose(f, 0, y, "is %s(gate * up): the activation comes after the product", usual[i].name);
        for (size_t j = 0; j < n; j++) y[j] = a((double)gate[j] + (double)up[j]);
        fit_propose(f, 0, y, "is %s(gate + up)", usual[i].name);
        for (size_t j = 0; j < n; j++) y[j] = a((double)gate[j]) - (double)up[j];
        fit_propose(f, 0, y, "is %s(gate) - up", usual[i].name);
        for (size_t j = 0; j < n; j++) y[j] = a((double)gate[j]) * (double)up[j] + (double)gate[j];
        fit_propose(f, 1, y, "is %s(gate) * up + gate", usual[i].name);
        for (size_t j = 0; j < n; j++) y[j] = a((double)gate[j]) * (double)up[j] + (double)up[j];
        fit_propose(f, 1, y, "is %s(gate) * up + up", usual[i].name);
    }
}

/* The token before, or an element beside: the gate of one meets the up projection of another. */
static void try_shifts(struct fit *f, const float *gate, const float *up, double *y) {
    size_t width = fit_width(&f->theirs), n = f->theirs.n_token * width;
    float *moved = fit_new(f, n, sizeof *moved);
    static const char *const comments[] = { "each gate is that of the next element",
                                            "each gate is that of the element before", "the gates are in reverse",
                                            "the gates are those of the token before",
                                            "the up projections are those of the token before",
                                            "the gates are those of the next token" };
    for (int kind = 0; moved && kind < 6; kind++) {
        const float *from = kind == 4 ? up : gate;
        for (size_t j = 0; j < n; j++) {
            size_t t = j / width, i = j % width, before = t > 0 ? t - 1 : 0;
            size_t next = t + 1 < f->theirs.n_token ? t + 1 : t;
            moved[j] = kind == 0 ? from[t * width + (i + 1) % width]
                     : kind == 1 ? from[t * width + (i + width - 1) % width]
                     : kind == 2 ? from[t * width + width - 1 - i]
                     : kind == 5 ? from[next * width + i] : from[before * width + i];
        }
        struct operands of = { kind == 4 ? gate : moved, kind == 4 ? moved : up, "gate", "up", comments[kind] };
        for (size_t i = 0; i < 5; i++) try_product(f, &of, i, 0, y);
    }
    /* A matrix of gates and up projections that is split in another way. */
    float *a = fit_new(f, n, sizeof *a), *b = fit_new(f, n, sizeof *b);
    for (int kind = 0; a && b && kind < 2; kind++) {
        for (size_t j = 0; j < n; j++) {
            size_t row = j / width * width, i = j % width, even = 2 * i, odd = 2 * i + 1;
            a[j] = even < width ? gate[row + even] : up[row + even - width];
            b[j] = odd < width ? gate[row + odd] : up[row + odd - width];
        }
        struct operands of = { kind == 0 ? a : b, kind == 0 ? b : a, "gate", "up",
                               "gates and up projections are taken to alternate" };
        for (size_t i = 0; i < 5; i++) try_product(f, &of, i, 0, y);
    }
}

/* ---- gates of other steps ---------------------------------------------------------------------------------------- */

/* theirs is f(a) * g(b), or f(a) if b is empty. */
static const struct { enum tap_id id; id_set a, b; const char *a_name, *b_name; } gated[] = {
    { TAP_SCAN_GATED, TAP_SET(SCAN_Z), TAP_SET(SCAN), "z", "y" },
    { TAP_DELTA_GATED, TAP_SET(ATTN_GATE), TAP_SET(DELTA), "gate", "norm" },
    { TAP_CONV_GATED, TAP_SET(CONV_IN), TAP_SET(CONV), "c", "y" },
    { TAP_ATTN_GATED, TAP_SET(ATTN_GATE), TAP_SET(KQV_OUT) | TAP_SET(WKV_NORM) | TAP_SET(WKV_SUM), "gate", "y" },
    { TAP_CONV_SILU, TAP_SET(CONV), 0, "x", "" },
    { TAP_SCAN_STEP, TAP_SET(SCAN_DT), 0, "dt", "" },
    { TAP_DELTA_BETA_SIGMOID, TAP_SET(DELTA_BETA), 0, "beta", "" },
};

/* x (n_token, width) <- the norm of each head in a delta net. */
static const float *normalized(struct fit *f, const float *x, size_t width) {
    const struct weight *w = fit_weight(f, W_DELTA_NORM)->w;
    const float *weight = w ? fit_floats(f, w) : NULL;
    float *out = fit_new(f, f->theirs.n_token * width, sizeof *out);
    if (!weight || !out || width % w->n_in != 0) return w ? NULL : x;
    for (size_t at = 0; at < f->theirs.n_token * width; at += w->n_in) {
        double sum = 0;
        for (uint32_t i = 0; i < w->n_in; i++) sum += (double)x[at + i] * (double)x[at + i] / w->n_in;
        double factor = 1 / sqrt(sum + (double)f->model->plan.norm_eps);
        for (uint32_t i = 0; i < w->n_in; i++) out[at + i] = (float)((double)x[at + i] * factor) * weight[i];
    }
    return out;
}

void fit_gated(struct fit *f) {
    size_t k = 0, width = fit_width(&f->theirs), n = f->theirs.n_token * width;
    while (gated[k].id != f->id) k++;
    struct fit_rows a, b = { 0 };
    double *y = fit_new(f, n, sizeof *y);
    if (!y || f->layer < 0 || !fit_input(f, gated[k].a, &a)) return;
    if (gated[k].b && (!fit_input(f, gated[k].b, &b) || fit_width(&b) != width)) return;
    if (f->id == TAP_CONV_GATED && fit_width(&a) == 3 * width) {   /* c is the second third */
        float *c = fit_new(f, n, sizeof *c);
        for (size_t i = 0; c && i < n; i++) c[i] = a.x[i / width * 3 * width + width + i % width];
        a.x = c;
    } else if (fit_width(&a) < width && width % fit_width(&a) == 0 && f->id == TAP_ATTN_GATED) {   /* one for a head */
        float *of_heads = fit_new(f, n, sizeof *of_heads);
        for (size_t i = 0; of_heads && i < n; i++) of_heads[i] = a.x[i / (width / fit_width(&a))];
        a.x = of_heads;
    } else if (fit_width(&a) != width) return;
    if (f->id == TAP_DELTA_GATED) b.x = normalized(f, b.x, width);
    if (f->out_of_memory || !a.x || (gated[k].b && !b.x)) return;
    try_operands(f, &(struct operands){ a.x, b.x, gated[k].a_name, gated[k].b_name, NULL }, y);
    if (b.x) try_operands(f, &(struct operands){ b.x, a.x, gated[k].b_name, gated[k].a_name, NULL }, y);
}

void fit_activation(struct fit *f) {
    size_t n = f->theirs.n_token * fit_width(&f->theirs);
    struct fit_rows gate, up;
    double *y = fit_new(f, n, sizeof *y);
    if (!y || f->layer < 0 || !fit_input(f, TAP_SET(FFN_UP) | TAP_SET(EXPERT_UP), &up)) return;
    if (fit_width(&up) != fit_width(&f->theirs)) return;
    if (!fit_input(f, TAP_SET(FFN_GATE) | TAP_SET(EXPERT_GATE), &gate) || fit_width(&gate) != fit_width(&up)) {
        try_operands(f, &(struct operands){ up.x, NULL, "up", "", NULL }, y);
        return;
    }
    try_operands(f, &(struct operands){ gate.x, up.x, "gate", "up", NULL }, y);
    try_operands(f, &(struct operands){ up.x, gate.x, "up", "gate", NULL }, y);
    try_gelu(f, gate.x, up.x, y);
    try_others(f, gate.x, up.x, y);
    try_shifts(f, gate.x, up.x, y);
}

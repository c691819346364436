/* Formulas of steps, and what engines take in their place: the known mistakes (known.h), the supposed ones (mistake.h)
 * and the measured ones (diagnose/fit.h) are made with them. */
#ifndef PLUMB_MISTAKES_FORMULAS_H
#define PLUMB_MISTAKES_FORMULAS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* ---- norms ------------------------------------------------------------------------------------------------------- */

/* What is subtracted from x, the square of what it is divided by before eps is added, and what is done with that.
 * Those after N_FORM are not measured. */
enum norm_form {
    FORM_RMS, FORM_LAYER, FORM_CENTRED, FORM_VARIANCE, FORM_NO_ROOT, FORM_LAYER_NO_ROOT, FORM_SUM, FORM_LAYER_SUM,
    FORM_OUTSIDE, FORM_LAYER_OUTSIDE, FORM_N_1, FORM_LAYER_N_1, FORM_LAST, FORM_FIRST, FORM_ABS, FORM_MAX, FORM_MEAN,
    FORM_TIMES, FORM_TWICE, FORM_SUBTRACT, FORM_NONE, N_FORM,
    FORM_SUM_OUTSIDE, FORM_LAYER_SUM_OUTSIDE,
    FORM_HALF,        /* the mean square of the first half */
    FORM_FIRST_SOME,  /* the squares of the first `number` elements alone are in the sum */
    FORM_LESS_SOME,   /* those of the last `number` elements are not */
};

/* h <- x divided in the way of a form, n elements, `step` apart.  from: the elements of the statistic. */
void norm_divide(enum norm_form form, double number, double eps, const double *from, const double *x, size_t n,
                 size_t step, double *h);

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* The constants of gelu(z). */
#define GELU_ROOT 0.79788456080286535588   /* sqrt(2 / pi) */
#define GELU_CUBE 0.044715

/* gelu(z), with these constants. */
static inline double gelu_with(double z, double root, double cube) {
    return 0.5 * z * (1 + tanh(root * (z + cube * z * z * z)));
}
static inline double gelu_tanh(double z) { return gelu_with(z, GELU_ROOT, GELU_CUBE); }
static inline double gelu_erf(double z) { return 0.5 * z * (1 + erf(z * 0.70710678118654752440)); }   /* sqrt(1/2) */
static inline double gelu_quick(double z) { return z / (1 + exp(-1.702 * z)); }
static inline double sigmoid(double z) { return 1 / (1 + exp(-z)); }
static inline double silu(double z) { return z / (1 + exp(-z)); }
static inline double silu_twice(double z) { return silu(silu(z)); }
static inline double relu(double z) { return z > 0 ? z : 0; }
static inline double relu_square(double z) { return z > 0 ? z * z : 0; }
static inline double softplus(double z) { return z > 30 ? z : log1p(exp(z)); }
static inline double hard_swish(double z) { return z * fmin(fmax(z + 3, 0), 6) / 6; }
static inline double identity(double z) { return z; }

/* ---- orders ------------------------------------------------------------------------------------------------------ */

enum array_order {
    ARRAY_REVERSED, ARRAY_NEXT, ARRAY_BEFORE, ARRAY_HALVES, ARRAY_NEIGHBOURS, ARRAY_FIRST_TWO, ARRAY_ENDS,
    ARRAY_EVENS_FIRST, ARRAY_INTERLEAVED, ARRAY_ALL_FIRST, ARRAY_ALL_LAST, ARRAY_HALF_TWICE, ARRAY_PAIRS_SAME,
    ARRAY_ZERO_FIRST, ARRAY_ZERO_LAST, ARRAY_ZERO_QUARTER, ARRAY_ZERO_HALF, ARRAY_ZERO_FOURTHS, ARRAY_ZERO_ODD,
    ARRAY_ZERO_THIRD, ARRAY_ZERO_LAST_8, ARRAY_ZERO_LAST_16, ARRAY_ZERO_LAST_32, ARRAY_ZERO_BLOCKS, ARRAY_NEXT_BLOCK,
    ARRAY_BEFORE_BLOCK, ARRAY_FOURTHS_SAME, N_ARRAY_ORDER,
    ARRAY_SECOND_HALF   /* of which no mistake is supposed */
};
/* Returns the place of the element that is taken for element i of n, or UINT32_MAX for a zero. */
uint32_t array_place(enum array_order order, uint32_t i, uint32_t n);

/* ---- the cache --------------------------------------------------------------------------------------------------- */

/* Orders in which a cache (n_slot, n_kv, dim) is read by mistake. */
enum cache_order {
    ORDER_RIGHT, ORDER_ROWS_BY_HEAD, ORDER_ROWS_BY_SLOT, ORDER_ELEMENTS_BY_SLOT, ORDER_SLOTS_BY_ELEMENT,
    ORDER_ELEMENTS_BY_HEAD, ORDER_STRIDE_OF_Q, N_CACHE_ORDER
};
/* Returns the index of the element that is taken for element e of head g in a slot; SIZE_MAX: none, a zero past the
 * slots that are filled.  group: n_head / n_kv */
size_t cache_place(enum cache_order order, size_t n_slot, size_t n_kv, size_t group, size_t dim, size_t slot, size_t g,
                   size_t e);

/* Which head of K and V is read by query head h by mistake. */
enum kv_rule { KV_MODULO, KV_REVERSED, KV_NEXT, KV_FIRST, KV_LAST, KV_EARLY, N_KV_RULE };
uint32_t kv_head_by(enum kv_rule rule, uint32_t h, uint32_t n_head, uint32_t n_kv);

#endif

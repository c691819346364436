/* See rounding.h.  The codes are computed in f32, as engines do: near the middle between two codes the last bit of the
 * scale decides. */
#include "reference/steps.h"

#include <math.h>

/* Rounds to a float with this many bits after the leading one and this smallest exponent. */
static double to_float(double x, int n_bit, int min_exponent) {
    if (x == 0 || !isfinite(x)) return x;
    int exponent = ilogb(x);
    double step = ldexp(1, (exponent > min_exponent ? exponent : min_exponent) - n_bit);
    return rint(x / step) * step;
}

static double to_f16(double x) {
    double y = to_float(x, 10, -14);
    return fabs(y) > 65504 ? copysign(INFINITY, y) : y;
}

static void to_int8(double *x, size_t n, bool has_f16_scale) {
    float max = 0;
    for (size_t i = 0; i < n; i++) max = fmaxf(max, fabsf((float)x[i]));
    float scale = max / 127;
    if (!(scale > 0) || !isfinite(scale)) return;
    double step = has_f16_scale ? to_f16((double)scale) : (double)scale;
    for (size_t i = 0; i < n; i++) x[i] = (double)rintf((float)x[i] / scale) * step;
}

/* Multiplies each n_part of the n elements by the Hadamard matrix of this size, whose rows have the length 1.  n_part
 * is a power of two and divides n. */
static void rotate(double *x, size_t n, size_t n_part) {
    for (double *part = x; part < x + n; part += n_part) {
        for (size_t half = 1; half < n_part; half *= 2) {
            for (size_t i = 0; i < n_part; i++) {
                if (i & half) continue;
                double a = part[i], b = part[i + half];
                part[i] = a + b;
                part[i + half] = a - b;
            }
        }
        for (size_t i = 0; i < n_part; i++) part[i] /= sqrt((double)n_part);
    }
}

static struct rounding by_type(enum quant_type type) {
    const struct quant_traits *traits = quant_traits(type);
    switch (type) {
    case QUANT_F32: return (struct rounding){ .kind = ROUND_NONE };
    case QUANT_F16: return (struct rounding){ .kind = ROUND_F16 };
    case QUANT_BF16: return (struct rounding){ .kind = ROUND_BF16 };
    default: break;
    }
    bool is_large = traits && traits->block_size == 256;
    return (struct rounding){ .kind = ROUND_INT8, .block = is_large ? 256 : 32, .has_f16_scale = !is_large };
}

void rounding_apply(const struct rounding *how, enum quant_type type, double *x, size_t n) {
    struct rounding rounding = how->kind == ROUND_BY_TYPE ? by_type(type) : *how;
    size_t block = rounding.block > 0 ? rounding.block : n;
    bool is_rotated = rounding.rotation != ROTATE_NONE && rounding_can_rotate(n);
    size_t n_part = rounding.rotation == ROTATE_MOST ? n & (0 - n) : 64;   /* the lowest bit of n divides it */
    if (is_rotated) rotate(x, n, n_part);
    switch (rounding.kind) {
    case ROUND_F16:
        for (size_t i = 0; i < n; i++) x[i] = to_f16((double)(float)x[i]);
        break;
    case ROUND_BF16:
        for (size_t i = 0; i < n; i++) x[i] = to_float((double)(float)x[i], 7, -126);
        break;
    case ROUND_INT8:
        for (size_t i = 0; i < n; i += block) {
            to_int8(x + i, n - i < block ? n - i : block, rounding.has_f16_scale);
        }
        break;
    case ROUND_NONE: case ROUND_BY_TYPE: break;
    }
    if (is_rotated) rotate(x, n, n_part);
}

static const double *rounded_input(const struct reference *r, const struct weight *w, const double *x, size_t n) {
    memcpy(r->rounded, x, n * w->n_in * sizeof *x);
    for (size_t t = 0; t < n; t++) {
        rounding_apply(&r->rounding.products, w->type, r->rounded + t * w->n_in, w->n_in);
    }
    return r->rounded;
}

/* K and V are stored, Q and attention weights are not. */
static void rounded_heads(const struct reference *r, enum stream of, double *x, size_t n, uint32_t n_in) {
    const struct rounding *how = of == STREAM_Q || of == STREAM_K ? &r->rounding.keys : &r->rounding.values;
    if (how->kind == ROUND_NONE || (how->is_stored_only && of != STREAM_K && of != STREAM_V)) return;
    for (size_t i = 0; i < n; i++) rounding_apply(how, QUANT_F32, x + i * n_in, n_in);
}

plumb_status reference_set_rounding(struct reference *r, const struct roundings *how) {
    const struct reference_steps *right = &reference_right_steps;
    bool is_product = how && how->products.kind != ROUND_NONE;
    if (is_product && !r->rounded) {
        uint64_t n;
        r->rounded = mul_u64(r->n_batch, plan_max_row(&r->right->plan), &n) ? alloc_array(n, sizeof *r->rounded) : NULL;
        if (!r->rounded) return PLUMB_ERROR_MEMORY;
        r->bytes += n * sizeof *r->rounded;
    }
    r->rounding = how ? *how : (struct roundings){ 0 };
    r->steps.input = r->rounded_steps.input = is_product ? rounded_input : right->input;
    r->steps.heads = r->rounded_steps.heads = how ? rounded_heads : right->heads;
    return PLUMB_OK;
}

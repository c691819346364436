/* The portable kernels.  They define the bits that every other variant must give.  Sums over the elements of f32
 * vectors run in four lanes; the sums over groups of quantized types have one. */
#include "kernels/expf.h"

#include "kernels/kernels.h"

#include <math.h>

static float sum_lanes(const float lane[4]) { return (lane[0] + lane[1]) + (lane[2] + lane[3]); }

/* ---- quantized dots ------------------------------------------------------------------------------------------ */

/* Stores a code as the two bytes of element e: code = 256 * high + low, and both are signed, so high is rounded to the
 * nearest and not down. */
static void store_bytes16(int8_t *bytes, size_t e, int16_t code) {
    int8_t *four = bytes + e / 4 * 8 + e % 4, low = (int8_t)(uint8_t)code;
    four[0] = (int8_t)((code - low) / 256);
    four[4] = low;
}

static void quantize_i16__scalar(struct activations *a, uint32_t t) {
    size_t n_group = a->n / 32;
    float max_code = (float)a->max_code;
    const float *x = a->x + (size_t)t * a->n;
    int16_t *q = a->q + (size_t)t * a->n;
    for (size_t i = t * n_group; i < (t + 1) * n_group; i++, x += 32, q += 32) {
        /* The bits of magnitudes compare as integers, with NaN above infinity above all numbers, so amax becomes NaN if
         * any x is.  A comparison of floats would skip NaN. */
        uint32_t amax_bits = 0;
        for (int e = 0; e < 32; e++) {
            uint32_t bits = f32_to_bits(x[e]) & 0x7fffffffu;
            if (bits > amax_bits) amax_bits = bits;
        }
        float amax = f32_from_bits(amax_bits);
        bool finite = amax <= ACT_STEP_MAX * max_code;
        float inverse = finite && amax >= ACT_AMAX_MIN ? max_code / amax : 0.0f;
        a->d[i] = !finite ? NAN : amax >= ACT_AMAX_MIN ? amax / max_code : 0.0f;
        int32_t sum[2] = { 0, 0 };
        for (size_t e = 0; e < 32; e++) {
            int16_t code = finite ? (int16_t)rintf(x[e] * inverse) : 0;
            q[even_odd(e)] = code;
            if (a->bytes && a->max_code == MAX_CODE_8) {
                a->bytes[32 * i + e] = (int8_t)code;
            } else if (a->bytes) {
                store_bytes16(a->bytes + 64 * i, e, code);
                if (a->n_token == 1) store_bytes16(a->bytes_even_odd + 64 * i, even_odd(e), code);
            }
            sum[e / 16] += code;
        }
        for (size_t half = 0; half < 2; half++) a->isum16[2 * i + half] = sum[half];
        a->isum32[i] = sum[0] + sum[1];
        a->sum32[i] = a->d[i] * (float)(sum[0] + sum[1]);
    }
}

/* Dots are exact: a group has at most 32 weights with |code| <= 128, and activations have |code| <= MAX_CODE_16, which
 * is below 32767, so |dot of a group| < 32 * 128 * 32767 < 2^27 fits in an int32. */
static void panel_dot__scalar(float y[TILE_ROWS], const struct panel *p, const struct activations *a, uint32_t t) {
    const int16_t *q = a->q + (size_t)t * a->n;
    const float *d = a->d + (size_t)t * (a->n / 32);
    const int16_t *w = p->pairs;
    for (size_t r = 0; r < TILE_ROWS; r++) y[r] = 0.0f;
    for (size_t g = 0; g < p->n / p->group; g++) {
        int32_t dots[TILE_ROWS] = { 0 };
        for (const int16_t *end = q + p->group; q < end; q += 2, w += 2 * TILE_ROWS) {
            for (size_t r = 0; r < TILE_ROWS; r++) dots[r] += w[2 * r] * q[0] + w[2 * r + 1] * q[1];
        }
        for (size_t r = 0; r < TILE_ROWS; r++) {
            y[r] += (float)dots[r] * (p->scales[g * TILE_ROWS + r] * d[g * p->group / ACT_BLOCK]);
        }
    }
}

/* Dots are exact here too: |dot of minima| <= 16 * 63 * SUM_CODE_MAX < 2^25.  r counts the 8 rows of each of n tokens.
 * in_codes: the minima are codes with a factor for every 256 weights; otherwise they are floats, one for every 32. */
static void subtract_mins__scalar(float *y, size_t stride, const struct panel *p, const struct activations *a,
                                  uint32_t t, uint32_t n) {
    bool in_codes = p->min_kind == SUPERBLOCK_MIN;
    const struct sums *sums = p->group == 32 ? &a->sums32 : &a->sums16;
    size_t n_min = in_codes ? p->n / 256 : p->n / ACT_BLOCK, n_code = 256 / p->group;
    for (size_t r = 0; r < TILE_ROWS * n; r++) {
        size_t row = r % TILE_ROWS, token = t + r / TILE_ROWS;
        const int16_t *m = p->min_codes + 2 * row, *q = sums->q + token * n_min * n_code;
        float total = 0.0f;
        for (size_t i = 0; i < n_min; i++) {
            int32_t dot = 0;
            for (const int16_t *end = q + n_code; in_codes && q < end; q += 2, m += 2 * TILE_ROWS) {
                dot += m[0] * q[0] + m[1] * q[1];
            }
            float min = p->mins[i * TILE_ROWS + row];
            total += in_codes ? (float)dot * (min * sums->d[token * n_min + i]) : min * a->sum32[token * n_min + i];
        }
        y[r / TILE_ROWS * stride + row] -= total;
    }
}

/* ---- f32 ------------------------------------------------------------------------------------------------------- */

static float dot_f32__scalar(const float *a, const float *b, size_t n) {
    float lane[4] = { 0 };
    for (size_t i = 0; i < n; i++) lane[i % 4] += a[i] * b[i];
    return sum_lanes(lane);
}

static void float_dot__scalar(float y[TILE_ROWS], const struct panel *p, const struct activations *a, uint32_t t) {
    const float *x = a->x + (size_t)t * a->n;
    for (size_t r = 0; r < TILE_ROWS; r++) {
        float lane[4] = { 0 };
        for (size_t i = 0; i < p->n; i++) lane[i % 4] += p->f32[float_at(p->n, r, i)] * x[i];
        y[r] = sum_lanes(lane);
    }
}

static void add_scaled__scalar(float *y, const float *x, float s, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] += s * x[i];
}

static void mul_scaled__scalar(float *y, const float *x, float s, const float *w, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = x[i] * s * w[i];
}

static float exp__scalar(float x) {
    if (x < EXP_MIN) x = EXP_MIN;
    if (x > EXP_MAX) x = EXP_MAX;
    float n = rintf(x * EXP_LOG2E);
    float r = (x - n * EXP_LN2_HI) - n * EXP_LN2_LO;
    float e = EXP_C7;
    e = e * r + EXP_C6;
    e = e * r + EXP_C5;
    e = e * r + EXP_C4;
    e = e * r + EXP_C3;
    e = e * r + EXP_C2;
    e = e * r + 1.0f;
    e = e * r + 1.0f;
    uint32_t exponent = n == n ? (uint32_t)(int32_t)n : 0;   /* if n is NaN, e is NaN already */
    return e * f32_from_bits((exponent + 127) << 23);
}

static void softmax__scalar(float *x, size_t n) {
    float max = x[0], lane[4] = { 0 };
    for (size_t i = 1; i < n; i++) {
        if (x[i] > max) max = x[i];
    }
    for (size_t i = 0; i < n; i++) {
        x[i] = exp__scalar(x[i] - max);
        lane[i % 4] += x[i];
    }
    float inverse = 1.0f / sum_lanes(lane);
    for (size_t i = 0; i < n; i++) x[i] *= inverse;
}

static void swiglu__scalar(float *gate, const float *up, size_t n) {
    for (size_t i = 0; i < n; i++) gate[i] = gate[i] / (1.0f + exp__scalar(-gate[i])) * up[i];
}

static void geglu__scalar(float *gate, const float *up, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float z = gate[i], x = z * (z * z * GELU_3 + GELU_1);
        gate[i] = z / (1.0f + exp__scalar(-x)) * up[i];
    }
}

static void gelu__scalar(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float z = x[i];
        x[i] = z / (1.0f + exp__scalar(-(z * (z * z * GELU_3 + GELU_1))));
    }
}

static void exp_all__scalar(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = exp__scalar(x[i]);
}

static void sigmoid__scalar(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = 1.0f / (1.0f + exp__scalar(-x[i]));
}

static void silu__scalar(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = x[i] / (1.0f + exp__scalar(-x[i]));
}

/* tanh(z) = 1 - 2 / (e^2z + 1) */
static void softcap__scalar(float *x, float cap, size_t n) {
    float factor = 2.0f / cap;
    for (size_t i = 0; i < n; i++) x[i] = cap * (1.0f - 2.0f / (exp__scalar(x[i] * factor) + 1.0f));
}

void row_dots__scalar(float *out, const float *s, uint32_t n_row, float factor, const float *x, uint32_t n) {
    for (uint32_t r = 0; r < n_row; r++, s += n) {
        float lane[4] = { 0 };
        for (uint32_t i = 0; i < n; i++) lane[i % 4] += s[i] * factor * x[i];
        out[r] = sum_lanes(lane);
    }
}

void advance__scalar(float *out, float *s, uint32_t n_row, const struct advance *a, const float *g, const float *old) {
    bool is_faded = a->kind != ADVANCE_DECAY;
    for (uint32_t r = 0; r < n_row; r++, s += a->n) {
        float lane[4] = { 0 };
        for (uint32_t i = 0; i < a->n; i++) {
            float before = s[i], key = a->kind == ADVANCE_GATED ? a->key[i] * (1.0f - a->fade[i]) : a->key[i];
            s[i] = before * (is_faded ? a->fade[i] : a->decay) + g[r] * key;
            if (a->kind == ADVANCE_REMOVE) s[i] -= old[r] * (a->rate[i] * a->removal[i]);
            lane[i % 4] += (a->kind == ADVANCE_BEFORE ? before : s[i]) * a->query[i];
        }
        out[r] = sum_lanes(lane);
    }
}

void kernels_fill_scalar(struct kernels *k) {
    k->name = "scalar";
    k->isa = KERNELS_SCALAR;
    k->quantize_i16 = quantize_i16__scalar;
    k->panel_dot = panel_dot__scalar;
    k->subtract_mins = subtract_mins__scalar;
    k->float_dot = float_dot__scalar;
    k->dot_f32 = dot_f32__scalar;
    k->add_scaled = add_scaled__scalar;
    k->mul_scaled = mul_scaled__scalar;
    k->softmax = softmax__scalar;
    k->swiglu = swiglu__scalar;
    k->geglu = geglu__scalar;
    k->gelu = gelu__scalar;
    k->softcap = softcap__scalar;
    k->exp = exp_all__scalar;
    k->sigmoid = sigmoid__scalar;
    k->silu = silu__scalar;
    k->row_dots = row_dots__scalar;
    k->advance = advance__scalar;
}

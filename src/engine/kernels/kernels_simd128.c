/* WASM SIMD128 kernels for quantizing and for f32 vectors.  Each gives the same bits as its scalar namesake.  Sums pad
 * a tail of fewer than 4 elements with zeros, so that every element keeps its lane.  Loops advance pointers instead of
 * an index, because V8 then folds the offsets into its loads. */
/* Compiled for speed. */
#include "kernels/expf.h"
#include "kernels/kernels.h"
#include "kernels/simd128.h"

#if defined(HAVE_SIMD128)

#include "kernels/lanes_simd128.h"

#include <math.h>

static inline void store_tail(float *x, v128_t v, size_t n) {
    float lanes[4];
    wasm_v128_store(lanes, v);
    memcpy(x, lanes, n * sizeof *x);
}

/* ---- quantizing activations ------------------------------------------------------------------------------------ */

static inline int32_t sum_i16x16(v128_t a, v128_t b) {
    v128_t one = wasm_i16x8_splat(1);
    v128_t s = wasm_i32x4_add(wasm_i32x4_dot_i16x8(a, one), wasm_i32x4_dot_i16x8(b, one));
    return wasm_i32x4_extract_lane(s, 0) + wasm_i32x4_extract_lane(s, 1) + wasm_i32x4_extract_lane(s, 2)
         + wasm_i32x4_extract_lane(s, 3);
}

/* Store 32 codes as one byte each, or as two: four high bytes, then their four low ones. */
static inline void store_bytes8(int8_t *bytes, const v128_t codes[4]) {
    for (size_t i = 0; i < 4; i += 2) {
        wasm_v128_store(bytes + 8 * i, wasm_i8x16_narrow_i16x8(codes[i], codes[i + 1]));
    }
}
static inline void store_bytes16(int8_t *bytes, const v128_t codes[4]) {
    for (size_t i = 0; i < 4; i++) {
        v128_t low = wasm_i16x8_shr(wasm_i16x8_shl(codes[i], 8), 8);
        v128_t both = wasm_i8x16_narrow_i16x8(wasm_i16x8_shr(wasm_i16x8_sub(codes[i], low), 8), low);
        wasm_v128_store(bytes + 16 * i, wasm_i32x4_shuffle(both, both, 0, 2, 1, 3));
    }
}

static void quantize_i16__simd128(struct activations *a, uint32_t t) {
    const v128_t magnitude_mask = wasm_i32x4_splat(0x7fffffff);
    size_t n_group = a->n / 32;
    float max_code = (float)a->max_code;
    const float *x = a->x + (size_t)t * a->n;
    int16_t *q = a->q + (size_t)t * a->n;
    for (size_t g = t * n_group; g < (t + 1) * n_group; g++, x += 32, q += 32) {
        v128_t m = wasm_v128_and(wasm_v128_load(x), magnitude_mask);
        for (int i = 4; i < 32; i += 4) m = wasm_u32x4_max(m, wasm_v128_and(wasm_v128_load(x + i), magnitude_mask));
        m = wasm_u32x4_max(m, wasm_i32x4_shuffle(m, m, 2, 3, 0, 1));
        m = wasm_u32x4_max(m, wasm_i32x4_shuffle(m, m, 1, 0, 3, 2));
        float amax = wasm_f32x4_extract_lane(m, 0);
        bool finite = amax <= ACT_STEP_MAX * max_code;
        float inverse = finite && amax >= ACT_AMAX_MIN ? max_code / amax : 0.0f;
        float step = !finite ? NAN : amax >= ACT_AMAX_MIN ? amax / max_code : 0.0f;
        v128_t scale = wasm_f32x4_splat(inverse), codes[4], codes_even_odd[4];
        for (int i = 0; i < 4; i++) {
            v128_t lo = wasm_f32x4_nearest(wasm_f32x4_mul(wasm_v128_load(x + 8 * i), scale));
            v128_t hi = wasm_f32x4_nearest(wasm_f32x4_mul(wasm_v128_load(x + 8 * i + 4), scale));
            codes[i] = wasm_i16x8_narrow_i32x4(wasm_i32x4_trunc_sat_f32x4(lo), wasm_i32x4_trunc_sat_f32x4(hi));
            if (!finite) codes[i] = wasm_i16x8_splat(0);   /* infinity * 0 is not 0 */
            codes_even_odd[i] = wasm_i16x8_shuffle(codes[i], codes[i], 0, 2, 1, 3, 4, 6, 5, 7);
            wasm_v128_store(q + 8 * i, codes_even_odd[i]);
        }
        if (a->bytes && a->max_code == MAX_CODE_8) {
            store_bytes8(a->bytes + 32 * g, codes);
        } else if (a->bytes) {
            store_bytes16(a->bytes + 64 * g, codes);
            if (a->n_token == 1) store_bytes16(a->bytes_even_odd + 64 * g, codes_even_odd);
        }
        int32_t low = sum_i16x16(codes[0], codes[1]), high = sum_i16x16(codes[2], codes[3]);
        a->d[g] = step;
        a->isum16[2 * g] = low;
        a->isum16[2 * g + 1] = high;
        a->isum32[g] = low + high;
        a->sum32[g] = step * (float)(low + high);
    }
}

/* ---- f32 ------------------------------------------------------------------------------------------------------- */

static float dot_f32__simd128(const float *a, const float *b, size_t n) {
    v128_t acc = wasm_f32x4_splat(0.0f);
    for (const float *end = a + n / 4 * 4; a < end; a += 4, b += 4) {
        acc = mul_add(acc, wasm_v128_load(a), wasm_v128_load(b));
    }
    if (n % 4 != 0) acc = mul_add(acc, load_tail(a, n % 4), load_tail(b, n % 4));
    return sum_lanes(acc);
}

static void add_scaled__simd128(float *y, const float *x, float s, size_t n) {
    v128_t scale = wasm_f32x4_splat(s);
    for (const float *end = x + n / 4 * 4; x < end; x += 4, y += 4) {
        wasm_v128_store(y, mul_add(wasm_v128_load(y), scale, wasm_v128_load(x)));
    }
    for (size_t i = 0; i < n % 4; i++) y[i] += s * x[i];
}

static void mul_scaled__simd128(float *y, const float *x, float s, const float *w, size_t n) {
    v128_t scale = wasm_f32x4_splat(s);
    for (const float *end = x + n / 4 * 4; x < end; x += 4, y += 4, w += 4) {
        wasm_v128_store(y, wasm_f32x4_mul(wasm_f32x4_mul(wasm_v128_load(x), scale), wasm_v128_load(w)));
    }
    for (size_t i = 0; i < n % 4; i++) y[i] = x[i] * s * w[i];
}

/* x[i] <- lanes(x[i]).  It is inlined, and lanes with it. */
ALWAYS_INLINE void change(float *x, size_t n, v128_t (*lanes)(v128_t)) {
    for (const float *end = x + n / 4 * 4; x < end; x += 4) wasm_v128_store(x, lanes(wasm_v128_load(x)));
    size_t tail = n % 4;
    if (tail != 0) store_tail(x, lanes(load_tail(x, tail)), tail);
}

static inline v128_t exp__simd128(v128_t x) {
    x = wasm_f32x4_pmin(wasm_f32x4_pmax(x, register_f32x4(EXP_MIN)), register_f32x4(EXP_MAX));
    v128_t n = wasm_f32x4_nearest(wasm_f32x4_mul(x, register_f32x4(EXP_LOG2E)));
    v128_t r = wasm_f32x4_sub(x, wasm_f32x4_mul(n, register_f32x4(EXP_LN2_HI)));
    r = wasm_f32x4_sub(r, wasm_f32x4_mul(n, register_f32x4(EXP_LN2_LO)));
    v128_t e = register_f32x4(EXP_C7);
    e = mul_add(register_f32x4(EXP_C6), e, r);
    e = mul_add(register_f32x4(EXP_C5), e, r);
    e = mul_add(register_f32x4(EXP_C4), e, r);
    e = mul_add(register_f32x4(EXP_C3), e, r);
    e = mul_add(register_f32x4(EXP_C2), e, r);
    e = mul_add(register_f32x4(1.0f), e, r);
    e = mul_add(register_f32x4(1.0f), e, r);
    v128_t exponent = wasm_i32x4_add(wasm_i32x4_trunc_sat_f32x4(n), wasm_i32x4_splat(127));
    return wasm_f32x4_mul(e, wasm_i32x4_shl(exponent, 23));
}

static void softmax__simd128(float *x, size_t n) {
    size_t tail = n % 4;
    float *end = x + (n - tail);
    float max = x[0];
    v128_t m = wasm_f32x4_splat(max);
    for (const float *p = x; p < end; p += 4) m = wasm_f32x4_pmax(m, wasm_v128_load(p));
    for (int l = 0; l < 4; l++) {
        float lanes[4];
        wasm_v128_store(lanes, m);
        if (lanes[l] > max) max = lanes[l];
    }
    for (size_t i = 0; i < tail; i++) {
        if (end[i] > max) max = end[i];
    }
    v128_t shift = wasm_f32x4_splat(max), sum = wasm_f32x4_splat(0.0f);
    for (float *p = x; p < end; p += 4) {
        v128_t e = exp__simd128(wasm_f32x4_sub(wasm_v128_load(p), shift));
        wasm_v128_store(p, e);
        sum = wasm_f32x4_add(sum, e);
    }
    if (tail != 0) {
        store_tail(end, exp__simd128(wasm_f32x4_sub(load_tail(end, tail), shift)), tail);
        sum = wasm_f32x4_add(sum, load_tail(end, tail));
    }
    float inverse = 1.0f / sum_lanes(sum);
    for (float *p = x; p < end; p += 4) {
        wasm_v128_store(p, wasm_f32x4_mul(wasm_v128_load(p), wasm_f32x4_splat(inverse)));
    }
    for (size_t i = 0; i < tail; i++) end[i] *= inverse;
}

static inline v128_t swiglu_lanes(v128_t gate, v128_t up) {
    v128_t one = wasm_f32x4_splat(1.0f);
    return wasm_f32x4_mul(wasm_f32x4_div(gate, wasm_f32x4_add(one, exp__simd128(wasm_f32x4_neg(gate)))), up);
}

static void swiglu__simd128(float *gate, const float *up, size_t n) {
    for (const float *end = up + n / 4 * 4; up < end; gate += 4, up += 4) {
        wasm_v128_store(gate, swiglu_lanes(wasm_v128_load(gate), wasm_v128_load(up)));
    }
    size_t tail = n % 4;
    if (tail != 0) store_tail(gate, swiglu_lanes(load_tail(gate, tail), load_tail(up, tail)), tail);
}

static inline v128_t geglu_lanes(v128_t gate, v128_t up) {
    v128_t one = wasm_f32x4_splat(1.0f), square = wasm_f32x4_mul(gate, gate);
    v128_t x = wasm_f32x4_add(wasm_f32x4_mul(square, wasm_f32x4_splat(GELU_3)), wasm_f32x4_splat(GELU_1));
    v128_t e = exp__simd128(wasm_f32x4_neg(wasm_f32x4_mul(gate, x)));
    return wasm_f32x4_mul(wasm_f32x4_div(gate, wasm_f32x4_add(one, e)), up);
}

static void geglu__simd128(float *gate, const float *up, size_t n) {
    for (const float *end = up + n / 4 * 4; up < end; gate += 4, up += 4) {
        wasm_v128_store(gate, geglu_lanes(wasm_v128_load(gate), wasm_v128_load(up)));
    }
    size_t tail = n % 4;
    if (tail != 0) store_tail(gate, geglu_lanes(load_tail(gate, tail), load_tail(up, tail)), tail);
}

static inline v128_t gelu_lanes(v128_t z) { return geglu_lanes(z, wasm_f32x4_splat(1.0f)); }

static void gelu__simd128(float *x, size_t n) { change(x, n, gelu_lanes); }

static inline v128_t softcap_lanes(v128_t x, float cap) {
    v128_t one = wasm_f32x4_splat(1.0f), two = wasm_f32x4_splat(2.0f);
    v128_t e = exp__simd128(wasm_f32x4_mul(x, wasm_f32x4_splat(2.0f / cap)));
    v128_t tanh = wasm_f32x4_sub(one, wasm_f32x4_div(two, wasm_f32x4_add(e, one)));
    return wasm_f32x4_mul(wasm_f32x4_splat(cap), tanh);
}

static void exp_all__simd128(float *x, size_t n) { change(x, n, exp__simd128); }

static inline v128_t sigmoid_lanes(v128_t x) {
    v128_t one = wasm_f32x4_splat(1.0f);
    return wasm_f32x4_div(one, wasm_f32x4_add(one, exp__simd128(wasm_f32x4_neg(x))));
}

static void sigmoid__simd128(float *x, size_t n) { change(x, n, sigmoid_lanes); }

static inline v128_t silu_lanes(v128_t x) { return swiglu_lanes(x, wasm_f32x4_splat(1.0f)); }

static void silu__simd128(float *x, size_t n) { change(x, n, silu_lanes); }

static void softcap__simd128(float *x, float cap, size_t n) {
    for (const float *end = x + n / 4 * 4; x < end; x += 4) wasm_v128_store(x, softcap_lanes(wasm_v128_load(x), cap));
    size_t tail = n % 4;
    if (tail != 0) store_tail(x, softcap_lanes(load_tail(x, tail), cap), tail);
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

static void row_dots__simd128(float *out, const float *s, uint32_t n_row, float factor, const float *x, uint32_t n) {
    if (n_row != STATE_ROWS || n % 4 != 0) {
        row_dots__scalar(out, s, n_row, factor, x, n);
        return;
    }
    v128_t sum[STATE_ROWS], scale = wasm_f32x4_splat(factor);
    for (int r = 0; r < STATE_ROWS; r++) sum[r] = wasm_f32x4_splat(0.0f);
    for (const float *end = x + n; x < end; x += 4, s += 4) {
        v128_t of_x = wasm_v128_load(x);
        for (int r = 0; r < STATE_ROWS; r++) {
            sum[r] = mul_add(sum[r], wasm_f32x4_mul(wasm_v128_load(s + (size_t)r * n), scale), of_x);
        }
    }
    for (int r = 0; r < STATE_ROWS; r++) out[r] = sum_lanes(sum[r]);
}

/* The kind is a constant where this is inlined. */
static inline void advance_rows(enum advance_kind kind, float *out, float *s, const struct advance *a, const float *g,
                                const float *old) {
    const float *fade = a->fade, *key = a->key, *rate = a->rate, *removal = a->removal, *query = a->query;
    v128_t sum[STATE_ROWS], factor[STATE_ROWS], removed[STATE_ROWS];
    v128_t one = wasm_f32x4_splat(1.0f), of_fade = wasm_f32x4_splat(a->decay), of_removal = one;
    size_t n = a->n;
    for (int r = 0; r < STATE_ROWS; r++) {
        sum[r] = wasm_f32x4_splat(0.0f);
        factor[r] = wasm_f32x4_splat(g[r]);
        removed[r] = wasm_f32x4_splat(kind == ADVANCE_REMOVE ? old[r] : 0.0f);
    }
    for (size_t i = 0; i < n; i += 4, s += 4) {
        v128_t of_key = wasm_v128_load(key + i), of_query = wasm_v128_load(query + i);
        if (kind != ADVANCE_DECAY) of_fade = wasm_v128_load(fade + i);
        if (kind == ADVANCE_GATED) of_key = wasm_f32x4_mul(of_key, wasm_f32x4_sub(one, of_fade));
        if (kind == ADVANCE_REMOVE) {
            of_removal = wasm_f32x4_mul(wasm_v128_load(rate + i), wasm_v128_load(removal + i));
        }
        for (int r = 0; r < STATE_ROWS; r++) {
            float *at = s + (size_t)r * n;
            v128_t before = wasm_v128_load(at), after = wasm_f32x4_mul(before, of_fade);
            after = mul_add(after, factor[r], of_key);
            if (kind == ADVANCE_REMOVE) after = wasm_f32x4_sub(after, wasm_f32x4_mul(removed[r], of_removal));
            wasm_v128_store(at, after);
            sum[r] = mul_add(sum[r], kind == ADVANCE_BEFORE ? before : after, of_query);
        }
    }
    for (int r = 0; r < STATE_ROWS; r++) out[r] = sum_lanes(sum[r]);
}

static void advance__simd128(float *out, float *s, uint32_t n_row, const struct advance *a, const float *g,
                             const float *old) {
    if (n_row != STATE_ROWS || a->n % 4 != 0) {
        advance__scalar(out, s, n_row, a, g, old);
        return;
    }
    switch (a->kind) {
    case ADVANCE_DECAY: advance_rows(ADVANCE_DECAY, out, s, a, g, old); break;
    case ADVANCE_FADE: advance_rows(ADVANCE_FADE, out, s, a, g, old); break;
    case ADVANCE_BEFORE: advance_rows(ADVANCE_BEFORE, out, s, a, g, old); break;
    case ADVANCE_GATED: advance_rows(ADVANCE_GATED, out, s, a, g, old); break;
    case ADVANCE_REMOVE: advance_rows(ADVANCE_REMOVE, out, s, a, g, old); break;
    }
}

void kernels_fill_simd128(struct kernels *k) {
    k->name = SIMD128_NAME;
    k->isa = KERNELS_SIMD128;
    kernels_fill_tiles(k);
    kernels_fill_grids(k);
    kernels_fill_floats(k);
    k->quantize_i16 = quantize_i16__simd128;
    k->dot_f32 = dot_f32__simd128;
    k->add_scaled = add_scaled__simd128;
    k->mul_scaled = mul_scaled__simd128;
    k->softmax = softmax__simd128;
    k->swiglu = swiglu__simd128;
    k->geglu = geglu__simd128;
    k->gelu = gelu__simd128;
    k->softcap = softcap__simd128;
    k->exp = exp_all__simd128;
    k->sigmoid = sigmoid__simd128;
    k->silu = silu__simd128;
    k->row_dots = row_dots__simd128;
    k->advance = advance__simd128;
}

#else
typedef int kernels_simd128_is_empty;   /* ISO C wants a declaration in every file */
#endif

/* `make bench-kernels`: how fast each product is, beside what this machine can do at most in this engine.
 *
 *   ceilings   8 independent sums over vectors that lie in the first cache: integer dots of 16 bits, f32 products and
 *              sums, relaxed 8-bit dots where the build has them; and reading memory
 *   decode     one token times a matrix that fits the second cache, and one that no cache holds
 *   prefill    64 tokens times the matrix in the cache
 *
 * GMAC/s: 10^9 multiply-adds per second.  GB/s: of packed weights read.  Best of 40 runs of 2 ms at
 * least. */
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#if defined(__wasm_simd128__)
#include <wasm_simd128.h>
#endif

enum { N_IN = 1536, N_OUT = 256, N_OUT_LARGE = 49152, N_TOKEN = 64, N_RUN = 40 };

static double now(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Calls of work per second, at best: short runs, of which some find the machine quiet.  Not inlined: V8 optimizes
 * functions that are called again and again, not loops inside of one call. */
__attribute__((noinline)) static double rate(void (*work)(void *), void *user) {
    double best = 0, seconds = 0, start = now();
    size_t n = 1;
    for (; seconds < 0.002; n *= 2, start = now()) {   /* the clock of some hosts takes long itself */
        for (size_t i = 0; i < n; i++) work(user);
        seconds = now() - start;
    }
    for (int run = 0; run < 2 * N_RUN; run++) {   /* the first half warms up */
        start = now();
        for (size_t i = 0; i < n; i++) work(user);
        seconds = now() - start;
        if (run >= N_RUN && (double)n / seconds > best) best = (double)n / seconds;
    }
    return best;
}

/* ---- ceilings ---------------------------------------------------------------------------------------------------- */

static volatile float sink;

#if defined(__wasm_simd128__)
enum { N_VECTOR = 1024 };
static v128_t vectors[N_VECTOR];
/* Its size is unknown to the compiler: a loop of known length gets an index beside its pointer, and V8 takes twice as
 * long. */
struct bytes { const uint8_t *data; size_t n; };

/* 8 sums, each vector loaded once and used twice: what a perfect kernel does and nothing else. */
#define CEILING(name, add, multiply)                                                      \
    __attribute__((noinline)) static void name(void *user) {                              \
        const struct bytes *bytes = user;                                                 \
        const v128_t *w = (const void *)bytes->data, *end = w + bytes->n / sizeof *w;     \
        v128_t x = w[0], y = w[1], a = x, b = x, c = x, d = x, e = x, f = x, g = x, h = x; \
        for (; w < end; w += 4) {                                                         \
            a = add(a, multiply(w[0], x));                                                \
            b = add(b, multiply(w[0], y));                                                \
            c = add(c, multiply(w[1], x));                                                \
            d = add(d, multiply(w[1], y));                                                \
            e = add(e, multiply(w[2], x));                                                \
            f = add(f, multiply(w[2], y));                                                \
            g = add(g, multiply(w[3], x));                                                \
            h = add(h, multiply(w[3], y));                                                \
        }                                                                                 \
        a = add(add(add(a, b), add(c, d)), add(add(e, f), add(g, h)));                    \
        sink = wasm_f32x4_extract_lane(a, 0);                                             \
    }
CEILING(ceiling_i16, wasm_i32x4_add, wasm_i32x4_dot_i16x8)
CEILING(ceiling_f32, wasm_f32x4_add, wasm_f32x4_mul)
#if defined(__wasm_relaxed_simd__)
__attribute__((noinline)) static void ceiling_i8(void *user) {
    const struct bytes *bytes = user;
    const v128_t *w = (const void *)bytes->data, *end = w + bytes->n / sizeof *w;
    v128_t x = w[0], y = w[1], a = x, b = x, c = x, d = x, e = x, f = x, g = x, h = x;
    for (; w < end; w += 4) {
        a = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(w[0], x, a);
        b = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(w[0], y, b);
        c = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(w[1], x, c);
        d = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(w[1], y, d);
        e = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(w[2], x, e);
        f = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(w[2], y, f);
        g = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(w[3], x, g);
        h = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(w[3], y, h);
    }
    a = wasm_i32x4_add(wasm_i32x4_add(wasm_i32x4_add(a, b), wasm_i32x4_add(c, d)),
                       wasm_i32x4_add(wasm_i32x4_add(e, f), wasm_i32x4_add(g, h)));
    sink = wasm_f32x4_extract_lane(a, 0);
}
#endif

__attribute__((noinline)) static void read_bytes(void *user) {
    const struct bytes *b = user;
    v128_t sum[4] = { wasm_i32x4_splat(0) };
    for (const uint8_t *p = b->data; p < b->data + b->n / 64 * 64; p += 64) {
        for (int i = 0; i < 4; i++) sum[i] = wasm_v128_xor(sum[i], wasm_v128_load(p + 16 * i));
    }
    sink = wasm_f32x4_extract_lane(wasm_v128_xor(wasm_v128_xor(sum[0], sum[1]), wasm_v128_xor(sum[2], sum[3])), 0);
}
#endif

/* ---- products ---------------------------------------------------------------------------------------------------- */

struct product {
    struct kernels k;
    struct matrix w;
    struct activations a;
    struct panel panel;
    float *x, *y;
};

__attribute__((noinline)) static void multiply(void *user) {
    struct product *p = user;
    p->a.quantized = false;
    matmul(&p->k, NULL, &p->w, &p->y, 1, &p->a, &p->panel);
}

/* Blocks of usual weights: random codes, all scales 2^-7 or so. */
static bool make_matrix(struct matrix *w, uint32_t type, uint32_t n_out, uint8_t *scratch) {
    const struct quant_traits *traits = quant_traits(type);
    *w = (struct matrix) { .type = type, .n_in = N_IN, .n_out = n_out };
    w->row_bytes = N_IN / traits->block_size * traits->block_bytes;
    size_t n = w->row_bytes * n_out;
    uint8_t *data = malloc(n);
    if (!data) return false;
    uint32_t random = 2463534242u;   /* xorshift32, Marsaglia 2003 */
    for (size_t i = 0; i < n; i++) {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        data[i] = (uint8_t)(random >> 24 & 0x1f) | 0x20;   /* what is read as a float is positive, normal, below 2 */
    }
    w->data = data;
    for (; quant_can_pack(type) && w->n_packed < n_out; w->n_packed += PACK_ROWS) {
        quant_pack(type, data + w->n_packed * w->row_bytes, N_IN / traits->block_size, scratch);
    }
    return true;
}

static double gmac(struct product *p, uint32_t n_token) {
    p->a.n_token = n_token;
    return rate(multiply, p) * p->w.n_out * (double)N_IN * n_token * 1e-9;
}

int main(void) {
    static const uint32_t types[] = { QUANT_Q4_0, QUANT_Q4_1, QUANT_Q5_0, QUANT_Q5_1, QUANT_Q8_0, QUANT_Q2_K,
                                      QUANT_Q3_K, QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K, QUANT_IQ4_NL, QUANT_IQ4_XS,
                                      QUANT_F16, QUANT_BF16, QUANT_F32 };
    struct product p;
    uint64_t bytes = 0;
    uint8_t *scratch = malloc(PACK_ROWS * N_IN * sizeof(float));
    kernels_init(&p.k, KERNELS_RELAXED, PLUMB_PRECISION_EXACT16);
    p.x = malloc(N_TOKEN * N_IN * sizeof *p.x);
    p.y = malloc((size_t)N_OUT_LARGE * sizeof *p.y);   /* one token times the large matrix is the most */
    if (!scratch || !p.x || !p.y || activations_create(&p.a, N_IN, N_TOKEN, &p.k, &bytes) != PLUMB_OK
        || panel_create(&p.panel, N_IN, &bytes) != PLUMB_OK) {
        fprintf(stderr, "out of memory\n");
        return 1;
    }
    for (int i = 0; i < N_TOKEN * N_IN; i++) p.x[i] = (float)(i * 7919 % 2003 - 1001) * 1e-3f;
    p.a.n = N_IN;
    p.a.x = p.x;
    double ceiling_int = 0, ceiling_float = 0;
#if defined(__wasm_simd128__)
    struct bytes cached = { (const uint8_t *)vectors, sizeof vectors };
    for (int i = 0; i < N_VECTOR; i++) vectors[i] = wasm_i32x4_splat(i + 1);
    ceiling_int = rate(ceiling_i16, &cached) * (double)N_VECTOR * 16 * 1e-9;
    for (int i = 0; i < N_VECTOR; i++) vectors[i] = wasm_f32x4_splat((float)(i % 16) * 0.125f);
    ceiling_float = rate(ceiling_f32, &cached) * (double)N_VECTOR * 8 * 1e-9;
    struct bytes memory = { malloc(128 << 20), 128 << 20 };
    if (!memory.data) return 1;
    memset((void *)memory.data, 1, memory.n);
    printf("%s kernels.  Ceilings, GMAC/s: 16-bit dots %.1f, f32 %.1f", p.k.name, ceiling_int, ceiling_float);
#if defined(__wasm_relaxed_simd__)
    for (int i = 0; i < N_VECTOR; i++) vectors[i] = wasm_i8x16_splat((int8_t)(i % 128));
    printf(", relaxed 8-bit dots %.1f", rate(ceiling_i8, &cached) * (double)N_VECTOR * 32 * 1e-9);
#endif
    printf("; memory %.1f GB/s\n", rate(read_bytes, &memory) * (double)memory.n * 1e-9);
    free((void *)memory.data);
#else
    printf("%s kernels\n", p.k.name);
#endif
    printf("%-8s %20s %28s %20s\n%-8s %10s %9s %10s %9s %7s %10s %9s\n", "", "decode, in cache", "decode, from memory",
           "prefill of 64", "type", "GMAC/s", "ceiling", "GMAC/s", "ceiling", "GB/s", "GMAC/s", "ceiling");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        double top = unpack_scalar(types[i]) ? ceiling_int : ceiling_float;
        if (!make_matrix(&p.w, types[i], N_OUT, scratch)) return 1;
        double small = gmac(&p, 1), many = gmac(&p, N_TOKEN);
        free((void *)p.w.data);
        if (!make_matrix(&p.w, types[i], N_OUT_LARGE, scratch)) return 1;
        double large = gmac(&p, 1);
        double gb = large / (double)N_IN * (double)p.w.row_bytes;
        free((void *)p.w.data);
        printf("%-8s %10.1f %8.0f%% %10.1f %8.0f%% %7.1f %10.1f %8.0f%%\n", quant_traits(types[i])->name, small,
               100 * small / top, large, 100 * large / top, gb, many, 100 * many / top);
        fflush(stdout);
    }
    return 0;
}

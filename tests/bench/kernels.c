/* `make bench-kernels`: the speed of each product, beside the ceilings of this machine and engine.
 *
 *   ceilings   8 independent sums over vectors in the L1 cache: 16-bit integer dots, f32 products and sums, relaxed
 *              8-bit dots if the build has them; and reading memory
 *   decode     one token times a matrix that fits the L2 cache, and times one larger than any cache
 *   prefill    64 tokens times the matrix in the cache
 *
 * by each table of kernels that a session may choose; only builds with relaxed SIMD have the relaxed ones:
 *
 *   simd128 exact16    activations of 16 bits, dots of 16 bits
 *   relaxed exact16    activations of 16 bits as two bytes, two relaxed dots: half the ceiling of relaxed dots
 *   relaxed fast8      activations of 8 bits, one relaxed dot
 *   pairs fast8        the same, two products added in 16 bits
 *
 * GMAC/s: 10^9 multiply-adds per second.  GB/s: packed weights read per second.  From memory the ceiling is the lower
 * one of arithmetic and memory.  Best of 30 runs of at least 2 ms.  Arguments: names of the types to measure, all if
 * there are none; or "memory": only the GB/s of two seconds of reading, to be run by several programs at once; or
 * "passes" and names: what passes of several tokens cost, times that of one, with weights in the cache. */
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <wasm_simd128.h>

enum { N_IN = 1536, N_OUT = 256, N_OUT_LARGE = 49152, N_TOKEN = 64, N_RUN = 30 };

static double now(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The largest number of calls of work per second in short runs, some of which find the machine quiet.  Not inlined: V8
 * optimizes functions that are called often, not loops inside one call. */
__attribute__((noinline)) static double rate(void (*work)(void *), void *user) {
    double best = 0, seconds = 0, start = now();
    size_t n = 1;
    for (; seconds < 0.002; n *= 2, start = now()) {   /* on some hosts reading the clock is slow */
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

enum { N_VECTOR = 1024, N_LARGE = 128 << 20 };
static v128_t vectors[N_VECTOR];
/* The compiler must not know its size: a loop of known length gets an index beside its pointer, and V8's code for that
 * takes twice as long. */
struct bytes { const uint8_t *data; size_t n; };

/* 8 sums, each vector loaded once and used twice: only the work of a perfect kernel. */
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

/* GMAC/s, 0 for dots8 if the build has none; GB/s of memory. */
struct ceilings { double dots16, dots8, f32, memory; };

static bool measure_ceilings(struct ceilings *c) {
    struct bytes cached = { (const uint8_t *)vectors, sizeof vectors };
    *c = (struct ceilings) { 0 };
    for (int i = 0; i < N_VECTOR; i++) vectors[i] = wasm_i32x4_splat(i + 1);
    c->dots16 = rate(ceiling_i16, &cached) * (double)N_VECTOR * 16 * 1e-9;
    for (int i = 0; i < N_VECTOR; i++) vectors[i] = wasm_f32x4_splat((float)(i % 16) * 0.125f);
    c->f32 = rate(ceiling_f32, &cached) * (double)N_VECTOR * 8 * 1e-9;
#if defined(__wasm_relaxed_simd__)
    for (int i = 0; i < N_VECTOR; i++) vectors[i] = wasm_i8x16_splat((int8_t)(i % 128));
    c->dots8 = rate(ceiling_i8, &cached) * (double)N_VECTOR * 32 * 1e-9;
#endif
    uint8_t *large = malloc(N_LARGE);
    if (!large) return false;
    memset(large, 1, N_LARGE);
    c->memory = rate(read_bytes, &(struct bytes) { large, N_LARGE }) * (double)N_LARGE * 1e-9;
    free(large);
    return true;
}

/* The mean, not the best: the share of other programs must count. */
static bool print_memory(void) {
    uint8_t *large = malloc(N_LARGE);
    if (!large) return false;
    memset(large, 1, N_LARGE);
    double start = now(), seconds = 0, n = 0;
    for (; seconds < 2; n++, seconds = now() - start) read_bytes(&(struct bytes) { large, N_LARGE });
    printf("%.1f\n", n * (double)N_LARGE / seconds * 1e-9);
    free(large);
    return true;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

struct product {
    struct kernels k;
    struct matrix w;
    struct activations a;
    struct panel panel;
    float *y;
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
        data[i] = (uint8_t)(random >> 24 & 0x1f) | 0x20;   /* read as a float it is positive, normal and below 2 */
    }
    w->data = data;
    for (; repack_can(type) && w->n_packed < n_out; w->n_packed += REPACK_ROWS) {
        if (!repack_rows(type, data + w->n_packed * w->row_bytes, N_IN / traits->block_size, scratch)) return false;
    }
    return true;
}

static double gmac(struct product *p, const struct matrix *w, uint32_t n_token) {
    p->w = *w;
    p->a.n_token = n_token;
    return rate(multiply, p) * w->n_out * (double)N_IN * n_token * 1e-9;
}

enum { N_TABLE = 4 };
static const struct { enum kernels_isa isa; plumb_precision precision; const char *name; } tables[N_TABLE] = {
    { KERNELS_SIMD128, PLUMB_PRECISION_EXACT16, "simd128 exact16" },
    { KERNELS_RELAXED, PLUMB_PRECISION_EXACT16, "relaxed exact16" },
    { KERNELS_RELAXED, PLUMB_PRECISION_FAST8, "relaxed fast8" },
    { KERNELS_PAIRS, PLUMB_PRECISION_FAST8, "pairs fast8" },
};

/* Prints what passes of several tokens cost, times that of one token: the best of 1,000 rounds, in which they take
 * turns. */
static void print_passes(struct product *p, const struct matrix *w) {
    static const uint32_t counts[] = { 1, 2, 3, 4, 6, 8, 16 };
    enum { N_COUNT = sizeof counts / sizeof *counts };
    double best[N_COUNT] = { 0 };
    p->w = *w;
    for (int round = 0; round < 1000; round++) {
        for (int i = 0; i < N_COUNT; i++) {
            p->a.n_token = counts[i];
            double start = now();
            multiply(p);
            double seconds = now() - start;
            if (round == 0 || seconds < best[i]) best[i] = seconds;
        }
    }
    for (int i = 1; i < N_COUNT; i++) printf(" %u: %.2f", counts[i], best[i] / best[0]);
    printf("\n");
    fflush(stdout);
}

/* Prints one line for each table that differs for this type; false when out of memory. */
static bool measure_type(uint32_t type, struct product products[N_TABLE], const struct ceilings *c, bool passes) {
    bool is_integer = quant_traits(type)->group > 0;
    const double tops[N_TABLE] = { is_integer ? c->dots16 : c->f32, c->dots8 / 2, c->dots8, c->dots8 };
    bool fast8 = kernels_max_code(PLUMB_PRECISION_FAST8, type) == MAX_CODE_8;
    int n_table = !products[1].k.bytes[1].dot[type] ? 1 : fast8 ? N_TABLE : 3;
    static uint8_t scratch[REPACK_ROWS * N_IN * sizeof(float)];
    struct matrix small = { 0 }, large = { 0 };
    bool ok = make_matrix(&small, type, N_OUT, scratch) && make_matrix(&large, type, N_OUT_LARGE, scratch);
    for (int i = 0; ok && i < n_table; i++) {
        if (passes) {
            printf("%-7s %-16s", i == 0 ? quant_traits(type)->name : "", tables[i].name);
            print_passes(&products[i], &small);
            continue;
        }
        double bytes_per_weight = (double)small.row_bytes / (double)N_IN, top = tops[i];
        double top_large = top < c->memory / bytes_per_weight ? top : c->memory / bytes_per_weight;
        double one = gmac(&products[i], &small, 1), far = gmac(&products[i], &large, 1);
        double many = gmac(&products[i], &small, N_TOKEN);
        printf("%-7s %-16s %8.1f %9.0f%% %10.1f %7.1f %9.0f%% %10.1f %9.0f%%\n", i == 0 ? quant_traits(type)->name : "",
               n_table == 1 && !is_integer ? "simd128 f32" : tables[i].name, one, 100 * one / top, far,
               far * bytes_per_weight, 100 * far / top_large, many, 100 * many / top);
        fflush(stdout);
    }
    free((void *)small.data);
    free((void *)large.data);
    return ok;
}

static const uint32_t types[] = { QUANT_Q4_0, QUANT_Q4_1, QUANT_Q5_0, QUANT_Q5_1, QUANT_Q8_0, QUANT_Q2_K, QUANT_Q3_K,
                                  QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K, QUANT_IQ4_NL, QUANT_IQ4_XS, QUANT_IQ1_S,
                                  QUANT_IQ1_M, QUANT_IQ2_XXS, QUANT_IQ2_XS, QUANT_IQ2_S, QUANT_IQ3_XXS, QUANT_IQ3_S,
                                  QUANT_MXFP4, QUANT_NVFP4, QUANT_Q1_0, QUANT_Q2_0, QUANT_TQ1_0, QUANT_TQ2_0,
                                  QUANT_F16, QUANT_BF16, QUANT_F32 };
enum { N_TYPE = sizeof types / sizeof *types };

int main(int argc, char **argv) {
    static float x[N_TOKEN * N_IN], y[N_OUT_LARGE * 16];   /* 16 tokens times the large matrix are the most */
    static struct product products[N_TABLE];
    bool wanted[N_TYPE] = { false };
    if (argc == 2 && strcmp(argv[1], "memory") == 0) return print_memory() ? 0 : 1;
    bool passes = argc > 1 && strcmp(argv[1], "passes") == 0;
    for (int i = 1 + passes; i < argc; i++) {
        int t = 0;
        while (t < N_TYPE && strcmp(quant_traits(types[t])->name, argv[i]) != 0) t++;
        if (t == N_TYPE) {
            fprintf(stderr, "no kernels of %s; there are", argv[i]);
            for (t = 0; t < N_TYPE; t++) fprintf(stderr, " %s", quant_traits(types[t])->name);
            fprintf(stderr, "\n");
            return 2;
        }
        wanted[t] = true;
    }
    for (int i = 0; i < N_TOKEN * N_IN; i++) x[i] = (float)(i * 7919 % 2003 - 1001) * 1e-3f;
    for (int i = 0; i < N_TABLE; i++) {
        struct product *p = &products[i];
        uint64_t bytes = 0;
        kernels_init(&p->k, tables[i].isa, tables[i].precision);
        if (activations_create(&p->a, N_IN, N_TOKEN, &p->k, &bytes) != PLUMB_OK
            || panel_create(&p->panel, N_IN, &bytes) != PLUMB_OK) goto no_memory;
        p->a.n = N_IN;
        p->a.x = x;
        p->y = y;
    }
    struct ceilings c;
    if (!measure_ceilings(&c)) goto no_memory;
    printf("Ceilings: 16-bit dots %.1f, f32 %.1f", c.dots16, c.f32);
    if (c.dots8 > 0) printf(", relaxed 8-bit dots %.1f", c.dots8);
    printf(" GMAC/s; memory %.1f GB/s\n\n", c.memory);
    if (passes) printf("Cost of passes of several tokens, times that of one, weights in the cache\n\n");
    else printf("%-24s %19s %29s %21s\n", "", "decode, in cache", "decode, from memory", "prefill of 64");
    if (!passes) printf("%-7s %-16s %8s %10s %10s %7s %10s %10s %10s\n", "type", "kernels", "GMAC/s", "of ceiling",
                        "GMAC/s", "GB/s", "of ceiling", "GMAC/s", "of ceiling");
    for (int t = 0; t < N_TYPE; t++) {
        if ((argc < 2 + passes || wanted[t]) && !measure_type(types[t], products, &c, passes)) goto no_memory;
    }
    return 0;
no_memory:
    fprintf(stderr, "out of memory\n");
    return 1;
}

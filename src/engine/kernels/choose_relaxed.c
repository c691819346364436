/* Chooses between SIMD128 and relaxed kernels.  All give the same bits, so the choice changes the speed and nothing
 * else.  A relaxed dot is one instruction on some machines and three or more on others, so the speeds of SIMD128 and
 * relaxed kernels for 16-bit activations are measured.  They also decide for 8-bit activations, which always get
 * relaxed kernels: those with sums of 32 bits where a dot is one instruction, and those with sums of 16 bits elsewhere.
 * Engines have had wrong relaxed dots (V8's baseline compiler in 2023), so the relaxed kernels of both precisions are
 * compared with SIMD128, for one type of weights, and no relaxed kernel is used if a single bit differs.  The precision
 * is not decided here: the caller asks for it. */
/* Compiled with -mrelaxed-simd. */
#include "kernels/kernels.h"

#include "kernels/simd128.h"

#include <stdlib.h>

#if defined(HAVE_RELAXED)

/* Each call times the first KERNELS_CANDIDATES candidates with one token and with MANY_TOKENS.  A measurement begins
 * when the clock ticks and ends when the clock, which is read between products, shows that MIN_SECONDS have passed.
 * Browsers coarsen the clock, most of them to 0.1 ms or less. */
#define MIN_SECONDS 0.5e-3
/* A clock counts as too coarse if it does not tick while it is read MAX_CLOCK_READS times, which takes some 5 ms.  In
 * browsers that resist fingerprinting, the clock ticks only every 16 or 100 ms. */
enum { MANY_TOKENS = 16, MAX_WEIGHTS = 1 << 18, MAX_CLOCK_READS = 100000 };
/* Both factors are above the error of the measurement. */
#define RELAXED_FASTER_BY 1.05
#define IMPROVED_BY 1.05   /* than any call before */

/* The first KERNELS_CANDIDATES of these are timed; the others are only compared. */
enum { SIMD128_16, RELAXED_16, RELAXED_8, PAIRS_8, N_CANDIDATE };
static const struct { enum kernels_isa isa; plumb_precision precision; } kinds[N_CANDIDATE] = {
    [SIMD128_16] = { KERNELS_SIMD128, PLUMB_PRECISION_EXACT16 },
    [RELAXED_16] = { KERNELS_RELAXED, PLUMB_PRECISION_EXACT16 },
    [RELAXED_8] = { KERNELS_RELAXED, PLUMB_PRECISION_FAST8 },
    [PAIRS_8] = { KERNELS_PAIRS, PLUMB_PRECISION_FAST8 },
};

/* One candidate to compute a product: a kernel table with the scratch it needs. */
struct candidate {
    struct kernels k;
    struct activations a;
    struct panel panel;
    const struct matrix *w;
};

static bool candidate_create(struct candidate *candidate, enum kernels_isa isa, plumb_precision precision,
                             const struct matrix *w, const float *x) {
    uint64_t bytes = 0;
    kernels_init(&candidate->k, isa, precision);
    candidate->w = w;
    if (activations_create(&candidate->a, w->n_in, MANY_TOKENS, &candidate->k, &bytes) != PLUMB_OK) return false;
    candidate->a.max_code = kernels_max_code(precision, w->type);
    candidate->a.n = w->n_in;
    candidate->a.x = x;
    return panel_create(&candidate->panel, w->n_in, &bytes) == PLUMB_OK;
}

static void candidate_free(struct candidate *candidate) {
    activations_free(&candidate->a);
    panel_free(&candidate->panel);
}

static void multiply(struct candidate *candidate, float *y, uint32_t n_token) {
    candidate->a.n_token = n_token;
    matmul(&candidate->k, NULL, candidate->w, &y, 1, &candidate->a, &candidate->panel);
}

/* Returns how many products a candidate makes in a second, or 0 if the clock is too coarse.  The clock is read after
 * four products with one token or after one with many.  Only the first product quantizes x. */
static double measure(struct candidate *candidate, float *y, uint32_t n_token) {
    double start = clock_seconds(), end = start, n = 0;
    candidate->a.quantized = false;
    for (uint32_t n_read = 0; start == end; n_read++, start = clock_seconds()) {
        if (n_read == MAX_CLOCK_READS) return 0;
    }
    while (end < start + MIN_SECONDS) {
        for (uint32_t i = 0; i < 4; i += n_token, n++) multiply(candidate, y, n_token);
        end = clock_seconds();
    }
    return n / (end - start);
}

/* Returns whether a relaxed candidate gives the same bits as SIMD128 at the same precision, with one token and with
 * MANY_TOKENS.  True if there is no memory to find out. */
static bool matches_simd128(struct candidate *candidate, const float *x, float *y, float *other) {
    struct candidate simd128 = { 0 };
    bool ok = candidate_create(&simd128, KERNELS_SIMD128, candidate->k.precision, candidate->w, x), right = true;
    for (uint32_t n_token = 1; ok && n_token <= MANY_TOKENS; n_token += MANY_TOKENS - 1) {
        candidate->a.quantized = simd128.a.quantized = false;
        multiply(candidate, y, n_token);
        multiply(&simd128, other, n_token);
        right &= memcmp(y, other, (size_t)candidate->w->n_out * n_token * sizeof *y) == 0;
    }
    candidate_free(&simd128);
    return right;
}

/* Compares the geometric means of the speeds with one token and with many.  False if they were not measured. */
static bool relaxed_is_faster(const struct kernel_speeds *s) {
    const double *relaxed = s->per_second[RELAXED_16], *simd128 = s->per_second[SIMD128_16];
    return relaxed[0] * relaxed[1] > simd128[0] * simd128[1] * RELAXED_FASTER_BY * RELAXED_FASTER_BY;
}

/* Times and compares the candidates, with w and x, and updates *s.  y and other are scratch for products. */
static void measure_candidates(struct kernel_speeds *s, const struct matrix *w, const float *x, float *y,
                               float *other) {
    struct candidate candidates[N_CANDIDATE] = { 0 };
    bool ok = true, improved = false, coarse = false;
    for (int i = 0; i < N_CANDIDATE; i++) {
        ok = ok && candidate_create(&candidates[i], kinds[i].isa, kinds[i].precision, w, x);
    }
    for (int i = 0; ok && i < N_CANDIDATE; i++) {
        for (int many = 0; many < 2 && !coarse && i < KERNELS_CANDIDATES; many++) {
            double speed = measure(&candidates[i], y, many ? MANY_TOKENS : 1);
            coarse = speed == 0;
            improved |= speed > IMPROVED_BY * s->per_second[i][many];
            if (speed > s->per_second[i][many]) s->per_second[i][many] = speed;
        }
        s->wrong |= kinds[i].isa >= KERNELS_RELAXED && !matches_simd128(&candidates[i], x, y, other);
    }
    s->n_call += ok;
    /* Two calls are not enough, because the engine may not have compiled its better version yet. */
    s->settled = s->wrong || coarse || (s->n_call > 2 && ok && !improved);
    for (int i = 0; i < N_CANDIDATE; i++) candidate_free(&candidates[i]);
}

void kernels_measure(struct kernel_speeds *s, uint32_t type, uint64_t n_in, uint64_t n_out) {
    if (s->settled || s->n_call == KERNELS_CALLS) return;
    struct kernels relaxed;
    kernels_init(&relaxed, KERNELS_RELAXED, PLUMB_PRECISION_EXACT16);
    if (!relaxed.bytes[1].dot[type] || n_in > MAX_WEIGHTS / TILE_ROWS || n_out < TILE_ROWS) return;
    struct matrix w = { .type = type, .n_in = (uint32_t)n_in, .n_out = (uint32_t)(MAX_WEIGHTS / n_in) };
    if (w.n_out > n_out) w.n_out = (uint32_t)n_out;
    w.n_packed = w.n_out -= w.n_out % TILE_ROWS;
    w.row_bytes = w.n_in / quant_traits(type)->block_size * quant_traits(type)->block_bytes;
    size_t n_byte = w.n_out * w.row_bytes, n_x = (size_t)w.n_in * MANY_TOKENS, n_y = (size_t)w.n_out * MANY_TOKENS;
    uint8_t *rows = alloc_array(n_byte, 1);
    float *x = alloc_array(n_x, sizeof *x), *y = alloc_array(n_y, sizeof *y), *other = alloc_array(n_y, sizeof *other);
    w.data = rows;
    if (rows && x && y && other) {
        /* Bit 5 of every byte is set and bit 6 is clear.  Any two bytes, read as an f16 scale, are therefore a normal
         * number of magnitude below 2.  All other bits vary: signs, and the highest bits of codes. */
        for (size_t i = 0; i < n_byte; i++) rows[i] = (uint8_t)(0x20 | (i * 0x9e3779b1u >> 24 & 0x9f));
        for (size_t i = 0; i < n_x; i++) x[i] = (float)(i * 37 % 101) - 50.0f;
        measure_candidates(s, &w, x, y, other);
    }
    free(rows);
    free(x);
    free(y);
    free(other);
}

void kernels_choose(struct kernels *k, plumb_precision precision, const struct kernel_speeds *s) {
    enum kernels_isa isa = KERNELS_SIMD128;
    if (!s->wrong && relaxed_is_faster(s)) isa = KERNELS_RELAXED;
    else if (!s->wrong && precision == PLUMB_PRECISION_FAST8) isa = KERNELS_PAIRS;
    kernels_init(k, isa, precision);
    k->needs_bytes = true;   /* whichever was faster: the size of a session depends on no measurement */
}

#else
void kernels_measure(struct kernel_speeds *s, uint32_t type, uint64_t n_in, uint64_t n_out) {
    (void)s, (void)type, (void)n_in, (void)n_out;
}

void kernels_choose(struct kernels *k, plumb_precision precision, const struct kernel_speeds *s) {
    kernels_init(k, KERNELS_SIMD128, precision);
    (void)s;
}
#endif

/* Builds the kernel table, allocates the scratch of kernels, and multiplies matrices of any type, which it divides into
 * tiles for the threads. */
/* Compiled for speed, and with -mrelaxed-simd. */
#include "kernels/kernels.h"

#include "kernels/simd128.h"

#include <math.h>
#include <stdlib.h>

void kernels_init(struct kernels *k, enum kernels_isa isa, plumb_precision precision) {
    memset(k, 0, sizeof *k);
    k->precision = precision;
    kernels_fill_scalar(k);
#if defined(HAVE_SIMD128)
    if (isa >= KERNELS_SIMD128) kernels_fill_simd128(k);
#endif
#if defined(HAVE_RELAXED)
    if (isa >= KERNELS_RELAXED) {
        kernels_fill_relaxed8(k);
        kernels_fill_relaxed16(k);
    }
    if (isa >= KERNELS_PAIRS) kernels_fill_pairs8(k);
#endif
    (void)isa;
}

/* Whether weights of that type are multiplied as f32: those of float types, and of Q8_K, which are dequantized. */
static bool as_floats(uint32_t type) { return quant_traits(type)->group == 0; }

#define IS_TYPE(TYPE, TEMPLATE, NAME) || type == TYPE
int32_t kernels_max_code(plumb_precision precision, uint32_t type) {
    bool rounded = precision == PLUMB_PRECISION_FAST8 && (false RELAXED_TYPES(IS_TYPE));
    return rounded ? MAX_CODE_8 : MAX_CODE_16;
}

/* ---- scratch --------------------------------------------------------------------------------------------------- */

/* An array of n elements of size bytes, and where the pointer to it is stored. */
struct buffer { void **p; uint64_t n; size_t size; };

static plumb_status allocate(const struct buffer *buffers, size_t n, uint64_t *bytes) {
    for (size_t i = 0; i < n; i++) {
        *buffers[i].p = alloc_array(buffers[i].n, buffers[i].size);
        if (!*buffers[i].p) return PLUMB_ERROR_MEMORY;
        *bytes += buffers[i].n * buffers[i].size;
    }
    return PLUMB_OK;
}

plumb_status activations_create(struct activations *a, uint32_t n_max, uint32_t n_token, const struct kernels *k,
                                uint64_t *bytes) {
    memset(a, 0, sizeof *a);
    a->max_code = k->precision == PLUMB_PRECISION_FAST8 ? MAX_CODE_8 : MAX_CODE_16;
    uint64_t n = (uint64_t)n_max * n_token;
    const struct buffer buffers[] = {
        { (void **)&a->q, n, sizeof *a->q },
        { (void **)&a->d, n / 32 + 1, sizeof *a->d },
        { (void **)&a->sum32, n / 32 + 1, sizeof *a->sum32 },
        { (void **)&a->isum32, n / 32 + 1, sizeof *a->isum32 },
        { (void **)&a->isum16, n / 16 + 1, sizeof *a->isum16 },
        { (void **)&a->sums32.q, n / 32 + 1, sizeof *a->sums32.q },
        { (void **)&a->sums32.d, n / 256 + 1, sizeof *a->sums32.d },
        { (void **)&a->sums16.q, n / 16 + 1, sizeof *a->sums16.q },
        { (void **)&a->sums16.d, n / 256 + 1, sizeof *a->sums16.d },
        { (void **)&a->bytes, n, 2 },   /* the last two are for needs_bytes; 8-bit codes fill half of bytes */
        { (void **)&a->bytes_even_odd, n_max, 2 },
    };
    size_t n_buffer = sizeof buffers / sizeof *buffers - (k->needs_bytes ? 0 : 2);
    plumb_status status = allocate(buffers, n_buffer, bytes);
    if (status != PLUMB_OK) activations_free(a);
    return status;
}

void activations_free(struct activations *a) {
    void *const owned[] = { a->q, a->d, a->sum32, a->isum32, a->isum16, a->sums32.q, a->sums32.d, a->sums16.q,
                            a->sums16.d, a->bytes, a->bytes_even_odd };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    memset(a, 0, sizeof *a);
}

plumb_status panel_create(struct panel *p, uint32_t n_max, uint64_t *bytes) {
    memset(p, 0, sizeof *p);
    uint64_t n = n_max, n_group = n / 16 + 1;
    const struct buffer buffers[] = {
        { (void **)&p->pairs, n * TILE_ROWS, sizeof *p->pairs },
        { (void **)&p->scales, n_group * TILE_ROWS, sizeof *p->scales },
        { (void **)&p->mins, n_group * TILE_ROWS, sizeof *p->mins },
        { (void **)&p->min_codes, n_group * TILE_ROWS, sizeof *p->min_codes },
        { (void **)&p->f32, (n + 3) / 4 * 4 * TILE_ROWS, sizeof *p->f32 },
        { (void **)&p->bytes, n * sizeof(float), 1 },   /* no type needs more for n elements than F32 */
        { (void **)&p->codes, n, sizeof *p->codes },
        { (void **)&p->min_code, n_group, sizeof *p->min_code },
        { (void **)&p->scale, n_group, sizeof *p->scale },
        { (void **)&p->min, n_group, sizeof *p->min },
        { (void **)&p->strip, STRIP_RESULTS, sizeof *p->strip },
    };
    plumb_status status = allocate(buffers, sizeof buffers / sizeof *buffers, bytes);
    if (status != PLUMB_OK) panel_free(p);
    return status;
}

void panel_free(struct panel *p) {
    void *const owned[] = { p->pairs, p->scales, p->mins, p->min_codes, p->f32, p->bytes, p->codes, p->min_code,
                            p->scale, p->min, p->strip };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    memset(p, 0, sizeof *p);
}

/* ---- the matrix product ---------------------------------------------------------------------------------------- */

/* A matmul call, shared by all threads. */
struct matmul_call {
    const struct kernels *k;
    const struct matrix *w;
    float *const *y;
    uint32_t n;
    struct activations *a;
    struct panel *panels;
};

/* Dequantizes rows row .. row + 7 of w to p in portable code, a block at a time.  Rows past the end repeat the last
 * one. */
static void unpack_floats(const struct matrix *w, uint32_t row, struct panel *p) {
    const struct quant_traits *traits = quant_traits(w->type);
    size_t step = traits->block_size < 4 ? 4 : traits->block_size;
    for (uint32_t r = 0; r < TILE_ROWS; r++) {
        uint32_t i = row + r < w->n_out ? row + r : w->n_out - 1;
        const uint8_t *src = repack_file_row(w->type, w->data, w->row_bytes, w->n_packed, i, p->bytes);
        for (size_t e = 0; e < p->n; e += step) {
            float block[QUANT_MAX_BLOCK];
            size_t n = p->n - e < step ? p->n - e : step;
            quant_dequantize(traits, src + e / traits->block_size * traits->block_bytes, block, n);
            for (; n % 4 != 0; n++) block[n] = 0.0f;
            for (size_t j = 0; j < n; j += 4) memcpy(p->f32 + float_at(p->n, r, e + j), block + j, 4 * sizeof *block);
        }
    }
}

/* Stores the n codes of row r in even-odd order, as one of the 8 rows of pairs. */
static void store_pairs(int16_t *pairs, const int16_t *codes, size_t n, uint32_t r) {
    for (pairs += 2 * r; n > 0; n -= 4, codes += 4, pairs += 4 * TILE_ROWS) {
        pairs[0] = codes[0];
        pairs[1] = codes[2];
        pairs[2 * TILE_ROWS] = codes[1];
        pairs[2 * TILE_ROWS + 1] = codes[3];
    }
}

/* As unpack_floats, for types with groups. */
static void unpack_codes(const struct matrix *w, uint32_t row, struct panel *p) {
    const struct quant_traits *t = quant_traits(w->type);
    size_t n_block = p->n / t->block_size, in_block = t->block_size / t->group, n_group = n_block * in_block;
    size_t n_min = t->min_kind == GROUP_MIN ? in_block : t->min_kind == SUPERBLOCK_MIN;   /* of a block */
    for (uint32_t r = 0; r < TILE_ROWS; r++) {
        uint32_t i = row + r < w->n_out ? row + r : w->n_out - 1;
        const uint8_t *src = repack_file_row(w->type, w->data, w->row_bytes, w->n_packed, i, p->bytes);
        for (size_t b = 0; b < n_block; b++, src += t->block_bytes) {
            quant_unpack(t, src, p->codes + b * t->block_size, p->scale + b * in_block, p->min + b * n_min,
                         p->min_code + b * in_block);
        }
        store_pairs(p->pairs, p->codes, p->n, r);
        for (size_t g = 0; g < n_group; g++) p->scales[g * TILE_ROWS + r] = p->scale[g];
        for (size_t g = 0; g < n_block * n_min; g++) p->mins[g * TILE_ROWS + r] = p->min[g];
        if (t->min_kind == SUPERBLOCK_MIN) store_pairs(p->min_codes, p->min_code, n_group, r);
    }
    p->group = t->group;
    p->min_kind = t->min_kind;
}

/* Up to so many tokens are multiplied with packed rows one by one: unpacking takes as long as two of them. */
enum { FEW_TOKENS = 3 };

/* Token t of a, as activations of one token.  They have no bytes, unless codes have 8 bits. */
static struct activations token_of(const struct activations *a, uint32_t t) {
    struct activations one = *a;
    size_t at = (size_t)t * a->n;
    one.n_token = 1;
    one.x += at;
    one.q += at;
    one.d += at / 32;
    one.sum32 += at / 32;
    one.isum32 += at / 32;
    one.isum16 += at / 16;
    one.sums32.q += at / 32;
    one.sums32.d += at / 256;
    one.sums16.q += at / 16;
    one.sums16.d += at / 256;
    one.bytes = a->max_code == MAX_CODE_8 && a->bytes ? a->bytes + at : NULL;
    one.bytes_even_odd = NULL;
    return one;
}

/* Multiplies rows row .. row + 7 of w with every token.  The results of a token go to y, and those of the next one to
 * y + stride.  The last tile of w may have fewer than 8 rows.  Its panel still has 8, but only the n_row results of
 * rows that exist are copied to y.  dot_x4 writes 8 results of a token directly to y, so it is only used for tiles of 8
 * rows.  Of three tokens that are left over, it computes the one before them again, because four cost less than three
 * one by one. */
static void tile_rows(const struct matmul_call *call, const struct matrix *w, uint32_t row, struct panel *p, float *y,
                      size_t stride) {
    const struct kernels *k = call->k;
    const struct activations *a = call->a;
    const uint8_t *rows = w->data + (size_t)row * w->row_bytes;
    bool packed = w->n_packed >= row + TILE_ROWS;
    bool floats = as_floats(w->type);
    uint32_t t = 0, n_row = w->n_out - row < TILE_ROWS ? w->n_out - row : TILE_ROWS;
    int wide = a->max_code == MAX_CODE_8 ? 0 : 1;   /* codes in a->bytes have two bytes */
    kernel_dot *one_token = k->bytes[wide].dot[w->type] ? k->bytes[wide].dot[w->type] : k->dot[w->type];
    if (a->n_token == 1 && packed && one_token) {
        one_token(y, rows, a);
        return;
    }
    if (a->n_token <= FEW_TOKENS && packed && one_token && (wide == 0 || one_token == k->dot[w->type])) {
        for (; t < a->n_token; t++) {
            const struct activations one = token_of(a, t);
            one_token(y + t * stride, rows, &one);
        }
        return;
    }
    p->n = a->n;
    p->in_bytes = false;
    if (packed && k->unpack[w->type]) k->unpack[w->type](p, rows);
    else if (floats) unpack_floats(w, row, p);
    else unpack_codes(w, row, p);
    kernel_panel_dot *dot = floats ? k->float_dot : k->panel_dot;
    kernel_panel_dot_x4 *dot_x4 = floats ? k->float_dot_x4 : k->panel_dot_x4;
    if (p->in_bytes) {
        dot = k->bytes[wide].panel_dot;
        dot_x4 = k->bytes[wide].panel_dot_x4;
    }
    bool has_mins = !floats && p->min_kind != NO_MIN;
    bool fours = dot_x4 && n_row == TILE_ROWS && a->n_token >= TILE_TOKENS;
    for (; fours && a->n_token - t >= TILE_TOKENS - 1; t += TILE_TOKENS) {
        if (a->n_token - t < TILE_TOKENS) t--;
        float *four = y + t * stride;
        dot_x4(four, stride, p, a, t);
        if (has_mins) k->subtract_mins(four, stride, p, a, t, TILE_TOKENS);
    }
    for (; t < a->n_token; t++) {
        float dots[TILE_ROWS];
        dot(dots, p, a, t);
        if (has_mins) k->subtract_mins(dots, TILE_ROWS, p, a, t, 1);
        memcpy(y + t * stride, dots, n_row * sizeof *y);
    }
}

static uint32_t n_tile(const struct matrix *w) { return (w->n_out + TILE_ROWS - 1) / TILE_ROWS; }

/* How many rows of w have their results gathered in a strip before they are copied to y; 0: none.  The results of
 * several tokens are n_out apart in y.  If they are more than a cache holds, as those of logits are, the stores of each
 * tile miss it, and the next ones wait for them: 8 tokens times 49,152 rows took twice as long. */
static uint32_t strip_rows(const struct matrix *w, uint32_t n_token) {
    enum { CACHED_RESULTS = 1 << 17, MOST_ROWS = 128 };
    if (n_token == 1 || (uint64_t)n_token * w->n_out <= CACHED_RESULTS) return 0;
    uint32_t n = STRIP_RESULTS / n_token / TILE_ROWS * TILE_ROWS;
    return n < MOST_ROWS ? n : MOST_ROWS;
}

/* Multiplies tiles begin .. end - 1 of one matrix. */
static void multiply_matrix(const struct matmul_call *call, const struct matrix *w, uint32_t begin, uint32_t end,
                            struct panel *p, float *y) {
    uint32_t n_token = call->a->n_token, n_strip = strip_rows(w, n_token);
    uint32_t row = begin * TILE_ROWS, last = end * TILE_ROWS < w->n_out ? end * TILE_ROWS : w->n_out;
    if (n_strip == 0) {
        for (; row < last; row += TILE_ROWS) tile_rows(call, w, row, p, y + row, w->n_out);
        return;
    }
    for (; row < last; row += n_strip) {
        uint32_t n = last - row < n_strip ? last - row : n_strip;
        for (uint32_t r = 0; r < n; r += TILE_ROWS) tile_rows(call, w, row + r, p, p->strip + r, n_strip);
        for (uint32_t t = 0; t < n_token; t++) {
            memcpy(y + (size_t)t * w->n_out + row, p->strip + (size_t)t * n_strip, n * sizeof *y);
        }
    }
}

/* Multiplies tiles begin .. end - 1, which are counted across all matrices.  first is the number of the first tile of
 * matrix i.  It never exceeds begin while begin < end, so begin - first does not wrap. */
static void multiply_tiles(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct matmul_call *call = user;
    for (uint32_t i = 0, first = 0; i < call->n && begin < end; first += n_tile(&call->w[i]), i++) {
        const struct matrix *w = &call->w[i];
        if (begin - first >= n_tile(w)) continue;
        uint32_t last = end - first < n_tile(w) ? end - first : n_tile(w);
        multiply_matrix(call, w, begin - first, last, &call->panels[thread], call->y[i]);
        begin = first + last;
    }
}

/* Quantizes the n sums (8 or 16) of 256 activations.  Sum i is isum[i] * d[i * 8 / n]: d has a step for each of 8
 * blocks of activations, so of 16 sums, 2 share a step.  Only superblocks with minima need these codes, but they are
 * made for every type: matrices of several types may share the activations, and the sums are few. */
static void quantize_sums(const struct sums *sums, size_t superblock, const int32_t *isum, const float *d, size_t n) {
    float amax = 0;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        float sum = fabsf(d[i * 8 / n] * (float)isum[i]);   /* steps are at most 2^15, or NaN */
        finite = finite && sum == sum;
        if (sum > amax) amax = sum;
    }
    float inverse = finite && amax >= ACT_AMAX_MIN ? (float)SUM_CODE_MAX / amax : 0.0f;
    sums->d[superblock] = !finite ? NAN : amax >= ACT_AMAX_MIN ? amax / (float)SUM_CODE_MAX : 0.0f;
    int16_t *q = sums->q + superblock * n;
    for (size_t i = 0; i < n; i++) {
        q[even_odd(i)] = finite ? (int16_t)rintf(d[i * 8 / n] * (float)isum[i] * inverse) : 0;
    }
}

/* Quantizes tokens begin .. end - 1. */
static void quantize_tokens(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    const struct matmul_call *call = user;
    struct activations *a = call->a;
    size_t n_superblock = a->n % 256 == 0 ? a->n / 256 : 0;
    for (uint32_t t = begin; t < end; t++) {
        call->k->quantize_i16(a, t);
        for (size_t i = t * n_superblock; i < (t + 1) * n_superblock; i++) {
            quantize_sums(&a->sums32, i, a->isum32 + 8 * i, a->d + 8 * i, 8);
            quantize_sums(&a->sums16, i, a->isum16 + 16 * i, a->d + 8 * i, 16);
        }
    }
    (void)thread;
}

void matmul(const struct kernels *k, struct pool *pool, const struct matrix *w, float *const *y, uint32_t n,
            struct activations *a, struct panel *panels) {
    struct matmul_call call = { k, w, y, n, a, panels };
    uint32_t n_tiles = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_tiles += n_tile(&w[i]);
        if (as_floats(w[i].type) || a->quantized) continue;
        pool_run(pool, a->n_token, (uint64_t)a->n * POOL_ELEMENT, quantize_tokens, &call);
        a->quantized = true;
    }
    pool_run(pool, n_tiles, (uint64_t)a->n * a->n_token * TILE_ROWS, multiply_tiles, &call);
}

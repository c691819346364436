/* quant_unpack against the dequantizers, which quant_test.c tests against gguf-py.  The inputs are the blocks of
 * tests/vectors/quant and random bytes, including NaN and infinite scales. */
#include "quant/quant.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

void test_kernels_unpack(void);

static const struct unpacked_type {
    uint32_t type;
    uint8_t group;
    enum min_kind min_kind;
    int lowest, highest;
} types[] = {
    {QUANT_Q4_0, 32, NO_MIN, -8, 7}, {QUANT_Q4_1, 32, GROUP_MIN, 0, 15}, {QUANT_Q5_0, 32, NO_MIN, -16, 15},
    {QUANT_Q5_1, 32, GROUP_MIN, 0, 31}, {QUANT_Q8_0, 32, NO_MIN, -128, 127}, {QUANT_Q2_K, 16, SUPERBLOCK_MIN, 0, 3},
    {QUANT_Q3_K, 16, NO_MIN, -4, 3}, {QUANT_Q4_K, 32, SUPERBLOCK_MIN, 0, 15}, {QUANT_Q5_K, 32, SUPERBLOCK_MIN, 0, 31},
    {QUANT_Q6_K, 16, NO_MIN, -32, 31}, {QUANT_IQ4_NL, 32, NO_MIN, -127, 113}, {QUANT_IQ4_XS, 32, NO_MIN, -127, 113},
    {QUANT_IQ2_XXS, 32, NO_MIN, -43, 43}, {QUANT_IQ2_XS, 16, NO_MIN, -43, 43}, {QUANT_IQ2_S, 16, NO_MIN, -43, 43},
    {QUANT_IQ3_XXS, 32, NO_MIN, -62, 62}, {QUANT_IQ3_S, 32, NO_MIN, -15, 15}, {QUANT_IQ1_S, 32, NO_MIN, -9, 9},
    {QUANT_IQ1_M, 16, NO_MIN, -9, 9},
    {QUANT_MXFP4, 32, NO_MIN, -12, 12}, {QUANT_NVFP4, 16, NO_MIN, -12, 12}, {QUANT_Q1_0, 32, NO_MIN, -1, 1},
    {QUANT_Q2_0, 32, NO_MIN, -1, 2}, {QUANT_TQ1_0, 32, NO_MIN, -1, 1}, {QUANT_TQ2_0, 32, NO_MIN, -1, 2},
};

/* Compares bits.  A NaN equals any NaN, because IEEE 754 and wasm leave its sign and payload open. */
static bool same(float a, float b) {
    return f32_to_bits(a) == f32_to_bits(b) || (a != a && b != b);
}

/* ---- rows to unpack ------------------------------------------------------------------------------------------- */

struct input {
    uint8_t *memory, *blocks;   /* blocks begin at an odd address and end with the allocation */
    size_t n_block;
};

static struct input make_input(const struct quant_traits *t, size_t n_block) {
    size_t n_bytes = n_block * t->block_bytes;
    uint8_t *memory = malloc(n_bytes + 1);
    return (struct input){memory, memory ? memory + 1 : NULL, n_block};
}

/* The blocks that gguf-py dequantized. */
static struct input vector_input(const struct quant_traits *t) {
    char path[80];
    snprintf(path, sizeof path, "tests/vectors/quant/%s.bin", t->name);
    size_t n_bytes = 0;
    uint8_t *bytes = test_read_all(path, &n_bytes);
    if (!bytes) return (struct input){0};
    struct input in = make_input(t, n_bytes / t->block_bytes);
    if (in.blocks) memcpy(in.blocks, bytes, in.n_block * t->block_bytes);
    free(bytes);
    return in;
}

static struct input random_input(const struct quant_traits *t, size_t n_block) {
    struct input in = make_input(t, n_block);
    uint32_t x = 2463534242u + (uint32_t)n_block;   /* xorshift32, Marsaglia 2003 */
    for (size_t i = 0; in.blocks && i < n_block * t->block_bytes; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        in.blocks[i] = (uint8_t)(x >> 24);
    }
    return in;
}

/* ---- guarded outputs ------------------------------------------------------------------------------------------ */

enum { GUARD = 16 };   /* elements before and after each array */

struct output {
    int16_t *codes;        /* GUARD + n + GUARD, all filled with the canary */
    float *scale, *min;    /* GUARD + n / group + GUARD */
    int16_t *min_codes;
    size_t n, n_group;
};

static const int16_t code_canary = 0x5a5a;
static const uint32_t float_canary = 0x7fa5a5a5u;   /* a NaN that no scale has */

static struct output make_output(size_t n, size_t n_group) {
    struct output o = {malloc((n + 2 * GUARD) * sizeof *o.codes), malloc((n_group + 2 * GUARD) * sizeof *o.scale),
                       malloc((n_group + 2 * GUARD) * sizeof *o.min),
                       malloc((n_group + 2 * GUARD) * sizeof *o.min_codes), n, n_group};
    for (size_t i = 0; o.codes && i < n + 2 * GUARD; i++) o.codes[i] = code_canary;
    for (size_t i = 0; o.min_codes && i < n_group + 2 * GUARD; i++) o.min_codes[i] = code_canary;
    for (size_t i = 0; o.scale && o.min && i < n_group + 2 * GUARD; i++) {
        memcpy(&o.scale[i], &float_canary, 4);
        memcpy(&o.min[i], &float_canary, 4);
    }
    return o;
}

static void free_output(struct output *o) {
    free(o->codes);
    free(o->scale);
    free(o->min);
    free(o->min_codes);
}

static bool guards_hold(const struct output *o) {
    for (size_t i = 0; i < GUARD; i++) {
        if (o->codes[i] != code_canary || o->codes[GUARD + o->n + i] != code_canary) return false;
        if (o->min_codes[i] != code_canary || o->min_codes[GUARD + o->n_group + i] != code_canary) return false;
        const float *const at[4] = {&o->scale[i], &o->scale[GUARD + o->n_group + i],
                                    &o->min[i], &o->min[GUARD + o->n_group + i]};
        for (int k = 0; k < 4; k++)
            if (memcmp(at[k], &float_canary, 4) != 0) return false;
    }
    return true;
}

/* Outputs that a type does not have are NULL; it must not write them, nor more minima than it has. */
static void run(const struct quant_traits *t, const uint8_t *src, struct output *o) {
    bool in_codes = t->min_kind == SUPERBLOCK_MIN;
    for (size_t i = 0, n_group = t->block_size / t->group; i < o->n / t->block_size; i++) {
        quant_unpack(t, src + i * t->block_bytes, o->codes + GUARD + i * t->block_size,
                     o->scale + GUARD + i * n_group,
                     t->min_kind != NO_MIN ? o->min + GUARD + i * (in_codes ? 1 : n_group) : NULL,
                     in_codes ? o->min_codes + GUARD + i * n_group : NULL);
    }
    for (size_t i = o->n / 256; in_codes && i < o->n_group; i++) {
        CHECK(memcmp(&o->min[GUARD + i], &float_canary, 4) == 0, "wrote minimum %zu", i);
    }
    CHECK(guards_hold(o), "wrote outside its outputs for %zu weights", o->n);
}

/* ---- scalar equals the dequantizer ---------------------------------------------------------------------------- */

/* scale * code - m in f32 has exactly the dequantizer's bits: both compute the same product first, ggml's types with a
 * minimum subtract it too, and d * q + m equals d * q - (-m) in IEEE arithmetic. */
static void equals_dequantizer(const struct unpacked_type *row, struct input in) {
    const struct quant_traits *t = quant_traits(row->type);
    size_t n = in.n_block * t->block_size, group = row->group;
    struct output o = make_output(n, n / group);
    float *want = malloc((n + 1) * sizeof *want);
    bool ready = in.blocks && in.n_block && want && o.codes && o.scale && o.min && o.min_codes;
    if (!CHECK(ready, "%zu blocks", in.n_block)) goto done;
    run(t, in.blocks, &o);
    quant_dequantize(t, in.blocks, want, n);
    for (size_t i = 0; i < n; i++) {
        int code = o.codes[GUARD + i];
        float product = o.scale[GUARD + i / group] * (float)code;
        int16_t min_code = t->min_kind == SUPERBLOCK_MIN ? o.min_codes[GUARD + i / group] : 0;
        float m = t->min_kind == GROUP_MIN ? o.min[GUARD + i / group] : 0;
        if (t->min_kind == SUPERBLOCK_MIN) m = o.min[GUARD + i / 256] * (float)min_code;
        float got = t->min_kind == NO_MIN ? product : product - m;
        if (!CHECK(same(got, want[i]) && code >= row->lowest && code <= row->highest && min_code >= 0 && min_code < 64,
                   "weight %zu of %zu: code %d gives %a, the dequantizer %a", i, n, code, (double)got, (double)want[i]))
            break;
    }
done:
    free_output(&o);
    free(want);
    free(in.memory);
}

static void scalar_row(const void *arg) {
    const struct unpacked_type *row = arg;
    const struct quant_traits *t = quant_traits(row->type);
    REQUIRE(t && t->group > 0, "type %u has no groups", row->type);
    CHECK(t->group == row->group && t->min_kind == row->min_kind, "group %u, min %d", t->group, (int)t->min_kind);
    equals_dequantizer(row, vector_input(t));
    equals_dequantizer(row, random_input(t, 33));
    struct output o = make_output(0, 0);
    if (CHECK(o.codes && o.scale && o.min && o.min_codes, "no memory")) run(t, NULL, &o);
    free_output(&o);
}

static void types_without(void) {
    static const uint32_t none[] = {QUANT_F32, QUANT_F16, QUANT_BF16, QUANT_Q8_K, 4, 9, QUANT_TYPE_COUNT, UINT32_MAX};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        CHECK(!quant_traits(none[i]) || quant_traits(none[i])->group == 0, "type %u", none[i]);
    }
}

void test_kernels_unpack(void) {
    char name[100];
    test_case("kernels: types that cannot be unpacked have no groups", types_without);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const struct quant_traits *t = quant_traits(types[i].type);
        snprintf(name, sizeof name, "kernels: unpack %s scalar equals the dequantizer bit for bit", t ? t->name : "?");
        test_row(name, scalar_row, &types[i]);
    }
}

/* The traits table and every dequantizer against gguf-py and ggml: tests/vectors/quant, made by make.py there. */
#include "quant/quant.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

void test_quant(void);

static const uint32_t readable[] = {
    QUANT_F32, QUANT_F16, QUANT_BF16, QUANT_Q4_0, QUANT_Q4_1, QUANT_Q5_0, QUANT_Q5_1, QUANT_Q8_0,
    QUANT_Q2_K, QUANT_Q3_K, QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K, QUANT_Q8_K, QUANT_IQ4_NL, QUANT_IQ4_XS,
};
/* Those whose expected values are hashes. */
static const uint32_t hashed[] = {
    QUANT_IQ1_S, QUANT_IQ1_M, QUANT_IQ2_XXS, QUANT_IQ2_XS, QUANT_IQ2_S, QUANT_IQ3_XXS, QUANT_IQ3_S, QUANT_TQ1_0,
    QUANT_TQ2_0, QUANT_MXFP4, QUANT_NVFP4, QUANT_Q1_0, QUANT_Q2_0,
};

/* Compares bits.  A NaN equals any NaN, because IEEE 754 and wasm leave its sign and payload open. */
static bool same(float a, float b) {
    return f32_to_bits(a) == f32_to_bits(b) || (a != a && b != b);
}

/* Compares the n_block dequantized blocks of a type with the truth. */
typedef void comparison(const struct quant_traits *t, const float *got, size_t n_block, const uint8_t *want);

/* Dequantizes the vectors of one type, more than n_least blocks, as one row, from an odd address into a guarded row.
 * The truth is in the file with this ending: block_bytes for each block, or 4 for each element if block_bytes is 0. */
static void check_vectors(const void *row, const char *ending, size_t block_bytes, size_t n_least,
                          comparison *compare) {
    const struct quant_traits *t = quant_traits(*(const uint32_t *)row);
    REQUIRE(t && t->block_size, "type %u is not readable", *(const uint32_t *)row);
    char path[80];
    size_t n_raw = 0, n_want = 0;
    snprintf(path, sizeof path, "tests/vectors/quant/%s.bin", t->name);
    uint8_t *raw = test_read_all(path, &n_raw);
    snprintf(path, sizeof path, "tests/vectors/quant/%s.%s.bin", t->name, ending);
    uint8_t *want = test_read_all(path, &n_want);
    size_t n_block = n_raw / t->block_bytes, n = n_block * t->block_size;
    uint8_t *odd = malloc(n_raw + 1);
    float *got = malloc((n + 2) * sizeof *got);
    const float canary = 12345.678f;
    if (block_bytes == 0) block_bytes = 4 * (size_t)t->block_size;
    if (!CHECK(raw && want && odd && got && n_block > n_least && n_raw % t->block_bytes == 0
               && n_want == block_bytes * n_block, "%zu bytes of blocks, %zu bytes of truth", n_raw, n_want))
        goto done;
    memcpy(odd + 1, raw, n_raw);
    memset(got, 0xff, (n + 2) * sizeof *got);
    got[0] = got[n + 1] = canary;
    quant_dequantize(t, odd + 1, got + 1, n);
    CHECK(same(got[0], canary) && same(got[n + 1], canary), "wrote outside its %zu floats", n);
    compare(t, got + 1, n_block, want);
done:
    free(raw);
    free(want);
    free(odd);
    free(got);
}

static void compare_values(const struct quant_traits *t, const float *got, size_t n_block, const uint8_t *want) {
    for (size_t i = 0; i < n_block * t->block_size; i++) {
        float w = f32_from_bits(load_u32(want + 4 * i));
        if (!CHECK(same(got[i], w), "weight %zu of block %zu is %a, gguf-py has %a", i % t->block_size,
                   i / t->block_size, (double)got[i], (double)w))
            break;
    }
}

static void equals_vectors(const void *row) { check_vectors(row, "f32", 0, 0, compare_values); }

/* FNV-1a of the bits of n floats; every NaN counts as the same. */
static uint64_t hash_of(const float *x, size_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < 4 * n; i++) {
        uint32_t bits = x[i / 4] != x[i / 4] ? 0x7fc00000u : f32_to_bits(x[i / 4]);
        h = (h ^ (bits >> i % 4 * 8 & 255)) * 0x100000001b3u;
    }
    return h;
}

static void compare_hashes(const struct quant_traits *t, const float *got, size_t n_block, const uint8_t *want) {
    for (size_t i = 0; i < n_block; i++) {
        const float *block = got + i * t->block_size;
        if (!CHECK(hash_of(block, t->block_size) == load_u64(want + 8 * i),
                   "block %zu differs from ggml's; it begins with %a", i, (double)block[0]))
            break;
    }
}

static void equals_hashes(const void *row) { check_vectors(row, "fnv", 8, 400, compare_hashes); }

/* types.txt lists "number name block_size block_bytes" for every type that gguf-py or ggml knows. */
static void table_equals_package(void) {
    size_t size = 0;
    char *text = test_read_all("tests/vectors/quant/types.txt", &size);
    REQUIRE(text, "no types.txt");
    unsigned number, block_size, block_bytes, n_line = 0, n_readable = 0;
    char name[16];
    int used;
    for (const char *p = text; sscanf(p, "%u %15s %u %u\n%n", &number, name, &block_size, &block_bytes, &used) == 4;
         p += used) {
        n_line++;
        const struct quant_traits *t = quant_traits(number);
        if (!CHECK(t && strcmp(t->name, name) == 0, "type %u is %s, not %s", number, name, t ? t->name : "nameless"))
            continue;
        if (t->block_size == 0) {
            CHECK(t->block_bytes == 0, "%s is known by name only, yet has a reader", name);
            continue;
        }
        n_readable++;
        CHECK(t->block_size == block_size && t->block_bytes == block_bytes,
              "%s: %u weights in %u bytes, not %u in %u", name, block_size, block_bytes, t->block_size, t->block_bytes);
    }
    CHECK(n_line >= 35, "only %u lines understood", n_line);
    CHECK(n_readable == (sizeof readable + sizeof hashed) / sizeof readable[0], "%u types are readable", n_readable);
    free(text);
}

static void removed_numbers(void) {
    static const uint32_t none[] = {4, 5, 31, 32, 33, 36, 37, 38, QUANT_TYPE_COUNT, 1000, 0x80000000u, UINT32_MAX};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        CHECK(quant_traits(none[i]) == NULL, "number %u has a name", none[i]);
    const struct quant_traits *last = quant_traits(QUANT_TYPE_COUNT - 1);
    CHECK(last && strcmp(last->name, "Q2_0") == 0, "42 is Q2_0 in ggml.h");
}

void test_quant(void) {
    test_case("quant: numbers, names and block sizes equal gguf-py's", table_equals_package);
    test_case("quant: numbers that ggml removed or never assigned are not types", removed_numbers);
    for (size_t i = 0; i < sizeof readable / sizeof readable[0]; i++) {
        char name[80];
        const struct quant_traits *t = quant_traits(readable[i]);
        snprintf(name, sizeof name, "quant: %s equals %s bit for bit", t ? t->name : "?",
                 readable[i] == QUANT_Q8_K ? "d * q in numpy" : "gguf-py");
        test_row(name, equals_vectors, &readable[i]);
    }
    for (size_t i = 0; i < sizeof hashed / sizeof hashed[0]; i++) {
        char name[80];
        const struct quant_traits *t = quant_traits(hashed[i]);
        snprintf(name, sizeof name, "quant: %s equals ggml bit for bit", t ? t->name : "?");
        test_row(name, equals_hashes, &hashed[i]);
    }
}

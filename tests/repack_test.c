/* Packed weights: unpacking restores the rows, tiles have the layout in repack/repack.h, and a file is packed while it
 * arrives. */
#include "repack/repack.h"
#include "quant/quant.h"
#include "fixture.h"
#include "gguf_feed.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void test_repack(void);

static const uint32_t types[] = {
    QUANT_Q4_0, QUANT_Q4_1, QUANT_Q5_0, QUANT_Q5_1, QUANT_Q8_0, QUANT_Q2_K, QUANT_Q3_K, QUANT_Q4_K, QUANT_Q5_K,
    QUANT_Q6_K, QUANT_IQ4_NL, QUANT_IQ4_XS, QUANT_IQ2_XXS, QUANT_IQ2_XS, QUANT_IQ2_S, QUANT_IQ3_XXS, QUANT_IQ3_S,
    QUANT_IQ1_S, QUANT_IQ1_M, QUANT_MXFP4, QUANT_NVFP4, QUANT_Q1_0, QUANT_Q2_0, QUANT_TQ1_0, QUANT_TQ2_0, QUANT_F32,
    QUANT_F16, QUANT_BF16,
};

/* 8 rows of n_block blocks of random bytes.  One cleared bit in the f16 exponents keeps scales below 2. */
static uint8_t *make_rows(uint32_t type, size_t n_block) {
    const struct quant_traits *t = quant_traits(type);
    const struct f16_places *f16 = fixture_f16_places(type);
    size_t n = REPACK_ROWS * n_block * t->block_bytes;
    uint8_t *rows = malloc(n);
    uint32_t x = 2463534242u + type;   /* xorshift32, Marsaglia 2003 */
    for (size_t i = 0; rows && i < n; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        rows[i] = (uint8_t)(x >> 24);
    }
    for (size_t b = 0; rows && b < n; b += t->block_bytes) {
        for (int i = 0; i < f16->n; i++) rows[b + f16->at[i] + 1] &= 0xbf;
        if (type == QUANT_F16) rows[b + 1] &= 0xbf;
        if (type == QUANT_MXFP4) rows[b] &= 0xbf;
        if (type == QUANT_IQ1_M) rows[b + 55] &= 0xbf;   /* the high 4 bits of the f16 */
        for (size_t i = 0; type == QUANT_NVFP4 && i < 4; i++) rows[b + i] &= 0x3f;
    }
    return rows;
}

static void round_trip(const void *arg) {
    uint32_t type = *(const uint32_t *)arg;
    size_t n_block = quant_traits(type)->block_size == 1 ? 24 : 3;
    size_t row_bytes = n_block * quant_traits(type)->block_bytes, n = REPACK_ROWS * row_bytes;
    uint8_t *file = make_rows(type, n_block), *rows = malloc(n), *scratch = malloc(n), *row = malloc(row_bytes);
    REQUIRE(file && rows && scratch && row, "out of memory");
    memcpy(rows, file, n);
    CHECK(repack_can(type) && repack_rows(type, rows, n_block, scratch), "it was not packed");
    CHECK(memcmp(rows, file, n) != 0, "the bytes did not move");
    for (uint32_t r = 0; r < REPACK_ROWS; r++) {
        repack_undo_row(type, rows, n_block, r, row);
        CHECK(memcmp(row, file + r * row_bytes, row_bytes) == 0, "row %u is another one", r);
    }
    free(file);
    free(rows);
    free(scratch);
    free(row);
}

/* By hand: the place of every byte of blocks whose bytes encode their position. */
static void layout(void) {
    uint8_t rows[REPACK_ROWS * 2 * 34], scratch[sizeof rows];
    for (size_t i = 0; i < sizeof rows; i++) rows[i] = (uint8_t)(i % 0x78);   /* exponents below 0x7c */
    REQUIRE(repack_rows(QUANT_Q8_0, rows, 2, scratch), "it was not packed");
    /* Row 5, block 1: d is half 5 of the second tile; weights 8 .. 11, bytes 10 .. 13 of the block, are word 2. */
    size_t file = 5 * 2 * 34 + 34, tile = REPACK_ROWS * 34;
    CHECK(rows[tile + 2 * 5] == file % 0x78 && rows[tile + 2 * 5 + 1] == (file + 1) % 0x78, "d");
    static const size_t order[] = { 0, 2, 1, 3 };
    for (size_t b = 0; b < 4; b++) {
        size_t at = tile + 16 + (2 * REPACK_ROWS + 5) * 4 + order[b];
        CHECK(rows[at] == (file + 10 + b) % 0x78, "weight %zu: %u", 8 + b, rows[at]);
    }
    /* F32, rows of 8 weights: row 3 has the fourth 16 bytes of each tile. */
    uint8_t f32[REPACK_ROWS * 32];
    for (size_t i = 0; i < sizeof f32; i++) f32[i] = (uint8_t)i;
    REQUIRE(repack_rows(QUANT_F32, f32, 8, scratch), "it was not packed");
    for (size_t b = 0; b < 16; b++) CHECK(f32[128 + 48 + b] == 3 * 32 + 16 + b, "byte %zu: %u", b, f32[128 + 48 + b]);
    CHECK(!repack_rows(QUANT_F32, f32, 7, scratch), "rows of 28 bytes were packed");
    /* q5_0: code 0x15 at weight 6 = 4 * 1 + 2, low nibble of byte 6 and bit 6 of the high bits, is the high five bits
     * of byte 2 of word 1; 0x16 at weight 30 = 4 * 7 + 2, high nibble of byte 14 and bit 30, is byte 2 of
     * w2 ^ w3 << 1 ^ w4 << 2; 0x0d at weight 25 = 4 * 6 + 1, high nibble of byte 9, is byte 1 of w1 ^ w4 << 3. */
    uint8_t q5[REPACK_ROWS * 22] = { 0 };
    q5[3 * 22 + 6 + 6] = 0x05;
    q5[3 * 22 + 6 + 14] = 0x60;
    q5[3 * 22 + 6 + 9] = 0xd0;
    q5[3 * 22 + 2 + 0] = 1 << 6;
    q5[3 * 22 + 2 + 3] = 1 << 6;
    REQUIRE(repack_rows(QUANT_Q5_0, q5, 1, scratch), "it was not packed");
    static const uint32_t five[] = { 0, 0x15 << 19 | 5 << 8, 2 << 16 | 4 << 8, 0, 5 << 16 | 1 << 8 };
    for (size_t i = 0; i < 5; i++) {
        uint32_t word = load_u32(q5 + 2 * REPACK_ROWS + i * 4 * REPACK_ROWS + 4 * 3);
        CHECK(word == five[i], "word %zu: %#x", i, word);
    }
    /* q5_K: code 0x1b at weight 118 = 32 * 3 + 4 * 5 + 2, high nibble of byte 32 + 22 and bit 3 of byte 22 of the high
     * bits, is byte 2 of w0 ^ w3 << 3 of the five words of weights 96 .. 127. */
    uint8_t q5_K[REPACK_ROWS * 176] = { 0 }, q6_K[REPACK_ROWS * 210] = { 0 }, large[sizeof q6_K];
    q5_K[6 * 176 + 48 + 32 + 22] = 0xb0;
    q5_K[6 * 176 + 16 + 22] = 1 << 3;
    REQUIRE(repack_rows(QUANT_Q5_K, q5_K, 1, large), "it was not packed");
    static const uint32_t five_K[] = { 3 << 16, 0, 6 << 16, 3 << 16, 0 };
    for (size_t i = 0; i < 5; i++) {
        uint32_t word = load_u32(q5_K + (4 + 5 * 3 + i) * 4 * REPACK_ROWS + 4 * 6);
        CHECK(word == five_K[i], "word %zu: %#x", i, word);
    }
    /* q6_K: code 0x2d at weight 200 = 16 * 12 + 8, high nibble of byte 64 + 8 and bits 4 and 5 of byte 32 + 8 of the
     * high bits, is byte 0 of word 3 * 12 + 2; 0x36 at weight 207, code 15 of its group, is byte 3 of
     * w0 ^ w1 << 2 ^ w2 << 4. */
    q6_K[4 * 210 + 64 + 8] = 0xd0;
    q6_K[4 * 210 + 64 + 15] = 0x60;
    q6_K[4 * 210 + 128 + 32 + 8] = 2 << 4;
    q6_K[4 * 210 + 128 + 32 + 15] = 3 << 4;
    REQUIRE(repack_rows(QUANT_Q6_K, q6_K, 1, large), "it was not packed");
    static const uint32_t words[] = { 0x02000300, 0x01000200, 0x03000000 | 0x2d << 2 };
    for (size_t i = 0; i < 3; i++) {
        uint32_t word = load_u32(q6_K + 2 * REPACK_ROWS + (3 * 12 + i) * 4 * REPACK_ROWS + 4 * 4);
        CHECK(word == words[i], "word %zu: %#x", i, word);
    }
}

/* By hand: the places of codes of one and of two bits, of row 5. */
static void layout_of_few_bits(void) {
    static const struct { uint32_t type; size_t byte; uint8_t bits; size_t word; uint32_t value; } rows[] = {
        { QUANT_Q1_0, 2, 1 << 6, 0, 1 << 19 },          /* weight 6 = 4 * 1 + 2: bit 3 of byte 2 */
        { QUANT_Q1_0, 2 + 15, 1 << 1, 3, 1 << 12 },     /* weight 121 = 32 * 3 + 16 + 4 * 2 + 1: bit 4 of byte 1 */
        { QUANT_Q2_0, 2 + 1, 3 << 4, 0, 3 << 18 },      /* weight 6: bits 2 and 3 of byte 2 */
        { QUANT_Q2_0, 2 + 14, 2 << 2, 3, 2u << 12 },    /* weight 57 = 16 * 3 + 4 * 2 + 1: bits 4 and 5 of byte 1 */
        { QUANT_TQ2_0, 6, 1 << 4, 4, 1 << 18 },         /* weight 70 = 16 * 4 + 4 * 1 + 2 */
        { QUANT_TQ2_0, 32 + 29, 2 << 6, 15, 2u << 14 }, /* weight 253 = 16 * 15 + 4 * 3 + 1 */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t tile[REPACK_ROWS * 66] = { 0 }, scratch[sizeof tile];
        tile[5 * quant_traits(rows[i].type)->block_bytes + rows[i].byte] = rows[i].bits;
        REQUIRE(repack_rows(rows[i].type, tile, 1, scratch), "it was not packed");
        uint32_t word = load_u32(tile + 2 * REPACK_ROWS + rows[i].word * 4 * REPACK_ROWS + 4 * 5);
        CHECK(word == rows[i].value, "row %zu: %#x", i, word);
    }
}

/* Every f16 as each scale of a block of more than 32 weights: below 128 it is stored with another bias in a tile and is
 * restored exactly; others are refused. */
static void scales_of_superblocks(void) {
    enum { LARGEST = 210, ROW = 3 };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t bytes = quant_traits(types[i])->block_bytes;
        const struct f16_places *f16 = fixture_f16_places(types[i]);
        if (quant_traits(types[i])->block_size <= 32) continue;
        for (uint32_t h = 0; h < 0x10000u * f16->n; h++) {
            uint8_t rows[REPACK_ROWS * LARGEST] = { 0 }, scratch[sizeof rows], row[LARGEST];
            uint32_t at = f16->at[h >> 16], half = h & 0xffff;
            rows[ROW * bytes + at] = (uint8_t)half;
            rows[ROW * bytes + at + 1] = (uint8_t)(half >> 8);
            float value = f32_from_f16((uint16_t)half);
            bool packed = repack_rows(types[i], rows, 1, scratch);
            CHECK(packed == (fabsf(value) < 128.0f), "%s, %#x: packed is %d", quant_traits(types[i])->name, half,
                  packed);
            if (!packed) continue;
            bool odd = bytes % 4 == 2;   /* then it is stored before the words */
            uint32_t tile = load_u16(rows + (odd ? 2 * ROW : at / 4 * 4 * REPACK_ROWS + 4 * ROW + at % 4));
            uint32_t bits = (tile & 0x8000) << 16 | (tile & 0x7fff) << 13;
            CHECK(f32_from_bits(bits) * 0x1p102f == value && (value == 0 || tile & 0x7c00), "%s, %#x: %#x in a tile",
                  quant_traits(types[i])->name, half, tile);
            repack_undo_row(types[i], rows, 1, ROW, row);
            CHECK(load_u16(row + at) == half, "%s, %#x: %#x when it comes back", quant_traits(types[i])->name, half,
                  load_u16(row + at));
        }
    }
}

/* The same for IQ1_M, whose d is the high nibbles of the four u16 at 48. */
static void scale_of_iq1_m(void) {
    enum { BYTES = 56, ROW = 3 };
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint8_t rows[REPACK_ROWS * BYTES], scratch[sizeof rows], row[BYTES], file[BYTES];
        memset(rows, 0x05, sizeof rows);
        for (uint32_t i = 0; i < 4; i++) rows[ROW * BYTES + 49 + 2 * i] = (uint8_t)((h >> 4 * i & 15) << 4 | i);
        memcpy(file, rows + ROW * BYTES, BYTES);
        float value = f32_from_f16((uint16_t)h);
        bool packed = repack_rows(QUANT_IQ1_M, rows, 1, scratch);
        CHECK(packed == (fabsf(value) < 128.0f), "%#x: packed is %d", h, packed);
        if (!packed) continue;
        uint32_t tile = 0;
        for (uint32_t i = 0; i < 4; i++) {
            uint8_t high = rows[(12 + i / 2) * 4 * REPACK_ROWS + 4 * ROW + i % 2 * 2 + 1];
            tile |= (uint32_t)(high >> 4) << 4 * i;
            CHECK((high & 15) == i, "%#x: the low bits of byte %u are %u", h, i, high & 15u);
        }
        uint32_t bits = (tile & 0x8000) << 16 | (tile & 0x7fff) << 13;
        CHECK(f32_from_bits(bits) * 0x1p102f == value && (value == 0 || tile & 0x7c00), "%#x: %#x in a tile", h, tile);
        repack_undo_row(QUANT_IQ1_M, rows, 1, ROW, row);
        CHECK(memcmp(row, file, BYTES) == 0, "%#x does not come back", h);
    }
}

static void not_finite(void) {
    static const struct { uint32_t type; size_t at; } rows[] = {
        { QUANT_Q4_0, 0 }, { QUANT_Q4_1, 2 }, { QUANT_Q5_1, 0 }, { QUANT_Q8_0, 0 }, { QUANT_Q2_K, 82 },
        { QUANT_Q3_K, 108 }, { QUANT_F16, 14 }, { QUANT_Q4_K, 2 }, { QUANT_Q6_K, 208 }, { QUANT_IQ4_XS, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n_block = rows[i].type == QUANT_F16 ? 8 : 1;
        size_t row_bytes = n_block * quant_traits(rows[i].type)->block_bytes, n = REPACK_ROWS * row_bytes;
        uint8_t *a = make_rows(rows[i].type, n_block), *b = malloc(n), *scratch = malloc(n);
        REQUIRE(a && b && scratch, "out of memory");
        a[7 * row_bytes + rows[i].at] = 0;
        a[7 * row_bytes + rows[i].at + 1] = 0xfc;   /* -infinity */
        memcpy(b, a, n);
        CHECK(!repack_rows(rows[i].type, a, n_block, scratch), "%s was packed", quant_traits(rows[i].type)->name);
        CHECK(memcmp(a, b, n) == 0, "%s was changed", quant_traits(rows[i].type)->name);
        free(a);
        free(b);
        free(scratch);
    }
}

/* Every byte as a scale of a type whose scales have one byte. */
static void scales_of_bytes(void) {
    static const struct { uint32_t type; size_t at; int limit; } rows_of[] = {
        { QUANT_MXFP4, 0, 254 }, { QUANT_NVFP4, 0, 127 }, { QUANT_NVFP4, 1, 127 }, { QUANT_NVFP4, 2, 127 },
        { QUANT_NVFP4, 3, 127 } };
    for (size_t i = 0; i < sizeof rows_of / sizeof *rows_of; i++) {
        for (int byte = 0; byte < 256; byte++) {
            uint8_t rows[REPACK_ROWS * 36] = { 0 }, scratch[sizeof rows];
            rows[5 * quant_traits(rows_of[i].type)->block_bytes + rows_of[i].at] = (uint8_t)byte;
            CHECK(repack_rows(rows_of[i].type, rows, 1, scratch) == (byte < rows_of[i].limit), "%s, %d",
                  quant_traits(rows_of[i].type)->name, byte);
        }
    }
}

static void no_layout(void) {
    static const uint32_t none[] = { QUANT_Q8_K, 4, QUANT_TYPE_COUNT, UINT32_MAX };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) CHECK(!repack_can(none[i]), "type %u", none[i]);
}

/* Loads a file with and without packing, in pieces of odd sizes: every row of every tensor has the same bytes. */
static void while_it_arrives(void) {
    static const size_t pieces[] = { 1, 577, 65536, SIZE_MAX };
    size_t n_file;
    uint8_t *file = test_read_all("tests/vectors/synth/q4_k.gguf", &n_file);
    REQUIRE(file, "no file");
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct error err = { 0 };
        struct gguf *plain = gguf_create(n_file), *packed = gguf_create(i % 2 ? n_file : PLUMB_SIZE_UNKNOWN);
        REQUIRE(plain && packed, "out of memory");
        struct repacker repacker = { 0 };
        gguf_set_on_data(packed, repack_arrived, &repacker);
        uint64_t size = i % 2 ? n_file : PLUMB_SIZE_UNKNOWN;
        CHECK(feed_file(plain, &(struct feed) { .piece = SIZE_MAX }, n_file, file, n_file, &err) == PLUMB_OK, "%s",
              err.message);
        struct feed feed = { .piece = pieces[i], .random = 1 };
        CHECK(feed_file(packed, &feed, size, file, n_file, &err) == PLUMB_OK, "%s", err.message);
        uint64_t n_packed = 0;
        for (uint64_t k = 0; k < gguf_n_tensor(plain); k++) {
            const struct gguf_tensor *a = gguf_tensor_at(plain, k), *b = gguf_tensor_at(packed, k);
            bool can = a->n_dims == 2 && repack_can(a->type);
            CHECK(a->n_packed == 0 && b->n_packed == (can ? gguf_n_row(b) / REPACK_ROWS * REPACK_ROWS : 0),
                  "%s: %llu rows are packed", b->name.data, (unsigned long long)b->n_packed);
            n_packed += b->n_packed;
            uint8_t *buffer = malloc(gguf_row_bytes(b));
            REQUIRE(buffer, "out of memory");
            for (uint64_t r = 0; r < gguf_n_row(a); r++) {
                CHECK(memcmp(repack_tensor_row(b, r, buffer), a->data + r * gguf_row_bytes(a), gguf_row_bytes(a)) == 0,
                      "%s, row %llu", b->name.data, (unsigned long long)r);
            }
            free(buffer);
        }
        CHECK(n_packed > 0, "nothing was packed");
        gguf_free(plain);
        gguf_free(packed);
        repacker_free(&repacker);
    }
    free(file);
}

void test_repack(void) {
    char name[80];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        snprintf(name, sizeof name, "repack: rows of %s come back bit for bit", quant_traits(types[i])->name);
        test_row(name, round_trip, &types[i]);
    }
    test_case("repack: words and 16 bytes of floats lie by rows, five and six bits in words", layout);
    test_case("repack: codes of one and of two bits are reordered", layout_of_few_bits);
    test_case("repack: scales of superblocks have another bias, and none is subnormal", scales_of_superblocks);
    test_case("repack: the scale of IQ1_M, too, has another bias in its nibbles", scale_of_iq1_m);
    test_case("repack: infinite scales leave rows as they are", not_finite);
    test_case("repack: scales of one byte that a tile cannot hold leave rows as they are", scales_of_bytes);
    test_case("repack: types that nothing multiplies with have no layout", no_layout);
    test_case("repack: a gguf packs its rows while they arrive, in pieces of any size", while_it_arrives);
}

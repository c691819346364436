#include "quant/pack.h"

#include "quant/quant.h"

/* Where the fields lie in a block that packing must know of. */
struct pack {
    uint8_t n_half;     /* of d, and of m or dmin right behind it; 0: a type that is not packed */
    uint8_t d;          /* byte of the first of them */
    bool has_high;      /* q5_0, q5_1: the word after them holds high bits */
};

static const struct pack table[QUANT_TYPE_COUNT] = {
    [QUANT_Q4_0] = { 1, 0, false }, [QUANT_Q4_1] = { 2, 0, false }, [QUANT_Q5_0] = { 1, 0, true },
    [QUANT_Q5_1] = { 2, 0, true },  [QUANT_Q8_0] = { 1, 0, false }, [QUANT_Q4_K] = { 2, 0, false },
    [QUANT_Q5_K] = { 2, 0, false }, [QUANT_Q6_K] = { 1, 208, false }, [QUANT_Q2_K] = { 2, 80, false },
    [QUANT_Q3_K] = { 1, 108, false }, [QUANT_IQ4_NL] = { 1, 0, false }, [QUANT_IQ4_XS] = { 1, 0, false },
};

static bool is_float(uint32_t type) { return type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16; }

bool quant_can_pack(uint32_t type) { return type < QUANT_TYPE_COUNT && (table[type].n_half > 0 || is_float(type)); }

static void store_u32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> 8 * i);
}

/* Bit 4j + b <-> bit 8b + j. */
static uint32_t high_bits_packed(uint32_t bits) {
    uint32_t packed = 0;
    for (uint32_t i = 0; i < 32; i++) packed |= (bits >> i & 1) << (i % 4 * 8 + i / 4);
    return packed;
}
static uint32_t high_bits_of(uint32_t packed) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 32; i++) bits |= (packed >> (i % 4 * 8 + i / 4) & 1) << i;
    return bits;
}

static bool is_finite(const uint8_t *half) { return (load_u16(half) & 0x7c00) != 0x7c00; }

enum { CHUNK = 16 };   /* bytes of a row of floats that stay together */

static bool pack_floats(uint32_t type, uint8_t *rows, size_t row_bytes, uint8_t *scratch) {
    if (row_bytes % CHUNK != 0) return false;
    /* exponents of 31 carry into the sign */
    uint32_t special = 0;
    for (size_t i = 0; type == QUANT_F16 && i < PACK_ROWS * row_bytes; i += 2) {
        special |= ((uint32_t)load_u16(rows + i) & 0x7fff) + 0x400;
    }
    if (special & 0x8000) return false;
    memcpy(scratch, rows, PACK_ROWS * row_bytes);
    for (size_t at = 0; at < row_bytes; at += CHUNK) {
        for (size_t r = 0; r < PACK_ROWS; r++, rows += CHUNK) memcpy(rows, scratch + r * row_bytes + at, CHUNK);
    }
    return true;
}

static void unpack_floats(const uint8_t *rows, size_t row_bytes, uint32_t r, uint8_t *dst) {
    for (size_t at = 0; at < row_bytes; at += CHUNK) memcpy(dst + at, rows + PACK_ROWS * at + CHUNK * r, CHUNK);
}

bool quant_pack(uint32_t type, uint8_t *rows, size_t n_block, uint8_t *scratch) {
    const struct pack *pack = &table[type];
    size_t block_bytes = quant_traits(type)->block_bytes, row_bytes = n_block * block_bytes;
    if (is_float(type)) return pack_floats(type, rows, row_bytes, scratch);
    for (const uint8_t *b = rows; b < rows + PACK_ROWS * row_bytes; b += block_bytes) {
        if (!is_finite(b + pack->d) || (pack->n_half == 2 && !is_finite(b + pack->d + 2))) return false;
    }
    memcpy(scratch, rows, PACK_ROWS * row_bytes);
    uint8_t *to = rows;
    for (size_t i = 0; i < n_block; i++) {
        const uint8_t *from = scratch + i * block_bytes;
        bool odd = block_bytes % 4 == 2;
        for (size_t r = 0; odd && r < PACK_ROWS; r++, to += 2) memcpy(to, from + r * row_bytes + pack->d, 2);
        for (size_t at = 0; at < block_bytes; at += 4) {
            if (odd && at == pack->d) at += 2;
            if (at == block_bytes) break;
            bool is_high = pack->has_high && at == 2u * pack->n_half;
            for (size_t r = 0; r < PACK_ROWS; r++, to += 4) {
                memcpy(to, from + r * row_bytes + at, 4);
                if (is_high) store_u32(to, high_bits_packed(load_u32(to)));
            }
        }
    }
    return true;
}

void quant_unpack_row(uint32_t type, const uint8_t *rows, size_t n_block, uint32_t r, uint8_t *dst) {
    const struct pack *pack = &table[type];
    size_t block_bytes = quant_traits(type)->block_bytes;
    bool odd = block_bytes % 4 == 2;
    if (is_float(type)) {
        unpack_floats(rows, n_block * block_bytes, r, dst);
        return;
    }
    for (size_t i = 0; i < n_block; i++, rows += PACK_ROWS * block_bytes, dst += block_bytes) {
        const uint8_t *word = rows + (odd ? 2 * PACK_ROWS : 0) + 4 * r;
        if (odd) memcpy(dst + pack->d, rows + 2 * r, 2);
        for (size_t at = 0; at < block_bytes; at += 4, word += 4 * PACK_ROWS) {
            if (odd && at == pack->d) at += 2;
            if (at == block_bytes) break;
            memcpy(dst + at, word, 4);
            if (pack->has_high && at == 2u * pack->n_half) store_u32(dst + at, high_bits_of(load_u32(word)));
        }
    }
}

const uint8_t *quant_row(uint32_t type, const uint8_t *data, size_t row_bytes, uint64_t n_packed, uint64_t i,
                         uint8_t *buffer) {
    if (i >= n_packed) return data + (size_t)i * row_bytes;
    quant_unpack_row(type, data + (size_t)(i - i % PACK_ROWS) * row_bytes,
                     row_bytes / quant_traits(type)->block_bytes, (uint32_t)(i % PACK_ROWS), buffer);
    return buffer;
}

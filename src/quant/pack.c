#include "quant/pack.h"

#include "quant/quant.h"

/* What packing must know of a block: where its f16 are, and which of the words behind them have another form in a
 * tile. */
struct pack {
    uint8_t n_half;     /* d, and m or dmin right behind it; 0: a type that is not packed */
    uint8_t d;          /* byte of the first of them */
    enum { NO_WORD, HIGH_WORD, EVERY_WORD, HIGH_BITS } changed;
};

static const struct pack table[QUANT_TYPE_COUNT] = {
    [QUANT_Q4_0] = { 1, 0, NO_WORD },   [QUANT_Q4_1] = { 2, 0, NO_WORD },    [QUANT_Q5_0] = { 1, 0, HIGH_WORD },
    [QUANT_Q5_1] = { 2, 0, HIGH_WORD }, [QUANT_Q8_0] = { 1, 0, EVERY_WORD }, [QUANT_Q4_K] = { 2, 0, NO_WORD },
    [QUANT_Q5_K] = { 2, 0, HIGH_BITS }, [QUANT_Q6_K] = { 1, 208, NO_WORD },  [QUANT_Q2_K] = { 2, 80, NO_WORD },
    [QUANT_Q3_K] = { 1, 108, NO_WORD }, [QUANT_IQ4_NL] = { 1, 0, NO_WORD },  [QUANT_IQ4_XS] = { 1, 0, NO_WORD },
};

static bool is_float(uint32_t type) { return type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16; }

bool quant_can_pack(uint32_t type) { return type < QUANT_TYPE_COUNT && (table[type].n_half > 0 || is_float(type)); }

static void store_u32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> 8 * i);
}

/* Bit k of byte j <-> bit j of byte k.  Warren, Hacker's Delight, 7-3. */
static uint64_t transposed(uint64_t x) {
    static const uint64_t masks[] = { 0x00aa00aa00aa00aa, 0x0000cccc0000cccc, 0x00000000f0f0f0f0 };
    for (int i = 0; i < 3; i++) {
        uint64_t t = (x ^ x >> (7 << i)) & masks[i];
        x ^= t ^ t << (7 << i);
    }
    return x;
}

/* Bit 4j + b of a word of high bits <-> bit 8b + j: a nibble is a byte of what is transposed. */
static uint32_t high_bits_packed(uint32_t bits) {
    uint64_t x = bits;
    x = (x | x << 16) & 0x0000ffff0000ffff;
    x = (x | x << 8) & 0x00ff00ff00ff00ff;
    x = (x | x << 4) & 0x0f0f0f0f0f0f0f0f;
    return (uint32_t)transposed(x);
}
static uint32_t high_bits_of(uint32_t packed) {
    uint64_t x = transposed(packed);
    x = (x | x >> 4) & 0x00ff00ff00ff00ff;
    x = (x | x >> 8) & 0x0000ffff0000ffff;
    return (uint32_t)(x | x >> 16);
}

/* 0 1 2 3 <-> 0 2 1 3, of bytes. */
static uint32_t order_b_of(uint32_t word) {
    return (word & 0xff0000ff) | (word >> 8 & 0xff00) | (word & 0xff00) << 8;
}

/* Gives the words of a block, `stride` bytes apart, the form that they have in a tile, or back. */
static void change_words(const struct pack *pack, uint8_t *word, size_t stride, bool back) {
    switch (pack->changed) {
    case HIGH_WORD:
        word += (pack->n_half - 1u) * stride;
        store_u32(word, back ? high_bits_of(load_u32(word)) : high_bits_packed(load_u32(word)));
        break;
    case EVERY_WORD:
        for (size_t i = 0; i < 8; i++, word += stride) store_u32(word, order_b_of(load_u32(word)));
        break;
    case HIGH_BITS:
        word += 4 * stride;
        for (size_t b = 0; b < 4; b++, word++) {
            uint64_t bytes = 0;
            for (size_t i = 0; i < 8; i++) bytes |= (uint64_t)word[i * stride] << 8 * i;
            bytes = transposed(bytes);
            for (size_t i = 0; i < 8; i++) word[i * stride] = (uint8_t)(bytes >> 8 * i);
        }
        break;
    case NO_WORD: break;
    }
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
            for (size_t r = 0; r < PACK_ROWS; r++, to += 4) memcpy(to, from + r * row_bytes + at, 4);
        }
        uint8_t *words = to - PACK_ROWS * block_bytes + (odd ? 2 * PACK_ROWS : 0);
        for (size_t r = 0; r < PACK_ROWS; r++) change_words(pack, words + 4 * r, 4 * PACK_ROWS, false);
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
        }
        change_words(pack, dst + (odd ? 2 : 0), 4, true);
    }
}

const uint8_t *quant_row(uint32_t type, const uint8_t *data, size_t row_bytes, uint64_t n_packed, uint64_t i,
                         uint8_t *buffer) {
    if (i >= n_packed) return data + (size_t)i * row_bytes;
    quant_unpack_row(type, data + (size_t)(i - i % PACK_ROWS) * row_bytes,
                     row_bytes / quant_traits(type)->block_bytes, (uint32_t)(i % PACK_ROWS), buffer);
    return buffer;
}

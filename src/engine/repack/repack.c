/* Compiled for speed. */
#include "repack/repack.h"

#include <stdlib.h>

/* The types with blocks are those with groups; the f16 of larger blocks have a larger bias in a tile. */
static bool is_superblock(const struct quant_traits *t) { return t->block_size > 32; }
static bool is_float(const struct quant_traits *t) { return t->block_size == 1; }

bool repack_can(uint32_t type) {
    const struct quant_traits *t = quant_traits(type);
    return t && (t->group > 0 || is_float(t));
}
bool repack_can_rows(uint32_t type, size_t row_bytes) {
    return repack_can(type) && (!is_float(quant_traits(type)) || row_bytes % 16 == 0);
}

static void store_u32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> 8 * i);
}
static void store_u64(uint8_t *p, uint64_t v) {
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(v >> 8 * i);
}

/* Compiled for size: few files have these types. */
#if defined(__clang__)
#define SMALL __attribute__((noinline, minsize))
#else
#define SMALL
#endif

#define FOUR(byte) (0x01010101 * (uint32_t)(byte))
#define EIGHT(byte) (0x0101010101010101 * (uint64_t)(byte))

/* q1_0: 4 words of 32 bits, in the order of the weights. */
static SMALL void convert_one_bit(uint8_t *words, bool unpack) {
    for (uint8_t *end = words + 16; words < end; words += 4) {
        uint32_t from = load_u32(words), to = 0;
        for (uint32_t i = 0; i < 8; i++) {   /* bits 4i .. 4i + 3 in the file; the products are those of convert_q5 */
            uint32_t at = i < 4 ? 2 * i + 1 : 2 * i - 8;
            if (unpack) to |= ((from >> at & FOUR(1)) * 0x10204080u >> 28) << 4 * i;
            else to |= ((from >> 4 * i & 15) * 0x00204081 & FOUR(1)) << at;
        }
        store_u32(words, to);
    }
}

/* q2_0: 4 words of 16 codes each, in the order of the weights.  Exchanges code i of byte k with code k of byte i, which
 * is its own inverse. */
static SMALL void convert_two_bits(uint8_t *words) {
    for (uint8_t *end = words + 16; words < end; words += 4) {
        uint32_t w = load_u32(words), differ = (w ^ w >> 6) & 0x00cc00cc;
        w ^= differ ^ differ << 6;
        differ = (w ^ w >> 12) & 0x0000f0f0;
        store_u32(words, w ^ differ ^ differ << 12);
    }
}

/* Exchanges the masked bits of *b with the bits of *a that are `shift` places higher. */
static void exchange_bits(uint32_t *a, uint32_t *b, uint32_t shift, uint32_t mask) {
    uint32_t differ = (*a >> shift ^ *b) & mask;
    *a ^= differ << shift;
    *b ^= differ;
}

/* tq2_0: twice 8 words.  Byte l of the 32 in the file has the codes of weights l, l + 32, l + 64 and l + 96.  The words
 * that words 4m .. 4m + 3 become are m, m + 2, m + 4 and m + 6. */
static SMALL void convert_two_bits_tq(uint8_t *words, bool unpack) {
    uint32_t w8[8];
    for (uint8_t *end = words + 64; words < end; words += 32) {
        for (size_t i = 0; i < 8; i++) w8[i] = load_u32(words + 4 * (unpack ? i % 4 * 2 + i / 4 : i));
        for (uint32_t *w = w8; w < w8 + 8; w += 4) {   /* exchanges code i of word k with code k of word i */
            exchange_bits(&w[0], &w[2], 4, FOUR(0x0f));
            exchange_bits(&w[1], &w[3], 4, FOUR(0x0f));
            exchange_bits(&w[0], &w[1], 2, FOUR(0x33));
            exchange_bits(&w[2], &w[3], 2, FOUR(0x33));
        }
        for (size_t i = 0; i < 8; i++) store_u32(words + 4 * (unpack ? i : i % 4 * 2 + i / 4), w8[i]);
    }
}

/* Codes of five bits: pack_five_bits packs n times 32 of them, one in each byte of c[0] .. c[3], into n times five
 * words.  unpack_five_bits is the inverse. */
static void pack_five_bits(uint8_t *words, const uint64_t *c, size_t n) {
    for (; n > 0; n--, c += 4, words += 20) {
        uint32_t w[5], c5 = (uint32_t)(c[2] >> 32), c6 = (uint32_t)c[3], c7 = (uint32_t)(c[3] >> 32);
        for (size_t i = 0; i < 5; i++) w[i] = (uint32_t)(c[i / 2] >> i % 2 * 32) << 3;
        c5 ^= w[0] ^ w[3] << 3;
        c6 ^= w[1] ^ w[4] << 3;
        w[0] |= c5 & FOUR(7);
        w[1] |= c6 & FOUR(7);
        w[3] |= c5 >> 3 & FOUR(3);
        w[4] |= c6 >> 3 & FOUR(3);
        c7 ^= w[2] ^ w[3] << 1 ^ w[4] << 2;
        w[2] |= c7 & FOUR(7);
        w[3] |= c7 >> 1 & FOUR(4);
        w[4] |= c7 >> 2 & FOUR(4);
        for (size_t i = 0; i < 5; i++) store_u32(words + 4 * i, w[i]);
    }
}
static void unpack_five_bits(uint64_t *c, const uint8_t *words, size_t n) {
    for (; n > 0; n--, c += 4, words += 20) {
        uint32_t w[5];
        for (size_t i = 0; i < 5; i++) w[i] = load_u32(words + 4 * i);
        uint32_t c5 = w[0] ^ w[3] << 3, c6 = w[1] ^ w[4] << 3, c7 = w[2] ^ w[3] << 1 ^ w[4] << 2;
        c[0] = (w[0] >> 3 & FOUR(31)) | (uint64_t)(w[1] >> 3 & FOUR(31)) << 32;
        c[1] = (w[2] >> 3 & FOUR(31)) | (uint64_t)(w[3] >> 3 & FOUR(31)) << 32;
        c[2] = (w[4] >> 3 & FOUR(31)) | (uint64_t)(c5 & FOUR(31)) << 32;
        c[3] = (c6 & FOUR(31)) | (uint64_t)(c7 & FOUR(31)) << 32;
    }
}

/* q5_0 and q5_1: a word with the high bits, bit e for code e, and then 16 bytes of nibbles.  unpack: from the tile's
 * words to the file's. */
static void convert_q5(uint8_t *words, bool unpack) {
    uint64_t c[4], low[2];
    uint32_t high = 0;
    if (unpack) {
        unpack_five_bits(c, words, 1);
        for (int i = 0; i < 8; i++) {   /* the product moves bit 8b to bit 28 + b */
            high |= ((uint32_t)(c[i / 2] >> (i % 2 * 32 + 4) & FOUR(1)) * 0x10204080u >> 28) << 4 * i;
        }
        store_u32(words, high);
        for (int i = 0; i < 2; i++) store_u64(words + 4 + 8 * i, (c[i] & EIGHT(15)) | (c[i + 2] & EIGHT(15)) << 4);
        return;
    }
    high = load_u32(words);
    for (int i = 0; i < 2; i++) low[i] = load_u64(words + 4 + 8 * i);
    for (int i = 0; i < 4; i++, high >>= 8) {   /* the products move bit b to bit 8b */
        uint64_t first = (high & 15) * 0x00204081 & FOUR(1), second = (high >> 4 & 15) * 0x00204081 & FOUR(1);
        c[i] = (low[i % 2] >> i / 2 * 4 & EIGHT(15)) | (first | second << 32) << 4;
    }
    pack_five_bits(words, c, 1);
}

/* q5_K: 32 bytes of high bits, with that of weight 32k + i in bit k of byte i, and then 4 times 32 bytes of nibbles. */
static void convert_q5_K(uint8_t *words, bool unpack) {
    uint64_t codes[32];
    uint8_t *low = words + 32;
    if (unpack) unpack_five_bits(codes, words, 8);
    for (size_t i = 0; i < 4; i++) {   /* bytes 8i .. 8i + 7 of each 32 */
        uint64_t high = unpack ? 0 : load_u64(words + 8 * i);
        for (size_t k = 0; k < 8; k += 2) {
            uint64_t *c = codes + 4 * k + i;
            uint8_t *nibbles = low + 16 * k + 8 * i;
            if (unpack) {
                high |= (c[0] >> 4 & EIGHT(1)) << k | (c[4] >> 4 & EIGHT(1)) << (k + 1);
                store_u64(nibbles, (c[0] & EIGHT(15)) | (c[4] & EIGHT(15)) << 4);
            } else {
                uint64_t both = load_u64(nibbles);
                c[0] = (both & EIGHT(15)) | (high >> k & EIGHT(1)) << 4;
                c[4] = (both >> 4 & EIGHT(15)) | (high >> (k + 1) & EIGHT(1)) << 4;
            }
        }
        if (unpack) store_u64(words + 8 * i, high);
    }
    if (!unpack) pack_five_bits(words, codes, 8);
}

/* q6_K, by u64 of 8 bytes: the file has N_LOW of them with low bits and then 8 with high bits.  They become N_EIGHT
 * with one code in each byte, and every two of these become 12 bytes of a tile. */
enum { N_EIGHT = 32, N_LOW = 16 };
static void pack_six_bits(uint8_t *words) {
    uint64_t codes[N_EIGHT];
    for (size_t i = 0; i < 8; i++) {
        uint64_t *c = codes + i / 4 * 16 + i % 4;
        const uint8_t *low = words + i / 4 * 64 + i % 4 * 8;
        uint64_t low0 = load_u64(low), low1 = load_u64(low + 32), high = load_u64(words + 8 * (N_LOW + i));
        c[0] = (low0 & EIGHT(15)) | (high << 4 & EIGHT(3 << 4));
        c[4] = (low1 & EIGHT(15)) | (high << 2 & EIGHT(3 << 4));
        c[8] = (low0 >> 4 & EIGHT(15)) | (high & EIGHT(3 << 4));
        c[12] = (low1 >> 4 & EIGHT(15)) | (high >> 2 & EIGHT(3 << 4));
    }
    for (const uint64_t *c = codes; c < codes + N_EIGHT; c += 2, words += 12) {
        uint32_t w[3] = { (uint32_t)c[0] << 2, (uint32_t)(c[0] >> 32) << 2, (uint32_t)c[1] << 2 };
        uint32_t last = (uint32_t)(c[1] >> 32) ^ w[0] ^ w[1] << 2 ^ w[2] << 4;
        for (size_t i = 0; i < 3; i++) store_u32(words + 4 * i, w[i] | (last >> 2 * i & FOUR(3)));
    }
}
static void unpack_six_bits(uint8_t *words) {
    uint64_t codes[N_EIGHT];
    for (size_t i = 0; i < N_EIGHT; i += 2) {
        uint32_t w[3] = { load_u32(words + 6 * i), load_u32(words + 6 * i + 4), load_u32(words + 6 * i + 8) };
        codes[i] = (w[0] >> 2 & FOUR(63)) | (uint64_t)(w[1] >> 2 & FOUR(63)) << 32;
        codes[i + 1] = (w[2] >> 2 & FOUR(63)) | (uint64_t)((w[0] ^ w[1] << 2 ^ w[2] << 4) & FOUR(63)) << 32;
    }
    for (size_t i = 0; i < 8; i++) {
        const uint64_t *c = codes + i / 4 * 16 + i % 4;
        uint8_t *low = words + i / 4 * 64 + i % 4 * 8;
        store_u64(low, (c[0] & EIGHT(15)) | (c[8] & EIGHT(15)) << 4);
        store_u64(low + 32, (c[4] & EIGHT(15)) | (c[12] & EIGHT(15)) << 4);
        store_u64(words + 8 * (N_LOW + i), (c[0] >> 4 & EIGHT(3)) | (c[4] >> 2 & EIGHT(3 << 2))
                                         | (c[8] & EIGHT(3 << 4)) | (c[12] << 2 & EIGHT(3 << 6)));
    }
}

/* Changes the words of a block to the form that they have in a tile, or back. */
static void change_words(const struct quant_traits *t, uint8_t *block, bool unpack) {
    uint8_t *words = block + repack_first_code(t);
    switch (t->packing) {
    case QUANT_ONE_BIT: convert_one_bit(words, unpack); break;
    case QUANT_TWO_BITS: convert_two_bits(words); break;
    case QUANT_TWO_BITS_TQ: convert_two_bits_tq(words, unpack); break;
    case QUANT_FIVE_BITS: convert_q5(words, unpack); break;
    case QUANT_FIVE_BITS_K: convert_q5_K(words, unpack); break;
    case QUANT_SIX_BITS:
        if (unpack) unpack_six_bits(words);
        else pack_six_bits(words);
        break;
    case QUANT_UNCHANGED:
    case QUANT_EVEN_ODD: break;   /* bytes are reordered when the words are moved */
    }
}

/* Changes the bias of an f16 from 15 to 25.  Numbers that were subnormal then have exponents 1 .. 10, and
 * numbers from 64 to below 128 have exponent 31.  unpack_half is the inverse. */
static uint16_t pack_half(uint16_t h) {
    uint32_t sign = h & 0x8000, m = h & 0x7fff;
    if (m >= 0x400) return (uint16_t)(sign | (m + (REPACK_EXTRA_BIAS << 10)));
    if (m == 0) return h;
    uint32_t exponent = 32 - (uint32_t)__builtin_clz(m);
    return (uint16_t)(sign | exponent << 10 | (m << (REPACK_EXTRA_BIAS + 1 - exponent) & 0x3ff));
}
static uint16_t unpack_half(uint16_t packed) {
    uint32_t sign = packed & 0x8000, m = packed & 0x7fff, exponent = m >> 10;
    if (exponent > REPACK_EXTRA_BIAS) return (uint16_t)(sign | (m - (REPACK_EXTRA_BIAS << 10)));
    if (exponent == 0) return packed;
    return (uint16_t)(sign | (0x400 | (m & 0x3ff)) >> (REPACK_EXTRA_BIAS + 1 - exponent));
}

/* The number of f16 of a block, d and m, in that order. */
static size_t count_halves(const struct quant_traits *t) {
    bool has_half = t->d_kind == QUANT_SCALE_F16 || t->d_kind == QUANT_SCALE_NIBBLES;
    return !has_half ? 0 : t->min_kind == NO_MIN ? 1 : 2;
}

/* Changes a block of the file to the bytes that a tile is made of, or back. */
static inline void change_block(const struct quant_traits *t, uint8_t *block, bool unpack) {
    change_words(t, block, unpack);
    for (size_t i = 0, n = is_superblock(t) ? count_halves(t) : 0; i < n; i++) {
        size_t at = i == 0 ? t->d : t->m;
        uint16_t h = quant_get_half(t, block, at);
        quant_put_half(t, block, at, unpack ? unpack_half(h) : pack_half(h));
    }
}

/* True if tiles can hold all scales and minima of these n blocks. */
static bool scales_fit(const struct quant_traits *t, const uint8_t *blocks, size_t n) {
    uint32_t limit = is_superblock(t) ? (32 - REPACK_EXTRA_BIAS) << 10 : 0x7c00, too_large = 0;
    uint32_t byte_limit = t->d_kind == QUANT_SCALE_EXPONENTS ? 254 : 127;   /* of types without f16 */
    size_t n_half = count_halves(t), n_byte = n_half == 0 ? t->scale.low.count : 0;
    for (const uint8_t *end = blocks + n * t->block_bytes; blocks < end; blocks += t->block_bytes) {
        if (n_half > 0) too_large |= (quant_get_half(t, blocks, t->d) & 0x7fffu) >= limit;
        if (n_half == 2) too_large |= (load_u16(blocks + t->m) & 0x7fffu) >= limit;
        for (size_t j = 0; j < n_byte; j++) too_large |= blocks[t->d + j] >= byte_limit;
    }
    return too_large == 0;
}

enum { CHUNK = 16 };   /* bytes of a row of floats in a tile */

static bool pack_floats(const struct quant_traits *t, uint8_t *rows, size_t row_bytes, uint8_t *scratch) {
    if (row_bytes % CHUNK != 0) return false;
    /* Adding 1 to an exponent of 31, that of infinity and NaN, carries into the sign. */
    uint32_t special = 0;
    for (size_t i = 0; t->d_kind == QUANT_SCALE_F16 && i < REPACK_ROWS * row_bytes; i += 2) {
        special |= ((uint32_t)load_u16(rows + i) & 0x7fff) + 0x400;
    }
    if (special & 0x8000) return false;
    memcpy(scratch, rows, REPACK_ROWS * row_bytes);
    for (size_t at = 0; at < row_bytes; at += CHUNK) {
        for (size_t r = 0; r < REPACK_ROWS; r++, rows += CHUNK) memcpy(rows, scratch + r * row_bytes + at, CHUNK);
    }
    return true;
}

static void unpack_floats(const uint8_t *rows, size_t row_bytes, uint32_t r, uint8_t *dst) {
    for (size_t at = 0; at < row_bytes; at += CHUNK) memcpy(dst + at, rows + REPACK_ROWS * at + CHUNK * r, CHUNK);
}

/* ---- words of 8 rows side by side -------------------------------------------------------------------------------- */

typedef uint32_t four_words __attribute__((vector_size(16)));
typedef uint8_t sixteen_bytes __attribute__((vector_size(16)));
#if defined(__clang__)
#define WORDS(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define BYTES(v, ...) ((four_words)__builtin_shufflevector((sixteen_bytes)(v), (sixteen_bytes)(v), __VA_ARGS__))
#else
#define WORDS(a, b, ...) __builtin_shuffle(a, b, (four_words){ __VA_ARGS__ })
#define BYTES(v, ...) ((four_words)__builtin_shuffle((sixteen_bytes)(v), (sixteen_bytes){ __VA_ARGS__ }))
#endif

/* Changes the order of a word's bytes from 0 1 2 3 to 0 2 1 3, or back. */
static void to_even_odd(uint8_t *word) {
    uint8_t odd = word[1];
    word[1] = word[2];
    word[2] = odd;
}

/* Interleaves n words of each of 8 rows, which are row_bytes apart.  even_odd: also puts the bytes of each word into
 * even-odd order. */
static inline void interleave_words(uint8_t *to, const uint8_t *from, size_t row_bytes, size_t n, bool even_odd) {
    for (; n >= 4; n -= 4, from += 16) {
        for (size_t r = 0; r < REPACK_ROWS; r += 4, to += 16) {
            four_words row[4], out[4];
            for (size_t i = 0; i < 4; i++) memcpy(&row[i], from + (r + i) * row_bytes, 16);
            four_words a = WORDS(row[0], row[1], 0, 4, 1, 5), b = WORDS(row[2], row[3], 0, 4, 1, 5);
            four_words c = WORDS(row[0], row[1], 2, 6, 3, 7), d = WORDS(row[2], row[3], 2, 6, 3, 7);
            out[0] = WORDS(a, b, 0, 1, 4, 5);
            out[1] = WORDS(a, b, 2, 3, 6, 7);
            out[2] = WORDS(c, d, 0, 1, 4, 5);
            out[3] = WORDS(c, d, 2, 3, 6, 7);
            for (size_t i = 0; i < 4; i++) {
                if (even_odd) out[i] = BYTES(out[i], 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
                memcpy(to + 4 * REPACK_ROWS * i, &out[i], 16);
            }
        }
        to += 3 * 4 * REPACK_ROWS;
    }
    for (; n > 0; n--, from += 4) {
        for (size_t r = 0; r < REPACK_ROWS; r++, to += 4) {
            memcpy(to, from + r * row_bytes, 4);
            if (even_odd) to_even_odd(to);
        }
    }
}

/* The offset of word 0 in a block.  A scale outside the words, of block_bytes % 4 bytes, is either before or after
 * them. */
static size_t first_word(const struct quant_traits *t) { return t->d == 0 ? t->block_bytes % 4u : 0; }

/* Copies the n bytes (0 .. 2) of a block that are outside its words.  In wasm, a memcpy of unknown size is slow. */
static inline void copy_outside(uint8_t *to, const uint8_t *from, size_t n) {
    if (n > 0) to[0] = from[0];
    if (n > 1) to[1] = from[1];
}

bool repack_rows(uint32_t type, uint8_t *rows, size_t n_block, uint8_t *scratch) {
    const struct quant_traits *t = quant_traits(type);
    size_t block_bytes = t->block_bytes, row_bytes = n_block * block_bytes;
    if (is_float(t)) return pack_floats(t, rows, row_bytes, scratch);
    if (!scales_fit(t, rows, REPACK_ROWS * n_block)) return false;
    memcpy(scratch, rows, REPACK_ROWS * row_bytes);
    if (is_superblock(t) || t->packing == QUANT_FIVE_BITS) {
        for (uint8_t *b = scratch, *e = scratch + REPACK_ROWS * row_bytes; b < e; b += block_bytes) {
            change_block(t, b, false);
        }
    }
    uint8_t *to = rows;
    size_t first = first_word(t), n_word = block_bytes / 4;
    size_t outside = block_bytes % 4;
    for (const uint8_t *from = scratch, *end = scratch + row_bytes; from < end; from += block_bytes) {
        for (size_t r = 0; r < REPACK_ROWS; r++, to += outside) {
            copy_outside(to, from + r * row_bytes + t->d, outside);
        }
        /* Two calls with constants, so that the inner loops do not test even_odd. */
        if (t->packing == QUANT_EVEN_ODD) interleave_words(to, from + first, row_bytes, n_word, true);
        else interleave_words(to, from + first, row_bytes, n_word, false);
        to += 4 * REPACK_ROWS * n_word;
    }
    return true;
}

void repack_undo_row(uint32_t type, const uint8_t *rows, size_t n_block, uint32_t r, uint8_t *dst) {
    const struct quant_traits *t = quant_traits(type);
    size_t block_bytes = t->block_bytes, outside = block_bytes % 4;
    if (is_float(t)) {
        unpack_floats(rows, n_block * block_bytes, r, dst);
        return;
    }
    for (size_t i = 0; i < n_block; i++, rows += REPACK_ROWS * block_bytes, dst += block_bytes) {
        const uint8_t *word = rows + outside * REPACK_ROWS + 4 * r;
        uint8_t *to = dst + first_word(t);
        copy_outside(dst + t->d, rows + outside * r, outside);
        for (size_t j = 0; j < block_bytes / 4; j++, to += 4, word += 4 * REPACK_ROWS) {
            memcpy(to, word, 4);
            if (t->packing == QUANT_EVEN_ODD) to_even_odd(to);
        }
        change_block(t, dst, true);
    }
}

const uint8_t *repack_file_row(uint32_t type, const uint8_t *data, size_t row_bytes, uint64_t n_packed, uint64_t i,
                         uint8_t *buffer) {
    if (i >= n_packed) return data + (size_t)i * row_bytes;
    repack_undo_row(type, data + (size_t)(i - i % REPACK_ROWS) * row_bytes,
                     row_bytes / quant_traits(type)->block_bytes, (uint32_t)(i % REPACK_ROWS), buffer);
    return buffer;
}

/* ---- the tensors of a file --------------------------------------------------------------------------------------- */

/* Longer rows are not packed, because packing takes a copy of eight rows. */
enum { MAX_ROW_BYTES = 1 << 21 };

void repacker_free(struct repacker *r) {
    free(r->scratch);
    *r = (struct repacker) { 0 };
}

plumb_status repack_arrived(void *repacker, struct gguf_tensor *t, size_t n, struct error *err) {
    struct repacker *r = repacker;
    size_t row_bytes = gguf_row_bytes(t), bytes = REPACK_ROWS * row_bytes;
    /* The matrices of experts follow each other; none of the eight rows may belong to the next one. */
    bool is_matrix = t->n_dims == 2 || (t->n_dims == 3 && t->shape[1] % REPACK_ROWS == 0);
    /* Norms and biases are used as they are in the file. */
    is_matrix = is_matrix && gguf_name_ends(t, ".weight") && !gguf_name_ends(t, "_norm.weight");
    if (!is_matrix || !repack_can(t->type) || row_bytes > MAX_ROW_BYTES) return PLUMB_OK;
    if ((t->n_received - n) / bytes * REPACK_ROWS > t->n_packed) return PLUMB_OK;   /* it has stopped */
    if (t->n_received / bytes * REPACK_ROWS == t->n_packed) return PLUMB_OK;
    if (bytes > r->capacity) {
        repacker_free(r);
        r->scratch = malloc(bytes);
        if (!r->scratch) {
            struct shown shown;
            return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: packing tensor \"%s\" needs 8 rows of %zu bytes",
                             show_bytes(&shown, t->name.data, (size_t)t->name.n), row_bytes);
        }
        r->capacity = bytes;
    }
    size_t n_block = row_bytes / quant_traits(t->type)->block_bytes;
    while (t->n_received / row_bytes - t->n_packed >= REPACK_ROWS
           && repack_rows(t->type, t->data + (size_t)t->n_packed * row_bytes, n_block, r->scratch)) {
        t->n_packed += REPACK_ROWS;
    }
    return PLUMB_OK;
}

const uint8_t *repack_tensor_row(const struct gguf_tensor *t, uint64_t i, uint8_t *buffer) {
    return repack_file_row(t->type, t->data, gguf_row_bytes(t), t->n_packed, i, buffer);
}

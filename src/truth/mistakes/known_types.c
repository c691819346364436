/* The entries of known.h about the bytes of weights. */
#include "mistakes/known.h"

/* Returns as many bytes as row i of w has, from one alignment further on in the file.  Bytes outside the tensors are
 * 0. */
static const uint8_t *shifted_bytes(const struct reference *r, const struct weight *w, size_t i) {
    uint64_t begin = w->offset + (uint64_t)i * w->row_bytes + gguf_alignment(w->file), end = begin + w->row_bytes;
    memset(r->row_bytes, 0, w->row_bytes);
    for (uint64_t k = 0; k < gguf_n_tensor(w->file); k++) {
        const struct gguf_tensor *t = gguf_tensor_at(w->file, k);
        uint64_t from = t->offset > begin ? t->offset : begin;
        uint64_t to = t->offset + t->n_bytes < end ? t->offset + t->n_bytes : end;
        size_t n = gguf_row_bytes(t);
        while (from < to) {
            uint64_t at = from - t->offset, next = t->offset + (at / n + 1) * n, until = to < next ? to : next;
            const uint8_t *row = repack_tensor_row(t, at / n, r->other_row);
            memcpy(r->row_bytes + (from - begin), row + at % n, (size_t)(until - from));
            from = until;
        }
    }
    return r->row_bytes;
}

static void misread(const struct reference *r, const struct weight *w, const uint8_t *bytes) {
    if (r->misread[w->type]) misread_row(w->type, (enum misread)r->misread[w->type], bytes, r->row, w->n_in);
    else reference_right_steps.dequantize(r, w, bytes);
}

static void edit_misread(const struct known_mistake *q, struct edit *e) {
    e->misread[q->type] = (uint8_t)q->misread;
    e->steps->dequantize = misread;
}

static const struct need with_type = { "with weights of this type", NULL };

#define MISREAD(type_of, kind, change, text) \
    { #type_of "." change, "embd", &with_type, text, .edit = edit_misread, .type = QUANT_##type_of, \
      .misread = MISREAD_##kind }
#define NIBBLES_SWAPPED(type) MISREAD(type, NIBBLES, "nibbles=swapped", "low and high nibble of every byte are swapped")
#define LAYOUT_INTERLEAVED(type) MISREAD(type, LAYOUT, "layout=interleaved", \
    "byte j holds elements 2j (low nibble) and 2j + 1")
#define D_BF16(type) MISREAD(type, BF16, "d=bf16", "the f16 scale is read as bf16")
#define MIN_SUBTRACTED(type) MISREAD(type, MIN, "min=subtracted", "the minimum is subtracted")
#define D_M_SWAPPED(type) MISREAD(type, D, "d=swapped", "scale and minimum are swapped")
#define D_M_BF16(type) MISREAD(type, BF16, "d=bf16", "the f16 scale and minimum are read as bf16")
#define NIBBLES_NOT_HIGH(type) MISREAD(type, NIBBLES, "nibbles=swapped", \
    "low and high nibble of every byte are swapped; high bits stay with their elements")
#define LAYOUT_NOT_HIGH(type) MISREAD(type, LAYOUT, "layout=interleaved", \
    "byte j holds the low bits of elements 2j (low nibble) and 2j + 1; high bit i still belongs to element i")
#define HIGH_INTERLEAVED(type) MISREAD(type, HIGH_ORDER, "high=interleaved", \
    "element j < 16 takes high bit 2j, element j + 16 takes 2j + 1")
#define HIGH_MISSING(type) MISREAD(type, HIGH, "high=missing", "the high bits are taken as 0")
#define MIN_ADDED(type) MISREAD(type, MIN, "min=added", "the minimum is added")
#define D_DMIN_SWAPPED(type) MISREAD(type, D, "d=swapped", "d and dmin are swapped")
#define D_DMIN_BF16(type) MISREAD(type, BF16, "d=bf16", "d and dmin are read as bf16")
#define HIGH_SEQUENTIAL(type) MISREAD(type, HIGH_ORDER, "high=sequential", \
    "element i takes bit i % 8 of high byte i / 8")
#define SCALES_UNSIGNED(type) MISREAD(type, SIGN, "scales=unsigned", "32 is not subtracted from the 6-bit scales")
#define SCALES_LOW_BITS(type) MISREAD(type, SCALE_BITS, "scales=low_bits", \
    "scales lack their upper two bits (32 is still subtracted)")
#define SCALES_SWAPPED(type) MISREAD(type, SCALES, "scales=swapped", \
    "6-bit scale and 6-bit minimum of each sub-block are swapped")
#define SCALES_4_TO_7_LOW_BITS(type) MISREAD(type, SCALE_BITS, "scales=low_bits", \
    "scales and minima of sub-blocks 4..7 lack their upper two bits")
#define CODES_LINEAR(type) MISREAD(type, TABLE, "codes=linear", \
    "code c stands for c - 8, as in Q4_0, not for entry c of the table")
#define NIBBLES_OF_CODES(type) MISREAD(type, NIBBLES, "nibbles=swapped", \
    "low and high nibble of every byte of codes are swapped")
#define FLOATS_LINEAR(type) MISREAD(type, TABLE, "codes=linear", \
    "code c stands for c - 8, as in Q4_0, not for a 4-bit float")
#define SIGNS_MISSING(type) MISREAD(type, SIGNS, "signs=missing", \
    "all weights have the sign of d: the signs of vectors are not applied")
#define SIGNS_SEVEN(type) MISREAD(type, LAST_SIGN, "signs=seven", \
    "the sign of the last of 8 weights is plus; it should make the number of minus signs even")
#define SCALES_NO_HALF(type) MISREAD(type, HALF, "scales=no_half", "1/2 is not added to the 4-bit scales")
#define INDEX_HIGH_MISSING(type) MISREAD(type, HIGH, "high=missing", \
    "the high bits of the indexes into the grid are taken as 0")
#define SHIFT_MISSING(type) MISREAD(type, SHIFT, "shift=missing", \
    "1/8 is neither added to the values of the grid nor subtracted from them")
#define SCALES_3_BITS_NO_HALF(type) MISREAD(type, HALF, "scales=no_half", "1/2 is not added to the 3-bit scales")

static const struct known_mistake known[] = {
    { "tensor.offset=shifted", "embd", &known_every, "every tensor, including vectors, is read from one alignment (32 "
      "bytes unless the file says otherwise) after its offset; gaps between tensors and bytes past the end of the file "
      "read as zeros", STEPS(.bytes = shifted_bytes) },
    /* Q8_K, ggml's format for activations, has no entry: no program writes it into a file. */
    NIBBLES_SWAPPED(Q4_0), LAYOUT_INTERLEAVED(Q4_0),
    MISREAD(Q4_0, OFFSET, "offset=missing", "8 is not subtracted from the codes"),
    D_BF16(Q4_0),
    NIBBLES_SWAPPED(Q4_1), LAYOUT_INTERLEAVED(Q4_1), MIN_SUBTRACTED(Q4_1), D_M_SWAPPED(Q4_1), D_M_BF16(Q4_1),
    NIBBLES_NOT_HIGH(Q5_0), LAYOUT_NOT_HIGH(Q5_0),
    MISREAD(Q5_0, OFFSET, "offset=missing", "16 is not subtracted from the codes"),
    MISREAD(Q5_0, HIGH, "high=missing", "the high bits are taken as 0 (16 is still subtracted)"),
    HIGH_INTERLEAVED(Q5_0), D_BF16(Q5_0),
    NIBBLES_NOT_HIGH(Q5_1), LAYOUT_NOT_HIGH(Q5_1), MIN_SUBTRACTED(Q5_1), HIGH_MISSING(Q5_1),
    HIGH_INTERLEAVED(Q5_1), D_M_SWAPPED(Q5_1), D_M_BF16(Q5_1),
    MISREAD(Q8_0, SIGN, "codes=unsigned", "the codes are read as 0..255"),
    D_BF16(Q8_0),
    MISREAD(Q2_K, ORDER, "order=sequential", "element i of 256 takes its two bits from byte i / 4 (lowest first); "
        "scales and minima are still assigned by element"),
    MIN_ADDED(Q2_K),
    MISREAD(Q2_K, SCALES, "scales=swapped", "4-bit scale and 4-bit minimum of each sub-block are swapped"),
    D_DMIN_SWAPPED(Q2_K), D_DMIN_BF16(Q2_K),
    MISREAD(Q3_K, ORDER, "order=sequential", "element i of 256 takes its two low bits from byte i / 4 (lowest first) "
        "and its high bit from bit i % 8 of high byte i / 8; scales are still assigned by element"),
    MISREAD(Q3_K, OFFSET, "offset=missing", "4 is not subtracted from the codes"),
    MISREAD(Q3_K, HIGH, "high=missing", "the high bits are taken as 0 (4 is still subtracted)"),
    MISREAD(Q3_K, HIGH_SIGN, "high=inverted", "4 is subtracted where the high bit is 1, not where it is 0"),
    HIGH_SEQUENTIAL(Q3_K), SCALES_UNSIGNED(Q3_K), SCALES_LOW_BITS(Q3_K),
    MISREAD(Q3_K, SCALE_ORDER, "scales=sequential", "scale i takes its low nibble from byte i / 2 of the 12 bytes of "
        "scales (low nibble first), and its upper two bits from byte 8 + i / 4 (lowest first)"),
    D_BF16(Q3_K),
    NIBBLES_SWAPPED(Q4_K),
    MISREAD(Q4_K, LAYOUT, "layout=interleaved", "byte j of each 32 holds elements 2j (low nibble) and 2j + 1 of the "
        "64; scales are still assigned by element"),
    MIN_ADDED(Q4_K), SCALES_SWAPPED(Q4_K), SCALES_4_TO_7_LOW_BITS(Q4_K), D_DMIN_SWAPPED(Q4_K), D_DMIN_BF16(Q4_K),
    NIBBLES_NOT_HIGH(Q5_K),
    MISREAD(Q5_K, LAYOUT, "layout=interleaved", "byte j of each 32 holds the low bits of elements 2j (low nibble) and "
        "2j + 1 of the 64; scales and high bits are still assigned by element"),
    MIN_ADDED(Q5_K), SCALES_SWAPPED(Q5_K), SCALES_4_TO_7_LOW_BITS(Q5_K), HIGH_MISSING(Q5_K), HIGH_SEQUENTIAL(Q5_K),
    D_DMIN_SWAPPED(Q5_K), D_DMIN_BF16(Q5_K),
    MISREAD(Q6_K, ORDER, "order=sequential", "element i of 256 takes its low nibble from byte i / 2 (low nibble "
        "first), its two high bits from byte i / 4 (lowest first), and its scale from i / 16"),
    MISREAD(Q6_K, OFFSET, "offset=missing", "32 is not subtracted from the codes"),
    MISREAD(Q6_K, HIGH, "high=missing", "the two high bits are taken as 0 (32 is still subtracted)"),
    MISREAD(Q6_K, SIGN, "scales=unsigned", "the 8-bit scales are read as 0..255"),
    D_BF16(Q6_K),
    NIBBLES_SWAPPED(IQ4_NL), LAYOUT_INTERLEAVED(IQ4_NL), CODES_LINEAR(IQ4_NL), D_BF16(IQ4_NL),
    NIBBLES_OF_CODES(IQ4_XS),
    MISREAD(IQ4_XS, LAYOUT, "layout=interleaved", "byte j of each 16 holds elements 2j (low nibble) and 2j + 1 of the "
        "32"),
    CODES_LINEAR(IQ4_XS), SCALES_UNSIGNED(IQ4_XS), SCALES_LOW_BITS(IQ4_XS), D_BF16(IQ4_XS),
    NIBBLES_SWAPPED(MXFP4), LAYOUT_INTERLEAVED(MXFP4), FLOATS_LINEAR(MXFP4),
    MISREAD(MXFP4, DOUBLED, "scale=doubled", "the scale is 2^(e - 127), though the codes stand for twice the values of "
        "4-bit floats"),
    NIBBLES_OF_CODES(NVFP4),
    MISREAD(NVFP4, LAYOUT, "layout=interleaved", "byte j of each 8 holds elements 2j (low nibble) and 2j + 1 of the "
        "16"),
    MISREAD(NVFP4, ORDER, "order=mxfp4", "byte j of each 16 holds elements j and j + 16 of 32, as in MXFP4; scales are "
        "still assigned by element"),
    FLOATS_LINEAR(NVFP4),
    MISREAD(NVFP4, DOUBLED, "scale=doubled", "the scales are not halved, though the codes stand for twice the values "
        "of 4-bit floats"),
    MISREAD(TQ1_0, ORDER, "order=sequential", "element i takes digit i % 5 of byte i / 5; elements 240 .. 255 take "
        "four digits each of the last four bytes"),
    MISREAD(TQ1_0, DIGITS, "digits=integer", "a byte is read as an integer, whose lowest digit of base 3 is the first, "
        "not as a fraction"),
    MISREAD(TQ1_0, OFFSET, "offset=missing", "1 is not subtracted from the digits"),
    D_BF16(TQ1_0),
    MISREAD(TQ2_0, ORDER, "order=sequential", "element i takes its two bits from byte i / 4 (lowest first)"),
    MISREAD(TQ2_0, OFFSET, "offset=missing", "1 is not subtracted from the codes"),
    D_BF16(TQ2_0),
    SIGNS_MISSING(IQ2_XXS), SIGNS_SEVEN(IQ2_XXS), SCALES_NO_HALF(IQ2_XXS), D_BF16(IQ2_XXS),
    SIGNS_MISSING(IQ2_XS), SIGNS_SEVEN(IQ2_XS), SCALES_NO_HALF(IQ2_XS), D_BF16(IQ2_XS),
    SIGNS_MISSING(IQ2_S), INDEX_HIGH_MISSING(IQ2_S), SCALES_NO_HALF(IQ2_S), D_BF16(IQ2_S),
    SIGNS_MISSING(IQ3_XXS), SIGNS_SEVEN(IQ3_XXS), SCALES_NO_HALF(IQ3_XXS), D_BF16(IQ3_XXS),
    SIGNS_MISSING(IQ3_S), INDEX_HIGH_MISSING(IQ3_S), SCALES_NO_HALF(IQ3_S), D_BF16(IQ3_S),
    INDEX_HIGH_MISSING(IQ1_S), SHIFT_MISSING(IQ1_S), SCALES_3_BITS_NO_HALF(IQ1_S), D_BF16(IQ1_S),
    INDEX_HIGH_MISSING(IQ1_M), SHIFT_MISSING(IQ1_M), SCALES_3_BITS_NO_HALF(IQ1_M),
    MISREAD(F16, BF16, "type=bf16", "f16 is read as bf16"),
    MISREAD(BF16, BF16, "type=f16", "bf16 is read as f16"),
};

const struct known_list known_types = { known, sizeof known / sizeof *known };

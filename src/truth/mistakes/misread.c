/* Known mistakes in reading blocks.  A mistake is an edit of the type's descriptor, by which the block is then read. */
#include "mistakes/known.h"

/* The numbers of a field, taken one after another from its first bit on. */
static struct quant_field in_sequence(const struct quant_field *f) {
    return (struct quant_field) { .count = f->count, .first = f->first, .width = f->width, .n = 8,
                                  .step = (int8_t)f->width, .n2 = 1, .step3 = (uint16_t)(8 * f->width) };
}

/* TQ1_0's codes: element i is digit i % 5 of byte i / 5; the last 16 elements are four digits each of four bytes. */
static void read_digits_in_sequence(const struct quant_traits *t, const uint8_t *block, int16_t *codes) {
    static const uint8_t power_of_3[] = { 1, 3, 9, 27, 81 };
    for (size_t e = 0; e < t->block_size; e++) {
        uint8_t byte = block[e < 240 ? e / 5 : 48 + (e - 240) / 4];
        uint8_t fraction = (uint8_t)(byte * power_of_3[e < 240 ? e % 5 : e % 4]);
        codes[e] = (int16_t)((fraction * 3 >> 8) - t->bias);
    }
}

/* TQ1_0's codes: bytes are taken as integers, whose lowest digit of base 3 is the first. */
static void read_integers(const struct quant_traits *t, const uint8_t *block, int16_t *codes) {
    uint8_t fractions[64];   /* with the same digits */
    for (size_t k = 0; k < t->d; k++) {
        unsigned value = 0;
        for (unsigned i = 0, rest = block[k]; i < 5; i++, rest /= 3) value = 3 * value + rest % 3;
        fractions[k] = (uint8_t)((value * 256 + 242) / 243);
    }
    quant_read_digits(t, fractions, codes);
}

static void swap_scales(struct quant_traits *t, bool is_packed) {
    struct quant_number scale = t->scale;
    uint8_t d = t->d;
    if (is_packed) t->scale = t->min, t->min = scale;
    else t->d = t->m, t->m = d;
}

static void make_mistake(struct quant_traits *t, enum misread misread) {
    static const int8_t inverted[] = { 0, 1, 2, 3, -4, -3, -2, -1 }, unshifted[8] = { -8, 0, 8 };
    struct quant_field *low = &t->code.low, *high = &t->code.high;
    switch (misread) {
    case MISREAD_NONE: break;
    case MISREAD_NIBBLES: low->first += 4, low->step2 = -4; break;
    case MISREAD_LAYOUT: *low = in_sequence(low); break;
    case MISREAD_OFFSET: t->bias = 0; break;
    case MISREAD_MIN: t->min_is_added = !t->min_is_added; break;
    case MISREAD_SCALES: swap_scales(t, true); break;
    case MISREAD_SCALE_BITS:   /* the high bits of the first four of Q4_K and Q5_K are beside the low ones */
        t->scale.high.count = t->min.high.count = t->min.high.count > 0 ? 4 : 0;
        break;
    case MISREAD_SCALE_ORDER:
        t->scale.low = in_sequence(&t->scale.low);
        t->scale.high = in_sequence(&t->scale.high);
        break;
    case MISREAD_D: swap_scales(t, false); break;
    case MISREAD_HIGH: high->count = 0; break;
    case MISREAD_HIGH_ORDER:   /* in Q5_0 and Q5_1 the bits are in sequence */
        if (t->block_size > 32) *high = in_sequence(high);
        else high->n = 16, high->step = 2, high->step2 = 1;
        break;
    case MISREAD_HIGH_SIGN: t->values = inverted, t->bias = 0; break;
    case MISREAD_ORDER:
        if (t->d_kind == QUANT_SCALE_FLOAT8) low->n = 16, low->step3 = 8 * 16;
        else *low = in_sequence(low), *high = in_sequence(high);
        if (t->read_codes == quant_read_digits) t->read_codes = read_digits_in_sequence;
        break;
    case MISREAD_TABLE: t->values = NULL, t->bias = 8; break;
    case MISREAD_DOUBLED: t->factor = 2; break;
    case MISREAD_DIGITS: t->read_codes = read_integers; break;
    case MISREAD_SIGNS: t->signs.count = 0; break;
    case MISREAD_LAST_SIGN: t->signs_kind = QUANT_SIGNS_EACH; break;
    case MISREAD_SHIFT: t->signs.count = 0, t->values = unshifted; break;
    case MISREAD_HALF: t->scale_plus = 0; break;
    case MISREAD_SIGN:
        t->signed_codes = t->signed_scales = false;
        if (t->scale_plus < 0) t->scale_plus = 0;
        break;
    case MISREAD_BF16: t->d_kind = t->d_kind == QUANT_SCALE_BF16 ? QUANT_SCALE_F16 : QUANT_SCALE_BF16; break;
    }
}

void misread_row(enum quant_type type, enum misread misread, const void *src, float *dst, size_t n) {
    struct quant_traits t = *quant_traits(type);
    make_mistake(&t, misread);
    quant_dequantize(&t, src, dst, n);
}

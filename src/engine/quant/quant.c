#include "quant/types.h"

const int8_t quant_iq4_values[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
const int8_t quant_fp4_values[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
const int8_t quant_q1_values[2] = { -1, 1 };

const struct quant_traits *quant_traits(uint32_t type) {
    return type < QUANT_TYPE_COUNT && quant_types[type].name ? &quant_types[type] : NULL;
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

static size_t bit_of(const struct quant_field *f, size_t i) {
    int at = (int)(i % f->n) * f->step, fold = (int)(i / f->n % f->n2) * f->step2;
    return (size_t)(f->first + at + fold) + i / f->n / f->n2 * f->step3;
}

/* Returns `width` bits from a bit on, which are in at most two bytes. */
static uint32_t bits_at(const uint8_t *block, size_t bit, uint32_t width) {
    const uint8_t *p = block + bit / 8;
    uint32_t shift = bit % 8, two = shift + width > 8 ? load_u16(p) : *p;
    return two >> shift & ((1u << width) - 1);
}

/* Adds the numbers of a field, times 2^up, to out (count). */
static void add_field(int16_t *restrict out, const uint8_t *restrict block, const struct quant_field *f, uint32_t up) {
    uint32_t mask = (1u << f->width) - 1, step = (uint32_t)f->step;
    const int16_t *end = out + f->count;
    for (size_t first = f->first; out < end; first += f->step3) {
        size_t bit = first;
        for (size_t k = 0; k < f->n2 && out < end; k++, bit += (size_t)f->step2, out += f->n) {
            const uint8_t *p = block + bit / 8;
            uint32_t shift = bit % 8;
            if (step == 8) {   /* then no number is in two bytes */
                for (size_t j = 0; j < f->n; j++) out[j] = (int16_t)(out[j] + (int)((p[j] >> shift & mask) << up));
            } else if (f->n == 4 && shift + 3 * step + f->width <= 16) {
                uint32_t four = bits_at(block, bit, 3 * step + f->width);
                for (uint32_t j = 0; j < 4; j++) out[j] = (int16_t)(out[j] + (int)((four >> j * step & mask) << up));
            } else {
                for (size_t j = 0, at = bit; j < f->n; j++, at += step) {
                    out[j] = (int16_t)(out[j] + (int)(bits_at(block, at, f->width) << up));
                }
            }
        }
    }
}
static void add_number(int16_t *out, const uint8_t *block, const struct quant_number *number) {
    if (number->low.count > 0) add_field(out, block, &number->low, 0);
    if (number->high.count > 0) add_field(out, block, &number->high, number->low.width);
}

uint32_t quant_get(const uint8_t *block, const struct quant_number *number, size_t i) {
    const struct quant_field *low = &number->low, *high = &number->high;
    uint32_t value = i < low->count ? bits_at(block, bit_of(low, i), low->width) : 0;
    return i < high->count ? value | bits_at(block, bit_of(high, i), high->width) << low->width : value;
}

static void put_bits(uint8_t *block, const struct quant_field *f, size_t i, uint32_t value) {
    if (i >= f->count) return;
    size_t bit = bit_of(f, i), shift = bit % 8;
    uint32_t mask = ((1u << f->width) - 1) << shift;
    for (uint8_t *p = block + bit / 8; mask > 0; p++, mask >>= 8, value = value << shift >> 8, shift = 0) {
        *p = (uint8_t)((*p & ~mask) | (value << shift & mask));
    }
}
void quant_put(uint8_t *block, const struct quant_number *number, size_t i, uint32_t value) {
    put_bits(block, &number->low, i, value);
    put_bits(block, &number->high, i, value >> number->low.width);
}

/* ---- scales ------------------------------------------------------------------------------------------------------ */

/* Reads d, m or dmin. */
static float read_scale(const struct quant_traits *t, const uint8_t *block, size_t at) {
    switch (t->d_kind) {
    case QUANT_SCALE_F32: return f32_from_bits(load_u32(block + at));
    case QUANT_SCALE_BF16: return f32_from_bf16(load_u16(block + at));
    case QUANT_SCALE_F16: case QUANT_SCALE_NIBBLES: return f32_from_f16(quant_get_half(t, block, at));
    case QUANT_SCALE_EXPONENTS: case QUANT_SCALE_FLOAT8: break;
    }
    return 1.0f;
}

/* 2^(e - 128), which is subnormal for e = 0 and 1. */
static float from_exponent(uint32_t e) { return f32_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23); }

static float from_float8(uint32_t bits) {
    uint32_t exponent = bits >> 3 & 15, mantissa = bits & 7;
    if (bits == 0x7f) return 0.0f;
    if (exponent == 0) return (float)mantissa * 0x1p-10f;
    return f32_from_bits((exponent - 8 + 127) << 23 | mantissa << 20);
}

/* By what d is multiplied for a number of `scale`. */
static float scale_of(const struct quant_traits *t, int number) {
    if (t->d_kind == QUANT_SCALE_EXPONENTS) return t->factor * from_exponent((uint32_t)number);
    if (t->d_kind == QUANT_SCALE_FLOAT8) return t->factor * from_float8((uint32_t)number);
    int sc = t->signed_scales ? (int8_t)number : number;
    return t->factor * (float)(t->scale_times * sc + t->scale_plus);
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

void quant_read_numbers(const struct quant_traits *t, const uint8_t *block, int16_t *codes) {
    const int16_t bias = t->bias;   /* what is in *t could be in codes, as far as the compiler knows */
    const int8_t *values = t->values;
    for (int16_t *code = codes, *end = codes + t->block_size; code < end; code++) *code = (int16_t)-bias;
    add_number(codes, block, &t->code);
    const int16_t *end = codes + t->block_size;
    if (values) {
        for (int16_t *code = codes; code < end; code++) *code = values[*code];
    } else if (t->signed_codes) {
        for (int16_t *code = codes; code < end; code++) *code = (int8_t)*code;
    }
}

/* A byte has up to five digits of base 3, the most significant first, as the fraction byte / 256: the integer part of
 * 3 * fraction is the first digit, and the rest is the fraction of the next ones.  Bytes 0 .. 31 have the digits of
 * weights 0 .. 159, bytes 32 .. 47 those of the next 80, and bytes 48 .. 51, four digits each, those of the last 16. */
void quant_read_digits(const struct quant_traits *t, const uint8_t *block, int16_t *codes) {
    static const struct { uint8_t first, n; } parts[] = { { 0, 32 }, { 32, 16 }, { 48, 4 } };
    for (size_t k = 0; k < 3; k++) {
        uint8_t fractions[32];
        memcpy(fractions, block + parts[k].first, parts[k].n);
        for (size_t digit = 0; digit < (k < 2 ? 5u : 4u); digit++) {
            for (size_t j = 0; j < parts[k].n; j++) {
                *codes++ = (int16_t)((fractions[j] * 3 >> 8) - t->bias);
                fractions[j] = (uint8_t)(fractions[j] * 3);
            }
        }
    }
}

void quant_read_vectors(const struct quant_traits *t, const uint8_t *block, int16_t *codes) {
    enum { N_VECTOR = QUANT_MAX_BLOCK / 8 };
    int16_t low[N_VECTOR] = { 0 }, high[N_VECTOR] = { 0 }, signs[N_VECTOR] = { 0 };
    add_field(low, block, &t->code.low, 0);
    add_field(high, block, &t->code.high, 0);
    add_field(signs, block, &t->signs, 0);
    for (size_t v = 0; v < N_VECTOR; v++) {
        uint32_t minus = (uint32_t)signs[v], index = (uint16_t)low[v], upper = (uint32_t)high[v];
        uint32_t first = index + (upper << 8), second = first;
        if (t->is_grid_of_4) {
            first = (index & 255) | (upper & 1) << 8;
            second = index >> 8 | upper >> 1 << 8;
        }
        if (t->signs_kind == QUANT_SIGNS_EVEN) minus |= ((uint32_t)__builtin_popcount(minus) & 1) << 7;
        for (size_t j = 0; j < 8; j++) {
            uint32_t entry = t->grid[j < 4 ? first : second];
            int value = t->is_grid_of_4 ? t->values[entry >> quant_grid_shift(j % 4) & 7]
                                        : t->values[entry >> quant_grid_shift(j) & 3];
            if (t->signs_kind == QUANT_SIGNS_SHIFT) value -= minus ? 2 : 0;
            else if (minus >> j & 1) value = -value;
            *codes++ = (int16_t)value;
        }
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* The groups of a block; types without groups have one scale. */
static size_t count_groups(const struct quant_traits *t) {
    return t->group == 16 ? t->block_size / 16 : t->group == 32 ? t->block_size / 32 : 1;
}

void quant_unpack(const struct quant_traits *t, const uint8_t *block, int16_t *codes, float *scale, float *min,
                  int16_t *min_codes) {
    int16_t numbers[QUANT_MAX_GROUPS] = { 0 };
    size_t n_group = count_groups(t);
    float d = read_scale(t, block, t->d), m = t->min_kind != NO_MIN ? read_scale(t, block, t->m) : 0;
    add_number(numbers, block, &t->scale);
    if (t->min_is_added) m = -m;
    for (size_t g = 0; g < n_group; g++) scale[g] = d * scale_of(t, numbers[g]);
    for (size_t g = 0; t->min_kind == GROUP_MIN && g < n_group; g++) min[g] = m;
    if (t->min_kind == SUPERBLOCK_MIN) {
        *min = m;
        memset(min_codes, 0, n_group * sizeof *min_codes);
        add_number(min_codes, block, &t->min);
    }
    t->read_codes(t, block, codes);
}

static void read_floats(const struct quant_traits *t, const uint8_t *src, float *dst, size_t n) {
    if (t->d_kind == QUANT_SCALE_F32) {
        for (size_t e = 0; e < n; e++) dst[e] = f32_from_bits(load_u32(src + 4 * e));
    } else if (t->d_kind == QUANT_SCALE_F16) {
        for (size_t e = 0; e < n; e++) dst[e] = f32_from_f16(load_u16(src + 2 * e));
    } else {
        for (size_t e = 0; e < n; e++) dst[e] = f32_from_bf16(load_u16(src + 2 * e));
    }
}

/* d is multiplied with the group's scale first, as in ggml: (d * sc) * q rounds differently from d * (sc * q). */
void quant_dequantize(const struct quant_traits *t, const void *src, float *dst, size_t n) {
    const uint8_t *block = src;
    if (!t->read_codes) {
        read_floats(t, src, dst, n);
        return;
    }
    for (const float *end = dst + n; dst < end; block += t->block_bytes) {
        int16_t codes[QUANT_MAX_BLOCK], *code = codes, min_codes[QUANT_MAX_GROUPS];
        float scale[QUANT_MAX_GROUPS], min[QUANT_MAX_GROUPS] = { 0 };
        size_t n_group = count_groups(t), group = t->group ? t->group : t->block_size;
        quant_unpack(t, block, codes, scale, min, min_codes);
        for (size_t g = 0; g < n_group; g++, code += group, dst += group) {
            float s = scale[g], m = t->min_kind == SUPERBLOCK_MIN ? *min * (float)min_codes[g] : min[g];
            for (size_t j = 0; j < group; j++) dst[j] = s * (float)code[j] - m;
        }
    }
}

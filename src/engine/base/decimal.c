/* The digits are read as a big integer d, so that the number is d * 10^exponent.  If both are small, one operation on
 * exact doubles gives the result.  Otherwise a binary long division computes the first 64 bits of the number, and
 * whether any bits after them are set; the result is then rounded once. */
#include "base/decimal.h"

#include "base/base.h"

#include <assert.h>
#include <math.h>

/* The numbers halfway between two doubles, where rounding changes direction, have at most 768 digits.  Of the digits
 * after MAX_DIGIT it only matters whether all of them are 0, and one more digit stands for them. */
enum { MAX_DIGIT = 800 };

/* The largest number has MAX_DIGIT + 1 digits or 2661 bits and is doubled once, which takes 84 words.  The largest
 * divisor, 5^1124, has 2610 bits. */
enum { MAX_WORD = 84 };

/* word[0] + word[1] * 2^32 + ...  The last of the n words is not 0; n is 0 for the number 0. */
struct big { uint32_t n, word[MAX_WORD]; };

static void multiply_add(struct big *b, uint32_t factor, uint32_t more) {
    uint64_t carry = more;
    for (uint32_t i = 0; i < b->n; i++) {
        carry += (uint64_t)b->word[i] * factor;
        b->word[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry == 0) return;
    assert(b->n < MAX_WORD);
    b->word[b->n++] = (uint32_t)carry;
}

static void multiply_by_power_of_5(struct big *b, int64_t exponent) {
    for (; exponent >= 13; exponent -= 13) multiply_add(b, 1220703125, 0);   /* 5^13 is the largest in 32 bits */
    for (; exponent > 0; exponent--) multiply_add(b, 5, 0);
}

static void shift_left(struct big *b, int bits) {
    for (; bits >= 31; bits -= 31) multiply_add(b, (uint32_t)1 << 31, 0);
    multiply_add(b, (uint32_t)1 << bits, 0);
}

static int count_bits(const struct big *b) { return 32 * (int)b->n - __builtin_clz(b->word[b->n - 1]); }

static bool is_less(const struct big *a, const struct big *b) {
    if (a->n != b->n) return a->n < b->n;
    for (uint32_t i = a->n; i-- > 0;) {
        if (a->word[i] != b->word[i]) return a->word[i] < b->word[i];
    }
    return false;
}

/* a -= b, with b <= a. */
static void subtract(struct big *a, const struct big *b) {
    uint64_t borrow = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t d = (uint64_t)a->word[i] - (i < b->n ? b->word[i] : 0) - borrow;
        a->word[i] = (uint32_t)d;
        borrow = d >> 63;
    }
    while (a->n > 0 && a->word[a->n - 1] == 0) a->n--;
}

/* a / b = q * 2^(exponent - 63), with q >= 2^63.  Returns q cut to an integer, with its last bit set if the rest is not
 * 0.  Neither a nor b is 0; both are overwritten. */
static uint64_t divide(struct big *a, struct big *b, int64_t *exponent) {
    int shift = count_bits(a) - count_bits(b);
    shift_left(shift > 0 ? b : a, shift > 0 ? shift : -shift);
    if (is_less(a, b)) {
        shift_left(a, 1);
        shift--;
    }
    *exponent = shift;
    uint64_t q = 0;
    for (int i = 0; i < 64; i++) {   /* a < 2 b */
        q <<= 1;
        if (!is_less(a, b)) {
            subtract(a, b);
            q |= 1;
        }
        shift_left(a, 1);
    }
    return a->n > 0 ? q | 1 : q;
}

/* The double nearest to d * 10^exponent.  d has n_digit digits and is overwritten. */
static double nearest(struct big *d, size_t n_digit, int64_t exponent) {
    static const double powers[] = { 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14,
                                     1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
    if (d->n == 0) return 0;
    /* Integers of up to 15 digits and powers up to 10^22 are exact doubles, so one operation rounds once (Clinger
     * 1990). */
    if (n_digit <= 15 && exponent >= -22 && exponent <= 22) {
        uint64_t integer = d->word[0] | (d->n > 1 ? (uint64_t)d->word[1] << 32 : 0);
        return exponent < 0 ? (double)integer / powers[-exponent] : (double)integer * powers[exponent];
    }
    int64_t point = (int64_t)n_digit + exponent;   /* 10^(point - 1) <= the number < 10^point */
    if (point > 309) return INFINITY;
    if (point < -323) return 0;                    /* half of the smallest double is 2.5e-324 */
    struct big divisor = { .n = 1, .word = { 1 } };
    multiply_by_power_of_5(exponent < 0 ? &divisor : d, exponent < 0 ? -exponent : exponent);
    int64_t e;
    uint64_t q = divide(d, &divisor, &e);
    e += exponent;                                 /* 10^x = 5^x 2^x; 2^e <= the number < 2^(e + 1) */
    if (e > 1023) return INFINITY;
    int drop = e < -1022 ? 11 + (int)(-1022 - e) : 11;   /* of 64 bits, to leave 53; subnormals have fewer */
    if (drop > 64) return 0;
    uint64_t kept = drop < 64 ? q >> drop : 0, rest = q << (64 - drop), half = (uint64_t)1 << 63;
    kept += rest > half || (rest == half && kept & 1);
    /* The first of the 53 bits adds 1 to the exponent field, and so does a carry out of them, which may give
     * infinity. */
    uint64_t bits = kept + (e < -1022 ? 0 : (uint64_t)(e + 1022) << 52);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool is_digit(const char *at, const char *end) { return at < end && *at >= '0' && *at <= '9'; }

size_t decimal_read(const char *text, size_t n, double *value) {
    const char *at = text, *end = text + n;
    bool negative = at < end && *at == '-', fraction = false, more = false;
    at += at < end && (*at == '-' || *at == '+');
    if (!is_digit(at, end) && !(at < end && *at == '.' && is_digit(at + 1, end))) return 0;
    struct big d;
    d.n = 0;
    size_t n_digit = 0;   /* without leading zeros */
    int64_t exponent = 0;
    for (;;) {
        for (; is_digit(at, end); at++) {
            if (n_digit < MAX_DIGIT) {
                multiply_add(&d, 10, (uint32_t)(*at - '0'));
                n_digit += d.n > 0;
                exponent -= fraction;
            } else {
                more |= *at != '0';
                exponent += !fraction;
            }
        }
        if (fraction || at == end || *at != '.') break;
        fraction = true;
        at++;
    }
    if (more) {
        multiply_add(&d, 10, 1);
        n_digit++;
        exponent--;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        const char *e = at + 1;
        bool down = e < end && *e == '-';
        e += e < end && (*e == '-' || *e == '+');
        if (is_digit(e, end)) {
            int64_t x = 0;
            for (; is_digit(e, end); e++) {
                if (x < (int64_t)1 << 50) x = x * 10 + (*e - '0');   /* larger ones give the same result */
            }
            exponent += down ? -x : x;
            at = e;
        }
    }
    double magnitude = nearest(&d, n_digit, exponent);
    *value = negative ? -magnitude : magnitude;
    return (size_t)(at - text);
}

uint32_t decimal_read_u32(const char **at) {
    uint64_t value = 0;
    for (; **at >= '0' && **at <= '9'; ++*at) {
        value = value * 10 + (uint64_t)(**at - '0');
        if (value > UINT32_MAX) value = UINT32_MAX;
    }
    return (uint32_t)value;
}

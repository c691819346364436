/* The functions reduce their argument and then sum a Taylor or artanh series, in a fixed order of IEEE operations.
 * Nothing here is tuned for the last half ulp; what counts is that every host computes the same bits.
 */
/* Compiled for speed. */
#include "base/math.h"

#include "base/base.h"

#include <math.h>

static double f64_from_bits(uint64_t bits) { double d; memcpy(&d, &bits, 8); return d; }
static uint64_t f64_to_bits(double d) { uint64_t bits; memcpy(&bits, &d, 8); return bits; }

/* 2^k, -1022 <= k <= 1023. */
static double power_of_two(int k) { return f64_from_bits((uint64_t)(k + 1023) << 52); }

/* The nearest integer, for |x| < 2^51.  The sum with 1.5 * 2^52 has no bits left for a fraction. */
static double nearest(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

/* ln 2 = HIGH + LOW; HIGH has 32 significant bits, so k * HIGH is exact for |k| < 2^21. */
static const double LN2_HIGH = 0x1.62e42fee00000p-1, LN2_LOW = 0x1.a39ef35793c76p-33;

/* x = k ln 2 + r with |r| <= ln(2) / 2, so e^x = 2^k e^r.  Returns e^r; the error after 14 terms of the Taylor series
 * is below 2^-57. */
static double exp_reduced(double x, double *k) {
    *k = nearest(x * 0x1.71547652b82fep0);   /* x / ln 2 */
    double high = x - *k * LN2_HIGH, low = *k * LN2_LOW, r = high - low;
    double sum = 1.0 / 6227020800;           /* 1 / 13! */
    static const double inverse[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                                     1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5};
    for (size_t i = 0; i < sizeof inverse / sizeof inverse[0]; i++) sum = sum * r + inverse[i];
    /* 1 + r + r^2 sum, without the rounding error of r = high - low in its largest term. */
    return 1 + (high + (r * r * sum - low));
}

double math_exp(double x) {
    if (x != x) return x;
    if (x > 709.782712893384) return (double)INFINITY;   /* ln of the largest double */
    if (x < -745.1332191019412) return 0;                /* below half the least subnormal */
    double k, y = exp_reduced(x, &k);
    int n = (int)k;
    if (n > 1023) return y * power_of_two(1023) * 2;
    if (n < -1021) return y * power_of_two(n + 100) * power_of_two(-100);   /* one rounding, in the last product */
    return y * power_of_two(n);
}

void math_exp_all(const double *x, double *y, size_t n) {
    /* The loop has no branches, so that the compiler vectorizes it.  For |x| <= 700, 2^k is a normal number.  The low
     * bits of k + 1.5 * 2^52 are k. */
    bool ordinary = true;
    for (size_t i = 0; i < n; i++) ordinary &= x[i] >= -700 && x[i] <= 700;
    for (size_t i = 0; ordinary && i < n; i++) {
        double k, part = exp_reduced(x[i], &k);
        y[i] = part * f64_from_bits((f64_to_bits(k + 0x1.8p52) + 1023) << 52);
    }
    for (size_t i = 0; !ordinary && i < n; i++) y[i] = math_exp(x[i]);
}

/* x = 2^k m with m in [sqrt(1/2), sqrt(2)); f = m - 1, s = f / (2 + f):
 * log m = 2 artanh s = 2s + s R,  R = 2/3 s^2 + 2/5 s^4 + ...  = f - (f^2/2 - s (f^2/2 + R)),
 * where only small terms are rounded (the rearrangement is fdlibm's).  As |s| <= 0.172, the error after 11 terms is
 * below 2^-60. */
double math_log(double x) {
    if (x != x || x < 0) return (double)NAN;
    if (x == 0) return -(double)INFINITY;
    if (x > 0x1.fffffffffffffp1023) return x;
    double k = 0;
    if (x < 0x1p-1022) { x *= 0x1p54; k = -54; }
    uint64_t bits = f64_to_bits(x);
    k += (double)((int)(bits >> 52) - 1023);
    double m = f64_from_bits((bits & 0xfffffffffffffu) | (uint64_t)1023 << 52);
    if (m > 1.4142135623730951) { m *= 0.5; k += 1; }
    double f = m - 1, s = f / (2 + f), z = s * s, sum = 0;
    for (int n = 23; n >= 3; n -= 2) sum = (sum + 2.0 / n) * z;
    double half = 0.5 * f * f;
    return k * LN2_HIGH - ((half - (s * (half + sum) + k * LN2_LOW)) - f);
}

double math_pow(double x, double y) { return math_exp(y * math_log(x)); }

/* x = k pi/2 + r with |r| <= pi/4.  pi/2 is split into three parts.  The first two have 26 and 27 bits, so their
 * products with |k| < 2^26 are exact, and so is x - k P1.  The other two subtractions and the series have errors of
 * about 2^-53 each. */
void math_sincos(double x, double *sine, double *cosine) {
    const double P1 = 0x1.921fb50000000p0, P2 = 0x1.110b460000000p-26, P3 = 0x1.1a62633145c07p-54;
    double k = nearest(x * 0x1.45f306dc9c883p-1);   /* x / (pi/2) */
    double r = ((x - k * P1) - k * P2) - k * P3, z = r * r;
    double s = 0, c = 0;
    for (int n = 17; n >= 3; n -= 2) s = (s + 1) * (-z / (n * (n - 1)));    /* r (1 + s) = r - r^3/3! + ... r^17/17! */
    for (int n = 16; n >= 2; n -= 2) c = (c + 1) * (-z / (n * (n - 1)));    /* 1 + c = 1 - r^2/2! + ... r^16/16! */
    s = r + r * s;
    c = 1 + c;
    int64_t quadrant = (int64_t)k & 3;
    *sine = quadrant == 0 ? s : quadrant == 1 ? c : quadrant == 2 ? -s : -c;
    *cosine = quadrant == 0 ? c : quadrant == 1 ? -s : quadrant == 2 ? -c : s;
}

double math_sqrt(double x) { return sqrt(x); }   /* IEEE requires correct rounding, so libm's is the same everywhere */

/* Elementary functions that give the same bits on every host.
 *
 * The last bit of libm's results differs between musl and glibc, which also chooses FMA variants by CPU.  These
 * functions use only IEEE add, mul, div and sqrt in a fixed order, so that native builds, Node, browsers and wasmtime
 * agree.  The engine is compiled with -ffp-contract=off for the same reason.  The fast pass, the sampler and traces use
 * them; the reference pass uses libm.
 */
#ifndef PLUMB_MATH_H
#define PLUMB_MATH_H

#include <stddef.h>

/* e^x, within 2 ulp, for any double: it overflows to +inf, underflows to 0, and is NaN for NaN. */
double math_exp(double x);
/* e^x of n values from x to y, which may be the same array.  Gives the same bits as math_exp, several times as fast. */
void math_exp_all(const double *x, double *y, size_t n);
/* Natural logarithm, within 2 ulp, for x > 0.  log(0) is -inf; for x < 0 or NaN it is NaN. */
double math_log(double x);
/* x^y for x > 0, computed as exp(y log x).  Its relative error is below (|y log x| + 2) * 2^-52. */
double math_pow(double x, double y);
/* Sine and cosine of x, with an absolute error below 2^-50 for |x| <= 2^26.  (Angles of RoPE are below 2^21 in models
 * that are in use.) */
void math_sincos(double x, double *sine, double *cosine);
double math_sqrt(double x);

#endif

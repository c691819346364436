/* Elementary functions that give the same bits on every host.
 *
 * libm differs between glibc (which also picks FMA variants by CPU) and musl in the last bit; these use only IEEE
 * add, mul, div and sqrt in a fixed order, so native, Node, browser and wasmtime agree.  The engine is compiled with
 * -ffp-contract=off for the same reason.  Used by the fast pass and the sampler; the reference pass uses libm.
 */
#ifndef PLUMB_MATH_H
#define PLUMB_MATH_H

#include <stddef.h>

/* Within 2 ulp of the true value; x any finite double, overflow to +inf, underflow to 0. */
double math_exp(double x);
/* The same of (n) values at once, to y, which may be x: several times as fast. */
void math_exp_all(const double *x, double *y, size_t n);
/* Natural logarithm, x > 0, within 2 ulp; log(0) = -inf; x < 0 or NaN: NaN. */
double math_log(double x);
/* x^y for x > 0, via exp(y log x); relative error below (|y log x| + 2) * 2^-52. */
double math_pow(double x, double y);
/* Absolute error < 2^-50 for |x| <= 2^26 (angles of RoPE are below 2^21). */
void math_sincos(double x, double *sine, double *cosine);
double math_sqrt(double x);

#endif

/* The constants of exp for f32, and those of GELU, which uses it.  Every variant (exp__scalar, exp__simd128) computes
 * exp by the same sequence of IEEE operations:
 *
 *   exp(x) = 2^n * exp(r),  n = round(x / ln 2),  r = x - n ln 2 in [-0.347, 0.347]
 *
 * ln 2 is split in two so that n * EXP_LN2_HI is exact.  exp(r) is its Taylor polynomial of degree 7, with a relative
 * remainder below 8e-9.  The result is within 2 ulp of the true value.  x is first clamped to [-87, 88], which keeps
 * 2^n a normal number.  NaN stays NaN.
 */
#ifndef PLUMB_KERNELS_EXPF_H
#define PLUMB_KERNELS_EXPF_H

#define EXP_MIN (-87.0f)
#define EXP_MAX 88.0f
#define EXP_LOG2E 1.44269504f
#define EXP_LN2_HI 0.693359375f      /* 355 / 512: n * EXP_LN2_HI is exact for |n| < 2^15 */
#define EXP_LN2_LO (-2.12194440e-4f)
#define EXP_C2 0.5f
#define EXP_C3 0.16666667f
#define EXP_C4 0.041666668f
#define EXP_C5 0.0083333338f
#define EXP_C6 0.0013888889f
#define EXP_C7 0.00019841270f
/* The constants of gelu and geglu: 2 sqrt(2 / pi), and that times 0.044715. */
#define GELU_1 1.59576912f
#define GELU_3 0.0713548163f

#endif

/* Decimal text to the nearest double, ties to even: what strtod gives in the C locale, without libc's, which brings
 * 16 KB of 128-bit floating point into a WebAssembly module.
 * Refuses white space, hexadecimal, "inf" and "nan". */
#ifndef PLUMB_DECIMAL_H
#define PLUMB_DECIMAL_H

#include <stddef.h>
#include <stdint.h>

/* Reads [+|-] digits [. digits] [(e|E) [+|-] digits] at the start of n bytes, as much as there is of it; the digits of
 * one side of the point may be missing.  Any number of digits counts.  Too large is infinity, too small is 0, with the
 * sign.  Returns how many bytes were read, 0 and *value untouched if no number begins there. */
size_t decimal_read(const char *text, size_t n, double *value);

/* The digits at *at, of a text that ends in 0, as an integer, UINT32_MAX if it is larger; *at goes behind them.  0 if
 * there are none. */
uint32_t decimal_read_u32(const char **at);

#endif

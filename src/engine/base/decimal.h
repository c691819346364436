/* Converts decimal text to the nearest double, ties to even, as strtod does in the C locale.  libc's strtod would bring
 * 16 KB of 128-bit floating point into a WebAssembly module.
 * Refuses white space, hexadecimal, "inf" and "nan". */
#ifndef PLUMB_DECIMAL_H
#define PLUMB_DECIMAL_H

#include <stddef.h>
#include <stdint.h>

/* Reads the longest number of the form [+|-] digits [. digits] [(e|E) [+|-] digits] at the start of n bytes.  The
 * digits on one side of the point may be missing.  All digits count, however many there are.  A number that is too
 * large becomes infinity and one that is too small becomes 0, with its sign.  Returns how many bytes were read, or 0
 * with *value unchanged if no number begins there. */
size_t decimal_read(const char *text, size_t n, double *value);

/* Reads the digits at *at, in a 0-terminated text, as an integer, and moves *at past them.  Returns UINT32_MAX if the
 * integer is larger than that, and 0 if there are no digits. */
uint32_t decimal_read_u32(const char **at);

#endif

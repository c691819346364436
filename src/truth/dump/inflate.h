/* Inflates DEFLATE streams (RFC 1951), which numpy.savez_compressed writes into its zip file.
 *
 * The caller knows the size of the output.  No byte is written past it, whatever the stream says.
 */
#ifndef PLUMB_DUMP_INFLATE_H
#define PLUMB_DUMP_INFLATE_H

#include "base/base.h"

/* Upper bound of the bytes of output for one byte of a stream: a match of 258 bytes takes at least two bits. */
#define INFLATE_MAX_RATIO 1032

/* Inflates src to dst.  Returns true if src begins with a complete stream of exactly n_dst bytes of output; ignores
 * what follows the stream.  Otherwise sets *why to a constant string that says what is wrong. */
bool inflate_bytes(const void *src, size_t n_src, void *dst, size_t n_dst, const char **why);

#endif

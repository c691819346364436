/* Inflates DEFLATE streams (RFC 1951), as numpy.savez_compressed puts them into its zip file.
 *
 * The size of the output is known before and is a bound: whatever the stream says, no byte is written past it.
 */
#ifndef PLUMB_DUMP_INFLATE_H
#define PLUMB_DUMP_INFLATE_H

#include "base/base.h"

/* No stream makes more bytes than this of one: a match of 258 takes two bits at least. */
#define INFLATE_MOST 1032

/* True if src is a whole stream of exactly n_dst bytes; what follows its end is not looked at.  Otherwise *why says
 * what is wrong with it. */
bool inflate_bytes(const void *src, size_t n_src, void *dst, size_t n_dst, const char **why);

#endif

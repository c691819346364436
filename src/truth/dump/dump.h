/* Reads and writes files of traces: plumb's own, and those that other engines and their authors write.
 *
 *   JSON        read and written; docs/trace.md is the schema
 *   GGUF        read and written; whole tensors only
 *   .npz        read; what numpy.savez and numpy.savez_compressed write
 *   text        read; what llama.cpp's llama-eval-callback prints
 *   a table     written, for people
 *
 * Nothing in a file is trusted.  A damaged file gives a status and a message that names the place.
 */
#ifndef PLUMB_DUMP_DUMP_H
#define PLUMB_DUMP_DUMP_H

#include "trace/trace.h"

/* Each of these reads a whole file of n bytes into an empty trace, whose rows and texts are then not sorted yet. */
plumb_status dump_read_json(struct plumb_trace *t, const char *bytes, size_t n);
plumb_status dump_read_gguf(struct plumb_trace *t, const void *bytes, size_t n);
plumb_status dump_read_npz(struct plumb_trace *t, const void *bytes, size_t n);
plumb_status dump_read_callback(struct plumb_trace *t, const char *bytes, size_t n);

void dump_write_json(const struct plumb_trace *t, plumb_write *write, void *user);
/* Writes one line for each tap, with its statistics over all tokens, and a second line for kq_soft_max with the mean of
 * its entropies.  The table is meant for recorded traces: it counts a row of all tokens together (TRACE_ALL_TOKENS),
 * which only files have, as if it were the row of one more token. */
void dump_write_table(const struct plumb_trace *t, plumb_write *write, void *user);
/* Fails with PLUMB_ERROR_ARGUMENT, before it writes anything, if a row does not have all its values or if the rows of a
 * tap have different shapes. */
plumb_status dump_write_gguf(struct plumb_trace *t, plumb_write *write, void *user);

#endif

/* Traces as files: those that plumb writes, and those that authors of other engines have.
 *
 *   JSON        read and written; docs/trace.md is the schema
 *   GGUF        read and written; whole tensors only
 *   .npz        read; what numpy.savez and numpy.savez_compressed write
 *   text        read; what llama.cpp's llama-eval-callback prints
 *   a table     written, for people
 *
 * Nothing in a file is trusted: what is damaged ends in a status and a sentence with the place.
 */
#ifndef PLUMB_DUMP_DUMP_H
#define PLUMB_DUMP_DUMP_H

#include "trace/trace.h"

/* Replaces the trace by what n bytes of a file hold, whichever of the formats that is.  After a failure the trace is
 * empty, but for its message. */
plumb_status dump_read(struct plumb_trace *t, const void *bytes, size_t n);
/* As text, JSON or GGUF. */
plumb_status dump_write(struct plumb_trace *t, plumb_format format, plumb_write *write, void *user);

/* Each reads all n bytes into an empty trace. */
plumb_status dump_read_json(struct plumb_trace *t, const char *bytes, size_t n);
plumb_status dump_read_gguf(struct plumb_trace *t, const void *bytes, size_t n);
plumb_status dump_read_npz(struct plumb_trace *t, const void *bytes, size_t n);
plumb_status dump_read_callback(struct plumb_trace *t, const char *bytes, size_t n);

void dump_write_json(const struct plumb_trace *t, plumb_write *write, void *user);
/* One line for each tap, with its statistics over all tokens. */
void dump_write_table(const struct plumb_trace *t, plumb_write *write, void *user);
/* PLUMB_ERROR_ARGUMENT, before anything is written, if a row is not whole. */
plumb_status dump_write_gguf(struct plumb_trace *t, plumb_write *write, void *user);

#endif

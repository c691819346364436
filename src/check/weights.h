/* The tensors of two files, of any types, compared by name: how far apart they are, how far their types explain, and
 * what would explain the rest.
 *
 * Both are dequantized row by row.  What two types explain is sqrt(e_a^2 + e_b^2), each e the relative RMS error that
 * quantizing a Gaussian to the type leaves; trained weights with their outliers leave up to 1.3 times that.
 */
#ifndef PLUMB_CHECK_WEIGHTS_H
#define PLUMB_CHECK_WEIGHTS_H

#include "gguf/gguf.h"

/* A file, in one part or several. */
struct weights_file {
    struct gguf *const *parts;   /* complete */
    size_t n_part;
};

/* Relative RMS error of a Gaussian quantized to a type; 0 of F32. */
double weights_type_error(uint32_t type);

/* *agree: every tensor is in both files and no farther apart than WEIGHTS_SLACK times what its types explain (or
 * report->tolerance, where that is not 0).  PLUMB_ERROR_MEMORY; PLUMB_ERROR_ARGUMENT for a format other than text and
 * JSON. */
#define WEIGHTS_SLACK 1.6
plumb_status weights_run(const struct weights_file *a, const struct weights_file *b, const plumb_report *report,
                         bool *agree, struct error *err);

#endif

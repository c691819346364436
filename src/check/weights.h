/* Compares the tensors of two files by name, whatever their types: how large their difference is, how much of it their
 * types explain, and what would explain the rest.
 *
 * Both tensors are dequantized row by row.  Two types explain an error of sqrt(e_a^2 + e_b^2), where each e is the
 * relative RMS error of quantizing a Gaussian to that type.  Trained weights have outliers; their errors are up to 1.3
 * times larger.
 */
#ifndef PLUMB_CHECK_WEIGHTS_H
#define PLUMB_CHECK_WEIGHTS_H

#include "gguf/gguf.h"

/* A file, in one part or several. */
struct weights_file {
    struct gguf *const *parts;   /* (n_part), complete */
    size_t n_part;
};

/* Relative RMS error of quantizing a Gaussian to a type; 0 for F32 and for types that plumb does not know. */
double weights_type_error(uint32_t type);

/* Compares all tensors and writes the report.  *agree: every tensor is in both files with the same shape, its error is
 * at most WEIGHTS_SLACK times what the types explain (or report->tolerance, if that is not 0), and it is not scaled
 * or offset.  PLUMB_ERROR_MEMORY; PLUMB_ERROR_ARGUMENT for a format other than text and JSON. */
#define WEIGHTS_SLACK 1.6
plumb_status weights_run(const struct weights_file *a, const struct weights_file *b, const plumb_report *report,
                         bool *agree, struct error *err);

#endif

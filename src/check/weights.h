/* Compares the tensors of two files by name, whatever their types: how large the difference is, how much of it the
 * types explain, and what would explain the rest.  Then it compares the keys that decide what is computed (keys.h).
 *
 * Both tensors are dequantized row by row.  Two types explain a relative RMS error of sqrt(e_a^2 + e_b^2), where e_a
 * and e_b are the errors of quantizing Gaussian weights to these types.  Trained weights have outliers, and the errors
 * of quantizing them are up to 1.3 times larger.
 */
#ifndef PLUMB_CHECK_WEIGHTS_H
#define PLUMB_CHECK_WEIGHTS_H

#include "gguf/gguf.h"

/* A file that has one part or several. */
struct weights_file {
    struct gguf *const *parts;   /* (n_part), complete */
    size_t n_part;
};

/* Returns the relative RMS error of quantizing Gaussian weights to a type; 0 for F32 and for unknown types. */
double weights_type_error(uint32_t type);

/* Compares both and writes the report.  Sets *agree to true if no key differs, and if every tensor is in both files
 * with the same shape, its error is at most WEIGHTS_SLACK times what the types explain (or at most report->tolerance,
 * if that is not 0), and it is not scaled or offset.  PLUMB_ERROR_MEMORY; PLUMB_ERROR_ARGUMENT for a format other than
 * text and JSON. */
#define WEIGHTS_SLACK 1.6
plumb_status weights_run(const struct weights_file *a, const struct weights_file *b, const plumb_report *report,
                         bool *agree, struct error *err);

#endif

/* PLUMB_PASS_REFERENCE: the reference pass as a session calls it. */
#include "api/pass.h"
#include "plumb_truth.h"
#include "reference/reference.h"

const struct plumb_pass_functions plumb_reference_pass = {
    reference_create, reference_free, reference_set_tap, reference_bytes, reference_rewind, reference_run,
    reference_embeddings, reference_pool, reference_encode, reference_set_adapters,
};

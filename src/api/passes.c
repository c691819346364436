#include "api/passes.h"

const struct plumb_pass_functions plumb_reference_pass = {
    reference_create, reference_free, reference_set_tap, reference_bytes, reference_run, reference_embeddings,
    reference_pool,
};

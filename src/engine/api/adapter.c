/* plumb_adapter: joins gguf and model/adapter.h. */
#include "api/model.h"

#include <stdlib.h>

plumb_status plumb_adapter_create(plumb_adapter **out, plumb_model *model, uint64_t size) {
    *out = NULL;
    if (!model->model) return error_set(&model->err, PLUMB_ERROR_STATE, "the model is not completely loaded");
    plumb_adapter *a = calloc(1, sizeof *a);
    if (a) a->file = gguf_create(size);
    if (!a || !a->file) {
        free(a);
        return error_set(&model->err, PLUMB_ERROR_MEMORY, "out of memory: the reader of an adapter");
    }
    a->model = model;
    *out = a;
    return PLUMB_OK;
}

void plumb_adapter_free(plumb_adapter *a) {
    if (!a) return;
    gguf_free(a->file);
    adapter_free(a->adapter);
    free(a);
}

const char *plumb_adapter_error(const plumb_adapter *a) { return a->err.message; }

static plumb_status check_open(plumb_adapter *a) {
    if (a->file) return PLUMB_OK;
    return error_set(&a->err, PLUMB_ERROR_STATE, "plumb_adapter_end was called");
}

plumb_status plumb_adapter_window(plumb_adapter *a, void **data, size_t *len) {
    *data = NULL;
    *len = 0;
    PLUMB_TRY(check_open(a));
    return gguf_window(a->file, data, len, &a->err);
}

plumb_status plumb_adapter_commit(plumb_adapter *a, size_t n) {
    PLUMB_TRY(check_open(a));
    return gguf_commit(a->file, n, &a->err);
}

plumb_status plumb_adapter_end(plumb_adapter *a) {
    if (a->adapter) return PLUMB_OK;
    PLUMB_TRY(check_open(a));
    PLUMB_TRY(gguf_finish(a->file, &a->err));
    struct gguf *file = a->file;
    a->file = NULL;
    return adapter_create(&a->adapter, a->model->model, file, &a->err);
}

bool plumb_adapter_is_control(const plumb_adapter *a) { return a->adapter && a->adapter->directions; }

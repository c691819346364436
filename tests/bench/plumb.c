/* plumb as an engine of driver.h, through its public header. */
#include "driver.h"

#include <plumb.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

static plumb_model *model;
static plumb_session *session;

static const char *load(FILE *file) {
    plumb_status status = plumb_model_begin(model, PLUMB_SIZE_UNKNOWN);
    while (status == PLUMB_OK) {
        void *data;
        size_t n;
        status = plumb_model_window(model, &data, &n);
        if (status != PLUMB_OK || n == 0) break;
        n = fread(data, 1, n, file);
        if (n == 0) break;   /* the end, or an error: plumb_model_end reports missing bytes */
        status = plumb_model_commit(model, n);
    }
    if (status == PLUMB_OK) status = plumb_model_end(model);
    return status == PLUMB_OK ? NULL : plumb_model_error(model);
}

static const char *engine_open(const char *path, uint32_t n_ctx, uint32_t n_thread) {
    model = plumb_model_create();
    if (!model) return "no memory for a model";
    FILE *file = fopen(path, "rb");
    if (!file) return strerror(errno);
    const char *error = load(file);
    fclose(file);
    if (error) return error;
    plumb_session_params params = { .n_ctx = n_ctx, .n_thread = n_thread };
    if (plumb_session_create(&session, model, &params) != PLUMB_OK) return plumb_model_error(model);
    return plumb_session_n_thread(session) == n_thread ? NULL : "plumb: there are fewer threads here";
}

static const char *engine_feed(const int32_t *ids, uint32_t n) {
    return plumb_session_feed(session, ids, n) == PLUMB_OK ? NULL : plumb_session_error(session);
}

static uint32_t engine_rewind(uint32_t n_past) {
    return plumb_session_rewind(session, n_past) == PLUMB_OK ? n_past : 0;
}

static const char *engine_about(void) { return plumb_session_kernels(session); }

int main(int argc, char **argv) {
    static const struct engine engine = { engine_open, engine_feed, engine_rewind, engine_about };
    return drive(&engine, argc, argv);
}

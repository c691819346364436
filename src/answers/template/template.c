#include "template/template.h"

#include "template/evaluate.h"

#include <stdlib.h>

enum { MOST_BYTES = 1 << 30 };

void template_run(struct render *r, const struct chat_template *t, struct object *variables, struct output *out) {
    object_set_default(r, variables, "bos_token", value_string(t->bos));
    object_set_default(r, variables, "eos_token", value_string(t->eos));
    struct nodes statements = {NULL, 0, 0};
    if (r->stop == STOP_NOT) statements = template_parse(r);
    if (r->stop != STOP_NOT) return;
    struct scope scope = {*variables, NULL};
    template_evaluate(r, &scope, statements, out);
}

/* Raises the limits by what a chat of that many messages and bytes may take. */
static void raise_limits(struct render *r, const struct object *variables, size_t n_json) {
    const struct value *messages = object_find(r, variables, value_string(text_of("messages")));
    uint64_t n = messages && messages->kind == LIST ? messages->as.list->n : 0;
    if (n > 4096) n = 4096;
    r->max_work += 64 * n * n;
    uint64_t bytes = r->max_bytes + 64 * n * n + 4 * n * n_json;
    if (bytes > MOST_BYTES) bytes = MOST_BYTES;
    if (bytes > r->max_bytes) r->max_bytes = bytes;
}

plumb_status template_render(const struct chat_template *t, const char *json, size_t n_json, bool is_chat,
                             struct template_limits limits, char **text, size_t *n_text, struct error *err) {
    struct render r = {.source = t->source, .err = err, .max_bytes = limits.bytes, .max_work = limits.work,
                       .now = t->now};
    struct output out = {NULL, 0, 0};
    *text = NULL;
    *n_text = 0;
    struct value variables = value_from_json(&r, "the variables of the chat template", json, n_json);
    if (r.stop == STOP_NOT && variables.kind != OBJECT) {
        r.stop = STOP_FAILED;
        error_set(err, PLUMB_ERROR_ARGUMENT, "the variables of the chat template are not a JSON object");
    }
    if (r.stop == STOP_NOT) raise_limits(&r, variables.as.object, n_json);
    if (r.stop == STOP_NOT) (is_chat ? chat_run : template_run)(&r, t, variables.as.object, &out);
    if (r.stop == STOP_NOT) {
        *text = malloc(2 * out.n + 1);   /* not more than the limit of bytes */
        if (!*text) {
            render_no_memory(&r, 2 * (uint64_t)out.n + 1);
        } else {
            if (out.n > 0) memcpy(*text, out.data, out.n);
            if (out.n > 0) memcpy(*text + out.n + 1, out.data + out.cap, out.n);
            (*text)[out.n] = 0;
            *n_text = out.n;
        }
    }
    render_free(&r);
    return r.stop == STOP_NOT ? PLUMB_OK : err->status;
}

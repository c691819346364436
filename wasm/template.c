/* The module of chat templates, dist/plumb-template.wasm: src/answers/template for one template, which JavaScript
 * copies from the file's metadata.  It is a module of its own so that all modules of the engine share one, and so that
 * the memory of a template that takes much is not the engine's.  wasm/template.txt lists its exports;
 * web/engine/templates.js is the only caller. */
#include "template/families.h"
#include "template/template.h"

#include <stdlib.h>

struct plumb_wasm_template {
    struct chat_template t;
    struct capabilities can;
    struct error err;
};

struct plumb_wasm_template *plumb_wasm_template_create(const char *source, size_t n_source, const char *bos,
                                                       size_t n_bos, const char *eos, size_t n_eos);
int64_t plumb_wasm_template_render(struct plumb_wasm_template *one, const char *json, size_t n, bool is_chat,
                                   double now, char **text);
const char *plumb_wasm_template_error(const struct plumb_wasm_template *one);
const char *plumb_wasm_template_family(const struct plumb_wasm_template *one);

/* The texts must outlive the template.  NULL: no memory. */
struct plumb_wasm_template *plumb_wasm_template_create(const char *source, size_t n_source, const char *bos,
                                                       size_t n_bos, const char *eos, size_t n_eos) {
    struct plumb_wasm_template *one = calloc(1, sizeof *one);
    if (!one) return NULL;
    one->t = (struct chat_template){.source = chat_source((struct text){source, n_source, 0}), .bos = {bos, n_bos, 0},
                                    .eos = {eos, n_eos, 0}, .can = &one->can, .tells_tools = true};
    return one;
}

/* Renders a chat or, if is_chat is false, the template with these variables.  now: seconds since 1970 on the clock of
 * the place.  Returns the length of the text, which is to be freed; a zero and the marks of its bytes follow it.
 * Returns a plumb_status, which is negative, on failure. */
int64_t plumb_wasm_template_render(struct plumb_wasm_template *one, const char *json, size_t n, bool is_chat,
                                   double now, char **text) {
    size_t n_text = 0;
    one->t.now = (int64_t)now;
    plumb_status status = template_render(&one->t, json, n, is_chat, TEMPLATE_LIMITS, text, &n_text, &one->err);
    return status == PLUMB_OK ? (int64_t)n_text : (int64_t)status;
}

const char *plumb_wasm_template_error(const struct plumb_wasm_template *one) { return one->err.message; }

/* Its family, as family_write has it; to be freed.  NULL: no memory. */
const char *plumb_wasm_template_family(const struct plumb_wasm_template *one) {
    struct error err = {PLUMB_OK, ""};
    struct render r = {.source = one->t.source, .err = &err, .max_bytes = 1 << 20, .max_work = UINT64_MAX};
    struct output out = {NULL, 0, 0};
    family_write(&r, &out, family_of(&r, one->t.source), one->t.source);
    char *json = r.stop == STOP_NOT ? malloc(out.n + 1) : NULL;
    if (json) {
        memcpy(json, out.data, out.n);
        json[out.n] = 0;
    }
    render_free(&r);
    return json;
}

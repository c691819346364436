#include "template/template.h"
plumb_status plumb_wasm_template_render(const char *source, size_t n_source, const char *json, size_t n_json, char **text, size_t *n_text, struct error *err);
plumb_status plumb_wasm_template_render(const char *source, size_t n_source, const char *json, size_t n_json, char **text, size_t *n_text, struct error *err) {
    struct chat_template t = {{source, n_source, 0}, text_of("a"), text_of("b"), 1};
    return template_render(&t, json, n_json, true, TEMPLATE_LIMITS, text, n_text, err);
}

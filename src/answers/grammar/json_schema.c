#include "grammar/schema.h"

#include <stdlib.h>

plumb_status grammar_from_json_schema(const char *json, size_t n, const struct json_schema_options *options,
                                      struct grammar_text *out, struct grammar_text *warnings, struct error *err) {
    static const struct json_schema_options defaults = {0};
    struct schema s = {.options = options ? options : &defaults, .err = err, .warnings = warnings};
    if (schema_read(&s, json, n) == PLUMB_OK) {
        sets_begin(&s);
        const uint32_t whole = claim(1, CLAIM_SCHEMA, false);
        struct goal *root = goal_of(&s, &whole, 1, 1);
        goals_expand(&s, root);
        schema_write(&s, root, out);
    }
    languages_free(s.languages);
    free(s.nodes);
    free(s.resources);
    free(s.sets);
    free(s.goals);
    free(s.goal_index.slots);
    schema_free_memory(&s);
    return s.status;
}

plumb_status grammar_from_any_json(bool object, enum json_space space, struct grammar_text *out, struct error *err) {
    const struct json_schema_options options = {.space = space};
    const char *schema = object ? "{\"type\":\"object\"}" : "true";
    return grammar_from_json_schema(schema, strlen(schema), &options, out, NULL, err);
}

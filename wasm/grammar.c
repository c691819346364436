/* The module of grammars, dist/plumb-grammar.wasm: src/answers/grammar with a vocabulary that JavaScript copies from
 * the engine.  It is a module of its own because most pages use no grammar, and these need not fetch it.
 * wasm/grammar.txt lists its exports; web/engine/grammars.js is the only caller. */
#include "grammar/grammar.h"
#include "vocabulary.h"

#include <stdlib.h>

/* The copy of a vocabulary, as plumb_wasm_vocabulary of exports.c writes it. */
struct plumb_wasm_copy {
    struct vocabulary v;
    const uint32_t *ends;
    const uint8_t *kinds;
    const char *texts;
};

__attribute__((import_module("env"), import_name("plumb_find_token")))
int32_t host_find_token(const char *text, size_t n);

struct plumb_wasm_copy *plumb_wasm_copy_create(uint32_t n_vocab, const uint32_t *ends, const uint8_t *kinds,
                                               const char *texts);
plumb_grammar *plumb_wasm_grammar_create(struct plumb_wasm_copy *copy);
plumb_status plumb_wasm_grammar_schema(plumb_grammar *grammar, const char *rule, const char *json, size_t n,
                                       uint32_t flags);

static int64_t piece(void *user, int32_t id, bool special, char *buf, size_t cap) {
    const struct plumb_wasm_copy *copy = user;
    if (copy->kinds[id] & KIND_CONTROL && !special) return 0;
    uint32_t start = id > 0 ? copy->ends[id - 1] : 0, n = copy->ends[id] - start;
    memcpy(buf, copy->texts + start, n < cap ? n : cap);
    return n;
}

static bool is_eog(void *user, int32_t id) {
    const struct plumb_wasm_copy *copy = user;
    return (copy->kinds[id] & KIND_EOG) != 0;
}

static int32_t find(void *user, const char *text, size_t n) {
    (void)user;
    return host_find_token(text, n);
}

/* ends, kinds and texts must outlive the copy.  NULL: no memory. */
struct plumb_wasm_copy *plumb_wasm_copy_create(uint32_t n_vocab, const uint32_t *ends, const uint8_t *kinds,
                                               const char *texts) {
    struct plumb_wasm_copy *copy = malloc(sizeof *copy);
    if (!copy) return NULL;
    copy->v = (struct vocabulary){ .n_vocab = n_vocab, .find = find, .piece = piece, .is_eog = is_eog, .user = copy };
    copy->ends = ends;
    copy->kinds = kinds;
    copy->texts = texts;
    return copy;
}

plumb_grammar *plumb_wasm_grammar_create(struct plumb_wasm_copy *copy) { return grammar_create(&copy->v); }

/* Adds a rule, or parses the schema as the whole grammar if rule is NULL.  flags: 1 lenient, 2 any_order, 4 times the
 * plumb_json_space, 16 closed. */
plumb_status plumb_wasm_grammar_schema(plumb_grammar *grammar, const char *rule, const char *json, size_t n,
                                       uint32_t flags) {
    const plumb_schema_options options = {
        .lenient = (flags & 1) != 0, .any_order = (flags & 2) != 0, .space = (plumb_json_space)(flags >> 2 & 3),
        .closed = (flags & 16) != 0,
    };
    return rule ? plumb_grammar_define_schema(grammar, rule, json, n, &options)
                : plumb_grammar_parse_schema(grammar, json, n, &options);
}

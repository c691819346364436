/* plumb_grammar and plumb_matcher: join a grammar with a vocabulary. */
#include "grammar/check.h"
#include "grammar/json_schema.h"
#include "grammar/recognizer.h"
#include "grammar/regular.h"

#include <stdlib.h>

struct plumb_grammar {
    struct error err;
    struct vocabulary *vocabulary; /* NULL: there are no tokens */
    struct rules *rules;           /* NULL before the first definition, and once they are compiled */
    struct grammar *compiled;      /* NULL before plumb_grammar_parse */
    struct recognizer *recognizer;
    struct grammar_text warnings;
    size_t n_warning;              /* bytes of warnings of rules that are kept */
};

struct plumb_matcher {
    plumb_grammar *grammar;
    struct position at;
};

static plumb_status no_memory(plumb_grammar *g) {
    return error_set(&g->err, PLUMB_ERROR_MEMORY, "out of memory: a grammar");
}

/* Passes on a failure of the recognizer. */
static plumb_status failed(plumb_grammar *g, plumb_status status) {
    g->err = g->recognizer->err;
    return status;
}

/* ---- grammars ---------------------------------------------------------------------------------------------------- */

plumb_grammar *grammar_create(struct vocabulary *v) {
    plumb_grammar *g = calloc(1, sizeof *g);
    if (g) g->vocabulary = v;
    return g;
}

void plumb_grammar_free(plumb_grammar *g) {
    if (!g) return;
    recognizer_free(g->recognizer);
    grammar_free(g->compiled);
    rules_free(g->rules);
    grammar_text_free(&g->warnings);
    free(g);
}

const char *plumb_grammar_error(const plumb_grammar *g) { return g->err.message; }

/* Whether rules can be added. */
static plumb_status check_parse(plumb_grammar *g) {
    if (g->compiled) return error_set(&g->err, PLUMB_ERROR_STATE, "the grammar is already parsed");
    if (g->vocabulary && g->vocabulary->n_vocab == 0) {
        return error_set(&g->err, PLUMB_ERROR_STATE, "the vocabulary is not loaded");
    }
    if (!g->rules) g->rules = rules_create(&g->err);
    return g->rules ? PLUMB_OK : g->err.status;
}

static plumb_status make_recognizer(plumb_grammar *g) {
    struct vocabulary *v = g->vocabulary;
    PLUMB_TRY(recognizer_create(&g->recognizer, g->rules->g, &g->err));
    if (!v) return PLUMB_OK;
    if (!v->pieces) PLUMB_TRY(pieces_create(&v->pieces, v, &g->err));
    plumb_status status = recognizer_set_vocabulary(g->recognizer, v->pieces);
    return status == PLUMB_OK ? status : failed(g, status);
}

/* Keeps the rules and warnings that were added; of those of a failure nothing remains. */
static plumb_status settle(plumb_grammar *g, plumb_status status) {
    struct grammar_text *warnings = &g->warnings;
    if (warnings->failed) status = no_memory(g);
    if (status == PLUMB_OK) {
        rules_keep(g->rules);
        g->n_warning = warnings->n;
    } else {
        rules_rewind(g->rules);
        if (warnings->n > g->n_warning) warnings->data[warnings->n = g->n_warning] = 0;
        warnings->failed = false;
    }
    return status;
}

/* Compiles the rules, unless they could not be added. */
static plumb_status compile(plumb_grammar *g, plumb_status status) {
    if (status == PLUMB_OK) status = make_recognizer(g);
    status = settle(g, status);
    if (status == PLUMB_OK) {
        g->compiled = rules_take(g->rules);
        g->rules = NULL;
        return PLUMB_OK;
    }
    recognizer_free(g->recognizer);
    g->recognizer = NULL;
    return status;
}

plumb_status plumb_grammar_parse(plumb_grammar *g, const char *gbnf, size_t n) {
    PLUMB_TRY(check_parse(g));
    return compile(g, rules_add_gbnf(g->rules, gbnf, n, g->vocabulary));
}

/* ---- rules of other languages ------------------------------------------------------------------------------------ */

/* Whether a rule can be added.  Its name is without "-", so that no name equals that of a rule which another one needs,
 * NAME-1. */
static plumb_status check_define(plumb_grammar *g, const char *name) {
    PLUMB_TRY(check_parse(g));
    enum { MAX_NAME = 32 };
    static const char wanted[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    struct shown shown;
    size_t n = strspn(name, wanted);
    if (n == 0 || name[n] || n > MAX_NAME) {
        return error_set(&g->err, PLUMB_ERROR_ARGUMENT, "the name of a rule is \"%s\", expected 1 to %d letters and "
                         "digits", show_bytes(&shown, name, strlen(name)), MAX_NAME);
    }
    if (!rules_has(g->rules, name)) return PLUMB_OK;
    return error_set(&g->err, PLUMB_ERROR_ARGUMENT, "the rule %s is defined twice", name);
}

/* name: that of the rule in messages; NULL for none. */
static plumb_status add_schema(plumb_grammar *g, const char *name, const char *json, size_t n,
                               const plumb_schema_options *options) {
    const plumb_schema_options given = options ? *options : (plumb_schema_options){ 0 };
    const struct json_schema_options own = {
        .lenient = given.lenient, .any_order = given.any_order, .closed = given.closed, .name = name,
        .space = given.space,
    };
    if (given.space > PLUMB_JSON_FREE) {
        return error_set(&g->err, PLUMB_ERROR_ARGUMENT, "space is %d, expected 0 to %d", (int)given.space,
                         (int)PLUMB_JSON_FREE);
    }
    return rules_add_schema(g->rules, json, n, &own, &g->warnings);
}

plumb_status plumb_grammar_define_regex(plumb_grammar *g, const char *rule, const char *regex, size_t n) {
    PLUMB_TRY(check_define(g, rule));
    const uint32_t number = rules_find(g->rules, rule, strlen(rule));
    return settle(g, rules_add_regex(g->rules, number, regex, n));
}

plumb_status plumb_grammar_define_schema(plumb_grammar *g, const char *rule, const char *json, size_t n,
                                         const plumb_schema_options *options) {
    PLUMB_TRY(check_define(g, rule));
    return settle(g, add_schema(g, rule, json, n, options));
}

plumb_status plumb_grammar_parse_regex(plumb_grammar *g, const char *regex, size_t n) {
    PLUMB_TRY(check_define(g, "root"));
    plumb_status status = rules_add_regex(g->rules, rules_find(g->rules, "root", 4), regex, n);
    return compile(g, status == PLUMB_OK ? rules_finish(g->rules) : status);
}

plumb_status plumb_grammar_parse_schema(plumb_grammar *g, const char *json, size_t n,
                                        const plumb_schema_options *options) {
    PLUMB_TRY(check_define(g, "root"));
    plumb_status status = add_schema(g, NULL, json, n, options);
    return compile(g, status == PLUMB_OK ? rules_finish(g->rules) : status);
}

const char *plumb_grammar_warnings(const plumb_grammar *g) { return g->warnings.data ? g->warnings.data : ""; }

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static const char *show_rule(struct shown *shown, const struct grammar *g, uint32_t rule) {
    return show_bytes(shown, g->names + g->rules[rule].name, g->rules[rule].n_name);
}

static void write_ambiguity(struct grammar_text *text, const struct grammar *g, const struct ambiguity *found) {
    struct shown name, shown;
    if (found->is_found) {
        const char *data = found->text.data ? found->text.data : "";
        grammar_text_print(text, "ambiguous: the rule %s derives \"%s\" in two ways\n",
                           show_rule(&name, g, found->rule), show_bytes(&shown, data, found->text.n));
    } else if (found->is_complete) {
        grammar_text_print(text, "unambiguous: no text of any length has two derivations\n");
    } else if (found->n_length == 0) {
        grammar_text_print(text, "no ambiguity found: the grammar is too large for a search\n");
    } else {
        grammar_text_print(text, "no ambiguity found: no text of a rule with fewer than %u bytes has two derivations; "
                           "longer ones were not searched\n", (unsigned)found->n_length);
    }
}

plumb_status plumb_grammar_check(plumb_grammar *g, plumb_write *write, void *user) {
    if (!g->compiled) return error_set(&g->err, PLUMB_ERROR_STATE, "the grammar is not parsed");
    struct grammar_uses uses;
    struct ambiguity found = { 0 };
    struct grammar_text text = { 0 };
    PLUMB_TRY(grammar_find_uses(g->compiled, &uses, &g->err));
    plumb_status status = grammar_find_ambiguity(g->compiled, &uses, CHECK_MAX_WORK, &found, &g->err);
    for (uint32_t i = 0; i < g->compiled->n_rule && status == PLUMB_OK; i++) {
        struct shown name;
        if (uses.rules[i] == RULE_USED) continue;
        grammar_text_print(&text, uses.rules[i] == RULE_ENDLESS ? "the rule %s derives no text of finite length\n"
                           : "the rule %s is not used: no text of root needs it\n",
                           show_rule(&name, g->compiled, i));
    }
    if (status == PLUMB_OK) write_ambiguity(&text, g->compiled, &found);
    if (text.failed) status = no_memory(g);
    if (status == PLUMB_OK) write(user, text.data, text.n);
    grammar_uses_free(&uses);
    grammar_text_free(&found.text);
    grammar_text_free(&text);
    return status;
}

/* ---- matchers ---------------------------------------------------------------------------------------------------- */

plumb_status plumb_matcher_create(plumb_matcher **out, plumb_grammar *g) {
    *out = NULL;
    if (!g->compiled) return error_set(&g->err, PLUMB_ERROR_STATE, "the grammar is not parsed");
    plumb_matcher *m = calloc(1, sizeof *m);
    if (!m) return no_memory(g);
    m->grammar = g;
    plumb_status status = position_init(&m->at, g->recognizer);
    if (status != PLUMB_OK) {
        plumb_matcher_free(m);
        return failed(g, status);
    }
    *out = m;
    return PLUMB_OK;
}

void plumb_matcher_free(plumb_matcher *m) {
    if (!m) return;
    position_free(&m->at);
    free(m);
}

size_t plumb_matcher_n_part(const plumb_matcher *m) { return m->at.n; }

bool plumb_matcher_may_end(const plumb_matcher *m) {
    return state_has(m->at.r, position_state(&m->at), STATE_MAY_END);
}

plumb_status plumb_matcher_rewind(plumb_matcher *m, size_t n_part) {
    if (n_part > m->at.n) {
        return error_set(&m->grammar->err, PLUMB_ERROR_ARGUMENT, "cannot rewind to part %zu: only %zu were accepted",
                         n_part, m->at.n);
    }
    m->at.n = n_part;
    return PLUMB_OK;
}

/* *to becomes the state after a token. */
static plumb_status step(plumb_matcher *m, int32_t id, uint32_t *to) {
    const struct vocabulary *v = m->grammar->vocabulary;
    uint32_t state = position_state(&m->at);
    *to = state_has(m->at.r, state, STATE_MAY_END) ? state : STATE_DEAD;
    if (v->is_eog(v->user, id)) return PLUMB_OK;
    char small[256], *text = small;
    int64_t n = v->piece(v->user, id, false, small, sizeof small);
    if (n > (int64_t)sizeof small) {
        text = malloc((size_t)n);
        if (!text) return no_memory(m->grammar);
        v->piece(v->user, id, false, text, (size_t)n);
    }
    plumb_status status = recognizer_step_token(m->at.r, state, id, text, n > 0 ? (size_t)n : 0, to);
    if (text != small) free(text);
    return status == PLUMB_OK ? status : failed(m->grammar, status);
}

static plumb_status accept_token(plumb_matcher *m, int32_t id) {
    plumb_grammar *g = m->grammar;
    const struct vocabulary *v = g->vocabulary;
    uint32_t state, n_vocab = v->n_vocab;
    if (id < 0 || (uint32_t)id >= n_vocab) {
        return error_set(&g->err, PLUMB_ERROR_TOKEN, "token %d is not in 0..%u", (int)id, n_vocab - 1);
    }
    PLUMB_TRY(step(m, id, &state));
    if (state == STATE_DEAD) {
        char text[64];
        struct shown shown;
        int64_t n = v->piece(v->user, id, true, text, sizeof text);
        return error_set(&g->err, PLUMB_ERROR_ARGUMENT, "the grammar does not allow token %d \"%s\" here", (int)id,
                         show_bytes(&shown, text, n < 0 ? 0 : n > (int64_t)sizeof text ? sizeof text : (size_t)n));
    }
    plumb_status status = position_push(&m->at, state);
    return status == PLUMB_OK ? status : failed(g, status);
}

plumb_status plumb_matcher_accept(plumb_matcher *m, const int32_t *ids, size_t n) {
    plumb_grammar *g = m->grammar;
    if (!g->vocabulary) return error_set(&g->err, PLUMB_ERROR_STATE, "the grammar has no vocabulary");
    plumb_status status = recognizer_trim(m->at.r);
    if (status != PLUMB_OK) return failed(g, status);
    size_t n_before = m->at.n;
    for (size_t i = 0; i < n && status == PLUMB_OK; i++) status = accept_token(m, ids[i]);
    if (status != PLUMB_OK) m->at.n = n_before;
    return status;
}

plumb_status plumb_matcher_accept_text(plumb_matcher *m, const char *text, size_t n) {
    plumb_grammar *g = m->grammar;
    plumb_status status = recognizer_trim(m->at.r);
    uint32_t state = position_state(&m->at);
    for (size_t i = 0; i < n && status == PLUMB_OK; i++) {
        status = recognizer_step(m->at.r, state, (uint8_t)text[i], &state);
        if (status == PLUMB_OK && state == STATE_DEAD) {
            struct shown shown;
            return error_set(&g->err, PLUMB_ERROR_ARGUMENT, "the grammar does not allow \"%s\" here, at byte %zu of "
                             "the text", show_bytes(&shown, text + i, n - i < 24 ? n - i : 24), i);
        }
    }
    if (status == PLUMB_OK) status = position_push(&m->at, state);
    return status == PLUMB_OK ? status : failed(g, status);
}

const uint32_t *plumb_matcher_mask(plumb_matcher *m) {
    plumb_grammar *g = m->grammar;
    if (!g->vocabulary) {
        error_set(&g->err, PLUMB_ERROR_STATE, "the grammar has no vocabulary");
        return NULL;
    }
    const uint32_t *mask = NULL;
    plumb_status status = recognizer_trim(m->at.r);
    if (status == PLUMB_OK) status = recognizer_mask(m->at.r, position_state(&m->at), &mask);
    if (status != PLUMB_OK) failed(g, status);
    return status == PLUMB_OK ? mask : NULL;
}

void plumb_matcher_bytes(const plumb_matcher *m, bool allowed[256]) {
    uint64_t bytes[4];
    recognizer_bytes(m->at.r, position_state(&m->at), bytes);
    for (unsigned b = 0; b < 256; b++) allowed[b] = bytes_have(bytes, b);
}

int64_t plumb_matcher_forced(plumb_matcher *m, char *buf, size_t cap) {
    size_t n;
    plumb_status status = recognizer_trim(m->at.r);
    if (status == PLUMB_OK) status = recognizer_forced(m->at.r, position_state(&m->at), buf, cap, &n);
    return status == PLUMB_OK ? (int64_t)n : failed(m->grammar, status);
}

int64_t plumb_matcher_rules(const plumb_matcher *m, char *buf, size_t cap) {
    const struct recognizer *r = m->at.r;
    const struct grammar *g = r->g;
    const struct configs *state = &r->s.states[position_state(&m->at)];
    uint8_t *is_written = calloc(g->n_rule, 1);
    if (!is_written) return no_memory(m->grammar);
    struct grammar_text text = { 0 };
    for (uint32_t i = 0; i < state->n; i++) {
        const uint32_t rule = grammar_rule_of(g, config_at(r->s.configs[state->first + i]));
        if (is_written[rule]) continue;
        is_written[rule] = 1;
        if (text.n > 0) grammar_text_add(&text, ", ", 2);
        grammar_text_add(&text, g->names + g->rules[rule].name, g->rules[rule].n_name);
    }
    free(is_written);
    const int64_t n = text.failed ? no_memory(m->grammar) : (int64_t)text.n;
    if (n > 0) memcpy(buf, text.data, text.n < cap ? text.n : cap);
    grammar_text_free(&text);
    return n;
}

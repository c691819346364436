/* plumb grammar: check, sample, match.  Also reads the grammar of plumb run. */
#include "cli/cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Whether a schema is given itself, not as a file. */
static bool is_schema_text(const char *schema) { return schema[strspn(schema, " \t\r\n")] == '{'; }

/* Whether run's grammar is given itself, as llama.cpp's --grammar takes it. */
static bool is_grammar_text(const struct options *o) {
    return o->command == COMMAND_RUN && o->grammar && strstr(o->grammar, "::=");
}

static plumb_status parse_grammar(plumb_grammar *grammar, const struct options *o, const char *text, size_t n) {
    if (o->json_schema) return plumb_grammar_parse_schema(grammar, text, n, &o->schema);
    return o->regex ? plumb_grammar_parse_regex(grammar, text, n) : plumb_grammar_parse(grammar, text, n);
}

/* Prints each line of the warnings. */
static void print_warnings(const char *where, const char *warnings) {
    for (size_t n; (n = strcspn(warnings, "\n")) > 0; warnings += n + (warnings[n] != '\0')) {
        print_error(0, "%s: %.*s", where, (int)n, warnings);
    }
}

int load_grammar(plumb_grammar **out_grammar, plumb_model *model, const struct options *o) {
    *out_grammar = NULL;
    const char *given = o->grammar ? o->grammar : o->gbnf ? o->gbnf : o->json_schema ? o->json_schema : o->regex;
    if (!given) return EXIT_OK;
    int code = exit_failed;
    const bool is_file = (o->grammar && !is_grammar_text(o)) || (o->json_schema && !is_schema_text(given));
    const char *where = is_file ? given : o->grammar ? "--grammar" : o->gbnf ? "--gbnf"
                      : o->json_schema ? "--json-schema" : "--regex";
    size_t n = strlen(given);
    char *file = is_file ? read_file(given, &n, &code) : NULL;
    if (is_file && !file) return code;
    plumb_grammar *grammar = plumb_grammar_create(model);
    if (!grammar) {
        free(file);
        return report("grammar", PLUMB_ERROR_MEMORY, "out of memory");
    }
    plumb_status status = parse_grammar(grammar, o, file ? file : given, n);
    free(file);
    if (status == PLUMB_OK) {
        print_warnings(where, plumb_grammar_warnings(grammar));
        *out_grammar = grammar;
        return EXIT_OK;
    }
    code = report(where, status, plumb_grammar_error(grammar));
    plumb_grammar_free(grammar);
    return status == PLUMB_ERROR_MEMORY || o->command == COMMAND_RUN ? code : EXIT_DIFFERENT;
}

/* ---- sample ------------------------------------------------------------------------------------------------------ */

/* splitmix64 (https://prng.di.unimi.it/splitmix64.c): a number below n. */
static uint32_t random_below(uint64_t *seed, uint32_t n) {
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ z >> 31) % n);
}

/* A longer text is given up and begun again, at most MAX_WALKS times. */
enum { MAX_SAMPLE = 400, MAX_WALKS = 500 };

/* Chooses byte after byte, printable ASCII if there is a choice.  Returns the length of the text, or -1 if it did not
 * end. */
static int64_t walk(plumb_matcher *matcher, uint64_t *seed, char text[MAX_SAMPLE]) {
    plumb_matcher_rewind(matcher, 0);
    for (int64_t n = 0; ; n++) {
        bool allowed[256];
        uint32_t n_printable = 0, n_allowed = 0;
        plumb_matcher_bytes(matcher, allowed);
        for (int b = 0; b < 256; b++) {
            n_allowed += allowed[b];
            n_printable += allowed[b] && b >= ' ' && b < 127;
        }
        if (plumb_matcher_may_end(matcher) && (n_allowed == 0 || random_below(seed, 4) == 0)) return n;
        if (n_allowed == 0 || n == MAX_SAMPLE) return -1;
        uint32_t skip = random_below(seed, n_printable > 0 ? n_printable : n_allowed);
        int b = n_printable > 0 ? ' ' : 0;
        while (!allowed[b] || skip-- > 0) b++;
        text[n] = (char)b;
        if (plumb_matcher_accept_text(matcher, text + n, 1) != PLUMB_OK) return -1;
    }
}

static int print_samples(plumb_matcher *matcher, uint32_t n, uint64_t seed) {
    for (uint32_t i = 0; i < n; i++) {
        char text[MAX_SAMPLE];
        int64_t length = -1;
        for (int k = 0; k < MAX_WALKS && length < 0 && !interrupted(); k++) length = walk(matcher, &seed, text);
        if (length < 0) {
            return print_error(EXIT_DIFFERENT, "no random text of at most %d bytes was found", MAX_SAMPLE);
        }
        out_bytes(text, (size_t)length);
        out("\n");
    }
    return EXIT_OK;
}

/* ---- match ------------------------------------------------------------------------------------------------------- */

static void print_byte(int b) {
    char c = (char)b;
    out("\"");
    out_escaped(&c, 1);
    out("\"");
}

/* Prints which bytes may follow, as ranges, whether the text may end, and in which rules it is. */
static void print_allowed(plumb_matcher *matcher) {
    bool allowed[256], any = plumb_matcher_may_end(matcher);
    plumb_matcher_bytes(matcher, allowed);
    out("allowed here:%s", any ? " the end of the text" : "");
    for (int b = 0, end; b < 256; b = end + 1) {
        for (end = b; end < 255 && allowed[b] && allowed[end + 1];) end++;
        if (!allowed[b]) continue;
        out(any ? ", " : " ");
        print_byte(b);
        if (end > b) out(" to ");
        if (end > b) print_byte(end);
        any = true;
    }
    out(any ? "\n" : " nothing\n");
    char rules[400];
    const int64_t n = plumb_matcher_rules(matcher, rules, sizeof rules);
    if (n <= 0) return;
    out("in the rules: ");
    out_escaped(rules, (size_t)n < sizeof rules ? (size_t)n : sizeof rules);
    out((size_t)n > sizeof rules ? "...\n" : "\n");
}

static int match(const struct options *o, plumb_grammar *grammar, plumb_matcher *matcher) {
    int code;
    size_t n = strlen(o->text), at = 0, line = 1, column = 1;
    bool is_stdin = strcmp(o->text, "-") == 0;
    char *from_stdin = is_stdin ? read_file("-", &n, &code) : NULL;
    if (is_stdin && !from_stdin) return code;
    const char *text = is_stdin ? from_stdin : o->text;
    plumb_status status = PLUMB_OK;
    while (at < n && (status = plumb_matcher_accept_text(matcher, text + at, 1)) == PLUMB_OK) {
        if (text[at] == '\n') line++, column = 1;
        else column += ((uint8_t)text[at] & 0xc0) != 0x80;
        at++;
    }
    code = EXIT_DIFFERENT;
    if (status != PLUMB_OK && status != PLUMB_ERROR_ARGUMENT) {
        code = report("grammar", status, plumb_grammar_error(grammar));
    } else if (at < n) {
        out("parts at byte %zu, line %zu, column %zu, at \"", at, line, column);
        out_escaped(text + at, n - at < 24 ? n - at : 24);
        out("\"\n");
        print_allowed(matcher);
    } else if (plumb_matcher_may_end(matcher)) {
        out("matches\n");
        code = EXIT_OK;
    } else {
        out("incomplete\n");
        print_allowed(matcher);
    }
    free(from_stdin);
    return code;
}

/* ---- check ------------------------------------------------------------------------------------------------------- */

static void write_line(void *user, const char *bytes, size_t n) {
    (void)user;
    out_bytes(bytes, n);
}

static int check(const struct options *o, plumb_grammar *grammar, plumb_matcher *matcher) {
    out("correct\n");
    plumb_status status = plumb_grammar_check(grammar, write_line, NULL);
    if (status != PLUMB_OK) return report("grammar", status, plumb_grammar_error(grammar));
    out("samples:\n");
    return print_samples(matcher, o->n_repeat ? o->n_repeat : 3, o->has_seed ? o->sampling.seed : 0);
}

int run_grammar(const struct options *o) {
    plumb_model *model = NULL;
    plumb_grammar *grammar = NULL;
    plumb_matcher *matcher = NULL;
    int code = o->model ? load_model(&model, &o->model, 1, LOAD_VOCAB) : EXIT_OK;
    if (code == EXIT_OK) code = load_grammar(&grammar, model, o);
    plumb_status status = code == EXIT_OK ? plumb_matcher_create(&matcher, grammar) : PLUMB_OK;
    if (status != PLUMB_OK) code = report("grammar", status, plumb_grammar_error(grammar));
    if (matcher && strcmp(o->files[0], "sample") == 0) {
        code = print_samples(matcher, o->n_repeat ? o->n_repeat : 1, o->has_seed ? o->sampling.seed : random_seed());
    } else if (matcher) {
        code = strcmp(o->files[0], "match") == 0 ? match(o, grammar, matcher) : check(o, grammar, matcher);
    }
    plumb_matcher_free(matcher);
    plumb_grammar_free(grammar);
    plumb_model_free(model);
    return out_close(code);
}

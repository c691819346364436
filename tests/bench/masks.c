/* `node tests/bench/masks.mjs --native`: the time of each mask of documents that fit real schemas.
 *
 *   masks MODEL SUITE PASSES [any-order]
 *
 * MODEL is a GGUF of which the vocabulary is read, SUITE a file as tests/vectors/grammar/suite-real.txt.  Each pass
 * compiles each schema again, so that nothing is in a cache, and follows its valid instances.  Prints a line for each
 * schema that compiles: its name, the number of its instances and the milliseconds until it was compiled; and one for
 * each mask: the microseconds of CPU, the least of all passes, the number of tokens that it allows, the sum of its
 * words, and the last bytes of the text before it. */
#include "plumb.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_MASKS = 1 << 16, MAX_TOKENS = 1 << 16, SHOWN = 40 };
struct mask { double us; uint32_t n_allowed, sum; char before[SHOWN + 1]; };

/* Microseconds of CPU, which do not depend on what else runs. */
static double now(void) { return (double)clock() * (1e6 / CLOCKS_PER_SEC); }

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static char *read_all(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f) fail(path);
    char *text = NULL;
    size_t cap = 0;
    for (*n = 0;; *n += fread(text + *n, 1, cap - *n - 1, f)) {
        if (feof(f)) break;
        if (*n + 1 >= cap) text = realloc(text, cap = 2 * cap + (1 << 20));
        if (!text) fail("out of memory");
    }
    fclose(f);
    text[*n] = 0;
    return text;
}

static plumb_model *load_vocabulary(const char *path) {
    FILE *f = fopen(path, "rb");
    plumb_model *m = plumb_model_create();
    if (!f || !m || plumb_model_begin(m, PLUMB_SIZE_UNKNOWN) != PLUMB_OK) fail(path);
    while (!plumb_model_has_header(m)) {
        void *data;
        size_t n;
        if (plumb_model_window(m, &data, &n) != PLUMB_OK) fail(plumb_model_error(m));
        n = fread(data, 1, n, f);
        if (n == 0 || plumb_model_commit(m, n) != PLUMB_OK) fail(plumb_model_error(m));
    }
    if (plumb_model_load_vocab(m) != PLUMB_OK) fail(plumb_model_error(m));
    fclose(f);
    return m;
}

static struct mask masks[MAX_MASKS];

/* Follows an instance and measures its masks, from number n_mask on.  Returns the number of the next mask. */
static size_t follow(plumb_model *m, plumb_grammar *g, const char *json, size_t n_mask, size_t n_word, bool is_first) {
    static int32_t ids[MAX_TOKENS];
    static uint8_t text[1 << 20];
    plumb_matcher *matcher;
    int64_t n = plumb_tokenize(m, json, strlen(json), 0, ids, MAX_TOKENS);
    size_t n_text = 0;
    if (n < 0 || n > MAX_TOKENS) fail(json);
    if (plumb_matcher_create(&matcher, g) != PLUMB_OK) fail(plumb_grammar_error(g));
    for (int64_t i = 0; i <= n; i++, n_mask++) {
        double start = now();
        const uint32_t *words = plumb_matcher_mask(matcher);
        double us = now() - start;
        if (!words || n_mask == MAX_MASKS) fail(words ? "too many masks" : plumb_grammar_error(g));
        struct mask *mask = &masks[n_mask];
        if (is_first || us < mask->us) mask->us = us;
        mask->n_allowed = mask->sum = 0;
        for (size_t w = 0; w < n_word; w++) {
            mask->n_allowed += (uint32_t)__builtin_popcount(words[w]);
            mask->sum = mask->sum * 31 + words[w];
        }
        size_t n_shown = n_text < SHOWN ? n_text : SHOWN;
        memcpy(mask->before, text + n_text - n_shown, n_shown);
        mask->before[n_shown] = 0;
        for (size_t k = 0; k < n_shown; k++) {
            if ((uint8_t)mask->before[k] < ' ') mask->before[k] = ' ';
        }
        if (i == n) break;
        if (plumb_matcher_accept(matcher, &ids[i], 1) != PLUMB_OK) fail(plumb_grammar_error(g));
        int64_t n_piece = plumb_detokenize(m, &ids[i], 1, 0, (char *)text + n_text, sizeof text - n_text);
        if (n_piece > 0) n_text += (size_t)n_piece;
    }
    plumb_matcher_free(matcher);
    return n_mask + 1;
}

int main(int argc, char **argv) {
    if (argc < 4) fail("masks MODEL SUITE PASSES [any-order]");
    size_t n;
    plumb_model *m = load_vocabulary(argv[1]);
    char *suite = read_all(argv[2], &n);
    const int n_pass = atoi(argv[3]);
    const plumb_schema_options options = { .lenient = true, .any_order = argc > 4 };
    const size_t n_word = ((size_t)plumb_model_n_vocab(m) + 31) / 32;
    plumb_grammar *warm = plumb_grammar_create(m);   /* sorts the vocabulary */
    if (!warm || plumb_grammar_parse(warm, "root ::= \"a\"", 12) != PLUMB_OK) fail("no grammar");
    for (char *line = suite, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) *end = 0;
    for (char *line = suite, *name = "", *next; line < suite + n; line = next) {
        next = line + strlen(line) + 1;
        if (line[0] == '#') name = line + 2;
        if (line[0] != '=') continue;
        size_t n_mask = 0, n_instance = 0;
        double compile = 1e30;
        bool compiles = true;
        for (int pass = 0; pass < n_pass && compiles; pass++) {
            double start = now();
            plumb_grammar *g = plumb_grammar_create(m);
            if (!g) fail("out of memory");
            compiles = plumb_grammar_parse_schema(g, line + 2, strlen(line + 2), &options) == PLUMB_OK;
            compile = now() - start < compile ? now() - start : compile;
            n_mask = n_instance = 0;
            for (char *at = next; compiles && at < suite + n && *at != '#' && *at != '='; at += strlen(at) + 1) {
                if (*at != '+') continue;
                n_mask = follow(m, g, at + 2, n_mask, n_word, pass == 0);
                n_instance++;
            }
            plumb_grammar_free(g);
        }
        if (!compiles) continue;
        printf("= %zu %.3f %s\n", n_instance, compile / 1e3, name);
        for (size_t i = 0; i < n_mask; i++) {
            printf("%.1f %u %u %s\n", masks[i].us, masks[i].n_allowed, masks[i].sum, masks[i].before);
        }
    }
    plumb_grammar_free(warm);
    plumb_model_free(m);
    free(suite);
    return 0;
}

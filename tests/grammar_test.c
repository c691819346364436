/* Grammars: the parser and the recognizer against llama.cpp's verdicts (tests/vectors/grammar); masks against each
 * token tried alone. */
#include "grammar/recognizer.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- llama.cpp's verdicts ---------------------------------------------------------------------------------------- */

struct reader {
    const char *at, *end;
};

/* Reads the first line of a record: `kind`, perhaps a number, the length of the bytes, and a word. */
static bool read_record(struct reader *r, char kind[16], long *number, const char **bytes, size_t *n, const char **word,
                        size_t *n_word) {
    if (r->at == r->end) return false;
    int used = 0;
    long first = 0, second = 0;
    if (sscanf(r->at, "%15s %ld%n", kind, &first, &used) != 2) return false;
    *number = first;
    if (strcmp(kind, "all") == 0) {
        int more = 0;
        if (sscanf(r->at + used, "%ld%n", &second, &more) != 1) return false;
        used += more;
        first = second;
    }
    *word = r->at + used + 1;
    const char *line_end = strchr(*word, '\n');
    if (!line_end || first < 0 || first > r->end - line_end - 2) return false;
    *n_word = (size_t)(line_end - *word);
    *bytes = line_end + 1;
    *n = (size_t)first;
    r->at = *bytes + *n + 1;
    return true;
}

static size_t length_of_char(const char *s) {
    uint8_t c = (uint8_t)*s;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* A string of a test of llama.cpp: characters are token 0 each, and 0xff with four bytes is a token, whose text is
 * <[id]> there. */
static bool is_complete(struct recognizer *m, uint32_t start, const char *s, size_t n) {
    uint32_t state = start;
    for (size_t i = 0; i < n;) {
        if ((uint8_t)s[i] == 0xff && n - i >= 5) {
            const uint8_t *b = (const uint8_t *)s + i + 1;
            int32_t id = (int32_t)((uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3]);
            char piece[32];
            int length = snprintf(piece, sizeof piece, "<[%d]>", (int)id);
            if (recognizer_step_token(m, state, id, piece, (size_t)length, &state) != PLUMB_OK) return false;
            i += 5;
        } else {
            size_t length = length_of_char(s + i) < n - i ? length_of_char(s + i) : n - i;
            if (recognizer_step_token(m, state, 0, s + i, length, &state) != PLUMB_OK) return false;
            i += length;
        }
    }
    return state_has(m, state, STATE_MAY_END);
}

static char verdict(struct recognizer *m, uint32_t state) {
    return state == STATE_DEAD ? '0' : state_has(m, state, STATE_MAY_END) ? '2' : '1';
}

/* Compares the verdicts on all strings of the alphabet.  The state after each string follows from that of the string
 * without its last character. */
static void check_all(struct recognizer *m, uint32_t start, const char *alphabet, size_t n, long longest,
                      const char *verdicts, size_t n_verdict, const char *grammar, size_t n_grammar) {
    uint32_t *states = alloc_array(n_verdict, sizeof *states);
    const char *letters[16];
    size_t n_letter = 0, count = 1, first = 0;
    for (size_t i = 0; i < n; i += length_of_char(alphabet + i)) letters[n_letter++] = alphabet + i;
    REQUIRE(states && n_verdict > 0, "%zu verdicts", n_verdict);
    states[0] = start;
    for (long length = 0; length < longest; length++) {
        size_t end = count;
        for (size_t i = first; i < end; i++) {
            for (size_t j = 0; j < n_letter; j++) {
                if (!CHECK(count < n_verdict, "%zu strings", n_verdict)) goto done;
                plumb_status status = recognizer_step_token(m, states[i], 0, letters[j], length_of_char(letters[j]),
                                                         &states[count++]);
                if (!CHECK(status == PLUMB_OK, "%s", m->err.message)) goto done;
            }
        }
        first = end;
    }
    CHECK(count == n_verdict, "%zu strings of %zu", count, n_verdict);
    for (size_t i = 0; i < count; i++) {
        if (!CHECK(verdict(m, states[i]) == verdicts[i], "string %zu of `%.*s`: %c, llama.cpp %c\n%.*s", i, (int)n,
                   alphabet, verdict(m, states[i]), verdicts[i], (int)n_grammar, grammar)) break;
    }
done:
    free(states);
}

/* The grammars on which plumb differs on purpose (src/grammar/gbnf.c): those of more than 2,000 repetitions, and
 * ("a"?)*, are accepted; left recursion is found where llama.cpp overlooks it. */
struct expected { size_t n_grammar, n_accepted, n_refused; };

static void check_file(const char *path, struct expected expected) {
    size_t n, n_string = 0;
    struct expected found = { 0 };
    char *file = test_read_all(path, &n);
    if (!file) return;
    struct reader r = { file, file + n };
    struct grammar *g = NULL;
    struct recognizer *m = NULL;
    struct position p = { 0 };
    char kind[16];
    long number;
    const char *bytes, *word, *grammar = "";
    size_t n_bytes, n_word, length = 0;
    struct error err;
    while (read_record(&r, kind, &number, &bytes, &n_bytes, &word, &n_word)) {
        if (strcmp(kind, "grammar") == 0) {
            position_free(&p);
            recognizer_free(m);
            grammar_free(g);
            p = (struct position){ 0 };
            m = NULL;
            found.n_grammar++;
            grammar = bytes;
            length = n_bytes;
            plumb_status status = grammar_parse(&g, bytes, n_bytes, NULL, &err);
            bool ok = n_word == 2;
            if (!ok && status == PLUMB_OK) found.n_accepted++;
            if (ok && status != PLUMB_OK) {
                found.n_refused++;
                CHECK(strstr(err.message, "left recursion: "), "%.*s: %s", (int)n_bytes, bytes, err.message);
            }
            if (status != PLUMB_OK) continue;
            REQUIRE(recognizer_create(&m, g, &err) == PLUMB_OK && position_init(&p, m) == PLUMB_OK, "%s", err.message);
        } else if (m && strcmp(kind, "string") == 0) {
            n_string++;
            bool yes = is_complete(m, position_state(&p), bytes, n_bytes);
            CHECK(yes == (n_word == 3), "\"%.*s\": llama.cpp says %.*s of\n%.*s", (int)n_bytes, bytes, (int)n_word,
                  word, (int)length, grammar);
        } else if (m) {
            n_string += n_word;
            check_all(m, position_state(&p), bytes, n_bytes, number, word, n_word, grammar, length);
        }
    }
    CHECK(r.at == r.end, "%zu bytes are left", (size_t)(r.end - r.at));
    CHECK(memcmp(&found, &expected, sizeof found) == 0, "%zu grammars, %zu of them accepted and %zu refused unlike "
          "llama.cpp", found.n_grammar, found.n_accepted, found.n_refused);
    test_note("%zu grammars, %zu strings", found.n_grammar, n_string);
    position_free(&p);
    recognizer_free(m);
    grammar_free(g);
    free(file);
}

static void llama_cases(void) { check_file("tests/vectors/grammar/llama.txt", (struct expected){ 75, 3, 0 }); }
static void random_cases(void) { check_file("tests/vectors/grammar/random.txt", (struct expected){ 330, 2, 3 }); }

/* ---- masks ------------------------------------------------------------------------------------------------------- */

/* A vocabulary of all bytes and of texts that are parts of what the grammars below produce. */
enum { N_PIECE = 1500, EOG_A = 700, EOG_B = 1499, CONTROL = 3 };
struct vocabulary {
    char text[N_PIECE][12];
    uint8_t n[N_PIECE];
};

static uint32_t random_below(uint64_t *seed, uint32_t n) {
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*seed >> 33) % n);
}

static void fill_vocabulary(struct vocabulary *v) {
    static const char *const parts[] = { "\"", "\",", "\": ", "{", "}", "[", "]", ", ", ":", "a", "b", "ab", "name",
                                         "1", "23", ".5", "e", "true", "\\", "\\u00", "\xc3\xa9", "\xe2\x82\xac",
                                         "\xe2\x82", "\xf0\x9f", "\x98\x80", " ", "\n", "<", "x-", "-" };
    uint64_t seed = 22;
    for (int i = 0; i < N_PIECE; i++) {
        v->n[i] = 0;
        if (i < 256) v->text[i][v->n[i]++] = (char)i;
        for (uint32_t k = i < 256 ? 0 : 1 + random_below(&seed, 4); k > 0; k--) {
            const char *part = parts[random_below(&seed, sizeof parts / sizeof *parts)];
            size_t n = strlen(part);
            if (v->n[i] + n > sizeof v->text[i]) break;
            memcpy(v->text[i] + v->n[i], part, n);
            v->n[i] = (uint8_t)(v->n[i] + n);
        }
    }
    v->n[CONTROL] = 0;
}

static int64_t piece(void *user, int32_t id, char *buf, size_t cap) {
    const struct vocabulary *v = user;
    if (buf && cap >= v->n[id]) memcpy(buf, v->text[id], v->n[id]);
    return v->n[id];
}

static bool is_eog(void *user, int32_t id) {
    (void)user;
    return id == EOG_A || id == EOG_B;
}

struct mask_row { const char *name, *grammar; };
#define STRING "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-f]{4}))* \"\\\"\"\n"

/* Compares the mask after each of 60 random tokens with each token tried alone, from several starts. */
static void check_masks(const void *arg) {
    const struct mask_row *row = arg;
    struct error err = { 0 };
    struct grammar *g = NULL;
    struct recognizer *r = NULL;
    struct pieces *v = NULL;
    struct position p = { 0 };
    static struct vocabulary vocabulary;
    fill_vocabulary(&vocabulary);
    uint64_t seed = 1;
    size_t n_allowed = 0;
    bool ok = grammar_parse(&g, row->grammar, strlen(row->grammar), NULL, &err) == PLUMB_OK &&
              recognizer_create(&r, g, &err) == PLUMB_OK &&
              pieces_create(&v, N_PIECE, piece, is_eog, &vocabulary, &err) == PLUMB_OK &&
              recognizer_set_vocabulary(r, v) == PLUMB_OK && position_init(&p, r) == PLUMB_OK;
    CHECK(ok, "%s", err.message);
    for (int step = 0; ok && step < 300; step++) {
        uint32_t state = position_state(&p);
        const uint32_t *mask;
        ok = CHECK(recognizer_mask(r, state, &mask) == PLUMB_OK, "%s", r->err.message);
        int32_t allowed[N_PIECE];
        uint32_t n = 0;
        for (int32_t id = 0; ok && id < N_PIECE; id++) {
            uint32_t to = STATE_DEAD;
            if (is_eog(NULL, id)) to = state_has(r, state, STATE_MAY_END) ? state : STATE_DEAD;
            else recognizer_step_token(r, state, id, vocabulary.text[id], vocabulary.n[id], &to);
            bool bit = mask[id / 32] >> id % 32 & 1;
            ok = CHECK(bit == (to != STATE_DEAD), "step %d: token %d is %s", step, (int)id,
                       bit ? "allowed" : "refused");
            if (bit && !is_eog(NULL, id)) allowed[n++] = id;
        }
        n_allowed += n;
        if (n == 0 || p.n == 60) {
            p.n = 0;
            continue;
        }
        int32_t id = allowed[random_below(&seed, n)];
        recognizer_step_token(r, state, id, vocabulary.text[id], vocabulary.n[id], &state);
        ok = ok && CHECK(position_push(&p, state) == PLUMB_OK, "out of memory");
    }
    CHECK(n_allowed > 0, "no token was allowed");
    position_free(&p);
    recognizer_free(r);
    pieces_free(v);
    grammar_free(g);
}

static const struct mask_row mask_rows[] = {
    { "JSON", "root ::= value\nvalue ::= object | array | string | number | \"true\" | \"null\"\n"
      "object ::= \"{\" (string \":\" \" \"? value (\",\" \" \"? string \":\" \" \"? value)*)? \"}\"\n"
      "array ::= \"[\" (value (\",\" \" \"? value)*)? \"]\"\nnumber ::= \"-\"? [0-9]+ (\".\" [0-9]+)? (\"e\" [0-9]+)?\n"
      STRING },
    { "a loop of a loose rule", "root ::= item*\nitem ::= [a-z]+ | \"-\" | .\n" },
    { "nested loops, each with an end", "root ::= a+ \"<\"\na ::= b+ \",\"?\nb ::= c+ \" \"?\nc ::= [a-z0-9]+\n" },
    { "ambiguous", "root ::= \"a\" root \"b\" | \"a\" root \"1\" | [ab1]?\n" },
    { "characters of several bytes", "root ::= ([\\u00e9\\u20ac] | [\\U0001f600] \"x\" | [^a-z])*\n" },
    { "bounded repetition", "root ::= \"{\" string{1,3} \"}\"\n" STRING },
    { "token elements", "root ::= (<[3]> | \"a\"+ | !<[97]> \"b\")* <[300]>?\n" },
    { "any text", "root ::= .*\n" },
};

/* ---- errors ------------------------------------------------------------------------------------------------------ */

struct error_row { const char *name, *grammar, *message; };
static void check_error(const void *arg) {
    const struct error_row *row = arg;
    struct error err = { 0 };
    struct grammar *g;
    plumb_status status = grammar_parse(&g, row->grammar, strlen(row->grammar), NULL, &err);
    CHECK(status != PLUMB_OK && strcmp(err.message, row->message) == 0, "%s", status ? err.message : "accepted");
    grammar_free(g);
}

static const struct error_row error_rows[] = {
    { "no rule", "# nothing\n", "the grammar has no rule with the name root" },
    { "undefined", "root ::= \"a\" |\n  b-c\n", "line 2, column 3: the rule b-c is not defined" },
    { "recursion", "root ::= \"x\"? expr\nexpr ::= term \"+\" | root?\nterm ::= [0-9]*\n",
      "line 1, column 1: left recursion: root -> expr -> root" },
    { "recursion behind what is empty indirectly", "root ::= a root\na ::= b\nb ::= c*\nc ::= \"x\"\n",
      "line 1, column 1: left recursion: root -> root" },
    { "no closing quote", "root ::= \"a", "line 1, column 10: a literal has no closing quote" },
    { "no closing bracket", "root ::= [a", "line 1, column 10: a class of characters has no closing bracket" },
    { "no closing parenthesis", "root ::= (\"a\" \n",
      "line 2, column 1: expected a symbol or `)`, found the end of the grammar" },
    { "escape", "root ::= \"\\q\"",
      "line 1, column 11: expected an escape (\\x \\u \\U \\t \\r \\n \\\\ \\\" \\[ \\] \\-), found \"\\q\"\"" },
    { "hexadecimal", "root ::= \"\\u12g4\"", "line 1, column 15: expected 4 hexadecimal digits, found \"g4\"\"" },
    { "repetition of nothing", "root ::= \"a\" | *",
      "line 1, column 16: there is nothing before the repetition that could be repeated" },
    { "maximum", "root ::= \"a\"{3,2}", "line 1, column 13: the maximum of a repetition is below its minimum" },
    { "a billion", "root ::= \"a\"{1000000000}",
      "line 1, column 25: the grammar is too large: with its repetitions written "
      "out it has more than 1048576 characters and symbols" },
    { "repetitions of repetitions", "root ::= (((\"a\"{1000}){1000}){1000}){1000}",
      "line 1, column 36: the grammar is too "
      "large: with its repetitions written out it has more than 1048576 characters and symbols" },
    { "not UTF-8", "root ::= \"\xff\"", "line 1, column 11: expected UTF-8, found \"\\xff\"\"" },
    { "token without a vocabulary", "root ::= <think>",
      "line 1, column 10: the text of a token needs the vocabulary of a model" },
    { "no assignment", "root = \"a\"", "line 1, column 6: expected `::=`, found \"= \"a\"\"" },
};

void test_grammar(void) {
    test_case("grammar: every case of llama.cpp's three tests of grammars has llama.cpp's verdict", llama_cases);
    test_case("grammar: random grammars have llama.cpp's verdict on every short string", random_cases);
    TEST_ROWS("grammar: masks equal tokens tried alone, ", check_masks, mask_rows);
    TEST_ROWS("grammar: error, ", check_error, error_rows);
}

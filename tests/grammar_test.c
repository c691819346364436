/* Grammars: the parser and the recognizer against llama.cpp's verdicts (tests/vectors/grammar), and so is the slow
 * matcher with which the fuzzer compares them (grammar_reference.h); masks against each token tried alone. */
#include "fixture.h"
#include "grammar/recognizer.h"
#include "grammar_make.h"
#include "grammar_reference.h"
#include "test.h"
#include "threads/pool.h"

#include <stdatomic.h>
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

/* The same for the slow matcher, on every 11th string. */
static void check_reference(const char *alphabet, size_t n, long longest, const char *verdicts, const char *grammar,
                            size_t n_grammar, size_t *n_known) {
    static struct ref_grammar reference;
    uint32_t letters[16], text[REF_CHARS];
    size_t n_letter = 0, at = 0, count = 1;
    for (const char *s = alphabet; s < alphabet + n;) letters[n_letter++] = ref_utf8(&s, alphabet + n);
    ref_parse(&reference, grammar, n_grammar);
    for (long length = 0; length <= longest; length++, count *= n_letter) {
        for (size_t i = 0; i < count; i++, at++) {
            if (at % 11 != 0) continue;
            size_t rest = i;
            for (long k = length; k-- > 0; rest /= n_letter) text[k] = letters[rest % n_letter];
            char verdict_of_reference = ref_verdict(&reference, text, (int)length);
            *n_known += verdict_of_reference != REF_UNKNOWN;
            CHECK(verdict_of_reference == REF_UNKNOWN || verdict_of_reference == verdicts[at], "string %zu of `%.*s`: "
                  "%c, llama.cpp %c\n%.*s", at, (int)n, alphabet, verdict_of_reference, verdicts[at], (int)n_grammar,
                  grammar);
        }
    }
}

/* The grammars on which plumb differs on purpose (src/answers/grammar/gbnf.c): those of more than 2,000 repetitions,
 * and ("a"?)*, are accepted; left recursion is found where llama.cpp overlooks it. */
struct expected { size_t n_grammar, n_accepted, n_refused; };

static void check_file(const char *path, struct expected expected) {
    size_t n, n_string = 0, n_known = 0;
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
            plumb_status status = make_grammar(&g, bytes, n_bytes, &err);
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
            check_reference(bytes, n_bytes, number, word, grammar, length, &n_known);
            check_all(m, position_state(&p), bytes, n_bytes, number, word, n_word, grammar, length);
        }
    }
    CHECK(r.at == r.end, "%zu bytes are left", (size_t)(r.end - r.at));
    CHECK(memcmp(&found, &expected, sizeof found) == 0, "%zu grammars, %zu of them accepted and %zu refused unlike "
          "llama.cpp", found.n_grammar, found.n_accepted, found.n_refused);
    CHECK(n_known > 1000, "the slow matcher has verdicts on %zu strings only", n_known);
    test_note("%zu grammars, %zu strings, %zu of them by the slow matcher", found.n_grammar, n_string, n_known);
    position_free(&p);
    recognizer_free(m);
    grammar_free(g);
    free(file);
}

static void llama_cases(void) { check_file("tests/vectors/grammar/llama.txt", (struct expected){ 75, 3, 0 }); }
static void random_cases(void) { check_file("tests/vectors/grammar/random.txt", (struct expected){ 330, 2, 3 }); }

/* ---- masks ------------------------------------------------------------------------------------------------------- */

/* A vocabulary of all bytes, of texts that are parts of what the grammars below produce, and of some that are longer
 * than any count of 8 bits. */
enum { N_PIECE = 1500, EOG_A = 700, EOG_B = 1499, CONTROL = 3, FIRST_LONG = 1480, MAX_RANDOM = 12 };
struct toy_vocabulary {
    char text[N_PIECE][400];
    uint16_t n[N_PIECE];
};

static uint32_t random_below(uint64_t *seed, uint32_t n) {
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*seed >> 33) % n);
}

/* with_letters: nothing but letters follows a line separator in a token. */
static void fill_vocabulary(struct toy_vocabulary *v, bool with_letters) {
    static const char *const letters[] = { "a", "b", "ab", "name", "e", "W", "Na", "\xe2\x80\xa8", "\xe2\x80\xa9" };
    static const struct { char character, last; uint16_t n; } longer[] = {
        { ' ', ' ', 300 }, { '-', 'x', 257 }, { '-', '-', 255 }, { 'a', 'a', 254 }, { 'a', '"', 256 },
        { 'b', 'b', 399 },
    };
    static const char *const parts[] = { "\"", "\",", "\": ", "{", "}", "[", "]", ", ", ":", "a", "b", "ab", "name",
                                         "1", "23", ".5", "e", "true", "\\", "\\u00", "\xc3\xa9", "\xe2\x82\xac",
                                         "\xe2\x82", "\xf0\x9f", "\x98\x80", " ", "\n", "<", "x-", "-",
                                         "\xe2\x80\xa8", "\xe2\x80", "\xa9", "\xe2\x80\xaa", "W", "Na" };
    uint64_t seed = 22;
    for (int i = 0; i < N_PIECE; i++) {
        v->n[i] = 0;
        if (i < 256) v->text[i][v->n[i]++] = (char)i;
        for (uint32_t k = i < 256 ? 0 : 1 + random_below(&seed, 4); k > 0; k--) {
            const char *part = with_letters ? letters[random_below(&seed, sizeof letters / sizeof *letters)]
                                            : parts[random_below(&seed, sizeof parts / sizeof *parts)];
            size_t n = strlen(part);
            if (v->n[i] + n > MAX_RANDOM) break;
            memcpy(v->text[i] + v->n[i], part, n);
            v->n[i] = (uint16_t)(v->n[i] + n);
        }
    }
    for (size_t i = 0; i < sizeof longer / sizeof *longer; i++) {
        char *text = v->text[FIRST_LONG + i];
        v->n[FIRST_LONG + i] = longer[i].n;
        memset(text, longer[i].character, longer[i].n);
        text[longer[i].n - 1] = longer[i].last;
    }
    v->n[CONTROL] = 0;
}

static int64_t piece(void *user, int32_t id, bool special, char *buf, size_t cap) {
    const struct toy_vocabulary *v = user;
    (void)special;   /* the control token has no text */
    if (buf && cap >= v->n[id]) memcpy(buf, v->text[id], v->n[id]);
    return v->n[id];
}

static bool is_eog(void *user, int32_t id) {
    (void)user;
    return id == EOG_A || id == EOG_B;
}

/* A grammar and what computes its masks for a toy vocabulary. */
struct masked {
    struct grammar *g;
    struct recognizer *r;
    struct position p;
};

/* Returns false, with the message in a failed check, if one cannot be made. */
static bool masked_open(struct masked *m, const char *text, size_t n, const struct pieces *v) {
    struct error err = { 0 };
    *m = (struct masked){ 0 };
    return CHECK(make_grammar(&m->g, text, n, &err) == PLUMB_OK
                 && recognizer_create(&m->r, m->g, &err) == PLUMB_OK
                 && recognizer_set_vocabulary(m->r, v) == PLUMB_OK && position_init(&m->p, m->r) == PLUMB_OK,
                 "%s", err.message);
}

static void masked_close(struct masked *m) {
    position_free(&m->p);
    recognizer_free(m->r);
    grammar_free(m->g);
}

/* Fills the toy vocabulary and makes its tree; NULL, in a failed check, if that fails. */
static struct pieces *toy_pieces(struct toy_vocabulary *toy, bool with_letters) {
    struct error err = { 0 };
    struct pieces *v = NULL;
    fill_vocabulary(toy, with_letters);
    const struct vocabulary vocabulary = { .n_vocab = N_PIECE, .piece = piece, .is_eog = is_eog, .user = toy };
    CHECK(pieces_create(&v, &vocabulary, &err) == PLUMB_OK, "%s", err.message);
    return v;
}

struct mask_row { const char *name, *grammar; };
#define STRING "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-f]{4}))* \"\\\"\"\n"

/* Compares the mask after each of 60 random tokens with each token tried alone, from several starts. */
static void check_masks_with(const struct mask_row *row, bool with_letters) {
    static struct toy_vocabulary toy;
    struct pieces *v = toy_pieces(&toy, with_letters);
    struct masked m = { 0 };
    uint64_t seed = 1;
    size_t n_allowed = 0;
    bool ok = v && masked_open(&m, row->grammar, strlen(row->grammar), v);
    struct recognizer *r = m.r;
    struct position *p = &m.p;
    for (int step = 0; ok && step < 300; step++) {
        uint32_t state = position_state(p);
        const uint32_t *mask;
        ok = CHECK(recognizer_mask(r, state, &mask) == PLUMB_OK, "%s", r->err.message);
        int32_t allowed[N_PIECE];
        uint32_t n = 0;
        for (int32_t id = 0; ok && id < N_PIECE; id++) {
            uint32_t to = STATE_DEAD;
            if (is_eog(NULL, id)) to = state_has(r, state, STATE_MAY_END) ? state : STATE_DEAD;
            else recognizer_step_token(r, state, id, toy.text[id], toy.n[id], &to);
            bool bit = mask[id / 32] >> id % 32 & 1;
            ok = CHECK(bit == (to != STATE_DEAD), "step %d: token %d is %s", step, (int)id,
                       bit ? "allowed" : "refused");
            if (bit && !is_eog(NULL, id)) allowed[n++] = id;
        }
        n_allowed += n;
        if (n == 0 || p->n == 60) {
            p->n = 0;
            continue;
        }
        int32_t id = allowed[random_below(&seed, n)];
        recognizer_step_token(r, state, id, toy.text[id], toy.n[id], &state);
        ok = ok && CHECK(position_push(p, state) == PLUMB_OK, "out of memory");
    }
    CHECK(n_allowed > 0, "no token was allowed");
    masked_close(&m);
    pieces_free(v);
}

static void check_masks(const void *row) {
    check_masks_with(row, false);
    check_masks_with(row, true);
}

#define FOUR(next) "([a-z0-9-] ([a-zA-Z0-9] ([a-z0-9] ([a-z0-9W] " next ")?)?)?)?"
#define LABEL FOUR(FOUR(FOUR(FOUR(FOUR(FOUR(FOUR(FOUR("\"-\""))))))))
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
    { "a text that begins unlike it goes on", "root ::= (\"e\" \"1\"* \"\\\"\" | [^e1] [^\"]* \"\\\"\" \"a\"?)+\n" },
    { "counted characters", "root ::= \"\\\"\" [^\"]{1,40} \"\\\"\" [^\"]{20,25} \"\\\"\" [^b]{30} [a1]{18,}\n" },
    { "counts in counts", "root ::= ((item \",\"?){2,30} [}\\]]){3,18}\nitem ::= [a-z]{1,20} | \"1\"{17} root\n" },
    { "counts of what may be empty", "root ::= (\"\\\"\" a{0,20} [b]{0,17}){3,30}\na ::= (\"ab\"? | \"1\"{2,20})\n" },
    { "a count that ends with a rule that is used elsewhere",
      "root ::= (a{3,20} | \"{\" a \"}\")*\na ::= \"a\" b\nb ::= b1{2,30} b1?\nb1 ::= \"b\" | \"1\" \"a\"?\n" },
    { "marks", "root ::= (%{3,30}(a) \"{\")+\na ::= %1 [^\"{] b | %2 \"\\\"\" c\nb ::= % [^{] a | %1 . c | \"\"\n"
      "c ::= % d b\nd ::= [a-z] | \"\\\\\" .\n" },
    { "far marks beside another count",
      "root ::= (\"\\\"\" [a-z]{2,14} \"\\\"\" | \"{\" %{0,60}(a) \"}\" | [0-9]{3} (b \":\"){2,9})*\n"
      "a ::= % [a-z1] a | %40 \"<\" a | \"\"\nb ::= % [a-z] | %{1,20}(a)\n" },
    { "token elements", "root ::= (<[3]> | \"a\"+ | !<[97]> \"b\")* <[300]>?\n" },
    { "any text", "root ::= .*\n" },
    { "characters without line separators",
      "root ::= \"\\\"\" [^\\n\\r\\u2028\\u2029\"]* (\"\\\"\" | \"\\n\" [^\\u2029]*)\n" },
    { "line separators that lead elsewhere", "root ::= ([^\\n\\u2028]* \"\\u2028\" [a-zA-Z \"]{2})*\n" },
    { "a separator, and then none", "root ::= (\"\\\"\" [^\\n\"] [^\\n\\u2028\\u2029\"]* \"\\\"\")*\n" },
    { "long tokens, a loop or a count", "root ::= \"<\" ([a-z] [a-z ]* | [ ]{1,300}) \"!\"\n" },
    { "long tokens, a long count", "root ::= (\"\\\"\" [^\"]{0,280} \"\\\"\")*\n" },
    { "long tokens, then another character", "root ::= \"<\" ([a-z] [a-z -]* | \"-\"{1,256} \"x\") \"!\"\n" },
    { "names that are not others",
      "root ::= (\"{\\\"\" (\"name\" | \"a\" ([^m\"] [^\"]*)? | [^an\"W] [^\"]*) \"\\\"\")*\n" },
    { "names that begin as known ones",
      "root ::= ((\"na\" | \"ab\" | \"b\" | \"e\" | \"x\" | \"1\") other | \"W\")*\n"
      "other ::= [a-zA-Z0-9 ]* \"\\\"\"\n" },
    { "labels of at most 32 characters", "root ::= ([a-z0-9] " LABEL " \".\" | \"5\" " LABEL ")*\n" },
};

/* A state of one of two grammars; both have the same vocabulary.  A thread waits until all have begun. */
struct side {
    struct masked m;
    plumb_status status;
};
struct sides {
    struct side of[2];
    atomic_uint n_begun;
    uint32_t n_thread;
};

static void mask_side(void *user, uint32_t begin, uint32_t end, uint32_t thread) {
    struct sides *sides = user;
    (void)thread;
    for (uint32_t i = begin; i < end; i++) {
        struct side *side = &sides->of[i];
        const uint32_t *mask;
        atomic_fetch_add(&sides->n_begun, 1);
        while (atomic_load(&sides->n_begun) < sides->n_thread) {}
        side->status = recognizer_mask(side->m.r, position_state(&side->m.p), &mask);
    }
}

/* ThreadSanitizer sees if the masks of one grammar write what those of another one read. */
static void mask_in_threads(void) {
    static const char *const texts[2] = { "root ::= [^\"]* \"\\\"\"", "root ::= [^{]* \"{\"" };
    struct sides sides = { .n_begun = 0 };
    static struct toy_vocabulary toy;
    struct pieces *v = toy_pieces(&toy, false);
    struct pool *pool = pool_create(2);
    bool ok = v != NULL;
    sides.n_thread = pool_size(pool);
    for (int i = 0; i < 2 && ok; i++) ok = masked_open(&sides.of[i].m, texts[i], strlen(texts[i]), v);
    if (ok) pool_run(pool, 2, UINT32_MAX, mask_side, &sides);
    for (int i = 0; i < 2; i++) {
        CHECK(sides.of[i].status == PLUMB_OK, "%s", sides.of[i].m.r->err.message);
        masked_close(&sides.of[i].m);
    }
    pieces_free(v);
    pool_free(pool);
}

/* Of 2,500 texts any may have been begun, and what follows has classes of bytes of its own, so that a look at what may
 * follow 40 bytes later would visit too much.  The mask is made without it. */
static void many_at_once(void) {
    enum { N_TEXT = 2500, CAP = 200000 };
    char *text = malloc(CAP);
    struct masked m = { 0 };
    const uint32_t *mask = NULL;
    static struct toy_vocabulary toy;
    REQUIRE(text, "out of memory");
    size_t n = (size_t)snprintf(text, CAP, "root ::= t");
    for (int i = 0; i < N_TEXT; i++) n += (size_t)snprintf(text + n, CAP - n, " | [ -~]{40} \"k%d\"", i);
    n += (size_t)snprintf(text + n, CAP - n, "\nt ::= \"\\x01\" (\"#!\"");
    for (int c = '#'; c <= '~'; c++) n += (size_t)snprintf(text + n, CAP - n, " | \"\\x%02x!\"", c);
    n += (size_t)snprintf(text + n, CAP - n, ")\n");
    struct pieces *v = toy_pieces(&toy, false);
    if (v && masked_open(&m, text, n, v)) {
        CHECK(recognizer_mask(m.r, position_state(&m.p), &mask) == PLUMB_OK && mask, "%s", m.r->err.message);
    }
    if (mask) CHECK(mask['a' / 32] >> 'a' % 32 & 1 && !(mask[0] >> 2 & 1), "other tokens are allowed");
    masked_close(&m);
    pieces_free(v);
    free(text);
}

static bool accepts(plumb_grammar *g, const char *text) {
    plumb_matcher *m;
    if (!CHECK(plumb_matcher_create(&m, g) == PLUMB_OK, "%s", plumb_grammar_error(g))) return false;
    bool yes = plumb_matcher_accept_text(m, text, strlen(text)) == PLUMB_OK && plumb_matcher_may_end(m);
    plumb_matcher_free(m);
    return yes;
}

/* ---- patterns of strings whose lengths are bounded, too --------------------------------------------------------- */

/* Texts before, n times filler, after may match the pattern. */
struct length_row { const char *name; uint32_t least, most; const char *before, *filler, *after; };
static const struct length_row length_rows[] = {
    { "^[a-z0-9-]+$", 1, 255, "", "b", "" },
    { "^[a-z0-9-]+$", 17, 1000, "", "b", "" },
    { "^[a-z]+@[a-z]+(\\.[a-z]+)+$", 0, 100, "", "a", "@b.c" },
    { "^[a-z]+@[a-z]+(\\.[a-z]+)+$", 40, 80, "a@", "b", ".c" },
    { "^(\u00e9b)*$", 0, 41, "", "\u00e9b", "" },
    { "^(abc)+$", 30, 61, "", "abc", "" },
    { "^a[^]*\\n$", 50, 70, "a", "\n", "\n" },
    { "^(?=.{20,40}$)[a-z]+x$", 0, 1000, "", "a", "x" },
    { "^(?![^]*<end>)(?=[^]{0,1000}$)[^]*$", 0, 2000, "<en", "<", "d" },
};

static uint32_t n_chars(const char *s) {
    uint32_t n = 0;
    for (; *s; s++) n += ((uint8_t)*s & 0xc0) != 0x80;
    return n;
}

/* Follows random texts of a grammar.  Each ends, at most `most` characters long, and matches the pattern. */
static void walk_lengths(const struct length_row *row, plumb_grammar *pattern, struct recognizer *r,
                         const struct position *p) {
    uint64_t seed = 7;
    for (int round = 0; round < 30; round++) {
        char text[8000];
        size_t n = 0;
        uint32_t state = position_state(p);
        while (!state_has(r, state, STATE_MAY_END) ||
               (state_has(r, state, STATE_LIVE) && random_below(&seed, 90) > 0)) {
            uint64_t set[4];
            uint32_t n_byte = 0;
            uint8_t bytes[256];
            recognizer_bytes(r, state, set);
            for (unsigned b = 0; b < 256; b++) if (bytes_have(set, b)) bytes[n_byte++] = (uint8_t)b;
            REQUIRE(n_byte > 0 && n + 1 < sizeof text, "%s: \"%.*s\" has no end", row->name, (int)n, text);
            text[n] = (char)bytes[random_below(&seed, n_byte)];
            REQUIRE(recognizer_step(r, state, (uint8_t)text[n++], &state) == PLUMB_OK, "%s", r->err.message);
        }
        text[n] = 0;
        CHECK(n_chars(text) >= row->least && n_chars(text) <= row->most && accepts(pattern, text), "%s has no \"%s\"",
              row->name, text);
    }
}

static void check_lengths(const void *arg) {
    const struct length_row *row = arg;
    struct error err = { 0 };
    struct languages *all = languages_create(&err);
    struct grammar *g = NULL;
    struct recognizer *r = NULL;
    struct position p = { 0 };
    const struct language *l = language_intersect(all, language_length(all, row->least, row->most),
                                                  language_regex(all, row->name, strlen(row->name), REGEX_SEARCH));
    bool ok = make_language(&g, all, l, LANGUAGE_PLAIN, &err) == PLUMB_OK &&
              recognizer_create(&r, g, &err) == PLUMB_OK && position_init(&p, r) == PLUMB_OK;
    CHECK(ok, "%s", err.message);
    CHECK(g && g->n_code < 600, "%zu instructions", g ? g->n_code : 0);
    plumb_grammar *pattern = plumb_grammar_create(NULL);
    plumb_grammar_parse_regex(pattern, row->name, strlen(row->name));
    if (ok) walk_lengths(row, pattern, r, &p);
    for (uint32_t n = 0; ok && n < 1100; n++) {
        char one[4000] = "";
        size_t at = (size_t)snprintf(one, sizeof one, "%s", row->before);
        for (uint32_t i = 0; i < n; i++) at += (size_t)snprintf(one + at, sizeof one - at, "%s", row->filler);
        at += (size_t)snprintf(one + at, sizeof one - at, "%s", row->after);
        uint32_t state = position_state(&p);
        for (size_t i = 0; i < at && ok; i++) ok = recognizer_step(r, state, (uint8_t)one[i], &state) == PLUMB_OK;
        const bool yes = n_chars(one) >= row->least && n_chars(one) <= row->most && accepts(pattern, one);
        CHECK(state_has(r, state, STATE_MAY_END) == yes, "%s: %u characters", row->name, n_chars(one));
    }
    plumb_grammar_free(pattern);
    position_free(&p);
    recognizer_free(r);
    grammar_free(g);
    languages_free(all);
}

/* Large enums: all of their values, and nothing else. */
static void match_enum(void) {
    struct grammar_text schema = { 0 };
    grammar_text_print(&schema, "{\"maxLength\":11,\"enum\":[null");
    for (unsigned i = 0; i < 50000; i++) grammar_text_print(&schema, ",%u,\"value %u\"", 3 * i, i);
    for (unsigned i = 1; i < 900; i++) grammar_text_print(&schema, ",\"%.*s\"", (int)(i % 14), "aaaaaaaaaaaaaa");
    grammar_text_print(&schema, "]}");
    plumb_grammar *g = plumb_grammar_create(NULL);
    REQUIRE(!schema.failed && plumb_grammar_parse_schema(g, schema.data, schema.n, NULL) == PLUMB_OK, "%s",
            plumb_grammar_error(g));
    static const char *const accepted[] = { "null", "0", "3", "149997", "\"value 0\"", "\"value 49999\"", "\"\"",
                                            "\"aaaaaaaaaaa\"" };
    static const char *const refused[] = { "1", "149998", "150000", "\"value 50000\"", "\"value \"", "\"value 00\"",
                                           "\"aaaaaaaaaaaa\"", "true" };
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) CHECK(accepts(g, accepted[i]), "%s", accepted[i]);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) CHECK(!accepts(g, refused[i]), "%s", refused[i]);
    plumb_grammar_free(g);
    grammar_text_free(&schema);
}

/* ---- the public functions ---------------------------------------------------------------------------------------- */

enum { GBNF, REGEX, SCHEMA };
struct public_row {
    const char *name;
    int language;
    const char *source;
    plumb_schema_options options;
    plumb_status status;
    const char *message;                     /* the error, or the warnings */
    const char *accepted[3], *refused[4];
};
static void check_public(const void *arg) {
    const struct public_row *row = arg;
    plumb_grammar *g = plumb_grammar_create(NULL);
    if (!CHECK(g, "out of memory")) return;
    size_t n = strlen(row->source);
    plumb_status status = row->language == GBNF ? plumb_grammar_parse(g, row->source, n)
                        : row->language == REGEX ? plumb_grammar_parse_regex(g, row->source, n)
                        : plumb_grammar_parse_schema(g, row->source, n, &row->options);
    const char *message = status == PLUMB_OK ? plumb_grammar_warnings(g) : plumb_grammar_error(g);
    CHECK(status == row->status, "status %d: %s", (int)status, message);
    CHECK(strstr(message, row->message) && (status != PLUMB_OK || !message[0] == !row->message[0]), "%s", message);
    for (size_t i = 0; i < 3 && row->accepted[i]; i++) CHECK(accepts(g, row->accepted[i]), "%s", row->accepted[i]);
    for (size_t i = 0; i < 4 && row->refused[i]; i++) CHECK(!accepts(g, row->refused[i]), "%s", row->refused[i]);
    if (status == PLUMB_OK) {
        CHECK(plumb_grammar_parse_schema(g, "true", 4, NULL) == PLUMB_ERROR_STATE, "it was parsed a second time");
        CHECK(plumb_grammar_parse_regex(g, "a", 1) == PLUMB_ERROR_STATE, "it was parsed a second time");
    } else {
        CHECK(plumb_grammar_parse_schema(g, "true", 4, NULL) == PLUMB_OK && accepts(g, "[1]"), "it cannot be parsed "
              "after a failure: %s", plumb_grammar_error(g));
        CHECK(plumb_grammar_warnings(g)[0] == 0, "warnings of the schema before: %s", plumb_grammar_warnings(g));
    }
    plumb_grammar_free(g);
}

#define PAIR "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"null\"}}," \
             "\"required\":[\"a\",\"b\"],\"additionalProperties\":false}"
#define UNIQUE "{\"properties\":{\"a/b\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}," \
               "\"uniqueItems\":true}}}"
#define ONE "{\"oneOf\":[{\"$ref\":\"#/$defs/has\"},{\"$ref\":\"#/$defs/runs\"},{\"$ref\":\"#/$defs/no\"}," \
    "{\"$ref\":\"#/$defs/all\"}]}"
#define WITH_PLACE(name) \
    "{\"type\":\"object\",\"allOf\":[{\"properties\":{\"" name "\":true},\"required\":[\"" name "\"]}," \
    "{\"$ref\":\"#/$defs/place\"}]}"
#define RECURSIVE \
    "{\"$ref\":\"#/$defs/no\",\"$defs\":{\"has\":" WITH_PLACE("field") ",\"runs\":" WITH_PLACE("script") "," \
    "\"place\":{\"properties\":{\"at\":{\"type\":\"string\"},\"near\":{\"type\":\"array\"," \
    "\"items\":{\"type\":\"string\"},\"minItems\":1}}}," \
    "\"no\":{\"type\":\"object\",\"properties\":{\"no\":" ONE "},\"required\":[\"no\"]}," \
    "\"all\":{\"type\":\"object\",\"properties\":{\"all\":{\"type\":\"array\",\"items\":" ONE "}}," \
    "\"required\":[\"all\"]}}}"

static const struct public_row public_rows[] = {
    { "a regular expression", REGEX, "[a-c]{2}(-x)?", { 0 }, PLUMB_OK, "", { "ab", "cc-x" },
      { "a", "abc", "ab-", "" } },
    { "a regular expression that is not regular", REGEX, "(a)\\1", { 0 }, PLUMB_ERROR_UNSUPPORTED, "back-reference",
      { 0 }, { 0 } },
    { "a broken regular expression", REGEX, "ab(", { 0 }, PLUMB_ERROR_ARGUMENT, "", { 0 }, { 0 } },
    { "a schema", SCHEMA, PAIR, { 0 }, PLUMB_OK, "", { "{\"a\":1,\"b\":null}" },
      { "{\"b\":null,\"a\":1}", "{\"a\": 1,\"b\":null}", "{\"a\":1}", "{\"a\":1,\"b\":null,\"c\":2}" } },
    { "a recursive schema of which one of several open objects must fit", SCHEMA, RECURSIVE, { 0 }, PLUMB_OK, "",
      { "{\"no\":{\"field\":{}}}", "{\"no\":{\"no\":{\"all\":[{\"script\":\"a\",\"near\":[\"b\"]},{\"no\":{\"field\":"
        "{\"x\":1}}},{\"all\":[]}]}}}" },
      { "{\"no\":{\"field\":{},\"script\":\"a\"}}", "{\"no\":{\"no\":{\"all\":[{\"script\":\"a\",\"near\":[]}]}}}",
        "{\"no\":{}}" } },
    { "a schema in any order", SCHEMA, PAIR, { .any_order = true }, PLUMB_OK, "",
      { "{\"a\":1,\"b\":null}", "{\"b\":null,\"a\":1}" }, { "{\"a\":1,\"a\":1}", "{\"b\":null}" } },
    { "a pretty schema", SCHEMA, PAIR, { .space = PLUMB_JSON_PRETTY }, PLUMB_OK, "",
      { "{\n  \"a\": 1,\n  \"b\": null\n}" }, { "{\"a\":1,\"b\":null}" } },
    { "free white space", SCHEMA, PAIR, { .space = PLUMB_JSON_FREE }, PLUMB_OK, "",
      { "{\"a\":1,\"b\":null}", "{ \"a\": 1,\n\t\"b\": null }" }, { "{\"a\":  1,\"b\":null}" } },
    { "a keyword that is not kept", SCHEMA, UNIQUE, { 0 }, PLUMB_ERROR_UNSUPPORTED, "/properties/a~1b/uniqueItems",
      { 0 }, { 0 } },
    { "a keyword that is not kept, leniently", SCHEMA, UNIQUE, { .lenient = true }, PLUMB_OK,
      "/properties/a~1b/uniqueItems", { "{\"a/b\":[1,1]}" }, { "{\"a/b\":[true]}" } },
    { "a schema that is not JSON", SCHEMA, "{\"type\":", { 0 }, PLUMB_ERROR_ARGUMENT, "", { 0 }, { 0 } },
    { "white space out of range", SCHEMA, "true", { .space = (plumb_json_space)3 }, PLUMB_ERROR_ARGUMENT,
      "space is 3, expected 0 to 2", { 0 }, { 0 } },
};

/* Rules of three languages in one grammar, whose auxiliary rules have the same names but for their beginning. */
static void define_rules(void) {
    plumb_grammar *g = plumb_grammar_create(NULL);
    REQUIRE(g, "out of memory");
    static const char weather[] = "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":2},"
                                  "\"other\":true},\"required\":[\"city\"]}",
        any[] = "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[\"\\n\",[7]]}}",
        free_text[] = "(?![^]*<call>)[^]*",
        gbnf[] = "root ::= free (\"<call>\" (\"weather\" weather | \"any\" any1) root-end)?\nroot-end ::= \"!\"";
    const plumb_schema_options lenient = { .lenient = true }, pretty = { .space = PLUMB_JSON_PRETTY };
    CHECK(plumb_grammar_define_schema(g, "any1", any, sizeof any - 1, NULL) == PLUMB_ERROR_UNSUPPORTED
          && strncmp(plumb_grammar_error(g), "any1/uniqueItems: ", 18) == 0, "%s", plumb_grammar_error(g));
    CHECK(plumb_grammar_define_schema(g, "any1", "5", 1, NULL) == PLUMB_ERROR_ARGUMENT
          && strncmp(plumb_grammar_error(g), "any1: ", 6) == 0, "%s", plumb_grammar_error(g));
    CHECK(plumb_grammar_define_schema(g, "weather", weather, sizeof weather - 1, &pretty) == PLUMB_OK, "%s",
          plumb_grammar_error(g));
    CHECK(plumb_grammar_define_schema(g, "any1", any, sizeof any - 1, &lenient) == PLUMB_OK
          && strncmp(plumb_grammar_warnings(g), "any1/uniqueItems: ", 18) == 0, "%s", plumb_grammar_error(g));
    CHECK(plumb_grammar_define_regex(g, "free", free_text, sizeof free_text - 1) == PLUMB_OK, "%s",
          plumb_grammar_error(g));
    static const char *const names[] = { "", "a-b", "a_b", "\xc3\xa9", "a b", "weather", "any1", "free",
                                         "abcdefghijklmnopqrstuvwxyz1234567" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK(plumb_grammar_define_schema(g, names[i], "true", 4, NULL) == PLUMB_ERROR_ARGUMENT
              && plumb_grammar_define_regex(g, names[i], "a", 1) == PLUMB_ERROR_ARGUMENT, "the name \"%s\"", names[i]);
    }
    CHECK(plumb_grammar_parse(g, "root ::= weather oh", 19) == PLUMB_ERROR_ARGUMENT
          && strcmp(plumb_grammar_error(g), "line 1, column 18: the rule oh is not defined") == 0, "%s",
          plumb_grammar_error(g));
    CHECK(plumb_grammar_parse(g, gbnf, sizeof gbnf - 1) == PLUMB_OK, "%s", plumb_grammar_error(g));
    CHECK(plumb_grammar_define_regex(g, "late", "a", 1) == PLUMB_ERROR_STATE
          && plumb_grammar_define_schema(g, "late", "true", 4, NULL) == PLUMB_ERROR_STATE, "defined too late");
    static const char *const accepted[] = {
        "", "text\nof <calls>", "<call>weather{\n  \"city\": \"ab\"\n}!", "<<call>any[\"\\n\",[7],\"\\n\"]!",
        "<call>weather{\n  \"city\": \"\",\n  \"other\": [\n    1,\n    \"a\"\n  ],\n  \"more\": null\n}!",
    };
    static const char *const refused[] = {
        "a<call>", "<call>any[1]!", "<call>any[]", "<call>any[]!<call>any[]!", "<call>weather{\"city\":\"ab\"}!",
        "<call>weather{\n  \"city\": \"abc\"\n}!", "<call>weather[]!",
    };
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) CHECK(accepts(g, accepted[i]), "%s", accepted[i]);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) CHECK(!accepts(g, refused[i]), "%s", refused[i]);
    plumb_grammar_free(g);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

struct error_row { const char *name, *grammar, *message; };
static void check_error(const void *arg) {
    const struct error_row *row = arg;
    struct error err = { 0 };
    struct grammar *g;
    plumb_status status = make_grammar(&g, row->grammar, strlen(row->grammar), &err);
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
    { "two billions", "root ::= \"a\"{2000000000}",
      "line 1, column 13: a repetition of more than 1073741823 times" },
    { "what may be empty, in repetitions of repetitions", "root ::= ((\"a\"?){100}){100}",
      "what may be empty is repeated more than 4096 times" },
    { "a count without a group", "root ::= %{1,2} \"a\"", "line 1, column 16: expected `(`, found \" \"a\"\"" },
    { "a mark before what may be empty", "root ::= %{1,2}(% a)\na ::= \"\"\n",
      "after a mark % there is no character, and no rule that cannot be empty" },
    { "a repeated mark", "root ::= %{1,2}(%* \"a\")",
      "line 1, column 18: there is nothing before the repetition that could be repeated" },
    { "not UTF-8", "root ::= \"\xff\"", "line 1, column 11: expected UTF-8, found \"\\xff\"\"" },
    { "token without a vocabulary", "root ::= <think>",
      "line 1, column 10: the text of a token needs the vocabulary of a model" },
    { "an id of a token without its end", "root ::= <[1]x", "line 1, column 13: expected ]>, found \"]x\"" },
    { "an id of a token that ends too early", "root ::= <[1>x", "line 1, column 13: expected ]>, found \">x\"" },
    { "no assignment", "root = \"a\"", "line 1, column 6: expected `::=`, found \"= \"a\"\"" },
};

/* ---- large and hostile grammars ---------------------------------------------------------------------------------- */

struct large_row { const char *name, *first, *repeated, *last, *closing; size_t n; const char *message; };

/* first, n times repeated, last, and n times closing.  What is not refused by the parser is then walked. */
static void check_large(const void *arg) {
    const struct large_row *row = arg;
    const struct { const char *text; size_t n; } parts[] = {
        { row->first, 1 }, { row->repeated, row->n }, { row->last, 1 }, { row->closing, row->n }
    };
    size_t n_text = 0, at = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) n_text += parts[i].n * strlen(parts[i].text);
    char *text = malloc(n_text);
    REQUIRE(text, "no memory");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const size_t n = strlen(parts[i].text);
        for (size_t k = 0; k < parts[i].n; k++, at += n) memcpy(text + at, parts[i].text, n);
    }
    struct error err = { 0 };
    struct grammar *g = NULL;
    struct recognizer *r = NULL;
    struct position p = { 0 };
    plumb_status status = make_grammar(&g, text, n_text, &err);
    if (status == PLUMB_OK) status = recognizer_create(&r, g, &err);
    if (status == PLUMB_OK) {
        status = position_init(&p, r);
        for (int i = 0; i < 3000 && status == PLUMB_OK; i++) {
            uint32_t state = position_state(&p);
            status = recognizer_trim(r);
            if (status == PLUMB_OK) status = recognizer_step(r, position_state(&p), 'a', &state);
            if (status == PLUMB_OK) status = position_push(&p, state);
        }
        if (status != PLUMB_OK) err = r->err;
    }
    const char *message = status == PLUMB_OK ? "" : err.message;
    CHECK(strstr(message, row->message) && (status == PLUMB_OK) == !*row->message, "%s", message);
    position_free(&p);
    recognizer_free(r);
    grammar_free(g);
    free(text);
}

static const struct large_row large_rows[] = {
    { "a name with the ends of each range of characters", "root ::= aA0zZ9-a ", "", "\naA0zZ9-a ::= \"a\"", "", 1,
      "" },
    { "a literal of 6 MB", "root ::= \"", "abcdef", "\"", "", 1 << 20, "the grammar is too large" },
    { "two million alternatives", "root ::= \"a\"", "|\"a\"", "", "", 1 << 21, "the grammar is too large" },
    { "a class of a million ranges", "root ::= [", "\\u4e00\\u4e02", "]", "", 1 << 18, "" },
    { "open groups", "root ::= ", "(", "", "", 1 << 20, "more than 10000 groups in each other" },
    { "9,000 groups", "root ::= ", "( \"a\" ", "", "", 9000, "expected a symbol or `)`" },
    { "a million repetitions of a symbol", "root ::= \"a\"", "*", "", "", 1 << 20, "the grammar is too complex" },
    { "1,000 optional symbols", "root ::= ", "\"a\"? ", "", "", 1000, "" },
    { "5,000 optional symbols", "root ::= ", "\"a\"? ", "", "", 5000, "the grammar is too ambiguous" },
    { "2^n stacks", "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"", "d", "\"\n", "", 1, "" },
    { "a billion repetitions", "root ::= \"a", "a", "\"{1000000000}", "", 1, "" },
    { "repetitions of repetitions", "root ::= (((\"a\"{1000}){1000}){1000}){1000}", "", "", "", 0, "" },
    { "nesting of 3,000", "root ::= \"a\" root \"b\" | \"", "d", "\"\n", "", 1, "" },
    { "14 counts {1,1} in each other", "root ::= ", "%{1,1}((% ", "\"a\"?", ")+)", 14, "" },
    { "3,000 counts {1,1} in each other", "root ::= ", "%{1,1}((% ", "\"a\"?", ")+)", 3000, "" },
    { "14 counts {0,1} in each other", "root ::= ", "%{0,1}((% ", "\"a\"?", ")+)", 14, "" },
    { "3,000 counts {0,1} in each other", "root ::= ", "%{0,1}((% ", "\"a\"?", ")+)", 3000, "" },
    { "14 counts {0,} in each other", "root ::= ", "%{0,}((% ", "\"a\"?", ")+)", 14, "" },
    { "3,000 counts {0,} in each other", "root ::= ", "%{0,}((% ", "\"a\"?", ")+)", 3000, "" },
};

/* ---- the public functions ---------------------------------------------------------------------------------------- */

static void follow_tokens(void) {
    plumb_model *model = fixture_load("tests/fuzz/tiny.gguf");
    if (!model) return;
    static const char text[] = "root ::= \"abc\" [a-d]{1,2} (\"j\" | <[14]> \"k\")";
    plumb_grammar *g = plumb_grammar_create(model);
    plumb_matcher *m = NULL;
    REQUIRE(g && plumb_matcher_create(&m, g) == PLUMB_ERROR_STATE, "a matcher of a grammar that is not parsed");
    REQUIRE(plumb_grammar_parse(g, text, sizeof text - 1) == PLUMB_OK, "%s", plumb_grammar_error(g));
    CHECK(plumb_grammar_parse(g, text, sizeof text - 1) == PLUMB_ERROR_STATE, "parsed twice");
    REQUIRE(plumb_matcher_create(&m, g) == PLUMB_OK, "%s", plumb_grammar_error(g));
    char forced[8];
    CHECK(plumb_matcher_forced(m, forced, sizeof forced) == 3 && memcmp(forced, "abc", 3) == 0, "forced text");
    CHECK(plumb_matcher_forced(m, forced, 2) == 2, "forced text of 2 bytes");
    int32_t ids[8];
    int64_t n = plumb_tokenize(model, "abcd k", 6, 0, ids, 8);
    REQUIRE(n >= 4 && n <= 6, "%d tokens", (int)n);
    int32_t named = ids[n - 2], eos = plumb_token_eos(model);
    REQUIRE(named == 14, "token %d", (int)named);
    for (int round = 0; round < 2; round++) {
        for (int64_t i = 0; i < n; i++) {
            const uint32_t *mask = plumb_matcher_mask(m);
            REQUIRE(mask, "%s", plumb_grammar_error(g));
            CHECK(mask[ids[i] / 32] >> ids[i] % 32 & 1, "token %d of the text is not in the mask", (int)i);
            CHECK((mask[named / 32] >> named % 32 & 1) == (i == n - 2), "the named token before token %d", (int)i);
            CHECK(eos < 0 || !(mask[eos / 32] >> eos % 32 & 1), "the end before token %d", (int)i);
            CHECK(!plumb_matcher_may_end(m), "complete before token %d", (int)i);
            CHECK(plumb_matcher_accept(m, &ids[n - 1], 1) == (i == n - 1 ? PLUMB_OK : PLUMB_ERROR_ARGUMENT), "k at %d",
                  (int)i);
            if (i < n - 1) CHECK(plumb_matcher_accept(m, &ids[i], 1) == PLUMB_OK, "%s", plumb_grammar_error(g));
            CHECK(plumb_matcher_n_part(m) == (size_t)i + 1, "%zu parts", plumb_matcher_n_part(m));
        }
        CHECK(plumb_matcher_may_end(m), "not complete");
        const uint32_t *mask = plumb_matcher_mask(m);
        REQUIRE(mask, "%s", plumb_grammar_error(g));
        for (uint32_t id = 0; id < plumb_model_n_vocab(model); id++) {
            CHECK((mask[id / 32] >> id % 32 & 1) == plumb_token_is_eog(model, (int32_t)id), "token %u at the end", id);
        }
        CHECK(plumb_matcher_rewind(m, (size_t)n + 1) == PLUMB_ERROR_ARGUMENT, "rewound to what is not there");
        CHECK(plumb_matcher_rewind(m, 0) == PLUMB_OK, "%s", plumb_grammar_error(g));
    }
    CHECK(plumb_matcher_accept(m, ids, (size_t)n) == PLUMB_OK, "%s", plumb_grammar_error(g));
    plumb_matcher_rewind(m, 1);
    int32_t wrong[2] = { ids[1], ids[0] };
    CHECK(plumb_matcher_accept(m, wrong, 2) == PLUMB_ERROR_ARGUMENT && plumb_matcher_n_part(m) == 1, "all or nothing");
    int32_t outside = (int32_t)plumb_model_n_vocab(model);
    CHECK(plumb_matcher_accept(m, &outside, 1) == PLUMB_ERROR_TOKEN, "a token outside the vocabulary");
    plumb_matcher_free(m);
    plumb_grammar_free(g);
    plumb_model_free(model);
}

static void match_regex(void) {
    plumb_grammar *g = plumb_grammar_create(NULL);
    plumb_matcher *m = NULL;
    REQUIRE(g && plumb_grammar_parse_regex(g, "(a|b)+c{2}", 10) == PLUMB_OK, "%s", plumb_grammar_error(g));
    REQUIRE(plumb_matcher_create(&m, g) == PLUMB_OK, "%s", plumb_grammar_error(g));
    CHECK(plumb_matcher_accept_text(m, "abacc", 5) == PLUMB_OK && plumb_matcher_may_end(m), "abacc");
    CHECK(plumb_matcher_accept_text(m, "c", 1) == PLUMB_ERROR_ARGUMENT, "abaccc");
    bool allowed[256];
    plumb_matcher_rewind(m, 0);
    plumb_matcher_bytes(m, allowed);
    for (int b = 0; b < 256; b++) CHECK(allowed[b] == (b == 'a' || b == 'b'), "byte %d", b);
    CHECK(plumb_matcher_mask(m) == NULL && plumb_matcher_accept(m, (const int32_t[]){ 1 }, 1) == PLUMB_ERROR_STATE,
          "tokens without a model");
    plumb_matcher_free(m);
    plumb_grammar_free(g);
}

/* Many states, with positions that must survive when the others are dropped. */
static void trim_states(void) {
    static const char text[] = "root ::= \"[\" root \"]\" | \"(\" root \")\" | [a-z]*\n";
    struct error err = { 0 };
    struct grammar *g = NULL;
    struct recognizer *r = NULL;
    struct position p = { 0 };
    bool ok = make_grammar(&g, text, sizeof text - 1, &err) == PLUMB_OK &&
              recognizer_create(&r, g, &err) == PLUMB_OK && position_init(&p, r) == PLUMB_OK;
    REQUIRE(ok, "%s", err.message);
    enum { DEPTH = 24, ROUNDS = 8000 };
    uint64_t seed = 3;
    size_t n_wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char opened[DEPTH];
        p.n = round % 3 == 0 ? 0 : p.n;
        for (int i = 0; i < 2 * DEPTH; i++) {
            REQUIRE(recognizer_trim(r) == PLUMB_OK, "%s", r->err.message);
            bool is_square = i < DEPTH ? random_below(&seed, 2) : opened[2 * DEPTH - 1 - i] == '[';
            uint32_t state = position_state(&p), to, other;
            if (i < DEPTH) opened[i] = is_square ? '[' : '(';
            REQUIRE(recognizer_step(r, state, i < DEPTH ? (uint8_t)opened[i] : is_square ? ']' : ')', &to) == PLUMB_OK,
                    "%s", r->err.message);
            if (i >= DEPTH) {
                recognizer_step(r, state, is_square ? ')' : ']', &other);
                n_wrong += to == STATE_DEAD || other != STATE_DEAD;
            }
            REQUIRE(position_push(&p, to) == PLUMB_OK, "%s", r->err.message);
        }
        n_wrong += !state_has(r, position_state(&p), STATE_MAY_END);
        p.n = 0;
    }
    CHECK(n_wrong == 0, "%zu wrong steps", n_wrong);
    CHECK(r->n_trim > 0, "no state was dropped");
    position_free(&p);
    recognizer_free(r);
    grammar_free(g);
}

void test_grammar(void) {
    test_case("grammar: every case of llama.cpp's three tests of grammars has llama.cpp's verdict", llama_cases);
    test_case("grammar: random grammars have llama.cpp's verdict on every short string", random_cases);
    TEST_ROWS("grammar: masks equal tokens tried alone, ", check_masks, mask_rows);
    test_case("grammar: the mask of a state of many texts", many_at_once);
    test_case("grammar: masks of two grammars of a vocabulary in two threads", mask_in_threads);
    TEST_ROWS("grammar: the public functions, ", check_public, public_rows);
    TEST_ROWS("grammar: error, ", check_error, error_rows);
    TEST_ROWS("grammar: large, ", check_large, large_rows);
    TEST_ROWS("grammar: a pattern and lengths, ", check_lengths, length_rows);
    test_case("grammar: an enum of 100,000 values", match_enum);
    test_case("grammar: tokens are accepted, masked and taken back; all or nothing", follow_tokens);
    test_case("grammar: a regular expression, without a model", match_regex);
    test_case("grammar: rules written as schemas and regular expressions within GBNF", define_rules);
    test_case("grammar: states that no position needs are dropped, and the others are kept", trim_states);
}

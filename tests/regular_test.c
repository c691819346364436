/* Regular languages: regular expressions against RegExp, formats against Python's modules, ranges of numbers and
 * operations against all values of a small domain.  Each language is also made a grammar, whose recognizer is compared
 * with llama.cpp's in grammar_test.c, and must allow the same strings. */
#include "grammar/recognizer.h"
#include "grammar/language.h"
#include "grammar_make.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- grammar of a language --------------------------------------------------------------------------------------- */

struct matcher {
    struct grammar *g;
    struct recognizer *r;
    struct position p;
};

static void matcher_free(struct matcher *m) {
    if (m->r) position_free(&m->p);
    recognizer_free(m->r);
    grammar_free(m->g);
}

/* Makes a grammar of a language.  Returns false, with an error, if it has no strings. */
static bool matcher_init(struct matcher *m, struct languages *all, const struct language *a, enum language_form form,
                         struct error *err) {
    *m = (struct matcher){0};
    if (make_language(&m->g, all, a, form, err) != PLUMB_OK) return false;
    if (!CHECK(recognizer_create(&m->r, m->g, err) == PLUMB_OK && position_init(&m->p, m->r) == PLUMB_OK, "%s",
               err->message)) {
        matcher_free(m);
        *m = (struct matcher){0};
        return false;
    }
    return true;
}

static bool matches(struct matcher *m, const char *s, size_t n) {
    uint32_t state = position_state(&m->p);
    for (size_t i = 0; i < n; i++) {
        if (!CHECK(recognizer_step(m->r, state, (uint8_t)s[i], &state) == PLUMB_OK, "%s", m->r->err.message)) {
            return false;
        }
    }
    return state_has(m->r, state, STATE_MAY_END);
}

/* A string between its quotes, as JSON.stringify writes it. */
static size_t json_string(char *out, const char *s, size_t n) {
    static const char short_forms[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        const char *found = NULL;
        for (const char *c = short_forms; *c; c += 2) found = *c == s[i] ? c : found;
        if (found) length += (size_t)sprintf(out + length, "\\%c", found[1]);
        else if ((uint8_t)s[i] < 0x20) length += (size_t)sprintf(out + length, "\\u%04x", (unsigned)s[i]);
        else out[length++] = s[i];
    }
    return length;
}

/* A language with its grammars in both forms. */
struct subject {
    struct error err;
    struct languages *all;
    const struct language *language;
    struct matcher forms[2];
    bool is_empty;
};

static void subject_free(struct subject *s) {
    matcher_free(&s->forms[0]);
    matcher_free(&s->forms[1]);
    languages_free(s->all);
    s->all = NULL;
}

static struct languages *subject_begin(struct subject *s) {
    *s = (struct subject){0};
    s->all = languages_create(&s->err);
    CHECK(s->all, "%s", s->err.message);
    return s->all;
}

static bool subject_end(struct subject *s, const struct language *a, const char *name) {
    s->language = a;
    bool ok = a && language_is_empty(s->all, a, &s->is_empty) == PLUMB_OK;
    if (!CHECK(ok, "%s: %s", name, s->err.message)) return false;
    for (int form = 0; form < 2; form++) {
        ok = matcher_init(&s->forms[form], s->all, a, (enum language_form)form, &s->err);
        CHECK(ok != s->is_empty, "%s: %s", name, s->err.message);
    }
    return true;
}

static void check_string(struct subject *s, const char *name, const char *string, size_t n, bool wanted) {
    static char json[6 * 4096];
    bool found;
    struct shown shown;
    REQUIRE(language_has(s->all, s->language, string, n, &found) == PLUMB_OK, "%s: %s", name, s->err.message);
    CHECK(found == wanted, "%s has \"%s\": %d, not %d", name, show_bytes(&shown, string, n), found, wanted);
    if (s->is_empty || !s->forms[0].r || !s->forms[1].r) return;
    CHECK(matches(&s->forms[0], string, n) == wanted, "%s: the grammar has \"%s\": %d, not %d", name,
          show_bytes(&shown, string, n), !wanted, wanted);
    REQUIRE(n <= 4096, "%zu bytes", n);
    size_t n_json = json_string(json, string, n);
    CHECK(matches(&s->forms[1], json, n_json) == wanted, "%s: the grammar of JSON strings has \"%s\": %d, not %d", name,
          show_bytes(&shown, json, n_json), !wanted, wanted);
}

/* ---- files of verdicts ------------------------------------------------------------------------------------------- */

/* Decodes the escapes %XX in place. */
static size_t decode(char *s) {
    char *out = s;
    for (const char *in = s; *in; in++) {
        unsigned byte;
        if (*in == '%' && sscanf(in + 1, "%2x", &byte) == 1) {
            *out++ = (char)byte;
            in += 2;
        } else {
            *out++ = *in;
        }
    }
    *out = 0;
    return (size_t)(out - s);
}

static void check_file(const char *path, bool is_regex, size_t n_language, size_t n_valid, size_t n_invalid) {
    size_t n, found[3] = {0};
    char *file = test_read_all(path, &n), name[600] = "";
    if (!file) return;
    struct subject s = {0};
    bool ok = true;
    for (char *line = file, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        *end = 0;
        if (*line == '=') {
            subject_free(&s);
            struct languages *all = subject_begin(&s);
            size_t n_name = decode(line + (is_regex ? 4 : 2));
            snprintf(name, sizeof name, "%s", line + 2);
            const struct language *a = is_regex ? language_regex(all, line + 4, n_name,
                                                                 line[2] == 's' ? REGEX_SEARCH : REGEX_WHOLE)
                                                : language_format(all, name, n_name);
            ok = subject_end(&s, a, name);
            found[0]++;
        } else if (ok) {
            size_t n_string = decode(line + 2);
            check_string(&s, name, line + 2, n_string, *line == '+');
            found[*line == '+' ? 1 : 2]++;
        }
    }
    subject_free(&s);
    free(file);
    CHECK(found[0] == n_language && found[1] == n_valid && found[2] == n_invalid, "%zu languages, %zu + and %zu -",
          found[0], found[1], found[2]);
}

static void regexes(void) { check_file("tests/vectors/grammar/regex.txt", true, 560, 2071, 3938); }
static void addresses(void) { check_file("tests/vectors/grammar/formats.txt", false, 3, 552, 1196); }

/* ---- formats ----------------------------------------------------------------------------------------------------- */

/* Examples of the documents that define the formats, and the same with one mistake. */
struct format_row {
    const char *name, *valid[6], *invalid[8];
};

static const struct format_row format_rows[] = {
    {"date-time", {"1985-04-12T23:20:50.52Z", "1996-12-19t16:39:57-08:00", "1990-12-31T23:59:60z",
                   "1990-12-31T15:59:60-08:00", "1937-01-01T12:00:27.87+00:20", "2024-02-29T00:00:00Z"},
     {"1985-04-12 23:20:50Z", "1985-04-12T23:20:50", "1990-12-31T22:59:60Z", "1990-12-31T24:00:00Z",
      "2023-02-29T00:00:00Z", "1990-12-31T23:59:60+01:00", "1985-04-12T23:20:50.Z", "1985-04-12T23:20:50+24:00"}},
    {"time", {"08:30:06Z", "23:59:60Z", "01:29:60+01:30", "23:29:60+23:30", "00:29:60-23:30", "23:59:60.1-00:00"},
     {"8:30:06Z", "08:60:06Z", "23:58:60Z", "22:59:60+01:00", "08:30:06", "08:30Z", "", "08:30:61Z"}},
    {"duration", {"P4DT12H30M5S", "P1M", "PT1M", "P1W", "P1Y2M3D", "PT0S"},
     {"P", "PT", "P1", "P1D2H", "P1Y2W", "P2D1Y", "P1YT", "-P1D"}},
    {"email", {"joe@example.com", "te~st.x@a-b.c", NULL},
     {"joe@example", "joe@", ".joe@example.com", "joe..b@example.com", "joe@-example.com", "joe@[127.0.0.1]",
      "\"joe b\"@example.com", "joe@a=b.com"}},
    {"hostname", {"www.example.com", "a", "1host", "a-b", "a.b.c.d.e.f.g",
                  "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk.de"},
     {"", "-a", "a-", "a..b", "a.", "a_b", "xn--x",
      "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl.de"}},
    {"uri", {"http://a/b/c/d;p?q#s", "urn:example:animal:ferret:nose", "ftp://[2001:db8::7]:21/", "mailto:John@x.org",
             "http://u:p@h:8/%20", "a:/"},
     {"//a/b", "a:", "a b:c", "http://a b", "http://a/%2", "http://[::g]/", "1a:b", "http://a/<b>"}},
    {"uri-reference", {"http://a/b", "a:?b", "/a", "g;x=1/./y", "#s", ""},
     {"a b", "\\\\host", "#a#b", "%", "a:b\\c", "<", "[", "1a:b"}},
    {"iri", {"http://r\xc3\xa9sum\xc3\xa9.example.org/?\xee\x80\x80", "urn:\xf0\xa0\x80\x80", NULL},
     {"r\xc3\xa9sum\xc3\xa9", "http://\xee\x80\x80/", "http://a b/", NULL}},
    {"iri-reference", {"/\xc3\xa9", "\xc3\xa9", "#\xe2\x82\xac", NULL}, {"\\", "a b", NULL}},
    {"uri-template", {"http://example.com/dictionary/{term:1}/{term}", "{+path,x}/here{?a,b*}", "", "{%41.b}",
                      "a'b", NULL},
     {"{term", "{}", "{a b}", "{term:0}", "{term:10000}", "a}b", "<", "{a..b}"}},
    {"uuid", {"2EB8AA08-aa98-11ea-b4aa-73b441d16380", "00000000-0000-0000-0000-000000000000", NULL},
     {"2eb8aa08-aa98-11ea-b4aa-73b441d1638", "2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4aa73b441d16380-",
      "2eb8aa08-aa98-11ea-b4ga-73b441d16380", NULL}},
    {"json-pointer", {"", "/foo/0", "/a~1b/m~0n", "/ ", "/i\\j\"", "//"}, {"a", "/~", "/~2", "#/a", NULL}},
    {"relative-json-pointer", {"0", "1/0", "2/highly/nested", "0#", "10/a~0", NULL},
     {"", "/a", "-1/a", "01/a", "0##", "+1", "1a", NULL}}
};

static void check_format(const void *argument) {
    const struct format_row *row = argument;
    struct subject s;
    struct languages *all = subject_begin(&s);
    CHECK(language_has_format(row->name, strlen(row->name)), "%s", row->name);
    if (subject_end(&s, language_format(all, row->name, strlen(row->name)), row->name)) {
        for (size_t i = 0; i < 6 && row->valid[i]; i++) {
            check_string(&s, row->name, row->valid[i], strlen(row->valid[i]), true);
        }
        for (size_t i = 0; i < 8 && row->invalid[i]; i++) {
            check_string(&s, row->name, row->invalid[i], strlen(row->invalid[i]), false);
        }
    }
    subject_free(&s);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* Bounds and a divisor in hundredths, which are also the texts of the range. */
struct number_row {
    const char *name;
    struct number_range range;
    int64_t minimum, maximum, step;   /* what the range means for hundredths, both bounds inclusive */
};

static const struct number_row number_rows[] = {
    {"integers", {.integer = true}, -1000000, 1000000, 100},
    {"0 to 150", {.minimum = "0", .maximum = "150", .integer = true}, 0, 15000, 100},
    {"-12 to 1e1, both exclusive", {.exclusive_minimum = "-12", .exclusive_maximum = "1e1", .integer = true},
     -1199, 999, 100},
    {"integers from 2.5", {.minimum = "2.5", .integer = true}, 250, 1000000, 100},
    {"at most -7, multiples of 3", {.maximum = "-7", .multiple_of = "3", .integer = true}, -1000000, -700, 300},
    {"multiples of 0.75 that are integers", {.multiple_of = "0.75", .integer = true}, -1000000, 1000000, 300},
    {"two minima", {.minimum = "5", .exclusive_minimum = "5", .maximum = "99", .integer = true}, 501, 9900, 100},
    {"numbers", {0}, -1000000, 1000000, 1},
    {"-0.5 to 1.25", {.minimum = "-0.5", .maximum = "1.25"}, -50, 125, 1},
    {"above 0", {.exclusive_minimum = "0"}, 1, 1000000, 1},
    {"below -0.10", {.exclusive_maximum = "-1.0E-1"}, -1000000, -11, 1},
    {"from 99.99", {.minimum = "9999e-2"}, 9999, 1000000, 1},
    {"multiples of 0.05", {.multiple_of = "0.05", .minimum = "-1"}, -100, 1000000, 5},
    {"multiples of 2.5", {.multiple_of = "25e-1"}, -1000000, 1000000, 250},
    {"exactly 42", {.minimum = "42", .maximum = "42.000"}, 4200, 4200, 1},
    {"no number", {.minimum = "3", .maximum = "2"}, 300, 200, 1}
};

static void check_number(const void *argument) {
    const struct number_row *row = argument;
    struct subject s;
    struct languages *all = subject_begin(&s);
    if (!subject_end(&s, language_number(all, &row->range), row->name)) {
        subject_free(&s);
        return;
    }
    for (int64_t hundredths = -31000; hundredths <= 31000; hundredths += hundredths % 2000 == 0 ? 1 : 7) {
        int64_t magnitude = hundredths < 0 ? -hundredths : hundredths;
        const char *sign = hundredths < 0 ? "-" : "";
        bool in = hundredths >= row->minimum && hundredths <= row->maximum && hundredths % row->step == 0;
        char text[32];
        /* with two digits, without trailing zeros, and in JavaScript's form with an exponent */
        int n = snprintf(text, sizeof text, "%s%lld.%02lld", sign, (long long)magnitude / 100,
                         (long long)magnitude % 100);
        check_string(&s, row->name, text, (size_t)n, in && !row->range.integer);
        if (magnitude % 100 == 0) {
            n = snprintf(text, sizeof text, "%s%lld", sign, (long long)magnitude / 100);
            check_string(&s, row->name, text, (size_t)n, in);
        }
        if (magnitude >= 1000 && magnitude < 10000 && magnitude % 10 != 0) {
            n = snprintf(text, sizeof text, "%s%lld.%03llde+1", sign, (long long)magnitude / 1000,
                         (long long)magnitude % 1000);
            check_string(&s, row->name, text, (size_t)n, in && !row->range.integer && !row->range.multiple_of);
        }
        if (magnitude > 0 && magnitude < 10) {
            n = snprintf(text, sizeof text, "%s%llde-2", sign, (long long)magnitude);
            check_string(&s, row->name, text, (size_t)n, in && !row->range.integer && !row->range.multiple_of);
        }
    }
    static const char *const malformed[] = {"", "-", "-0", "-0.00", "00", "01", "1.", ".5", "+1", "1e", "0e+1", "1e5",
                                            "1e+05", "1E+5", "10e+5", "1.50e+5", " 1", "1 ", "0x1", "NaN"};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        check_string(&s, row->name, malformed[i], strlen(malformed[i]), false);
    }
    subject_free(&s);
}

/* Bounds of many digits, which no integer of the machine holds. */
static void large_numbers(void) {
    static const struct { struct number_range range; const char *text; bool wanted; } rows[] = {
        {{.minimum = "12345678901234567890123", .integer = true}, "12345678901234567890122", false},
        {{.minimum = "12345678901234567890123", .integer = true}, "12345678901234567890123", true},
        {{.maximum = "1e308"}, "1e+308", true}, {{.maximum = "1e308"}, "1.1e+308", false},
        {{.maximum = "1e308"}, "1e+309", false}, {{.maximum = "1e308"}, "-1e+400", true},
        {{.minimum = "-1.5e21"}, "-1.5e+21", true}, {{.exclusive_minimum = "-1.5e21"}, "-1.5e+21", false},
        {{.minimum = "1e-7"}, "9.9e-8", false}, {{.minimum = "1e-7"}, "0.0000001", true},
        {{.minimum = "1e-7"}, "0.00000009999", false}, {{.multiple_of = "1e-8"}, "0.12345678", true},
        {{.multiple_of = "1e-8"}, "0.123456789", false}, {{.multiple_of = "1e3", .integer = true}, "123000", true},
        {{.multiple_of = "1e3", .integer = true}, "123500", false}
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct subject s;
        struct languages *all = subject_begin(&s);
        if (subject_end(&s, language_number(all, &rows[i].range), rows[i].text)) {
            check_string(&s, "range", rows[i].text, strlen(rows[i].text), rows[i].wanted);
        }
        subject_free(&s);
    }
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

enum { LONGEST = 6, N_STRING = 1 + 3 + 9 + 27 + 81 + 243 + 729 };   /* all strings of at most LONGEST of a, b, c */

static size_t string_of(size_t i, char *out) {
    size_t n = 0, first = 0, count = 1;
    for (; i >= first + count; count *= 3, n++) first += count;
    i -= first;
    for (size_t at = n; at-- > 0; i /= 3) out[at] = (char)('a' + i % 3);
    return n;
}

static uint32_t rng_state;
static uint32_t rng(uint32_t n) {
    rng_state = rng_state * 1664525u + 1013904223u;
    return (rng_state >> 16) % n;
}

/* A language and which of the strings it has, computed by the definition of each operation. */
struct both {
    const struct language *language;
    bool has[N_STRING];
};

static size_t index_of(const char *s, size_t n) {
    size_t first = 0, count = 1, at = 0;
    for (size_t i = 0; i < n; i++, count *= 3) {
        first += count;
        at = at * 3 + (size_t)(s[i] - 'a');
    }
    return first + at;
}

static bool is_concat(const struct both *a, const struct both *b, const char *s, size_t n) {
    for (size_t i = 0; i <= n; i++) {
        if (a->has[index_of(s, i)] && b->has[index_of(s + i, n - i)]) return true;
    }
    return false;
}

/* Whether s is a concatenation of parts that a has. */
static bool is_star(const struct both *a, const char *s, size_t n) {
    bool reached[LONGEST + 1] = {true};
    for (size_t end = 1; end <= n; end++) {
        for (size_t i = 0; i < end; i++) {
            reached[end] = reached[end] || (reached[i] && a->has[index_of(s + i, end - i)]);
        }
    }
    return reached[n];
}

/* Some of five strings. */
static void random_strings(struct languages *all, struct both *out) {
    static const char *const texts[] = {"", "a", "ab", "cab", "bb"};
    struct slice chosen[5];
    size_t n = 0;
    char s[LONGEST + 1];
    for (size_t i = 0; i < 5; i++) {
        if (rng(2) == 1) chosen[n++] = (struct slice){texts[i], strlen(texts[i])};
    }
    out->language = language_strings(all, chosen, n);
    for (size_t i = 0; i < N_STRING; i++) {
        size_t length = string_of(i, s);
        out->has[i] = false;
        for (size_t j = 0; j < n; j++) {
            out->has[i] = out->has[i] || (chosen[j].n == length && memcmp(chosen[j].data, s, length) == 0);
        }
    }
}

static void random_operation(struct languages *all, struct both *out, const struct both *a, const struct both *b) {
    char s[LONGEST + 1];
    uint32_t op = rng(7);
    int64_t least = rng(3), most = least + rng(3);
    out->language = op == 0 ? language_union(all, a->language, b->language)
        : op == 1 ? language_intersect(all, a->language, b->language)
        : op == 2 ? language_complement(all, a->language)
        : op == 3 ? language_minus(all, a->language, b->language)
        : op == 4 ? language_concat(all, a->language, b->language)
        : op == 5 ? language_repeat(all, a->language, 0, LANGUAGE_UNBOUNDED) : language_length(all, least, most);
    for (size_t i = 0; i < N_STRING; i++) {
        size_t n = string_of(i, s);
        bool x = a->has[i], y = b->has[i];
        out->has[i] = op == 0 ? x || y : op == 1 ? x && y : op == 2 ? !x : op == 3 ? x && !y
            : op == 4 ? is_concat(a, b, s, n) : op == 5 ? is_star(a, s, n)
            : (int64_t)n >= least && (int64_t)n <= most;
    }
}

static void operations(void) {
    enum { N_LANGUAGE = 9 };
    struct both *pool = alloc_array(N_LANGUAGE, sizeof *pool);
    char s[LONGEST + 1];
    REQUIRE(pool, "out of memory");
    rng_state = 22;
    for (int round = 0; round < 60; round++) {
        struct subject subject;
        struct languages *all = subject_begin(&subject);
        for (size_t i = 0; i < N_LANGUAGE; i++) {
            if (i < 3) random_strings(all, &pool[i]);
            else random_operation(all, &pool[i], &pool[rng((uint32_t)i)], &pool[rng((uint32_t)i)]);
        }
        const struct both *last = &pool[N_LANGUAGE - 1];
        if (subject_end(&subject, last->language, "operations")) {
            for (size_t i = 0; i < N_STRING; i++) {
                check_string(&subject, "operations", s, string_of(i, s), last->has[i]);
            }
            /* De Morgan's law, by two ways to one minimal automaton */
            const struct language *a = pool[7].language, *b = last->language;
            const struct language *left = language_complement(all, language_union(all, a, b));
            const struct language *right = language_intersect(all, language_complement(all, a),
                                                              language_complement(all, b));
            const struct dfa *x = language_dfa(all, left), *y = language_dfa(all, right);
            CHECK(x && y && dfa_equal(x, y), "%s", subject.err.message);
        }
        subject_free(&subject);
    }
    free(pool);
}

static bool add_line(void *user, const char *utf8, size_t n) {
    grammar_text_add(user, utf8, n);
    grammar_text_add(user, "|", 1);
    return true;
}

static bool is_any(struct languages *all, const struct language *a) {
    const struct dfa *dfa = a ? language_dfa(all, a) : NULL;
    return dfa && dfa->all == 0;
}

static void questions(void) {
    struct error err;
    struct languages *all = languages_create(&err);
    const char *infinite = "ab*c?", *finite = "[x-z]{1,2}|\xc3\xa9|", *chain = "(?!b)a{0,4500}";
    bool yes;
    uint32_t n;
    struct grammar_text strings = {0};
    REQUIRE(all, "%s", err.message);
    const struct language *a = language_regex(all, infinite, strlen(infinite), REGEX_WHOLE);
    CHECK(language_enumerate(all, a, 5, add_line, &strings, &n) == PLUMB_OK && n == 6, "%u, %s", (unsigned)n,
          err.message);
    CHECK(strings.data && strcmp(strings.data, "a|ab|ac|abb|abc|") == 0, "%s", strings.data);
    strings.n = 0;
    a = language_regex(all, finite, strlen(finite), REGEX_WHOLE);
    CHECK(language_enumerate(all, a, 100, add_line, &strings, &n) == PLUMB_OK && n == 14, "%u", (unsigned)n);
    CHECK(strcmp(strings.data, "|x|y|z|\xc3\xa9|xx|xy|xz|yx|yy|yz|zx|zy|zz|") == 0, "%s", strings.data);
    grammar_text_free(&strings);
    CHECK(language_enumerate(all, language_any(all), 3, NULL, NULL, &n) == PLUMB_OK && n == 4, "%u", (unsigned)n);
    CHECK(language_enumerate(all, language_none(all), 3, NULL, NULL, &n) == PLUMB_OK && n == 0, "%u", (unsigned)n);
    CHECK(is_any(all, language_regex(all, "", 0, REGEX_SEARCH)), "any");
    CHECK(is_any(all, language_regex(all, "^", 1, REGEX_SEARCH)), "any");
    CHECK(!is_any(all, a), "any");
    CHECK(language_is_empty(all, language_intersect(all, a, language_length(all, 3, LANGUAGE_UNBOUNDED)), &yes) ==
          PLUMB_OK && yes, "empty");
    /* Of a chain of states whose last one has no longer string, the lengths are known in one pass. */
    a = language_regex(all, chain, strlen(chain), REGEX_WHOLE);
    a = language_intersect(all, a, language_length(all, 1, 9999));
    struct grammar *g;
    CHECK(make_language(&g, all, a, LANGUAGE_JSON, &err) == PLUMB_OK, "%s", err.message);
    grammar_free(g);
    /* A length needs no automaton of its own, however large it is. */
    CHECK(language_is_empty(all, language_length(all, 10, 100000), &yes) == PLUMB_OK && !yes, "empty");
    CHECK(language_has(all, language_string(all, "\xed\xa0\x80", 3), "\xed\xa0\x80", 3, &yes) == PLUMB_OK && !yes,
          "a surrogate");
    languages_free(all);
}

/* ---- the rules of languages: as those of a text in GBNF ---------------------------------------------------------- */

struct written_row {
    const char *name, *regex;
    enum regex_match match;
    enum language_form form;
    const char *grammar;
};

static const struct written_row written_rows[] = {
    {"a regular expression keeps its shape", "(?:ab|c)+\\d{2,3}x?", REGEX_WHOLE, LANGUAGE_PLAIN,
     "root ::= (\"ab\" | \"c\")+ [0-9]{2,3} \"x\"?\n"},
    {"anchors at the ends", "^a[^\"\\]-]$", REGEX_SEARCH, LANGUAGE_PLAIN, "root ::= \"a\" [^\"\\x2D\\]]\n"},
    {"what JSON escapes", "^\"\\n\\x01$", REGEX_SEARCH, LANGUAGE_JSON, "root ::= \"\\\\\\\"\\\\n\\\\u0001\"\n"},
    {"what JSON may escape", "^.$", REGEX_SEARCH, LANGUAGE_JSON,
     "root ::= root-1\n"
     "root-1 ::= [^\\x00-\\x1F\"\\\\\\u2028\\u2029] | \"\\\\\" [\"\\\\bft] | \"\\\\u000\" [0-7bef] | \"\\\\u001\" "
     "[0-9a-f]\n"},
    {"a search is an automaton", "ab", REGEX_SEARCH, LANGUAGE_PLAIN,
     "root ::= [^a]* \"a\"+ ([^ab] root | \"b\" .*)\n"},
    {"an assertion is an automaton", "(?!10$)1\\d", REGEX_WHOLE, LANGUAGE_PLAIN, "root ::= \"1\" [1-9]\n"},
    {"nothing that can be empty is repeated", "(?:a*)*b", REGEX_WHOLE, LANGUAGE_PLAIN,
     "root ::= root-1 \"b\"\nroot-1 ::= \"a\"*\n"},
    {"the empty string", "", REGEX_WHOLE, LANGUAGE_PLAIN, "root ::= \"\"\n"}
};

static void check_written(const void *argument) {
    const struct written_row *row = argument;
    struct error err = {0};
    struct languages *all = languages_create(&err);
    struct grammar *g = NULL, *wanted = NULL;
    const struct language *a = language_regex(all, row->regex, strlen(row->regex), row->match);
    CHECK(make_language(&g, all, a, row->form, &err) == PLUMB_OK, "%s", err.message);
    CHECK(make_grammar(&wanted, row->grammar, strlen(row->grammar), &err) == PLUMB_OK, "%s", err.message);
    if (g && wanted && CHECK(g->n_code == wanted->n_code && g->n_rule == wanted->n_rule && g->n_name == wanted->n_name
                             && g->n_edge == wanted->n_edge, "%zu instructions, %zu rules", g->n_code, g->n_rule)) {
        CHECK(memcmp(g->code, wanted->code, g->n_code * sizeof *g->code) == 0, "the instructions differ");
        CHECK(memcmp(g->names, wanted->names, g->n_name) == 0, "the names differ");
        for (size_t i = 0; i < g->n_edge; i++) {
            const struct byte_edge x = g->edges[i], y = wanted->edges[i];
            CHECK(x.low == y.low && x.high == y.high && x.node == y.node, "edge %zu differs", i);
        }
    }
    grammar_free(g);
    grammar_free(wanted);
    languages_free(all);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

struct refused_row {
    const char *name, *regex;
    plumb_status status;
    const char *message;   /* a part of it */
};

static const struct refused_row refused_rows[] = {
    {"a back-reference", "(a)\\1", PLUMB_ERROR_UNSUPPORTED, "character 4 of the regular expression \"(a)\\1\": a"},
    {"a named back-reference", "(?<n>a)\\k<n>", PLUMB_ERROR_UNSUPPORTED, "character 8"},
    {"lookbehind", "\xc3\xa9(?<=a)b", PLUMB_ERROR_UNSUPPORTED, "character 2 "},
    {"negative lookbehind", "(?<!a)b", PLUMB_ERROR_UNSUPPORTED, "lookbehind"},
    {"modifiers", "(?i:a)", PLUMB_ERROR_UNSUPPORTED, "this kind of group"},
    {"recursion", "(?&date)", PLUMB_ERROR_UNSUPPORTED, "this kind of group"},
    {"a property", "\\p{Lu}", PLUMB_ERROR_UNSUPPORTED, "this property"},
    {"a group without end", "a(b", PLUMB_ERROR_ARGUMENT, "character 2"},
    {"a group without begin", "ab)", PLUMB_ERROR_ARGUMENT, "character 3"},
    {"a class without end", "[a", PLUMB_ERROR_ARGUMENT, "character 1"},
    {"a class without end after an escape", "[\\d-", PLUMB_ERROR_ARGUMENT, "character 1"},
    {"a backslash at the end", "a\\", PLUMB_ERROR_ARGUMENT, "a backslash ends it"},
    {"a backslash at the end of a class", "[\\", PLUMB_ERROR_ARGUMENT, "a backslash ends it"},
    {"an unknown escape", "\\y", PLUMB_ERROR_ARGUMENT, "an unknown escape"},
    {"an octal escape", "\\01", PLUMB_ERROR_ARGUMENT, "octal"},
    {"two quantifiers", "a**", PLUMB_ERROR_ARGUMENT, "nothing to repeat"},
    {"a repeated assertion", "^*", PLUMB_ERROR_ARGUMENT, "cannot be repeated"},
    {"a range that ends before it begins", "[z-a]", PLUMB_ERROR_ARGUMENT, "the range"},
    {"a repetition of that kind", "a{3,2}", PLUMB_ERROR_ARGUMENT, "the most is less"},
    {"half of an escape", "\\u12", PLUMB_ERROR_ARGUMENT, "\\u is followed"},
    {"@ in the place of a digit", "\\x4@", PLUMB_ERROR_ARGUMENT, "\\x is followed"},
    {"no character", "\\u{110000}", PLUMB_ERROR_ARGUMENT, "\\u is followed"},
    {"a group's name", "(?<n", PLUMB_ERROR_ARGUMENT, "the name of a group"},
    {"10^9 repetitions", "a{1000000000}", PLUMB_ERROR_UNSUPPORTED, "2000000000 states"},
    {"nested repetitions", "(((a{1000000000}){1000000000}){1000000000}){1000000000}", PLUMB_ERROR_UNSUPPORTED,
     "states"},
    {"small repetitions, nested", "(?:(?:(?:(?:a{30}){30}){30}){30}){30}", PLUMB_ERROR_UNSUPPORTED, "states"},
    {"an exponential automaton", "(?=(a|b)*a(a|b){40}$).*", PLUMB_ERROR_UNSUPPORTED, "states"},
    {"lookaheads of 2^14 states in one another", "(?!(?=(a|b)*a(a|b){14}$)(?=(a|b)*b(a|b){13}$)(?!.*(?=a.{9}$)))a*",
     PLUMB_ERROR_UNSUPPORTED, "states"}
};

static void check_refused(const void *argument) {
    const struct refused_row *row = argument;
    struct error err = {0};
    struct grammar *g;
    double begin = clock_seconds();
    plumb_status status = make_regex(&g, row->regex, &err);
    test_note("%.0f ms, %s", 1e3 * (clock_seconds() - begin), err.message);
    CHECK(status == row->status, "%d, %s", status, err.message);
    CHECK(strstr(err.message, row->message), "%s", err.message);
    grammar_free(g);
}

/* n times a text. */
static char *repeated(const char *text, size_t n) {
    size_t length = strlen(text);
    char *all = malloc(n * length + 1);
    for (size_t i = 0; all && i < n; i++) memcpy(all + i * length, text, length);
    if (all) all[n * length] = 0;
    return all;
}

/* Long expressions end in a grammar or an error; nothing overflows the stack.  The repeated assertions of ARGUMENT
 * match no string. */
static void long_ones(void) {
    static const struct { const char *text; size_t n; plumb_status status; } rows[] = {
        {"(", 100000, PLUMB_ERROR_UNSUPPORTED}, {"(?=", 100000, PLUMB_ERROR_UNSUPPORTED},
        {"[", 100000, PLUMB_ERROR_ARGUMENT}, {"a", 10000, PLUMB_OK}, {"a", 1000000, PLUMB_ERROR_UNSUPPORTED},
        {"a|", 9000, PLUMB_OK}, {"(?=.*a)", 300, PLUMB_ERROR_ARGUMENT}, {"a?", 9000, PLUMB_OK}, {"a*", 9000, PLUMB_OK},
        {"\\b", 5000, PLUMB_ERROR_ARGUMENT}, {"(?!a)", 3000, PLUMB_OK}, {"()|", 5000, PLUMB_OK}
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err = {0};
        struct grammar *g;
        char *regex = repeated(rows[i].text, rows[i].n);
        double begin = clock_seconds();
        REQUIRE(regex, "out of memory");
        plumb_status status = make_regex(&g, regex, &err);
        test_note("%s x %zu: %.0f ms, %s", rows[i].text, rows[i].n, 1e3 * (clock_seconds() - begin), err.message);
        CHECK(status == rows[i].status, "%s x %zu: %d, %s", rows[i].text, rows[i].n, status, err.message);
        grammar_free(g);
        free(regex);
    }
}

static void refused_numbers(void) {
    static const struct { struct number_range range; plumb_status status; } rows[] = {
        {{.minimum = ""}, PLUMB_ERROR_ARGUMENT}, {{.minimum = "-"}, PLUMB_ERROR_ARGUMENT},
        {{.minimum = "1."}, PLUMB_ERROR_ARGUMENT}, {{.maximum = "1e"}, PLUMB_ERROR_ARGUMENT},
        {{.maximum = "1x"}, PLUMB_ERROR_ARGUMENT}, {{.multiple_of = "0"}, PLUMB_ERROR_ARGUMENT},
        {{.multiple_of = "-2"}, PLUMB_ERROR_ARGUMENT}, {{.multiple_of = "123457"}, PLUMB_ERROR_UNSUPPORTED},
        {{.maximum = "1e99999999999999999999"}, PLUMB_ERROR_UNSUPPORTED}, {{.minimum = "1e-9999"},
        PLUMB_ERROR_UNSUPPORTED}
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err = {0};
        struct languages *all = languages_create(&err);
        REQUIRE(all, "%s", err.message);
        CHECK(!language_number(all, &rows[i].range) && err.status == rows[i].status, "row %zu: %d %s", i, err.status,
              err.message);
        CHECK(!language_format(all, "regex", 5) && err.status == PLUMB_ERROR_UNSUPPORTED, "%s", err.message);
        CHECK(!language_has_format("octet", 5) && !language_format(all, "octet", 5), "a part of a format");
        CHECK(!language_repeat(all, language_any(all), 2, 1) && err.status == PLUMB_ERROR_ARGUMENT, "%s", err.message);
        CHECK(!language_union(all, NULL, language_any(all)), "NULL");
        languages_free(all);
    }
}

void test_regular(void) {
    test_case("regular: expressions match as RegExp does, also as grammars of texts and of JSON strings", regexes);
    test_case("regular: ipv4, ipv6 and date equal Python's ipaddress and datetime", addresses);
    TEST_ROWS("regular: format ", check_format, format_rows);
    TEST_ROWS("regular: range ", check_number, number_rows);
    test_case("regular: ranges of large numbers", large_numbers);
    test_case("regular: operations equal their definitions on all short strings", operations);
    test_case("regular: questions about languages", questions);
    TEST_ROWS("regular: rules: ", check_written, written_rows);
    TEST_ROWS("regular: refused: ", check_refused, refused_rows);
    test_case("regular: long expressions", long_ones);
    test_case("regular: refused numbers, formats and repetitions", refused_numbers);
}

/* What can be said of grammars before they are used: rules that no text needs, and texts with two derivations.  Ground
 * truth: small grammars whose derivations are counted by hand. */
#include "grammar/check.h"
#include "grammar_make.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

struct ambiguity_row {
    const char *name, *grammar;
    const char *rule, *text;   /* NULL: no text has two derivations */
    uint32_t n_length;         /* at least; 0: the search is complete */
};

static const struct ambiguity_row ambiguity_rows[] = {
    { "two words", "root ::= \"a\" | \"b\"", NULL, NULL, 0 },
    { "one word twice", "root ::= \"a\" | [ab]", "root", "a", 0 },
    { "two repetitions", "root ::= \"a\"* \"a\"*", "root", "a", 0 },
    { "repetitions of one to two", "root ::= \"a\"{1,2} \"a\"{1,2}", "root", "aaa", 0 },
    { "a repetition of what may be empty", "root ::= (\"a\"?)*", "root", "", 0 },
    { "a repetition of a rule that may be empty", "root ::= \"b\" a*\na ::= \"a\"?", "root", "b", 0 },
    { "terms with tails", "root ::= e\ne ::= [0-9] (\"+\" e | \"-\" e)?", NULL, NULL, 0 },
    { "terms on both sides", "root ::= t\nt ::= [0-9] | \"(\" t (\"+\" t)* \")\" | \"(\" t \"+\" t \")\"",
      "root", "(0+0)", 0 },
    { "a dangling else", "root ::= s\ns ::= \"i\" s (\"e\" s)? | \"x\"", "root", "iixex", 0 },
    { "the innermost rule", "root ::= \"0123456789012345678901234567890123456789\" list\nlist ::= item*\n"
      "item ::= \"x\" | \"xx\"", "list", "xx", 0 },
    { "only what is used", "root ::= \"a\" | no\nno ::= \"b\" no | \"b\" no\nother ::= \"a\" | \"a\"", NULL, NULL, 0 },
    { "a part that never ends", "root ::= \"a\" | \"a\" no\nno ::= \"b\" no", NULL, NULL, 0 },
    { "palindromes", "root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"ab\" root \"ba\" | \"c\"", "root", "abcba", 0 },
    { "brackets", "root ::= (\"(\" root \")\")?", NULL, NULL, 1000 },
    { "two kinds of brackets", "root ::= (\"(\" root \")\" | \"[\" root \"]\")*", NULL, NULL, 10 },
    { "a character of two bytes", "root ::= \"\\u00e9\" | [\\u00e0-\\u00fc]", "root", "\xc3\xa9", 0 },
    { "characters of which only the first byte is equal", "root ::= \"\\u00e9\" | [\\u00ea-\\u00fc]", NULL, NULL, 0 },
    { "a letter is shown instead of a control character", "root ::= [\\x01-z] | [\\x02-z]", "root", "a", 0 },
    { "tokens", "root ::= \"x\" <[5]> | \"x\" !<[6]>", "root", "x<[5]>", 0 },
    { "any other token", "root ::= !<[0]> | !<[1]>", "root", "<[2]>", 0 },
    { "tokens that differ", "root ::= <[5]> | !<[5]> | <[6]> \"a\"", NULL, NULL, 0 },
    { "the last definition counts", "a ::= \"x\" | \"x\"\nroot ::= a\na ::= \"x\" | \"y\"", NULL, NULL, 0 },
};

static void check_ambiguity(const void *arg) {
    const struct ambiguity_row *row = arg;
    struct error err = { 0 };
    struct grammar *g;
    struct grammar_uses uses;
    struct ambiguity found;
    REQUIRE(make_grammar(&g, row->grammar, strlen(row->grammar), &err) == PLUMB_OK, "%s", err.message);
    REQUIRE(grammar_find_uses(g, &uses, &err) == PLUMB_OK, "%s", err.message);
    plumb_status status = grammar_find_ambiguity(g, &uses, CHECK_MAX_WORK, &found, &err);
    REQUIRE(status == PLUMB_OK, "%s", err.message);
    if (row->text && CHECK(found.is_found, "nothing was found up to %u", (unsigned)found.n_length)) {
        const struct grammar_rule *rule = &g->rules[found.rule];
        CHECK(found.text.n == strlen(row->text)
              && (found.text.n == 0 || memcmp(found.text.data, row->text, found.text.n) == 0),
              "the text is \"%s\", expected \"%s\"", found.text.data ? found.text.data : "", row->text);
        CHECK(rule->n_name == strlen(row->rule) && memcmp(g->names + rule->name, row->rule, rule->n_name) == 0,
              "the rule is %.*s", (int)rule->n_name, g->names + rule->name);
    } else if (!row->text) {
        CHECK(!found.is_found, "\"%s\" was found", found.text.data ? found.text.data : "");
        CHECK(found.is_complete == (row->n_length == 0), "complete: %d", found.is_complete);
        CHECK(found.n_length >= row->n_length, "searched below %u", (unsigned)found.n_length);
    }
    grammar_text_free(&found.text);
    grammar_uses_free(&uses);
    grammar_free(g);
}

/* Each rule with its use, in the order in which names occur. */
static void find_uses(void) {
    static const char text[] = "root ::= a | b d | \"r\"\na ::= \"a\" b a\nb ::= \"b\" | a\nc ::= \"c\" e\n"
                               "d ::= \"d\" d | c f | b\ne ::= \"e\" e?\nf ::= f2 \"f\"\nf2 ::= \"f\" f2 f2\n"
                               "g ::= h\nh ::= \"h\"";
    static const struct { const char *name; enum rule_use use; } expected[] = {
        { "root", RULE_USED }, { "a", RULE_ENDLESS }, { "b", RULE_USED }, { "d", RULE_USED },
        { "c", RULE_UNREACHABLE }, { "e", RULE_UNREACHABLE }, { "f", RULE_ENDLESS }, { "f2", RULE_ENDLESS },
        { "g", RULE_UNREACHABLE }, { "h", RULE_UNREACHABLE },
    };
    struct error err = { 0 };
    struct grammar *g;
    struct grammar_uses uses;
    REQUIRE(make_grammar(&g, text, sizeof text - 1, &err) == PLUMB_OK, "%s", err.message);
    REQUIRE(grammar_find_uses(g, &uses, &err) == PLUMB_OK, "%s", err.message);
    CHECK(g->n_rule == sizeof expected / sizeof *expected, "%zu rules", g->n_rule);
    for (size_t i = 0; i < g->n_rule; i++) {
        const struct grammar_rule *rule = &g->rules[i];
        const char *name = expected[i].name;
        CHECK(rule->n_name == strlen(name) && memcmp(g->names + rule->name, name, rule->n_name) == 0,
              "rule %zu is %.*s", i, (int)rule->n_name, g->names + rule->name);
        CHECK(uses.rules[i] == expected[i].use, "%s: %d", name, uses.rules[i]);
    }
    grammar_uses_free(&uses);
    grammar_free(g);
}

/* Before a byte is read, this grammar is in 2^30 places: the search ends at once, without a result. */
static void check_hostile(void) {
    enum { N = 30 };
    char text[2000];
    size_t n = (size_t)snprintf(text, sizeof text, "root ::= r0\nr%d ::= \"-\"\n", N);
    for (int i = 0; i < N; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "r%d ::= r%d \"%c\" | r%d \"%c\"\n", i, i + 1, 'a' + i, i + 1,
                              '0' + i);
    }
    struct error err = { 0 };
    struct grammar *g;
    struct grammar_uses uses;
    struct ambiguity found;
    REQUIRE(make_grammar(&g, text, n, &err) == PLUMB_OK, "%s", err.message);
    REQUIRE(grammar_find_uses(g, &uses, &err) == PLUMB_OK, "%s", err.message);
    REQUIRE(grammar_find_ambiguity(g, &uses, CHECK_MAX_WORK, &found, &err) == PLUMB_OK, "%s", err.message);
    CHECK(!found.is_found && !found.is_complete && found.n_length == 0, "searched below %u", (unsigned)found.n_length);
    grammar_text_free(&found.text);
    grammar_uses_free(&uses);
    grammar_free(g);
}

static void write_report(void *user, const char *bytes, size_t n) {
    grammar_text_add(user, bytes, n);
}

/* The public functions. */
static void report(void) {
    static const char text[] = "root ::= key \":\" value\nkey ::= \"k\" value?\nvalue ::= [0-9] | \"1\"\nno ::= key\n";
    plumb_grammar *g = plumb_grammar_create(NULL);
    REQUIRE(g != NULL, "no memory");
    struct grammar_text written = { 0 };
    CHECK(plumb_grammar_check(g, write_report, &written) == PLUMB_ERROR_STATE, "%s", plumb_grammar_error(g));
    plumb_matcher *m = NULL;
    plumb_status status = plumb_grammar_parse(g, text, sizeof text - 1);
    if (status == PLUMB_OK) status = plumb_grammar_check(g, write_report, &written);
    if (status == PLUMB_OK) status = plumb_matcher_create(&m, g);
    REQUIRE(status == PLUMB_OK, "%s", plumb_grammar_error(g));
    CHECK(strcmp(written.data, "the rule no is not used: no text of root needs it\n"
                 "ambiguous: the rule value derives \"1\" in two ways\n") == 0, "%s", written.data);
    char rules[12];
    CHECK(plumb_matcher_accept_text(m, "k", 1) == PLUMB_OK, "%s", plumb_grammar_error(g));
    int64_t n_rules = plumb_matcher_rules(m, rules, sizeof rules);
    CHECK(n_rules == 11 && (memcmp(rules, "value, root", 11) == 0 || memcmp(rules, "root, value", 11) == 0), "%.*s",
          (int)(n_rules < 12 ? n_rules : 12), rules);
    CHECK(plumb_matcher_rules(m, rules, 3) == 11, "%.3s", rules);
    plumb_matcher_free(m);
    plumb_grammar_free(g);
    grammar_text_free(&written);
}

void test_grammar_check(void) {
    TEST_ROWS("grammar_check: ambiguity, ", check_ambiguity, ambiguity_rows);
    test_case("grammar_check: rules that no text needs", find_uses);
    test_case("grammar_check: a grammar with 2^30 places after the empty text ends in time", check_hostile);
    test_case("grammar_check: the report", report);
}

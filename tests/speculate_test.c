/* The parts of speculation without a model: the index of prompt lookup, compared with a search of the whole text, and
 * the plan of drafts, by costs that are given instead of measured. */
#include "speculate/costs.h"
#include "speculate/lookup.h"
#include "test.h"

#include <stdlib.h>

static uint32_t below(uint64_t *random, uint32_t n) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*random >> 33) % n);
}

/* ---- the index --------------------------------------------------------------------------------------------------- */

enum { N_TEXT = 3000 };

/* A text of n_word different tokens, in which parts come back. */
static void write_text(int32_t *tokens, uint32_t n, uint32_t n_word, uint64_t *random) {
    for (uint32_t i = 0; i < n;) {
        uint32_t length = 1 + below(random, 60), from = i > 0 ? below(random, i) : 0;
        bool is_copy = i > 0 && below(random, 2);
        for (uint32_t k = 0; k < length && i < n; k++, i++) {
            tokens[i] = is_copy ? tokens[from + k] : (int32_t)below(random, n_word);
        }
    }
}

/* How many tokens before `end` are those before n. */
static uint32_t common(const int32_t *tokens, uint32_t end, uint32_t n) {
    uint32_t same = 0;
    while (same < end && same < LOOKUP_LONGEST && tokens[end - 1 - same] == tokens[n - 1 - same]) same++;
    return same;
}

static uint32_t longest(const int32_t *tokens, uint32_t n) {
    uint32_t most = 0;
    for (uint32_t end = 1; end < n; end++) most = common(tokens, end, n) > most ? common(tokens, end, n) : most;
    return most;
}

/* The source must be a place in the text whose last tokens are those at its end.  With so many words that few places
 * begin alike, it has the longest match, or is the place where a long match goes on. */
static void source_case(void) {
    static int32_t tokens[N_TEXT];
    uint32_t n_source = 0, n_best = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        uint64_t random = seed;
        struct lookup l = { 0 };
        write_text(tokens, N_TEXT, seed % 3 == 0 ? 3 : 400, &random);
        uint32_t prompt = below(&random, 500);
        REQUIRE(lookup_extend(&l, tokens, prompt, false), "no memory");
        for (uint32_t n = prompt + 1; n <= N_TEXT; n++) {
            REQUIRE(lookup_extend(&l, tokens, n, true), "no memory");
            uint32_t length = l.length < LOOKUP_LONGEST ? l.length : LOOKUP_LONGEST;
            if (l.length > 0) {
                REQUIRE(l.source > 0 && l.source < n && l.length >= 2 && common(tokens, l.source, n) >= length,
                        "seed %d, %u tokens: no match of %u at %u", (int)seed, n, l.length, l.source);
                n_source++;
            }
            if (seed % 3 == 0 || n % 7 > 0) continue;
            uint32_t best = longest(tokens, n);
            REQUIRE(best < 2 || l.length >= (best < 8 ? best : 8), "seed %d, %u tokens: a match of %u, not %u",
                    (int)seed, n, l.length, best);
            n_best += best >= 2;
        }
        lookup_free(&l);
    }
    CHECK(n_source > 1000 && n_best > 1000, "%u sources, %u compared", n_source, n_best);
}

/* Going back and on again gives the index of a text that was never longer. */
static void keep_case(void) {
    static int32_t tokens[N_TEXT], other[N_TEXT];
    uint64_t random = 5;
    struct lookup l = { 0 };
    write_text(tokens, N_TEXT, 50, &random);
    REQUIRE(lookup_extend(&l, tokens, N_TEXT, false), "no memory");
    for (int i = 0; i < 40; i++) {
        uint32_t n = below(&random, N_TEXT), end = n + below(&random, N_TEXT - n);
        if (i % 8 == 7) lookup_clear(&l);   /* as if all tokens were others */
        else lookup_keep(&l, tokens, n);
        write_text(other, N_TEXT, 50, &random);
        memcpy(tokens + n, other + n, (end - n) * sizeof *tokens);
        REQUIRE(lookup_extend(&l, tokens, end, false), "no memory");
        struct lookup fresh = { 0 };
        REQUIRE(lookup_extend(&fresh, tokens, N_TEXT, false), "no memory");   /* with as many buckets */
        lookup_keep(&fresh, tokens, 0);
        REQUIRE(fresh.n == 0 && lookup_extend(&fresh, tokens, end, false) && fresh.n_bucket == l.n_bucket, "%u of %u",
                l.n_bucket, fresh.n_bucket);
        for (int g = 0; g < LOOKUP_GRAMS; g++) {
            CHECK(memcmp(l.heads[g], fresh.heads[g], l.n_bucket * sizeof **l.heads) == 0, "%d: other heads", i);
            CHECK(memcmp(l.before[g] + 8, fresh.before[g] + 8, (end > 7 ? end - 7 : 0) * sizeof **l.before) == 0,
                  "%d: other chains", i);
        }
        lookup_free(&fresh);
    }
    lookup_free(&l);
}

/* A copy with a change: after two tokens the source is the place behind the change, not one of many others that the
 * two tokens also have. */
static void edit_case(void) {
    static int32_t tokens[1200];
    uint32_t n = 0;
    struct lookup l = { 0 };
    for (int i = 0; i < 300; i++) tokens[n++] = i % 10 < 2 ? 1 + i % 10 : 100 + i;   /* 1 2 comes every 10 tokens */
    uint32_t begin = n;
    for (int i = 100; i < 130; i++) tokens[n++] = tokens[i];
    tokens[n++] = 7;   /* the change */
    tokens[n++] = 8;
    REQUIRE(lookup_extend(&l, tokens, begin, false) && lookup_extend(&l, tokens, n, true), "no memory");
    tokens[n++] = 1;
    tokens[n++] = 2;
    REQUIRE(lookup_extend(&l, tokens, n, true), "no memory");
    CHECK(l.source == 132 && l.length == 2 && l.is_near, "source %u, a match of %u", l.source, l.length);
    lookup_free(&l);
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

/* What passes of n tokens take on a machine, in seconds. */
static double seconds_of(uint32_t n, double each) { return 0.1 * (1 + each * (n - 1)); }

/* Answers of 500 tokens: in each step `chance` is the probability that a token of a draft is right.  Returns the time
 * without drafts by the time with them. */
static double speed_of(double each, double believed, double chance, uint64_t seed) {
    struct costs c;
    double chances[COSTS_MOST - 1], seconds = 0;
    uint32_t n_made = 0;
    costs_init(&c);
    for (uint32_t i = 0; i < COSTS_MOST - 1; i++) chances[i] = believed;
    while (n_made < 500) {
        uint32_t n = costs_plan(&c, 1, 1, 0, chances, COSTS_MOST - 1), n_right = 0;
        while (n_right < n && below(&seed, 1000) < 1000 * chance) n_right++;
        double cost = costs_measure(&c, 1 + n, seconds_of(1 + n, each));
        costs_settle(&c, n > 0 ? n_right + 1 - cost : 0);
        seconds += seconds_of(1 + n, each);
        n_made += 1 + n_right;
    }
    return n_made * seconds_of(1, each) / seconds;
}

/* Drafts that are never right, though they are believed to be, and passes that cost more than on other machines. */
static void loss_case(void) {
    for (int i = 0; i < 20; i++) {
        double each = 0.05 + 0.05 * i;   /* at most what a pass of one token costs */
        for (int k = 1; k < 10; k++) {
            double speed = speed_of(each, 0.1 * k, 0, (uint64_t)i + 1), rarely = speed_of(each, 0.1 * k, 0.05 * k, 3);
            CHECK(speed >= 0.97, "a token more costs %g, %g is believed: %.3f of the speed without drafts", each,
                  0.1 * k, speed);
            CHECK(rarely >= 0.97, "a token more costs %g, %g is believed, half of it true: %.3f", each, 0.1 * k,
                  rarely);
        }
    }
}

/* The larger part of what the best length of drafts gains is gained, although what passes cost is unknown at first. */
static void gain_case(void) {
    for (int i = 0; i < 5; i++) {
        double each = 0.1 + 0.15 * i;
        for (int k = 6; k < 10; k++) {
            double chance = 0.1 * k, best = 1;
            for (uint32_t n = 1; n < COSTS_MOST; n++) {
                double expected = 1, power = 1;
                for (uint32_t t = 0; t < n; t++) expected += power *= chance;
                double speed = expected * seconds_of(1, each) / seconds_of(1 + n, each);
                best = speed > best ? speed : best;
            }
            double speed = speed_of(each, chance, chance, 7);
            CHECK(speed > 1 + 0.5 * (best - 1) - 0.04, "a token more costs %g, right with %g: %.2f, not %.2f", each,
                  chance, speed, best);
        }
    }
}

/* A pass that another program has disturbed is not the end of its length. */
static void disturbed_case(void) {
    struct costs c;
    double chances[COSTS_MOST - 1];
    costs_init(&c);
    for (uint32_t i = 0; i < COSTS_MOST - 1; i++) chances[i] = 0.99;
    CHECK(costs_plan(&c, 1, 1, 0, chances, 15) == 0, "a draft before the first pass was measured");
    for (int i = 0; i < 10; i++) costs_measure(&c, 1, 0.1);
    costs_settle(&c, 12);
    uint32_t n = costs_plan(&c, 1, 1, 0, chances, 15);
    CHECK(n >= 12, "drafts of %u", n);
    for (int i = 0; i < 12; i++) {
        for (uint32_t k = 2; k <= COSTS_MOST; k++) costs_measure(&c, k, 100);
    }
    CHECK(costs_plan(&c, 1, 1, 0, chances, 15) == 0, "passes of several tokens are slow, but %u are planned",
          costs_plan(&c, 1, 1, 0, chances, 15));
    for (int i = 0; i < 300; i++) costs_measure(&c, 1, 0.1);
    CHECK(costs_plan(&c, 1, 1, 0, chances, 15) > 0, "no draft is tried again");
    costs_measure(&c, 0, 1);
    costs_measure(&c, COSTS_MOST + 1, 1);
    costs_measure(&c, 2, 0);
    CHECK(costs_plan(&c, 20, 20, 0, chances, 15) == 0, "a draft in a pass of 20 tokens");
}

void test_speculate(void) {
    test_case("speculate: the source of a draft is the longest match of the end of the text", source_case);
    test_case("speculate: an index that went back is that of the shorter text", keep_case);
    test_case("speculate: a copy goes on behind a change", edit_case);
    test_case("speculate: drafts that are wrong cost at most 3 %", loss_case);
    test_case("speculate: drafts gain what the costs of passes allow", gain_case);
    test_case("speculate: a disturbed measurement is forgotten", disturbed_case);
}

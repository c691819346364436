/* plumb_text_push: whole characters however the bytes are cut. */
#include "test.h"

struct example { const char *name, *bytes, *text; };

/* Pushes the bytes between cuts one after another (bit i of cuts: a cut after byte i), then flushes. */
static size_t push_cut(const char *bytes, size_t n, uint32_t cuts, char *out) {
    plumb_text text = {{0}, 0};
    size_t length = 0, begin = 0;
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n && !(cuts >> i & 1)) continue;
        char buf[128];
        size_t got = plumb_text_push(&text, bytes + begin, i + 1 - begin, buf, sizeof buf);
        memcpy(out + length, buf, got);
        length += got;
        begin = i + 1;
    }
    char buf[12];
    size_t got = plumb_text_flush(&text, buf, sizeof buf);
    memcpy(out + length, buf, got);
    return length + got;
}

static void equals_example(const void *row) {
    const struct example *e = row;
    size_t n = strlen(e->bytes), n_text = strlen(e->text);
    REQUIRE(n > 0 && n <= 16, "%lu bytes", (unsigned long)n);
    for (uint32_t cuts = 0; cuts < 1u << (n - 1); cuts++) {
        char out[128];
        size_t length = push_cut(e->bytes, n, cuts, out);
        if (!CHECK(length == n_text && memcmp(out, e->text, length) == 0, "cut at %lx: %lu bytes, expected %lu",
                   (unsigned long)cuts, (unsigned long)length, (unsigned long)n_text)) return;
    }
}

#define R "\xef\xbf\xbd"

static void holds_back(void) {
    plumb_text text = {{0}, 0};
    char buf[32];
    CHECK(plumb_text_push(&text, "a\xf0\x9f", 3, buf, sizeof buf) == 1 && buf[0] == 'a', "only a is complete");
    CHECK(plumb_text_push(&text, "", 0, buf, sizeof buf) == 0, "an empty piece changes nothing");
    CHECK(plumb_text_push(&text, "\x98", 1, buf, sizeof buf) == 0, "three of four bytes");
    CHECK(plumb_text_push(&text, "\x80!", 2, buf, sizeof buf) == 5 && memcmp(buf, "\xf0\x9f\x98\x80!", 5) == 0,
          "the character as its last byte comes");
    CHECK(plumb_text_flush(&text, buf, sizeof buf) == 0, "nothing is held");
    CHECK(plumb_text_push(&text, "\0", 1, buf, sizeof buf) == 1 && buf[0] == 0, "zero is a character");
    CHECK(plumb_text_push(&text, "\xe2\x82", 2, buf, sizeof buf) == 0, "half a character at the end");
    CHECK(plumb_text_flush(&text, buf, sizeof buf) == 3 && memcmp(buf, R, 3) == 0, "comes out as U+FFFD");
    CHECK(plumb_text_flush(&text, buf, sizeof buf) == 0, "once");
}

/* Whatever cap is, no byte beyond it is written, and the returned length is that of the whole text. */
static void keeps_to_cap(void) {
    static const char bytes[] = "a\xc3\xa9\xff\xe2\x82\xac!";
    static const char text_of[] = "a\xc3\xa9" R "\xe2\x82\xac!";
    for (size_t cap = 0; cap <= 12; cap++) {
        plumb_text text = {{0}, 0};
        char buf[40];
        memset(buf, '#', sizeof buf);
        size_t n = plumb_text_push(&text, bytes, sizeof bytes - 1, buf, cap);
        CHECK(n == sizeof text_of - 1, "cap %lu: %lu bytes, expected %lu", (unsigned long)cap, (unsigned long)n,
              (unsigned long)(sizeof text_of - 1));
        size_t n_written = 0;
        while (n_written < sizeof buf && buf[n_written] != '#') n_written++;
        CHECK(n_written <= cap && memcmp(buf, text_of, n_written) == 0, "cap %lu: %lu bytes are written",
              (unsigned long)cap, (unsigned long)n_written);
        CHECK(n_written + 3 > cap || n_written == n, "cap %lu: only %lu bytes", (unsigned long)cap,
              (unsigned long)n_written);
        plumb_text_push(&text, "\xf0\x9f", 2, NULL, 0);
        memset(buf, '#', sizeof buf);
        CHECK(plumb_text_flush(&text, buf, cap) == 3 && buf[cap < 3 ? 0 : 3] == '#', "cap %lu: flush",
              (unsigned long)cap);
    }
}

void test_text(void) {
    static const struct example examples[] = {
        {"text: one to four bytes, at the ends of each range",
         "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80", "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf"
         "\xf0\x90\x80\x80"},
        {"text: around the surrogates, and the last character", "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf",
         "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"},
        {"text: overlong forms as in table 3-8 of The Unicode Standard 15", "\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41",
         R R R R R R R R "A"},
        {"text: surrogates as in table 3-9", "\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", R R R R R R R R "A"},
        {"text: other broken bytes as in table 3-10", "\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", R R R R R "A" R R "B"},
        {"text: cut characters as in table 3-11", "\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", R R R R "A"},
        {"text: a lead byte broken by a character", "\xf0\x9f\xc3\xa9\xe2\xe2\x82\xac", R "\xc3\xa9" R "\xe2\x82\xac"},
    };
    TEST_ROWS("", equals_example, examples);
    test_case("text: a piece that ends inside a character is held back", holds_back);
    test_case("text: nothing is written beyond cap", keeps_to_cap);
}

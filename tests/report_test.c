/* The writer of reports: long texts, untrusted bytes and pieces of every size are written completely. */
#include "test.h"
#include "trace/report.h"

#include <math.h>

struct collected {
    size_t n, n_call;
    char bytes[20000];
};

static void collect(void *user, const char *bytes, size_t n) {
    struct collected *c = user;
    if (CHECK(n > 0 && n <= sizeof c->bytes - 1 - c->n, "%zu + %zu bytes", c->n, n)) memcpy(c->bytes + c->n, bytes, n);
    c->n += n;
    c->n_call++;
}

static bool is(struct report_writer *w, const char *text) {
    struct collected *c = w->user;
    report_flush(w);
    bool same = c->n == strlen(text) && memcmp(c->bytes, text, c->n) == 0;
    c->bytes[c->n < sizeof c->bytes ? c->n : 0] = 0;
    return same;
}

static void strings_case(void) {
    static const char bytes[] = "a\"\\\n\x1b[2J\x7f "
                                "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xff \xc0\xaf \xed\xa0\x80 \xc2";
    struct collected c = { 0 };
    struct report_writer w;
    report_begin(&w, collect, &c);
    report_json_string(&w, bytes, sizeof bytes - 1);
    report_json_string(&w, "\0", 1);
    report_json_string(&w, "\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0", 8);
    CHECK(is(&w, "\"a\\\"\\\\\\u000a\\u001b[2J\\u007f caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xef\xbf\xbd "
                 "\xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd\"\"\\u0000\""
                 "\"\\u0080\\u009b\\u009f\xc2\xa0\""),
          "%s", c.bytes);
    c.n = 0;
    size_t n = report_text(&w, "caf\xc3\xa9\x1b[2J \xc2\x9b \xff", 14);
    CHECK(is(&w, "caf\xc3\xa9\\x1b[2J \\xc2\\x9b \\xff") && n == 4 + 4 + 3 + 1 + 8 + 1 + 4, "%zu: %s", n, c.bytes);
    c.n = 0;
    report_text(&w, "\xe2\x80\xae", 3);
    report_json_string(&w, "\xe2\x80\xae", 3);
    CHECK(is(&w, "\\xe2\\x80\\xae\"\\u202e\""), "%s", c.bytes);
    c.n = 0;
    report_printf(&w, "%s%s%s", JSON_NUMBER(0.1), JSON_NUMBER((double)NAN), JSON_NUMBER(-(double)INFINITY));
    report_json_text(&w, ",", "a");
    CHECK(is(&w, "0.1nullnull,\"a\""), "%s", c.bytes);
}

static void pieces_case(void) {
    static struct collected c;
    static char expected[20000];
    struct report_writer w;
    size_t n = 0;
    report_begin(&w, collect, &c);
    for (int i = 0; i < 3000; i++) {
        report_printf(&w, "%d,", i);
        for (int d = i < 10 ? 1 : i < 100 ? 10 : i < 1000 ? 100 : 1000; d > 0; d /= 10) {
            expected[n++] = (char)('0' + i / d % 10);
        }
        expected[n++] = ',';
    }
    CHECK(is(&w, expected), "%zu bytes", c.n);
    CHECK(c.n_call == 4, "%zu pieces of %zu bytes", c.n_call, c.n);
    c.n = 0;
    report_bytes(&w, expected, n);
    CHECK(is(&w, expected), "%zu bytes", c.n);
    c.n = 0;
    report_bytes(&w, "x", 1);
    report_printf(&w, "%s", expected);   /* cut to a buffer with a final 0 */
    expected[sizeof w.buf - 1] = 0;
    report_flush(&w);
    CHECK(c.n == sizeof w.buf && memcmp(c.bytes + 1, expected, sizeof w.buf - 1) == 0, "%zu bytes", c.n);
}

void test_report(void) {
    test_case("report: strings from files are valid JSON and harmless to terminals", strings_case);
    test_case("report: any amount arrives whole, in pieces", pieces_case);
}

/* base: statuses, messages, checked sizes, loads, f16, decimals, and the elementary functions against libm. */
#include "test.h"

#include "base/decimal.h"
#include "base/math.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- messages and sizes ------------------------------------------------------------------------------------- */

static void status_names(void) {
    static const struct { plumb_status status; const char *name; } rows[] = {
        {PLUMB_OK, "PLUMB_OK"}, {PLUMB_ERROR_ARGUMENT, "PLUMB_ERROR_ARGUMENT"},
        {PLUMB_ERROR_STATE, "PLUMB_ERROR_STATE"}, {PLUMB_ERROR_MEMORY, "PLUMB_ERROR_MEMORY"},
        {PLUMB_ERROR_IO, "PLUMB_ERROR_IO"}, {PLUMB_ERROR_MAGIC, "PLUMB_ERROR_MAGIC"},
        {PLUMB_ERROR_VERSION, "PLUMB_ERROR_VERSION"}, {PLUMB_ERROR_TRUNCATED, "PLUMB_ERROR_TRUNCATED"},
        {PLUMB_ERROR_METADATA, "PLUMB_ERROR_METADATA"}, {PLUMB_ERROR_TENSOR, "PLUMB_ERROR_TENSOR"},
        {PLUMB_ERROR_UNSUPPORTED, "PLUMB_ERROR_UNSUPPORTED"}, {PLUMB_ERROR_TOKENIZER, "PLUMB_ERROR_TOKENIZER"},
        {PLUMB_ERROR_TEMPLATE, "PLUMB_ERROR_TEMPLATE"}, {PLUMB_ERROR_CONTEXT, "PLUMB_ERROR_CONTEXT"},
        {PLUMB_ERROR_TOKEN, "PLUMB_ERROR_TOKEN"}, {(plumb_status)-99, "PLUMB_ERROR"}, {(plumb_status)1, "PLUMB_ERROR"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK(strcmp(plumb_status_name(rows[i].status), rows[i].name) == 0, "%d is %s, expected %s",
              (int)rows[i].status, plumb_status_name(rows[i].status), rows[i].name);
}

static void messages(void) {
    struct error err = {PLUMB_OK, "old"};
    plumb_status status = error_set(&err, PLUMB_ERROR_MAGIC, "a\nb\x7f%d%s", 5, "\x1b[2J");
    CHECK(status == PLUMB_ERROR_MAGIC && err.status == PLUMB_ERROR_MAGIC, "status %d, kept %d", status, err.status);
    CHECK(strcmp(err.message, "a?b?5?[2J") == 0, "message is %s", err.message);
    error_set(&err, PLUMB_ERROR_MAGIC, "caf\xc3\xa9 \xe2\x80\xae \xc2\x9b \xff");
    CHECK(strcmp(err.message, "caf\xc3\xa9 ??? ?? ?") == 0, "message is %s", err.message);
    char text[sizeof err.message + 100];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    error_set(&err, PLUMB_ERROR_IO, "%s", text);
    CHECK(strlen(err.message) == sizeof err.message - 1, "%zu bytes kept", strlen(err.message));
}

static void shown_bytes(void) {
    struct shown shown;
    static const uint8_t bytes[] = {'a', 0, '"', 0x7f, 0xe4, '~'};
    CHECK(strcmp(show_bytes(&shown, bytes, sizeof bytes), "a\\x00\"\\x7f\\xe4~") == 0, "shown as %s", shown.text);
    CHECK(strcmp(show_bytes(&shown, NULL, 0), "") == 0, "nothing shown as %s", shown.text);
    uint8_t many[65];
    memset(many, 0xff, sizeof many);
    show_bytes(&shown, many, 64);
    CHECK(strlen(shown.text) == 256 && strstr(shown.text, "...") == NULL, "64 bytes shown as %s", shown.text);
    show_bytes(&shown, many, 65);
    CHECK(strlen(shown.text) == 259 && strcmp(shown.text + 256, "...") == 0, "65 bytes shown as %s", shown.text);
}

/* Every code point, encoded here as RFC 3629 says; and what is not UTF-8. */
static void characters(void) {
    static const struct { uint32_t first, last; } hidden[] = {
        {0, 0x1f}, {0x7f, 0x9f}, {0x61c, 0x61c}, {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069},
    };
    size_t n_wrong = 0;
    for (uint32_t cp = 0; cp < 0x120000; cp++) {
        char text[4] = {(char)cp, 0, 0, 0};
        size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
        for (size_t i = 1; i < n; i++) text[i] = (char)(0x80 | (cp >> 6 * (n - 1 - i) & 0x3f));
        if (n > 1) text[0] = (char)(0xf00 >> n | cp >> 6 * (n - 1));
        uint32_t read;
        bool is_valid = cp < 0x110000 && (cp < 0xd800 || cp > 0xdfff), is_plain = true;
        for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++) {
            is_plain = is_plain && (cp < hidden[i].first || cp > hidden[i].last);
        }
        size_t length = plumb_character(text, n, &read);
        n_wrong += length != (is_valid ? n : 0) || (length > 0 && read != cp);
        n_wrong += plumb_is_plain(cp) != is_plain;
        n_wrong += n > 1 && plumb_character(text, n - 1, &read) != 0;
    }
    CHECK(n_wrong == 0, "%zu code points", n_wrong);
    static const char *const wrong[] = {"\x80", "\xc0\xaf", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf",
                                        "\xf5\x80\x80\x80", "\xff", "\xc3(", "\xe2\x82("};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uint32_t read;
        CHECK(plumb_character(wrong[i], strlen(wrong[i]), &read) == 0, "text %zu is taken for U+%04X", i, read);
    }
}

static void sizes(void) {
    uint64_t out;
    CHECK(mul_u64(0xffffffff, 0x100000001, &out) && out == UINT64_MAX, "2^64-1 as a product");
    CHECK(!mul_u64(0x100000000, 0x100000000, &out), "2^64 as a product");
    CHECK(add_u64(UINT64_MAX - 1, 1, &out) && out == UINT64_MAX, "2^64-1 as a sum");
    CHECK(!add_u64(UINT64_MAX, 1, &out), "2^64 as a sum");
    void *p = alloc_array(0, 8);
    CHECK(p != NULL, "an empty array is no failure");
    free(p);
    CHECK(alloc_array(UINT64_MAX / 8 + 2, 8) == NULL, "size wraps in 64 bits");
    CHECK(alloc_array((uint64_t)SIZE_MAX / 8 + 2, 8) == NULL, "size wraps in size_t");
    uint8_t *bytes = alloc_array(3, 5);
    REQUIRE(bytes != NULL, "15 bytes");
    memset(bytes, 1, 15);   /* the sanitizer sees a write past the end */
    free(bytes);
}

static void loads(void) {
    static const uint8_t bytes[] = {0xee, 0x01, 0x82, 0x03, 0x84, 0x05, 0x86, 0x07, 0x88};
    CHECK(load_u16(bytes + 1) == 0x8201, "u16 %x", load_u16(bytes + 1));
    CHECK(load_u32(bytes + 1) == 0x84038201, "u32 %lx", (unsigned long)load_u32(bytes + 1));
    CHECK(load_u64(bytes + 1) == 0x8807860584038201, "u64 %llx", (unsigned long long)load_u64(bytes + 1));
}

/* The definition in IEEE 754: (-1)^s 2^(e-15) (1 + m/1024), or (-1)^s 2^-14 m/1024 for e = 0. */
static void halves(void) {
    for (uint32_t h = 0; h < 65536; h++) {
        int s = (int)(h >> 15), e = (int)(h >> 10 & 31), m = (int)(h & 1023);
        float value = f32_from_f16((uint16_t)h);
        if (e == 31) {
            CHECK(m == 0 ? isinf(value) : isnan(value), "%04x is %g", (unsigned)h, (double)value);
            CHECK(f32_to_bits(value) == ((uint32_t)s << 31 | 0x7f800000u | (uint32_t)m << 13), "%04x is %08lx",
                  (unsigned)h, (unsigned long)f32_to_bits(value));
        } else {
            double expected = e == 0 ? ldexp(m, -24) : ldexp(1024 + m, e - 25);
            CHECK((double)value == (s ? -expected : expected) && !signbit(value) == !s, "%04x is %g, expected %g",
                  (unsigned)h, (double)value, expected);
        }
    }
    CHECK(f32_from_bf16(0xc049) == -3.140625f, "bf16 c049 is %g", (double)f32_from_bf16(0xc049));
}

/* ---- elementary functions ----------------------------------------------------------------------------------- */

/* The ground truth is libm, in long double where that is wider than double and in hardware (x86).  A double libm is
 * itself off by up to 1 ulp, which then counts as our error. */
#if LDBL_MANT_DIG == 64
#define WIDE 1
typedef long double wide;
#define TRUE_EXP expl
#define TRUE_LOG logl
#define TRUE_SIN sinl
#define TRUE_COS cosl
#else
#define WIDE 0
typedef double wide;
#define TRUE_EXP exp
#define TRUE_LOG log
#define TRUE_SIN sin
#define TRUE_COS cos
#endif

static double bits_f64(uint64_t bits) { double d; memcpy(&d, &bits, 8); return d; }
static uint64_t f64_bits(double d) { uint64_t bits; memcpy(&bits, &d, 8); return bits; }

/* |a - truth| in units of the last place of truth; below the normal numbers, in units of the least subnormal. */
static double ulps(double a, wide truth) {
    int exponent;
    frexp((double)truth, &exponent);
    if (exponent < DBL_MIN_EXP) exponent = DBL_MIN_EXP;
    wide distance = (wide)a - truth;
    return ldexp((double)(distance < 0 ? -distance : distance), DBL_MANT_DIG - exponent);
}

/* xorshift64*: the same numbers on every host. */
static uint64_t random_u64(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1d;
}
/* Uniform in [low, high). */
static double random_f64(uint64_t *state, double low, double high) {
    return low + (high - low) * ((double)(random_u64(state) >> 11) * 0x1p-53);
}

/* FNV-1a over the bits of results: one number that must be the same on every host. */
static void hash_f64(uint64_t *hash, double d) {
    uint64_t bits = f64_bits(d);
    for (int i = 0; i < 8; i++) *hash = (*hash ^ (bits >> 8 * i & 255)) * 0x100000001b3;
}
#define HASH_START 0xcbf29ce484222325

enum { N_RANDOM = 200000 };

static void exponential(void) {
    uint64_t state = 1, hash = HASH_START;
    double worst = 0, worst_x = 0;
    for (int i = 0; i < N_RANDOM; i++) {
        double x = i % 2 ? random_f64(&state, -745, 709.78) : random_f64(&state, -2, 2);
        double y = math_exp(x), error = ulps(y, TRUE_EXP((wide)x));
        hash_f64(&hash, y);
        if (error > worst) worst = error, worst_x = x;
    }
    CHECK(worst <= 2, "exp(%.17g) is off by %.3f ulp", worst_x, worst);
    CHECK(hash == 0xc6e2533a5b32cc88, "the results hash to %016llx, worst %.3f ulp", (unsigned long long)hash, worst);
    CHECK(math_exp(0) == 1 && math_exp(-0.0) == 1, "exp(0) is %g", math_exp(0));
    CHECK(math_exp(709.782712893384) <= DBL_MAX, "exp just below overflow is %g", math_exp(709.782712893384));
    CHECK(isinf(math_exp(709.79)) && isinf(math_exp((double)INFINITY)), "exp(709.79) is %g", math_exp(709.79));
    CHECK(math_exp(-746) == 0 && math_exp(-(double)INFINITY) == 0, "exp(-746) is %g", math_exp(-746));
    CHECK(math_exp(-745) == 0x1p-1074, "exp(-745) is %g", math_exp(-745));
    CHECK(isnan(math_exp((double)NAN)), "exp(NaN) is %g", math_exp((double)NAN));
}

static void exponentials(void) {
    /* Ordinary values, and the same with one special value among them. */
    static const double odd[] = {0, -0.0, 700, -700, 700.1, -701, -745, -746, 710, INFINITY, -INFINITY, NAN};
    double x[65], y[65];
    uint64_t state = 7;
    for (size_t which = 0; which < sizeof odd / sizeof odd[0]; which++) {
        for (size_t i = 0; i < 65; i++) x[i] = i == 33 ? odd[which] : random_f64(&state, i % 2 ? -700 : -20, 0);
        math_exp_all(x, y, 65);
        for (size_t i = 0; i < 65; i++) {
            double one = math_exp(x[i]);
            CHECK(f64_bits(y[i]) == f64_bits(one), "exp(%.17g) is %.17g alone, %.17g of many", x[i], one, y[i]);
        }
    }
    math_exp_all(NULL, NULL, 0);
}

static void logarithm(void) {
    uint64_t state = 2, hash = HASH_START;
    double worst = 0, worst_x = 0;
    for (int i = 0; i < N_RANDOM; i++) {
        double x = i % 2 ? bits_f64(random_u64(&state) % 0x7ff0000000000000) : random_f64(&state, 0.5, 2);
        if (x == 0) continue;
        double y = math_log(x), error = ulps(y, TRUE_LOG((wide)x));
        hash_f64(&hash, y);
        if (error > worst) worst = error, worst_x = x;
    }
    CHECK(worst <= 2, "log(%.17g) is off by %.3f ulp", worst_x, worst);
    CHECK(hash == 0x2d66a464136433bb, "the results hash to %016llx, worst %.3f ulp", (unsigned long long)hash, worst);
    CHECK(math_log(1) == 0, "log(1) is %g", math_log(1));
    CHECK(math_log(0) == -(double)INFINITY, "log(0) is %g", math_log(0));
    CHECK(isnan(math_log(-1)) && isnan(math_log((double)NAN)), "log(-1) is %g", math_log(-1));
    CHECK(isinf(math_log((double)INFINITY)), "log(inf) is %g", math_log((double)INFINITY));
    CHECK(ulps(math_log(0x1p-1074), TRUE_LOG((wide)0x1p-1074)) <= 2, "log(2^-1074) is %.17g", math_log(0x1p-1074));
}

static void power(void) {
    uint64_t state = 3, hash = HASH_START;
    double worst = 0, worst_x = 0, worst_y = 0;
    for (int i = 0; i < N_RANDOM; i++) {
        double x = random_f64(&state, 1e-3, 1e6), y = random_f64(&state, -40, 40), z = math_pow(x, y);
#if WIDE
        wide truth = powl((wide)x, (wide)y);
#else
        double truth = pow(x, y);
#endif
        double exponent = fabs(y * log(x));
        double error = (double)fabs((double)(((wide)z - truth) / truth)) / ((exponent + 2) * 0x1p-52);
        hash_f64(&hash, z);
        if (error > worst) worst = error, worst_x = x, worst_y = y;
    }
    CHECK(worst <= 1, "pow(%.17g, %.17g) is off by %.3f of (|y log x| + 2) 2^-52", worst_x, worst_y, worst);
    CHECK(hash == 0xac8127186edbe48b, "the results hash to %016llx, worst %.3f", (unsigned long long)hash, worst);
    CHECK(math_pow(10000, 0) == 1, "10000^0 is %g", math_pow(10000, 0));
}

static void sine_cosine(void) {
    uint64_t state = 4, hash = HASH_START;
    double worst = 0, worst_x = 0;
    for (int i = 0; i < N_RANDOM; i++) {
        double range = i % 3 == 0 ? 7 : i % 3 == 1 ? 131072 : 0x1p26, x = random_f64(&state, -range, range), s, c;
        if (i % 5 == 0) x = nearbyint(x) * 0x1.921fb54442d18p0;   /* reduction is hardest near these */
        if (fabs(x) > 0x1p26) continue;
        math_sincos(x, &s, &c);
        double error = fabs((double)((wide)s - TRUE_SIN((wide)x)));
        error = fmax(error, fabs((double)((wide)c - TRUE_COS((wide)x))));
        hash_f64(&hash, s);
        hash_f64(&hash, c);
        if (error > worst) worst = error, worst_x = x;
    }
    CHECK(worst < 0x1p-50, "sincos(%.17g) is off by %g, 2^-50 is %g", worst_x, worst, 0x1p-50);
    CHECK(hash == 0x1c193f0d0bc4dde5, "the results hash to %016llx, worst 2^%.2f", (unsigned long long)hash,
          log2(worst));
    double s, c;
    math_sincos(0, &s, &c);
    CHECK(s == 0 && c == 1, "sin 0 is %g, cos 0 is %g", s, c);
    CHECK(math_sqrt(2) == 0x1.6a09e667f3bcdp0, "sqrt(2) is %a", math_sqrt(2));
}

/* ---- decimals ------------------------------------------------------------------------------------------------- */

static uint64_t decimal_bits(const char *text, size_t n) {
    double value = -1;
    size_t n_read = decimal_read(text, n, &value);
    CHECK(n_read == n, "of the %zu bytes of %.40s %zu are read", n, text, n_read);
    return f64_bits(value);
}

/* tests/vectors/decimal/make.py */
static void decimal_vectors(void) {
    size_t n_file, n_line = 0;
    char *file = test_read_all("tests/vectors/decimal/decimal.txt", &n_file), text[4096];
    if (!file) return;
    for (const char *at = file; *at; n_line++) {
        size_t n = 0;
        while (*at && *at != ' ' && n < sizeof text) {
            size_t n_run = 1;
            if (*at == '\\') {   /* "\*N;D" */
                at += 2;
                n_run = decimal_read_u32(&at);
                at++;
            }
            for (; n_run > 0 && n < sizeof text; n_run--) text[n++] = *at;
            at++;
        }
        REQUIRE(*at == ' ' && n < sizeof text, "line %zu is no text and bits", n_line + 1);
        text[n] = '9';   /* this digit must not change the result */
        char *end;
        uint64_t expected = strtoull(at + 1, &end, 16), bits = decimal_bits(text, n);
        CHECK(bits == expected, "line %zu, %.*s, is %016llx, expected %016llx", n_line + 1, n < 40 ? (int)n : 40, text,
              (unsigned long long)bits, (unsigned long long)expected);
        at = end + 1;
    }
    CHECK(n_line > 350, "%zu lines", n_line);
    free(file);
}

/* libc's strtod; glibc's and musl's round correctly. */
static void decimal_random(void) {
    uint64_t state = 5;
    for (int i = 0; i < 30000; i++) {
        char text[64];
        uint64_t random = random_u64(&state), digits = random_u64(&state) >> random % 64;
        double any = bits_f64(random_u64(&state) % 0x7ff0000000000000);
        int exponent = (int)(random >> 32 & 1023) - 512, n = i % 4 == 0 ? snprintf(text, sizeof text, "%.16g", any)
            : i % 4 == 1 ? snprintf(text, sizeof text, "%.*e", (int)(random >> 8 & 31), any)
            : snprintf(text, sizeof text, "%llu%s%llue%d", (unsigned long long)digits, i % 4 == 2 ? "." : "",
                       (unsigned long long)(random & 0xffff), i % 8 < 4 ? exponent : exponent / 16);
        uint64_t bits = decimal_bits(text, (size_t)n), expected = f64_bits(strtod(text, NULL));
        CHECK(bits == expected, "%s is %016llx, by strtod %016llx", text, (unsigned long long)bits,
              (unsigned long long)expected);
    }
}

static void decimal_grammar(void) {
    static const struct { const char *text; size_t n_read; double value; } rows[] = {
        {"", 0, 7}, {".", 0, 7}, {"-", 0, 7}, {"+.", 0, 7}, {"-.e1", 0, 7}, {"e1", 0, 7}, {"--1", 0, 7}, {" 1", 0, 7},
        {"\t1", 0, 7}, {"nan", 0, 7}, {"inf", 0, 7}, {"-Infinity", 0, 7}, {"x10", 0, 7}, {",5", 0, 7}, {"/", 0, 7},
        {":", 0, 7}, {"0x10", 1, 0}, {"1,5", 1, 1}, {"1 ", 1, 1}, {"1.5.5", 3, 1.5}, {"1..5", 2, 1}, {"2e", 1, 2},
        {"2e+", 1, 2}, {"2E-x", 1, 2}, {"2e3e4", 3, 2000}, {"2e3.5", 3, 2000}, {"-3-", 2, -3}, {".5f", 2, 0.5},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double value = 7;
        size_t n_read = decimal_read(rows[i].text, strlen(rows[i].text), &value);
        CHECK(n_read == rows[i].n_read && value == rows[i].value, "of \"%s\" %zu bytes are %g", rows[i].text, n_read,
              value);
    }
    static const struct { const char *text; size_t n_read; uint32_t value; } integers[] = {
        {"", 0, 0}, {"x", 0, 0}, {"-1", 0, 0}, {" 1", 0, 0}, {"0", 1, 0}, {"0012.5", 4, 12},
        {"4294967294", 10, 4294967294}, {"4294967295.", 10, UINT32_MAX}, {"4294967296", 10, UINT32_MAX},
        {"99999999999999999999999", 23, UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
        const char *at = integers[i].text;
        uint32_t value = decimal_read_u32(&at);
        CHECK(value == integers[i].value && at == integers[i].text + integers[i].n_read, "\"%s\" is %lu",
              integers[i].text, (unsigned long)value);
    }
}

void test_base(void);
void test_base(void) {
    test_case("base: every status has its name", status_names);
    test_case("base: messages are one line, cut to fit", messages);
    test_case("base: bytes from a file are shown safely", shown_bytes);
    test_case("base: characters that a terminal would obey are not plain", characters);
    test_case("base: sizes that overflow are detected", sizes);
    test_case("base: loads are little-endian", loads);
    test_case("base: all 65536 f16 values equal the definition in IEEE 754", halves);
    test_case("base: exp is within 2 ulp of libm, the same bits on every host", exponential);
    test_case("base: exp of an array equals exp of each value", exponentials);
    test_case("base: log is within 2 ulp of libm, the same bits on every host", logarithm);
    test_case("base: pow is within (|y log x| + 2) 2^-52 of libm, the same bits on every host", power);
    test_case("base: sin and cos are within 2^-50 of libm, the same bits on every host", sine_cosine);
    test_case("base: decimals give Python's doubles, including halfway cases and 2000 digits", decimal_vectors);
    test_case("base: random decimals give strtod's doubles", decimal_random);
    test_case("base: text that is not a decimal is not read as one", decimal_grammar);
}

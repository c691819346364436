/* The formats of JSON Schema as regular expressions.  (?&NAME) is the language of another row.
 *
 * Common validators such as ajv-formats refuse some strings that the RFCs have.  An answer should pass them, so these
 * are left out: email addresses with a quoted name, an IP address or a domain of one label, and URIs with nothing
 * between the scheme and the query. */
#include "grammar/language.h"

#include <stdio.h>

/* Labels with "--" after two characters are Punycode.  Which of these are valid (RFC 5890 to 5892) is not regular: it
 * depends on what they decode to.  So there are none of them. */
#define LABEL(LONGEST) "(?!..--)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0," LONGEST "}[a-zA-Z0-9])?"
#define CHARACTERS "a-zA-Z0-9._~!$&'()*+,;=\\-"    /* unreserved and sub-delims of RFC 3986 */
#define UCS "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef\\u{10000}-\\u{1fffd}\\u{20000}-\\u{2fffd}" \
    "\\u{30000}-\\u{3fffd}\\u{40000}-\\u{4fffd}\\u{50000}-\\u{5fffd}\\u{60000}-\\u{6fffd}\\u{70000}-\\u{7fffd}" \
    "\\u{80000}-\\u{8fffd}\\u{90000}-\\u{9fffd}\\u{a0000}-\\u{afffd}\\u{b0000}-\\u{bfffd}\\u{c0000}-\\u{cfffd}" \
    "\\u{d0000}-\\u{dfffd}\\u{e1000}-\\u{efffd}"
#define PRIVATE "\\ue000-\\uf8ff\\u{f0000}-\\u{ffffd}\\u{100000}-\\u{10fffd}"
/* The parts of an address of RFC 3986, and with I "i" those of RFC 3987, which has more characters. */
#define CHARS(I) "(?:[:@]|(?&" I "char))"
#define AUTHORITY(I) "//(?:(?::|(?&" I "char))*@)?(?:(?&ip)|(?&" I "char)*)(?::\\d*)?(?:/" CHARS(I) "*)*"
#define ABSOLUTE(I) "/(?:" CHARS(I) "+(?:/" CHARS(I) "*)*)?"
#define REST(I) "(?:\\?(?:[/?]|(?&" I "private)|" CHARS(I) ")*)?(?:#(?:[/?]|" CHARS(I) ")*)?"
#define SCHEME "[a-zA-Z][a-zA-Z0-9+.-]*:"
#define URI(I) SCHEME "(?:" AUTHORITY(I) "|" ABSOLUTE(I) "|" CHARS(I) "+(?:/" CHARS(I) "*)*)" REST(I)
#define REFERENCE(I) URI(I) "|(?:" SCHEME "|" AUTHORITY(I) "|" ABSOLUTE(I) \
    "|(?:@|(?&" I "char))+(?:/" CHARS(I) "*)*|)" REST(I)

static const struct format {
    const char *name, *regex;
    bool is_public;       /* a format of JSON Schema, not only a part of one */
    bool is_automaton;    /* it is written as an automaton, since its expression has several readings of a string */
} formats[] = {
    {"date", "\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"
             "02-(?:0[1-9]|1\\d|2[0-8]))|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|"
             "(?:[02468][048]|[13579][26])00)-02-29", true, true},
    {"time", "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d+)?(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)|(?&leap)",
     true, true},
    {"date-time", "(?&date)[Tt](?&time)", true, false},
    {"duration", "P(?:\\d+W|(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)(?:T(?&hours))?|T(?&hours))", true,
     true},
    {"hours", "\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S", false, false},
    {"email", "(?&atom)(?:\\.(?&atom))*@(?&label63)(?:\\.(?&label63))+", true, false},
    {"atom", "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+", false, false},
    /* A name has at most 253 characters and its labels have at most 63.  An automaton that counted both would have
     * thousands of states; these are the names of at most three labels, and of at most seven with 35 each. */
    {"hostname", "(?&label63)(?:\\.(?&label63)){0,2}|(?&label35)(?:\\.(?&label35)){3,6}", true, false},
    {"label63", LABEL("61"), false, true},
    {"label35", LABEL("33"), false, true},
    {"ipv4", "(?:(?&octet)\\.){3}(?&octet)", true, true},
    {"octet", "25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d", false, false},
    {"ipv6", "(?:(?&h):){6}(?&ls)|::(?:(?&h):){5}(?&ls)|(?&h)?::(?:(?&h):){4}(?&ls)|"
             "(?:(?:(?&h):)?(?&h))?::(?:(?&h):){3}(?&ls)|(?:(?:(?&h):){0,2}(?&h))?::(?:(?&h):){2}(?&ls)|"
             "(?:(?:(?&h):){0,3}(?&h))?::(?&h):(?&ls)|(?:(?:(?&h):){0,4}(?&h))?::(?&ls)|"
             "(?:(?:(?&h):){0,5}(?&h))?::(?&h)|(?:(?:(?&h):){0,6}(?&h))?::", true, true},
    {"h", "[0-9a-fA-F]{1,4}", false, false},
    {"ls", "(?&h):(?&h)|(?&ipv4)", false, false},
    {"ip", "\\[(?:(?&ipv6)|[vV][0-9a-fA-F]+\\.[" CHARACTERS ":]+)\\]", false, false},
    {"byte", "%[0-9a-fA-F]{2}", false, false},
    {"uri", URI(""), true, true},
    {"uri-reference", REFERENCE(""), true, true},
    {"iri", URI("i"), true, true},
    {"iri-reference", REFERENCE("i"), true, true},
    {"char", "[" CHARACTERS "]|(?&byte)", false, false},
    {"ichar", "[" CHARACTERS UCS "]|(?&byte)", false, false},
    {"private", "[]", false, false},
    {"iprivate", "[" PRIVATE "]", false, false},
    {"uri-template", "(?:[!#$&-;=?-\\[\\]_a-z~" UCS PRIVATE "]|(?&byte)|"
                     "\\{[+#./;?&=,!@|]?(?&variable)(?:,(?&variable))*\\})*", true, false},
    {"variable", "(?:\\w|(?&byte))+(?:\\.(?:\\w|(?&byte))+)*(?::[1-9]\\d{0,3}|\\*)?", false, false},
    {"uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", true, false},
    {"json-pointer", "(?:/(?:[^~/]|~[01])*)*", true, false},
    {"relative-json-pointer", "(?:0|[1-9]\\d*)(?:#|(?&json-pointer))", true, false}
};

/* The leap seconds, which are 23:59:60 in UTC: as that, and with the offsets of whole and half hours. */
static const struct language *leap_seconds(struct languages *all) {
    const struct language *a = language_none(all);
    for (int half = -47; half <= 47 && a; half++) {
        char text[64];
        int minute = (23 * 60 + 59 + half * 30 + 24 * 60) % (24 * 60), offset = half < 0 ? -half : half;
        int n = snprintf(text, sizeof text, "%02d:%02d:60(?:\\.\\d+)?(?:%s[%s]%02d:%02d)", minute / 60, minute % 60,
                         half == 0 ? "[Zz]|" : "", half == 0 ? "+-" : half < 0 ? "-" : "+", offset / 2,
                         offset % 2 * 30);
        a = language_union(all, a, regex_language(all, text, (size_t)n, REGEX_WHOLE, NULL));
    }
    return a;
}

static const struct format *find_format(const char *name, size_t n) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strlen(formats[i].name) == n && memcmp(formats[i].name, name, n) == 0) return &formats[i];
    }
    return NULL;
}

static const struct language *named(struct languages *all, const char *name, size_t n) {
    const struct format *format = find_format(name, n);
    if (!format) return leap_seconds(all);
    const struct language *a = regex_language(all, format->regex, strlen(format->regex), REGEX_WHOLE, named);
    return format->is_automaton ? language_automaton(all, a) : a;
}

bool language_has_format(const char *name, size_t n) {
    const struct format *format = find_format(name, n);
    return format && format->is_public;
}

const struct language *language_format(struct languages *all, const char *name, size_t n) {
    if (language_has_format(name, n)) return named(all, name, n);
    struct shown shown;
    error_set(all->err, PLUMB_ERROR_UNSUPPORTED, "the format \"%s\" is unknown or not regular",
              show_bytes(&shown, name, n));
    return NULL;
}

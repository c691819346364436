/* The rule tables, their scanner, and the names of tokenizer.ggml.pre.
 *
 * Each expression is quoted from llama.cpp (llama-vocab.cpp) with its quirks, because the ids must be the same.  For
 * example, llama.cpp writes [a-z] for lower case, so a letter such as E-acute counts as both cases.
 */
#include "tokenizer/pretokenize.h"

/* ---- sets of characters: one bit each, so that a class of an expression is a mask ------------------------------- */

enum {
    L = 1 << 0, N = 1 << 1, M = 1 << 2, P = 1 << 3, S = 1 << 4,   /* \p{L} ... */
    SPACES = 1 << 5,        /* \s */
    BLANK = 1 << 6,         /* the space character alone */
    BREAK = 1 << 7,         /* [\r\n] */
    LF = 1 << 8,            /* \n */
    SLASH = 1 << 9,         /* / */
    DIGIT = 1 << 10,        /* [0-9] */
    LOWER = 1 << 11,        /* [a-z] */
    UPPER = 1 << 12,        /* [A-Z] */
    ASCII_MARK = 1 << 13,   /* all 32 of ASCII's punctuation and symbols */
    MATH = 1 << 14,         /* [$+<=>^~|] */
    BACKTICK = 1 << 15,     /* ` */
    KANA_HAN = 1 << 16,     /* [一-龥぀-ゟ゠-ヿ] */
    HANGUL_HAN = 1 << 17,   /* [一-龥ࠀ-一가-퟿] without \s, which llama.cpp makes vertical tabs first */
    SENTENCE = 1 << 18,     /* [(\s|.,!?…。，、।۔،)] */
    TAB = 1 << 19,          /* \t */
    A_TO_I = 1 << 20,       /* [A-I] */
    CASED_LETTER = 1 << 21, /* cased_letters */
    CJK_STOP = 1 << 22,     /* cjk_stops without \s */
    HANGUL = 1 << 23,       /* [가-힣ㄱ-ㆎ] */
    CJK_MARK = 1 << 24,     /* cjk_marks */
    BOPOMOFO = 1 << 25,     /* [ㄅ-ㄯ] */
    ASIAN = 1 << 26,        /* asian */
    HAN = 1 << 27,          /* han */
    ALPHABETIC = 1 << 28,   /* \p{L} without HAN */
    NOT = 1 << 30,          /* the complement of the other bits */
};

/* Sets of ranges of code points, in ascending order. */
struct range { uint32_t first, last; };

/* Latin, Greek, Cyrillic and others, as deepseek-llm lists them. */
static const struct range cased_letters[] = {
    {0x41, 0x5a}, {0x61, 0x7a}, {0xb5, 0xb5}, {0xc0, 0xd6}, {0xd8, 0xf6}, {0xf8, 0x1ba}, {0x1bc, 0x1bf},
    {0x1c4, 0x293}, {0x295, 0x2af}, {0x370, 0x373}, {0x376, 0x377}, {0x37b, 0x37d}, {0x37f, 0x37f}, {0x386, 0x386},
    {0x388, 0x38a}, {0x38c, 0x38c}, {0x38e, 0x3a1}, {0x3a3, 0x3f5}, {0x3f7, 0x481}, {0x48a, 0x52f}, {0x531, 0x556},
    {0x10a0, 0x10c5}, {0x13a0, 0x13f5}, {0x13f8, 0x13fd}, {0x1c90, 0x1cba}, {0x1cbd, 0x1cbf}, {0x1d00, 0x1d2b},
    {0x1d6b, 0x1d77}, {0x1d79, 0x1d9a}, {0x1e00, 0x1f15}, {0x1f18, 0x1f1d}, {0x1f20, 0x1f45}, {0x1f48, 0x1f4d},
    {0x1f50, 0x1f57}, {0x1f59, 0x1f59}, {0x1f5b, 0x1f5b}, {0x1f5d, 0x1f5d}, {0x1f5f, 0x1f7d}, {0x1f80, 0x1fb4},
    {0x1fb6, 0x1fbc}, {0x1fbe, 0x1fbe}, {0x1fc2, 0x1fc4}, {0x1fc6, 0x1fcc}, {0x1fd0, 0x1fd3}, {0x1fd6, 0x1fdb},
    {0x1fe0, 0x1fec}, {0x1ff2, 0x1ff4}, {0x1ff6, 0x1ffc}, {0x2102, 0x2102}, {0x2107, 0x2107}, {0x210a, 0x2113},
    {0x2115, 0x2115}, {0x2119, 0x211d}, {0x2124, 0x2124}, {0x2126, 0x2126}, {0x2128, 0x2128}, {0x212a, 0x212d},
    {0x212f, 0x2134}, {0x2139, 0x2139}, {0x213c, 0x213f}, {0x2145, 0x2149}, {0x214e, 0x214e}, {0x2183, 0x2184},
    {0x2c00, 0x2c7b}, {0x2c7e, 0x2ce4}, {0x2ceb, 0x2cee}, {0x2cf2, 0x2cf3}, {0xa640, 0xa66d}, {0xa680, 0xa69b},
    {0xa722, 0xa76f}, {0xa771, 0xa787}, {0xa78b, 0xa78e}, {0xab70, 0xabbf}, {0xfb00, 0xfb06}, {0xfb13, 0xfb17},
    {0xff21, 0xff3a}, {0xff41, 0xff5a}, {0x10400, 0x1044f}, {0x104b0, 0x104d3}, {0x104d8, 0x104fb},
    {0x10c80, 0x10cb2}, {0x10cc0, 0x10cf2}, {0x118a0, 0x118df}, {0x1e900, 0x1e943},
};
/* [!-/:-~！-／：-～‘-‟　-。], which includes the letters of ASCII */
static const struct range cjk_stops[] = {
    {0x21, 0x2f}, {0x3a, 0x7e}, {0x2018, 0x201f}, {0x3000, 0x3002}, {0xff01, 0xff0f}, {0xff1a, 0xff5e},
};
/* [！…“”‘’—：；，、-〿︰-﹏] */
static const struct range cjk_marks[] = {
    {0x2014, 0x2014}, {0x2018, 0x2019}, {0x201c, 0x201d}, {0x2026, 0x2026}, {0x3001, 0x303f}, {0xfe30, 0xfe4f},
    {0xff01, 0xff01}, {0xff0c, 0xff0c}, {0xff1a, 0xff1b},
};
/* Thai, Lao, Myanmar, Hangul, Khmer, kana, Han.  llama.cpp's expression has U+8C48 where U+F900 is meant. */
static const struct range asian[] = {
    {0xe40, 0xeff}, {0x1000, 0x109f}, {0x1100, 0x11ff}, {0x1780, 0x17ff}, {0x2f00, 0x2fdf}, {0x3040, 0x30ff},
    {0x3400, 0x4dbf}, {0x4e00, 0xfaff}, {0xff65, 0xff9f},
};
/* Blocks of Han characters. */
static const struct range han[] = {
    {0x3400, 0x4dbf}, {0x4e00, 0x9fff}, {0xf900, 0xfaff}, {0x20000, 0x2a6df}, {0x2a700, 0x2ebef}, {0x2f800, 0x2fa1f},
};
static const struct range kana_han_range[] = { {0x3040, 0x30ff}, {0x4e00, 0x9fa5} };
static const struct range hangul_han_range[] = { {0x800, 0x9fa5}, {0xac00, 0xd7ff} };
static const struct range hangul_range[] = { {0x3131, 0x318e}, {0xac00, 0xd7a3} };
static const struct range bopomofo_range[] = { {0x3105, 0x312f} };

#define RANGES(set, ranges) {set, ranges, sizeof ranges / sizeof ranges[0]}
static const struct {
    uint32_t set;
    const struct range *ranges;
    size_t n;
} range_sets[] = {
    RANGES(CASED_LETTER, cased_letters), RANGES(CJK_STOP, cjk_stops), RANGES(CJK_MARK, cjk_marks),
    RANGES(ASIAN, asian), RANGES(HAN, han), RANGES(KANA_HAN, kana_han_range), RANGES(HANGUL_HAN, hangul_han_range),
    RANGES(HANGUL, hangul_range), RANGES(BOPOMOFO, bopomofo_range),
};

static bool in_ranges(uint32_t cp, const struct range *ranges, size_t n) {
    size_t low = 0;   /* the ranges before low end before cp */
    while (n > 0) {
        size_t half = n / 2;
        if (ranges[low + half].last < cp) {
            low += half + 1;
            n -= half + 1;
        } else if (ranges[low + half].first <= cp) {
            return true;
        } else {
            n = half;
        }
    }
    return false;
}

static bool one_of(uint32_t cp, const uint32_t *list) {
    while (*list != 0 && *list != cp) list++;
    return *list != 0;
}

struct pre_char pre_char_make(uint32_t cp) {
    static const uint32_t by_class[] = {
        [UNICODE_OTHER] = 0, [UNICODE_LETTER] = L, [UNICODE_NUMBER] = N, [UNICODE_MARK] = M,
        [UNICODE_PUNCTUATION] = P, [UNICODE_SYMBOL] = S, [UNICODE_CONTROL] = 0
    };
    static const uint32_t stops[] = {
        '(', '|', '.', ',', '!', '?', ')', 0x2026, 0x3002, 0xff0c, 0x3001, 0x964, 0x6d4, 0x60c, 0
    };
    uint32_t sets = by_class[unicode_class_of(cp)];
    if (unicode_is_space(cp)) sets |= SPACES | SENTENCE;
    if (one_of(cp, stops)) sets |= SENTENCE;
    for (size_t i = 0; i < sizeof range_sets / sizeof range_sets[0]; i++) {
        if (in_ranges(cp, range_sets[i].ranges, range_sets[i].n)) sets |= range_sets[i].set;
    }
    if (sets & SPACES) sets &= ~(uint32_t)(CJK_STOP | HANGUL_HAN);   /* llama.cpp makes vertical tabs of them first */
    if ((sets & L) && !(sets & HAN)) sets |= ALPHABETIC;
    if (cp < 0x80) {
        if (cp == ' ') sets |= BLANK;
        if (cp == '\r' || cp == '\n') sets |= BREAK;
        if (cp == '\n') sets |= LF;
        if (cp == '\t') sets |= TAB;
        if (cp == '/') sets |= SLASH;
        if (cp == '`') sets |= BACKTICK;
        if (cp >= '0' && cp <= '9') sets |= DIGIT;
        if (cp >= 'a' && cp <= 'z') sets |= LOWER;
        if (cp >= 'A' && cp <= 'Z') sets |= UPPER;
        if (cp >= 'A' && cp <= 'I') sets |= A_TO_I;
        if (sets & (P | S)) sets |= ASCII_MARK;
        if ((sets & S) && cp != '`') sets |= MATH;
    }
    return (struct pre_char){cp, sets};
}

static bool in(uint32_t mask, const struct pre_char *c) {
    return ((c->sets & mask) != 0) != ((mask & NOT) != 0);
}

/* ---- rules ----------------------------------------------------------------------------------------------------- */

enum rule_kind {
    END,
    RUN,               /* prefix? body{min,max} suffix* */
    RUN_SUFFIX,        /* prefix? body{min,max} suffix? */
    RUN_CONTRACTION,   /* prefix? body{min,max} suffix* (?:CONTRACTION)? */
    PREFIXED_RUN,      /* prefix  body{min,max} suffix* */
    CONTRACTION,       /* '[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD] */
    LOWER_CONTRACTION, /* 's|'t|'re|'ve|'m|'ll|'d */
    CASED,             /* the first two alternatives of words_gpt4o, without their contractions */
    CASED_CONTRACTION, /* the same, each followed by (?:CONTRACTION)? */
    LINES,             /* \s*[\r\n]+ */
    SPACES_BEFORE,     /* \s+(?!\S): leaves the last space to the word that follows */
    SPACES_HALVED,     /* \s{512}(?!\S)|\s{256}(?!\S)|...|\s{1}(?!\S)|\s */
    SPACES_LAST,       /* \s+$ */
    SPACED_LETTERS,    /* prefix? (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+ */
    SENTINEL,          /* <sentinel:[0-9]+> */
    IMAGE,             /* IMGIMG[A-I]{1,4}Z */
    NUMBER_GROUPS,     /* up to the end of the next group of 3, if numbers are grouped from the right */
    DIGIT_GROUPS,      /* (?=(\d{3})+(?!\d)) is between words: up to the beginning of the next group of 3 */
};

struct pre_rule {
    enum rule_kind kind;
    uint32_t prefix, body;
    size_t min, max;      /* max 0: no limit */
    uint32_t suffix;
};

/* Returns the length of the contraction at c[pos] with its apostrophe, 0 if there is none.  It is enough to fold ASCII:
 * no other letter has one of these letters as its lower case (unicode_make.py --check). */
static size_t contraction(const struct pre_char *c, size_t pos, size_t end, bool any_case) {
    if (end - pos < 2 || c[pos].cp != '\'') return 0;
    uint32_t fold = any_case ? 0x20 : 0;
    uint32_t a = c[pos + 1].sets & UPPER ? c[pos + 1].cp | fold : c[pos + 1].cp;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if (end - pos < 3) return 0;
    uint32_t b = c[pos + 2].sets & UPPER ? c[pos + 2].cp | fold : c[pos + 2].cp;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* Returns the end of the match at pos, or pos if there is none.  The match is greedy; no rule below needs to
 * backtrack. */
static size_t match_run(const struct pre_rule *r, const struct pre_char *c, size_t pos, size_t end) {
    size_t p = pos;
    if (end - pos > 1 && in(r->prefix, &c[pos]) && in(r->body, &c[pos + 1])) p++;
    else if (r->kind == PREFIXED_RUN) return pos;
    size_t limit = r->max != 0 && end - p > r->max ? p + r->max : end, begin = p;
    while (p < limit && in(r->body, &c[p])) p++;
    if (p - begin < r->min) return pos;
    if (r->kind == RUN_SUFFIX) return p < end && in(r->suffix, &c[p]) ? p + 1 : p;
    while (p < end && in(r->suffix, &c[p])) p++;
    return r->kind == RUN_CONTRACTION ? p + contraction(c, p, end, true) : p;
}

/* Matches upper-case letters and then at least one lower-case letter, or upper-case letters alone.  The rule's body is
 * the set of letters, of which those that are not in [A-Za-z] have both cases.  Sets *seen to the end of the characters
 * that it looked at. */
static size_t match_cased(const struct pre_rule *r, const struct pre_char *c, size_t pos, size_t end,
                          size_t *seen) {
    size_t begin = pos;
    if (end - pos > 1 && in(NOT | L | N | BREAK, &c[pos]) && in(r->body, &c[pos + 1])) begin++;
    size_t upper = begin;
    while (upper < end && (c[upper].sets & r->body) && !(c[upper].sets & LOWER)) upper++;
    size_t p = upper;
    while (p < end && (c[p].sets & r->body) && !(c[p].sets & UPPER)) p++;
    *seen = p;
    if (p == begin) return pos;
    if (p == upper) {    /* no lower case follows: the first alternative backtracks until it ends in a caseless one */
        while (p > begin && (c[p - 1].sets & UPPER)) p--;
        if (p == begin && !(begin > pos && (c[pos].sets & r->body))) p = upper;   /* unless that is the prefix alone */
    }
    return r->kind == CASED_CONTRACTION ? p + contraction(c, p, end, true) : p;
}

/* Returns the end of a run of characters of a set. */
static size_t run_end(uint32_t set, const struct pre_char *c, size_t pos, size_t end) {
    while (pos < end && in(set, &c[pos])) pos++;
    return pos;
}

static size_t match_halved(const struct pre_char *c, size_t pos, size_t end, size_t *seen) {
    enum { LONGEST = 512 };
    size_t rest = run_end(SPACES, c, pos, end - pos > LONGEST + 1 ? pos + LONGEST + 1 : end), n = LONGEST;
    *seen = rest;
    while (n > rest - pos || (n > 0 && pos + n == rest && rest < end)) n /= 2;   /* a space or the end must follow */
    return n > 0 ? pos + n : rest;
}

static size_t match_spaced_letters(const struct pre_rule *r, const struct pre_char *c, size_t pos, size_t end) {
    size_t p = pos;
    if (end - pos > 1 && in(r->prefix, &c[pos]) && in(L, &c[pos + 1])) p++;
    if (!in(L, &c[p])) return pos;
    do {
        p = run_end(M, c, p + 1, end);
        if (end - p > 1 && in(BLANK, &c[p]) && in(L, &c[p + 1])) p++;
    } while (p < end && in(L, &c[p]));
    return p;
}

/* Matches a text, at least one and at most `max` (0: no limit) characters of a set, and a character outside of it. */
static size_t match_enclosed(const char *open, uint32_t body, size_t max, char close, const struct pre_char *c,
                             size_t pos, size_t end, size_t *seen) {
    size_t p = pos;
    for (; *open != 0; p++, open++) if (p == end || c[p].cp != (uint8_t)*open) return pos;
    size_t begin = p;
    p = run_end(body, c, p, max != 0 && end - p > max ? p + max : end);
    *seen = p;
    return p > begin && p < end && c[p].cp == (uint8_t)close ? p + 1 : pos;
}

/* Runs of numbers are divided into groups of 3 from the right.  A word ends with each group, so what is before a run
 * belongs to its first group.  begin: where the text begins, before all words of this stage. */
static size_t match_number_groups(const struct pre_char *c, size_t begin, size_t pos, size_t end, size_t *seen) {
    if (pos > begin && in(N, &c[pos - 1]) && in(N, &c[pos])) return pos + 3;   /* within a run */
    size_t first = run_end(NOT | N, c, pos, end), last = run_end(N, c, first, end);
    *seen = last;
    return first == last ? end : first + ((last - first) % 3 > 0 ? (last - first) % 3 : 3);
}

/* The same for digits where a word begins with each group, so what is after a run belongs to its last group.  A run of
 * less than 3 has no group. */
static size_t match_digit_groups(const struct pre_char *c, size_t begin, size_t pos, size_t end, size_t *seen) {
    size_t p = pos;
    if (pos > begin) {   /* a group begins here */
        p += 3;
        if (p < end && in(DIGIT, &c[p])) return p;
    }
    while (p < end) {
        size_t first = run_end(NOT | DIGIT, c, p, end);
        p = run_end(DIGIT, c, first, end);
        *seen = p;
        size_t group = p - first >= 3 ? first + (p - first) % 3 : p;
        if (group == pos) group += 3;
        if (group < p) return group;
    }
    return end;
}

/* Returns the end of the match at pos, or pos if there is none.  If it looked at characters past the match, it sets
 * *seen to their end.  begin: where the text that the stage splits begins. */
static size_t match(const struct pre_rule *r, const struct pre_char *c, size_t begin, size_t pos, size_t end,
                    size_t *seen) {
    switch (r->kind) {
    case RUN:
    case RUN_SUFFIX:
    case RUN_CONTRACTION:
    case PREFIXED_RUN: return match_run(r, c, pos, end);
    case CONTRACTION: return pos + contraction(c, pos, end, true);
    case LOWER_CONTRACTION: return pos + contraction(c, pos, end, false);
    case CASED:
    case CASED_CONTRACTION: return match_cased(r, c, pos, end, seen);
    case LINES: {
        /* a space that is no break is only taken if no break follows, and then none follows here either */
        if (pos > begin && in(SPACES, &c[pos - 1]) && !in(BREAK, &c[pos - 1])) return pos;
        size_t last = pos;
        size_t p = pos;
        for (; p < end && (c[p].sets & SPACES); p++) {
            if (c[p].sets & BREAK) last = p + 1;
        }
        *seen = p;
        return last;
    }
    case SPACES_BEFORE: {
        size_t p = pos;
        while (p < end && (c[p].sets & SPACES)) p++;
        return p == end || p == pos ? p : p - 1;
    }
    case SPACES_HALVED: return match_halved(c, pos, end, seen);
    case SPACES_LAST:   /* if the spaces before pos do not reach the end, neither do these */
        if (pos > begin && in(SPACES, &c[pos - 1])) return pos;
        *seen = run_end(SPACES, c, pos, end);
        return *seen == end ? end : pos;
    case SPACED_LETTERS: return match_spaced_letters(r, c, pos, end);
    case SENTINEL: return match_enclosed("<sentinel:", DIGIT, 0, '>', c, pos, end, seen);
    case IMAGE: return match_enclosed("IMGIMG", A_TO_I, 4, 'Z', c, pos, end, seen);
    case NUMBER_GROUPS: return match_number_groups(c, begin, pos, end, seen);
    case DIGIT_GROUPS: return match_digit_groups(c, begin, pos, end, seen);
    case END: break;
    }
    return pos;
}

struct scan {
    uint64_t n_step;
    const struct pre_char *chars;
    void (*on_word)(void *user, size_t begin, size_t end);
    void *user;
};

/* Splits begin .. end - 1 by a stage and its words by the later stages.  Text between two matches is one word. */
static void split(struct scan *s, const struct pre_rule *const *stage, size_t begin, size_t end) {
    if (*stage == NULL) {
        s->on_word(s->user, begin, end);
        return;
    }
    size_t rest = begin, pos = begin;
    while (pos < end) {
        size_t next = pos;
        for (const struct pre_rule *r = *stage; r->kind != END && next == pos; r++) {
            size_t seen = pos;
            next = match(r, s->chars, begin, pos, end, &seen);
            s->n_step += 1 + (seen > next ? seen : next) - pos;
        }
        if (next == pos) {
            pos++;
            continue;
        }
        if (rest < pos) split(s, stage + 1, rest, pos);
        split(s, stage + 1, pos, next);
        rest = pos = next;
    }
    if (rest < end) split(s, stage + 1, rest, end);
}

uint64_t pretokenize(const struct pretokenizer *pre, const struct pre_char *chars, size_t n,
                     void (*on_word)(void *user, size_t begin, size_t end), void *user) {
    struct scan s = {0, chars, on_word, user};
    if (n > 0) split(&s, pre->stages, 0, n);
    return s.n_step;
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

#define LETTERS {RUN, NOT | BREAK | L | N, L, 1, 0, 0}             /* [^\r\n\p{L}\p{N}]?\p{L}+ */
#define OTHERS(suffix) {RUN, BLANK, NOT | SPACES | L | N, 1, 0, suffix}   /*  ?[^\s\p{L}\p{N}]+suffix* */
#define WHITE {LINES, 0, 0, 0, 0, 0}, {SPACES_BEFORE, 0, 0, 0, 0, 0}, {RUN, 0, SPACES, 1, 0, 0}
#define STOP {END, 0, 0, 0, 0, 0}
#define CONTRACTIONS {CONTRACTION, 0, 0, 0, 0, 0}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)     and \s+, so that nothing is left over */
static const struct pre_rule words_gpt2[] = {
    {LOWER_CONTRACTION, 0, 0, 0, 0, 0}, {RUN, BLANK, L, 1, 0, 0}, {RUN, BLANK, N, 1, 0, 0}, OTHERS(0),
    {SPACES_BEFORE, 0, 0, 0, 0, 0}, {RUN, 0, SPACES, 1, 0, 0}, STOP
};
/* (?:CONTRACTION)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static const struct pre_rule words_llama3[] = {
    CONTRACTIONS, LETTERS, {RUN, 0, N, 1, 3, 0}, OTHERS(BREAK), WHITE, STOP
};
/* (?:CONTRACTION)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 * bailingmoe writes the lines as \s*[\r\n], which matches the same: \s* takes all but the last break. */
static const struct pre_rule words_qwen2[] = {
    CONTRACTIONS, LETTERS, {RUN, 0, N, 1, 1, 0}, OTHERS(BREAK), WHITE, STOP
};
/* as qwen2 with [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+ and  ?[^\s\p{L}\p{M}\p{N}]+[\r\n]* */
static const struct pre_rule words_qwen35[] = {
    CONTRACTIONS, {RUN, NOT | BREAK | L | N, L | M, 1, 0, 0}, {RUN, 0, N, 1, 1, 0},
    {RUN, BLANK, NOT | SPACES | L | M | N, 1, 0, BREAK}, WHITE, STOP
};
/* as qwen2 without the contractions */
static const struct pre_rule words_ufakzeka[] = {LETTERS, {RUN, 0, N, 1, 1, 0}, OTHERS(BREAK), WHITE, STOP};
/* as qwen2 with  ?[^\s\p{L}\p{N}\r\n]+ (the breaks are in \s already) */
static const struct pre_rule words_seed_coder[] = {
    CONTRACTIONS, LETTERS, {RUN, 0, N, 1, 1, 0}, OTHERS(0), WHITE, STOP
};
/* as qwen2 with \p{N}+ */
static const struct pre_rule words_minicpm5[] = {
    CONTRACTIONS, LETTERS, {RUN, 0, N, 1, 0, 0}, OTHERS(BREAK), WHITE, STOP
};
/* With U = (?=[\p{L}])([^a-z]) and W = (?=[\p{L}])([^A-Z]):
 * [^\r\n\p{L}\p{N}]?(U)*(W)+(?:CONTRACTION)?|[^\r\n\p{L}\p{N}]?(U)+(W)*(?:CONTRACTION)?|\p{N}{1,3}
 * | ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static const struct pre_rule words_gpt4o[] = {
    {CASED_CONTRACTION, 0, L, 0, 0, 0}, {RUN, 0, N, 1, 3, 0}, OTHERS(BREAK | SLASH), WHITE, STOP
};
/* the same with [\p{L}\p{M}] instead of [\p{L}] in U and W */
static const struct pre_rule words_granite_97m[] = {
    {CASED_CONTRACTION, 0, L | M, 0, 0, 0}, {RUN, 0, N, 1, 3, 0}, OTHERS(BREAK | SLASH), WHITE, STOP
};
/* as gpt-4o without contractions and with \p{N} */
static const struct pre_rule words_tekken[] = {
    {CASED, 0, L, 0, 0, 0}, {RUN, 0, N, 1, 1, 0}, OTHERS(BREAK | SLASH), WHITE, STOP
};
/* [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*
 * |\s*[\r\n]+|\s+(?!\S)|\s+ */
static const struct pre_rule words_deepseek3[] = {
    {PREFIXED_RUN, ASCII_MARK, LOWER | UPPER, 1, 0, 0}, {RUN, NOT | BREAK | L | P | S, L | M, 1, 0, 0},
    {RUN, BLANK, P | S, 1, 0, BREAK}, WHITE, STOP
};
/* as deepseek-v3 with  ?[\p{P}\p{S}]+ and [\r\n] instead of \s*[\r\n]+ */
static const struct pre_rule words_spark[] = {
    {PREFIXED_RUN, ASCII_MARK, LOWER | UPPER, 1, 0, 0}, {RUN, NOT | BREAK | L | P | S, L | M, 1, 0, 0},
    {RUN, BLANK, P | S, 1, 0, 0}, {RUN, 0, BREAK, 1, 1, 0}, {SPACES_BEFORE, 0, 0, 0, 0, 0}, {RUN, 0, SPACES, 1, 0, 0},
    STOP
};
/* With X = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and Y = [\p{Ll}\p{Lm}\p{Lo}\p{M}], both of which llama.cpp reads as
 * [\p{L}\p{M}]:
 * [^\r\n\p{L}\p{N}]?X*Y+(?:CONTRACTION)?|[^\r\n\p{L}\p{N}]?X+Y*(?:CONTRACTION)?|\p{N}
 * | ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static const struct pre_rule words_youtu[] = {
    {RUN_CONTRACTION, NOT | BREAK | L | N, L | M, 1, 0, 0}, {RUN, 0, N, 1, 1, 0}, OTHERS(BREAK | SLASH), WHITE, STOP
};
/* the same with \p{N}{1,3} */
static const struct pre_rule words_tiny_aya[] = {
    {RUN_CONTRACTION, NOT | BREAK | L | N, L | M, 1, 0, 0}, {RUN, 0, N, 1, 3, 0}, OTHERS(BREAK | SLASH), WHITE, STOP
};
/* llama.cpp has a function for kimi-k2: \p{Han}+|[^\r\n\p{L}\p{N}]?[\p{L}--\p{Han}]+(?:CONTRACTION)?|\p{N}{1,3}
 * | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static const struct pre_rule words_kimi[] = {
    {RUN, 0, HAN, 1, 0, 0}, {RUN_CONTRACTION, NOT | BREAK | L | N, ALPHABETIC, 1, 0, 0}, {RUN, 0, N, 1, 3, 0},
    OTHERS(BREAK), WHITE, STOP
};
/* as llama3 with SPACES_HALVED instead of \s+(?!\S)|\s+ */
static const struct pre_rule words_jais2[] = {
    CONTRACTIONS, LETTERS, {RUN, 0, N, 1, 3, 0}, OTHERS(BREAK), {LINES, 0, 0, 0, 0, 0},
    {SPACES_HALVED, 0, 0, 0, 0, 0}, STOP
};
/* as qwen2 with [^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+ and  ?[^\s\p{L}\p{N}]+[\r\n/]? */
static const struct pre_rule words_exaone_moe[] = {
    CONTRACTIONS, {SPACED_LETTERS, NOT | BREAK | L | N, 0, 0, 0, 0}, {RUN, 0, N, 1, 1, 0},
    {RUN_SUFFIX, BLANK, NOT | SPACES | L | N, 1, 0, BREAK | SLASH}, WHITE, STOP
};
/* [가-힣ㄱ-ㆎ]+|cjk_marks+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+ */
static const struct pre_rule scripts_youtu[] = {
    {RUN, 0, HANGUL, 1, 0, 0}, {RUN, 0, CJK_MARK, 1, 0, 0}, {RUN, 0, BOPOMOFO, 1, 0, 0}, {RUN, 0, KANA_HAN, 1, 0, 0},
    STOP
};
/* ([\t\n]|    |  ) */
static const struct pre_rule indents[] = {
    {RUN, 0, TAB | LF, 1, 1, 0}, {RUN, 0, BLANK, 4, 4, 0}, {RUN, 0, BLANK, 2, 2, 0}, STOP
};
static const struct pre_rule sentinels[] = {{SENTINEL, 0, 0, 0, 0, 0}, STOP};
static const struct pre_rule images[] = {{IMAGE, 0, 0, 0, 0, 0}, STOP};
static const struct pre_rule mark[] = {{RUN, 0, P | ASCII_MARK, 1, 1, 0}, STOP};     /* [\p{P}!-/:-@\[-`{-~] */
static const struct pre_rule number_groups[] = {{NUMBER_GROUPS, 0, 0, 0, 0, 0}, STOP};
static const struct pre_rule digit_groups[] = {{DIGIT_GROUPS, 0, 0, 0, 0, 0}, STOP};
static const struct pre_rule asian_run[] = {{RUN, 0, ASIAN, 1, 0, 0}, STOP};          /* asian+ */
static const struct pre_rule cased_words[] = {{RUN, SPACES, CASED_LETTER, 1, 0, 0}, STOP};   /* \s?cased_letters+ */
static const struct pre_rule stops_words[] = {{RUN, SPACES, CJK_STOP, 1, 0, 0}, STOP};       /* \s?cjk_stops+ */
static const struct pre_rule last_spaces[] = {{SPACES_LAST, 0, 0, 0, 0, 0}, STOP};    /* \s+$ */
static const struct pre_rule dark[] = {{RUN, 0, NOT | SPACES, 1, 0, 0}, STOP};        /* \S+ */
static const struct pre_rule number[] = {{RUN, 0, N, 1, 1, 0}, STOP};                /* \p{N} */
static const struct pre_rule numbers_up_to_3[] = {{RUN, 0, N, 1, 3, 0}, STOP};       /* \p{N}{1,3} */
static const struct pre_rule numbers[] = {{RUN, 0, N, 1, 0, 0}, STOP};               /* \p{N}+ */
static const struct pre_rule three_digits[] = {{RUN, 0, DIGIT, 3, 3, 0}, STOP};      /* [0-9][0-9][0-9] */
static const struct pre_rule marks[] = {{RUN, 0, P | MATH, 1, 0, 0}, STOP};          /* [\p{P}\$\+<=>\^~\|]+ */
static const struct pre_rule marks_falcon[] = {{RUN, 0, P | MATH | BACKTICK, 1, 0, 0}, STOP};   /* the same and ` */
static const struct pre_rule kana_han[] = {{RUN, 0, KANA_HAN, 1, 0, 0}, STOP};       /* [一-龥぀-ゟ゠-ヿ]+ */
static const struct pre_rule hangul_han[] = {{RUN, 0, HANGUL_HAN, 1, 0, 0}, STOP};   /* [一-龥ࠀ-一가-퟿]+ */
static const struct pre_rule line_break[] = {{RUN, 0, BREAK, 1, 1, 0}, STOP};        /* [\r\n] */
static const struct pre_rule spaced_letters[] = {{RUN, SPACES, L, 1, 0, 0}, STOP};   /* \s?\p{L}+ */
static const struct pre_rule spaced_marks[] = {{RUN, SPACES, P, 1, 0, 0}, STOP};     /* \s?\p{P}+ */
static const struct pre_rule lines[] = {{RUN, 0, NOT | LF, 1, 0, 0}, {RUN, 0, LF, 1, 0, 0}, STOP};  /* [^\n]+|[\n]+ */
/*  ?[^(\s|.,!?…。，、।۔،)]+ */
static const struct pre_rule sentence[] = {{RUN, BLANK, NOT | SENTENCE, 1, 0, 0}, STOP};

#define STAGES(name, ...) static const struct pre_rule *const name[] = {__VA_ARGS__, NULL}
STAGES(pre_default, marks, words_gpt2, numbers, three_digits);
STAGES(pre_gpt2, words_gpt2);
STAGES(pre_smollm, number, words_gpt2);
STAGES(pre_falcon, marks_falcon, words_gpt2, three_digits);
STAGES(pre_llama3, words_llama3);
STAGES(pre_qwen2, words_qwen2);
STAGES(pre_qwen35, words_qwen35);
STAGES(pre_ufakzeka, words_ufakzeka);
STAGES(pre_seed_coder, words_seed_coder);
STAGES(pre_minicpm5, numbers_up_to_3, words_minicpm5);
STAGES(pre_gpt4o, words_gpt4o);
STAGES(pre_tekken, words_tekken);
STAGES(pre_deepseek3, numbers_up_to_3, kana_han, words_deepseek3);
STAGES(pre_deepseek_coder, line_break, spaced_letters, spaced_marks, hangul_han, number);
STAGES(pre_laguna, lines, words_qwen2);
STAGES(pre_bloom, sentence);
STAGES(pre_viking, sentence, number);
STAGES(pre_spark, numbers_up_to_3, kana_han, words_spark, number);
STAGES(pre_youtu, scripts_youtu, words_youtu);
STAGES(pre_tiny_aya, number_groups, words_tiny_aya);
STAGES(pre_granite_97m, words_granite_97m);
STAGES(pre_kimi, words_kimi);
STAGES(pre_jais2, words_jais2);
STAGES(pre_exaone_moe, words_exaone_moe);
STAGES(pre_chameleon, sentinels, images, indents, number, mark, words_gpt2);
STAGES(pre_superbpe, numbers, digit_groups);
STAGES(pre_afmoe, number_groups, asian_run, words_deepseek3);
STAGES(pre_deepseek_llm, line_break, cased_words, stops_words, last_spaces, hangul_han, numbers);
STAGES(pre_lines, lines);
STAGES(pre_whitespace, dark);

static const struct pretokenizer known[] = {
    {"default", pre_default, PRE_CLEAN_SPACES},
    {"smollm", pre_smollm, 0},
    {"starcoder", pre_smollm, PRE_CLEAN_SPACES},
    {"refact", pre_smollm, PRE_CLEAN_SPACES},
    {"command-r", pre_smollm, 0},
    {"codeshell", pre_smollm, PRE_CLEAN_SPACES},
    {"exaone", pre_smollm, PRE_CLEAN_SPACES},
    {"minerva-7b", pre_smollm, PRE_CLEAN_SPACES},
    {"mellum2", pre_smollm, PRE_CLEAN_SPACES},
    {"gpt-2", pre_gpt2, PRE_CLEAN_SPACES},
    {"phi-2", pre_gpt2, PRE_CLEAN_SPACES},
    {"mpt", pre_gpt2, PRE_CLEAN_SPACES},
    {"olmo", pre_gpt2, PRE_CLEAN_SPACES},
    {"jais", pre_gpt2, PRE_CLEAN_SPACES},
    {"gigachat", pre_gpt2, PRE_CLEAN_SPACES},
    {"a.x-4.0", pre_gpt2, PRE_CLEAN_SPACES},
    {"mellum", pre_gpt2, PRE_CLEAN_SPACES},
    {"modern-bert", pre_gpt2, PRE_CLEAN_SPACES},
    {"exaone4", pre_gpt2, PRE_CLEAN_SPACES},
    {"trillion", pre_gpt2, 0},
    {"granite-docling", pre_gpt2, 0},
    {"jina-es", pre_gpt2, PRE_CLEAN_SPACES},
    {"jina-de", pre_gpt2, PRE_CLEAN_SPACES},
    {"jina-v1-en", pre_gpt2, PRE_CLEAN_SPACES | PRE_ADD_SEP},
    {"jina-v2-es", pre_gpt2, PRE_CLEAN_SPACES},
    {"jina-v2-de", pre_gpt2, PRE_CLEAN_SPACES},
    {"jina-v2-code", pre_gpt2, PRE_CLEAN_SPACES | PRE_ADD_SEP},
    {"roberta-bpe", pre_gpt2, PRE_CLEAN_SPACES | PRE_ADD_SEP},
    {"llama-bpe", pre_llama3, PRE_IGNORE_MERGES | PRE_ADD_BOS | PRE_CLEAN_SPACES},
    {"llama3", pre_llama3, PRE_IGNORE_MERGES | PRE_ADD_BOS | PRE_CLEAN_SPACES},
    {"llama-v3", pre_llama3, PRE_IGNORE_MERGES | PRE_ADD_BOS | PRE_CLEAN_SPACES},
    {"falcon3", pre_llama3, PRE_IGNORE_MERGES | PRE_ADD_BOS | PRE_CLEAN_SPACES},
    {"falcon-h1", pre_llama3, PRE_IGNORE_MERGES | PRE_ADD_BOS | PRE_CLEAN_SPACES},
    {"pixtral", pre_llama3, PRE_IGNORE_MERGES | PRE_ADD_BOS | PRE_CLEAN_SPACES},
    {"midm-2.0", pre_llama3, PRE_IGNORE_MERGES | PRE_ADD_BOS | PRE_CLEAN_SPACES},
    {"lfm2", pre_llama3, PRE_IGNORE_MERGES | PRE_ADD_BOS | PRE_CLEAN_SPACES},
    {"jina-v5-nano", pre_llama3, PRE_IGNORE_MERGES | PRE_ADD_BOS | PRE_CLEAN_SPACES},
    {"dbrx", pre_llama3, PRE_CLEAN_SPACES},
    {"smaug-bpe", pre_llama3, PRE_CLEAN_SPACES},
    {"glm4", pre_llama3, PRE_NO_BOS | PRE_CLEAN_SPACES},
    {"chatglm-bpe", pre_llama3, PRE_NO_BOS | PRE_CLEAN_SPACES},
    {"qwen2", pre_qwen2, 0},
    {"deepseek-r1-qwen", pre_qwen2, 0},
    {"kormo", pre_qwen2, 0},
    {"f2llmv2", pre_qwen2, 0},
    {"megrez", pre_qwen2, PRE_CLEAN_SPACES},
    {"stablelm2", pre_qwen2, PRE_CLEAN_SPACES},
    {"hunyuan", pre_qwen2, 0},
    {"solar-open", pre_qwen2, 0},
    {"grok-2", pre_qwen2, 0},
    {"bailingmoe", pre_qwen2, 0},
    {"bailingmoe2", pre_qwen2, 0},
    {"llada-moe", pre_qwen2, 0},
    {"qwen35", pre_qwen35, 0},
    {"ufakzeka", pre_ufakzeka, 0},
    {"seed-coder", pre_seed_coder, 0},
    {"minicpm5", pre_minicpm5, PRE_IGNORE_MERGES | PRE_CLEAN_SPACES},
    {"gpt-4o", pre_gpt4o, 0},
    {"llama4", pre_gpt4o, 0},
    {"kanana2", pre_gpt4o, 0},
    {"talkie", pre_gpt4o, 0},
    {"minimax-m2", pre_gpt4o, 0},
    {"tekken", pre_tekken, PRE_IGNORE_MERGES | PRE_ADD_BOS},
    {"falcon", pre_falcon, PRE_CLEAN_SPACES},
    {"deepseek-coder", pre_deepseek_coder, 0},
    {"deepseek-v3", pre_deepseek3, 0},
    {"hunyuan-dense", pre_deepseek3, 0},
    {"joyai-llm", pre_deepseek3, 0},
    {"hy_v4", pre_deepseek3, 0},
    {"laguna", pre_laguna, 0},
    {"bloom", pre_bloom, PRE_CLEAN_SPACES},
    {"gpt3-finnish", pre_bloom, PRE_CLEAN_SPACES},
    {"poro-chat", pre_bloom, 0},
    {"viking", pre_viking, 0},
    {"spark2_5", pre_spark, 0},
    {"youtu", pre_youtu, PRE_IGNORE_MERGES},
    {"tiny_aya", pre_tiny_aya, 0},
    {"cohere2moe", pre_tiny_aya, 0},
    {"granite-embed-multi-97m", pre_granite_97m, PRE_IGNORE_MERGES},
    {"kimi-k2", pre_kimi, PRE_NO_MERGES},
    {"jais-2", pre_jais2, PRE_CLEAN_SPACES},
    {"exaone-moe", pre_exaone_moe, PRE_CLEAN_SPACES},
    {"chameleon", pre_chameleon, PRE_ADD_BOS},
    {"superbpe", pre_superbpe, 0},
    {"afmoe", pre_afmoe, 0},
    {"deepseek-llm", pre_deepseek_llm, 0},
    {"gemma4", pre_lines, PRE_PLAIN | PRE_MARK_SPACES | PRE_LINE_TOKENS | PRE_ALWAYS_BOS | PRE_CLEAN_SPACES},
    {"granite-embed-multi-311m", pre_lines,
     PRE_PLAIN | PRE_MARK_SPACES | PRE_LINE_TOKENS | PRE_ALWAYS_BOS | PRE_CLEAN_SPACES},
    {"sarvam-moe", pre_lines, PRE_PLAIN | PRE_MARK_SPACES},
    {"whitespace", pre_whitespace, PRE_PLAIN | PRE_CLEAN_SPACES | PRE_KEEP_CASE},
};

const struct pretokenizer *pretokenizer_find(const char *name, size_t n) {
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strlen(known[i].name) == n && memcmp(known[i].name, name, n) == 0) return &known[i];
    }
    return NULL;
}

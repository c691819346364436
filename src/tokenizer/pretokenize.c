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
    NOT = 1 << 30,          /* the complement of the other bits */
};

static bool one_of(uint32_t cp, const uint32_t *list) {
    while (*list != 0 && *list != cp) list++;
    return *list != 0;
}

struct pre_char pre_char_make(uint32_t cp) {
    static const uint32_t by_class[] = {
        [UNICODE_OTHER] = 0, [UNICODE_LETTER] = L, [UNICODE_NUMBER] = N, [UNICODE_MARK] = M,
        [UNICODE_PUNCTUATION] = P, [UNICODE_SYMBOL] = S
    };
    static const uint32_t stops[] = {
        '(', '|', '.', ',', '!', '?', ')', 0x2026, 0x3002, 0xff0c, 0x3001, 0x964, 0x6d4, 0x60c, 0
    };
    uint32_t sets = by_class[unicode_class_of(cp)];
    if (unicode_is_space(cp)) sets |= SPACES | SENTENCE;
    if (one_of(cp, stops)) sets |= SENTENCE;
    if (cp < 0x80) {
        if (cp == ' ') sets |= BLANK;
        if (cp == '\r' || cp == '\n') sets |= BREAK;
        if (cp == '\n') sets |= LF;
        if (cp == '/') sets |= SLASH;
        if (cp == '`') sets |= BACKTICK;
        if (cp >= '0' && cp <= '9') sets |= DIGIT;
        if (cp >= 'a' && cp <= 'z') sets |= LOWER;
        if (cp >= 'A' && cp <= 'Z') sets |= UPPER;
        if (sets & (P | S)) sets |= ASCII_MARK;
        if ((sets & S) && cp != '`') sets |= MATH;
    } else {
        bool han = cp >= 0x4e00 && cp <= 0x9fa5;
        if (han || (cp >= 0x3040 && cp <= 0x30ff)) sets |= KANA_HAN;
        bool hangul = (cp >= 0x800 && cp <= 0x4e00) || (cp >= 0xac00 && cp <= 0xd7ff);
        if (han || (hangul && !(sets & SPACES))) sets |= HANGUL_HAN;
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
    PREFIXED_RUN,      /* prefix  body{min,max} suffix* */
    CONTRACTION,       /* '[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD] */
    LOWER_CONTRACTION, /* 's|'t|'re|'ve|'m|'ll|'d */
    CASED,             /* the first two alternatives of words_gpt4o, without their contractions */
    CASED_CONTRACTION, /* the same, each followed by (?:CONTRACTION)? */
    LINES,             /* \s*[\r\n]+ */
    SPACES_BEFORE,     /* \s+(?!\S): leaves the last space to the word that follows */
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
    while (p < end && in(r->suffix, &c[p])) p++;
    return p;
}

/* Matches upper-case letters and then at least one lower-case letter, or upper-case letters alone.  Sets *seen to the
 * end of the characters that it looked at. */
static size_t match_cased(const struct pre_rule *r, const struct pre_char *c, size_t pos, size_t end,
                          size_t *seen) {
    size_t begin = pos;
    if (end - pos > 1 && in(NOT | L | N | BREAK, &c[pos]) && in(L, &c[pos + 1])) begin++;
    size_t upper = begin;
    while (upper < end && (c[upper].sets & L) && !(c[upper].sets & LOWER)) upper++;
    size_t p = upper;
    while (p < end && (c[p].sets & L) && !(c[p].sets & UPPER)) p++;
    *seen = p;
    if (p == begin) return pos;
    if (p == upper) {    /* no lower case follows: the first alternative backtracks until it ends in a caseless one */
        while (p > begin && (c[p - 1].sets & UPPER)) p--;
        if (p == begin) p = upper;
    }
    return r->kind == CASED_CONTRACTION ? p + contraction(c, p, end, true) : p;
}

/* Returns the end of the match at pos, or pos if there is none.  If it looked at characters past the match, it sets
 * *seen to their end. */
static size_t match(const struct pre_rule *r, const struct pre_char *c, size_t pos, size_t end, size_t *seen) {
    switch (r->kind) {
    case RUN:
    case PREFIXED_RUN: return match_run(r, c, pos, end);
    case CONTRACTION: return pos + contraction(c, pos, end, true);
    case LOWER_CONTRACTION: return pos + contraction(c, pos, end, false);
    case CASED:
    case CASED_CONTRACTION: return match_cased(r, c, pos, end, seen);
    case LINES: {
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
            next = match(r, s->chars, pos, end, &seen);
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

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)     and \s+, so that nothing is left over */
static const struct pre_rule words_gpt2[] = {
    {LOWER_CONTRACTION, 0, 0, 0, 0, 0}, {RUN, BLANK, L, 1, 0, 0}, {RUN, BLANK, N, 1, 0, 0}, OTHERS(0),
    {SPACES_BEFORE, 0, 0, 0, 0, 0}, {RUN, 0, SPACES, 1, 0, 0}, STOP
};
/* (?:CONTRACTION)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static const struct pre_rule words_llama3[] = {
    {CONTRACTION, 0, 0, 0, 0, 0}, LETTERS, {RUN, 0, N, 1, 3, 0}, OTHERS(BREAK), WHITE, STOP
};
/* (?:CONTRACTION)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 * bailingmoe writes the lines as \s*[\r\n], which matches the same: \s* takes all but the last break. */
static const struct pre_rule words_qwen2[] = {
    {CONTRACTION, 0, 0, 0, 0, 0}, LETTERS, {RUN, 0, N, 1, 1, 0}, OTHERS(BREAK), WHITE, STOP
};
/* as qwen2 with [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+ and  ?[^\s\p{L}\p{M}\p{N}]+[\r\n]* */
static const struct pre_rule words_qwen35[] = {
    {CONTRACTION, 0, 0, 0, 0, 0}, {RUN, NOT | BREAK | L | N, L | M, 1, 0, 0}, {RUN, 0, N, 1, 1, 0},
    {RUN, BLANK, NOT | SPACES | L | M | N, 1, 0, BREAK}, WHITE, STOP
};
/* as qwen2 without the contractions */
static const struct pre_rule words_ufakzeka[] = {LETTERS, {RUN, 0, N, 1, 1, 0}, OTHERS(BREAK), WHITE, STOP};
/* as qwen2 with  ?[^\s\p{L}\p{N}\r\n]+ (the breaks are in \s already) */
static const struct pre_rule words_seed_coder[] = {
    {CONTRACTION, 0, 0, 0, 0, 0}, LETTERS, {RUN, 0, N, 1, 1, 0}, OTHERS(0), WHITE, STOP
};
/* as qwen2 with \p{N}+ */
static const struct pre_rule words_minicpm5[] = {
    {CONTRACTION, 0, 0, 0, 0, 0}, LETTERS, {RUN, 0, N, 1, 0, 0}, OTHERS(BREAK), WHITE, STOP
};
/* With U = (?=[\p{L}])([^a-z]) and W = (?=[\p{L}])([^A-Z]):
 * [^\r\n\p{L}\p{N}]?(U)*(W)+(?:CONTRACTION)?|[^\r\n\p{L}\p{N}]?(U)+(W)*(?:CONTRACTION)?|\p{N}{1,3}
 * | ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static const struct pre_rule words_gpt4o[] = {
    {CASED_CONTRACTION, 0, 0, 0, 0, 0}, {RUN, 0, N, 1, 3, 0}, OTHERS(BREAK | SLASH), WHITE, STOP
};
/* the same without contractions and with \p{N} */
static const struct pre_rule words_tekken[] = {
    {CASED, 0, 0, 0, 0, 0}, {RUN, 0, N, 1, 1, 0}, OTHERS(BREAK | SLASH), WHITE, STOP
};
/* [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*
 * |\s*[\r\n]+|\s+(?!\S)|\s+ */
static const struct pre_rule words_deepseek3[] = {
    {PREFIXED_RUN, ASCII_MARK, LOWER | UPPER, 1, 0, 0}, {RUN, NOT | BREAK | L | P | S, L | M, 1, 0, 0},
    {RUN, BLANK, P | S, 1, 0, BREAK}, WHITE, STOP
};
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
    {"jina-v1-en", pre_gpt2, PRE_CLEAN_SPACES},
    {"jina-v2-es", pre_gpt2, PRE_CLEAN_SPACES},
    {"jina-v2-de", pre_gpt2, PRE_CLEAN_SPACES},
    {"jina-v2-code", pre_gpt2, PRE_CLEAN_SPACES},
    {"roberta-bpe", pre_gpt2, PRE_CLEAN_SPACES},
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
};

const struct pretokenizer *pretokenizer_find(const char *name, size_t n) {
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strlen(known[i].name) == n && memcmp(known[i].name, name, n) == 0) return &known[i];
    }
    return NULL;
}

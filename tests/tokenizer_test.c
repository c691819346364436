/* Text <-> ids against llama.cpp (tests/vectors/tokenizer), and vocabularies that contradict themselves. */
#include "adversary.h"
#include "bytes.h"
#include "check/selfcheck.h"
#include "test.h"
#include "tokenizer/specials.h"
#include "vectors/tokenizer/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- loading -------------------------------------------------------------------------------------------------- */

static const char *const SMOLLM2[] = {"smollm2", "models/SmolLM2-135M-Instruct.Q4_1.gguf"};
static const char *const GEMMA3[] = {"gemma3", "models/gemma-3-270m.Q4_K_M.gguf"};
static const char *const LLAMA_SPM[] = {"llama-spm", "models/ggml-vocab-llama-spm.gguf"};
static const char *const LLAMA_BPE[] = {"llama-bpe", "models/ggml-vocab-llama-bpe.gguf"};
static const char *const QWEN2[] = {"qwen2", "models/ggml-vocab-qwen2.gguf"};

/* Reads the header of a GGUF from bytes or, if bytes is NULL, from a file.  NULL and a failed check on errors. */
static struct gguf *read_header(const char *path, const uint8_t *bytes, size_t n) {
    struct error err = {PLUMB_OK, ""};
    struct gguf *g = gguf_create(PLUMB_SIZE_UNKNOWN);
    uint64_t pos = 0;
    while (g != NULL && !gguf_has_header(g)) {
        void *data;
        size_t len;
        plumb_status status = gguf_window(g, &data, &len, &err);
        int64_t got = 0;
        if (status == PLUMB_OK && bytes == NULL) {
            got = test_read(path, pos, data, len);
        } else if (status == PLUMB_OK) {
            got = (int64_t)(len < n - pos ? len : n - (size_t)pos);
            memcpy(data, bytes + pos, (size_t)got);
        }
        if (status == PLUMB_OK && got > 0) status = gguf_commit(g, (size_t)got, &err);
        if (!CHECK(status == PLUMB_OK && got > 0, "%s: at byte %lu: %ld read, %s", path, (unsigned long)pos, (long)got,
                   err.message)) {
            gguf_free(g);
            return NULL;
        }
        pos += (uint64_t)got;
    }
    return g;
}

struct loaded {
    struct gguf *g;
    struct tokenizer *t;
};

static struct loaded load(const char *path) {
    struct error err = {PLUMB_OK, ""};
    struct loaded l = {read_header(path, NULL, 0), NULL};
    if (l.g != NULL) CHECK(tokenizer_create(&l.t, l.g, &err) == PLUMB_OK, "%s: %s", path, err.message);
    return l;
}

static void unload(struct loaded l) {
    tokenizer_free(l.t);
    gguf_free(l.g);
}

/* ---- llama.cpp's vectors -------------------------------------------------------------------------------------- */

#define FNV_START 14695981039346656037ull
static uint64_t fnv(uint64_t h, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)bytes)[i]) * 1099511628211ull;
    return h;
}

/* Decodes \xNN, and a leading \*N; that repeats the rest N times.  The caller frees the result, of length *n. */
static char *unescape(const char *line, size_t *n) {
    unsigned long times = 1;
    if (line[0] == '\\' && line[1] == '*') {
        char *end;
        times = strtoul(line + 2, &end, 10);
        line = end + 1;
    }
    char *out = malloc(strlen(line) * times + 1);
    size_t once = 0;
    for (; out != NULL && *line != 0; line++) {
        char digits[3] = {line[0] == '\\' ? line[2] : 0, line[0] == '\\' ? line[3] : 0, 0};
        out[once++] = *line == '\\' ? (char)strtoul(digits, NULL, 16) : *line;
        if (*line == '\\') line += 3;
    }
    *n = once * times;
    for (size_t i = once; out != NULL && i < *n; i++) out[i] = out[i - once];
    return out;
}

/* Splits the next line off *rest; "" at the end. */
static char *next_line(char **rest) {
    char *line = *rest, *end = strchr(line, '\n');
    *rest = end != NULL ? end + 1 : line + strlen(line);
    if (end != NULL) *end = 0;
    return line;
}

/* Whether line denotes these ids: "#count hash" for long lists, as in oracle.c; otherwise the numbers. */
static bool equal_ids(const char *line, const int32_t *ids, int64_t n) {
    if (line[0] == '#') {
        char expected[64];
        snprintf(expected, sizeof expected, "#%ld %016llx", (long)n,
                 (unsigned long long)fnv(FNV_START, ids, (size_t)n * 4));
        return strcmp(line, expected) == 0;
    }
    char *end = (char *)(uintptr_t)line;   /* strtol's end is not const */
    for (int64_t i = 0; i < n; i++) {
        const char *begin = end;
        if (strtol(begin, &end, 10) != ids[i] || end == begin) return false;
    }
    return *end == 0;
}

static bool equal_text(const char *line, const char *text, size_t n, const char *string, size_t n_string) {
    if (line[0] == '=' && line[1] == 0) return n == n_string && memcmp(text, string, n) == 0;
    if (line[0] == '#' && n > 2000) {
        char expected[64];
        snprintf(expected, sizeof expected, "#%lu %016llx", (unsigned long)n,
                 (unsigned long long)fnv(FNV_START, text, n));
        return strcmp(line, expected) == 0;
    }
    size_t n_expected;
    char *expected = unescape(line, &n_expected);
    bool equal = expected != NULL && n == n_expected && memcmp(text, expected, n) == 0;
    free(expected);
    return equal;
}

static void note_ids(char *out, size_t cap, const int32_t *ids, int64_t n) {
    size_t used = 0;
    out[0] = 0;
    for (int64_t i = 0; i < n && i < 60 && used + 16 < cap; i++) {
        used += (size_t)snprintf(out + used, cap - used, "%s%ld", i ? " " : "", (long)ids[i]);
    }
}

static void equals_llama(const void *row) {
    const char *const *vocab = row;
    char path[96], shown[600];
    size_t n;
    snprintf(path, sizeof path, "tests/vectors/tokenizer/%s.txt", vocab[0]);
    char *strings = test_read_all("tests/vectors/tokenizer/strings.txt", &n), *string_rest = strings;
    char *vectors = test_read_all(path, &n), *rest = vectors;
    struct loaded l = load(vocab[1]);
    const size_t max = 1u << 22;
    int32_t *ids = malloc(max * sizeof *ids);
    char *text = malloc(max);
    if (!CHECK(strings && vectors && l.t && ids && text, "%s cannot be tested", vocab[0])) goto done;
    struct error err = {PLUMB_OK, ""};
    uint32_t n_vocab = tokenizer_n_vocab(l.t);

    snprintf(shown, sizeof shown, "%lu %ld %ld", (unsigned long)n_vocab, (long)tokenizer_bos(l.t),
             (long)tokenizer_eos(l.t));
    char *line = next_line(&rest);
    CHECK(strcmp(line, shown) == 0, "n_vocab bos eos: %s, llama.cpp has %s", shown, line);
    int64_t n_ids = 0;
    for (uint32_t i = 0; i < n_vocab; i++) {
        if (tokenizer_is_eog(l.t, (int32_t)i)) ids[n_ids++] = (int32_t)i;
    }
    line = next_line(&rest);
    note_ids(shown, sizeof shown, ids, n_ids);
    CHECK(equal_ids(line, ids, n_ids), "ends of turns: %s, llama.cpp has %s", shown, line);
    uint64_t hash[2] = {FNV_START, FNV_START};
    for (int special = 0; special < 2; special++) {
        for (uint32_t i = 0; i < n_vocab; i++) {
            int32_t length = (int32_t)tokenizer_piece(l.t, (int32_t)i, special, text, max);
            hash[special] = fnv(fnv(hash[special], &length, 4), text, (size_t)length);
        }
    }
    snprintf(shown, sizeof shown, "%016llx %016llx", (unsigned long long)hash[0], (unsigned long long)hash[1]);
    line = next_line(&rest);
    CHECK(strcmp(line, shown) == 0, "pieces of all tokens hash to %s, llama.cpp's to %s", shown, line);
    uint64_t x = 1;
    hash[0] = FNV_START;
    for (int i = 0; i < 4000; i++) {
        for (int k = 0; k < 8; k++) {
            x = x * 6364136223846793005ull + 1442695040888963407ull;
            ids[k] = (int32_t)((x >> 33) % n_vocab);
        }
        int32_t length = (int32_t)tokenizer_decode(l.t, ids, 8, i & 1, text, max);
        hash[0] = fnv(fnv(hash[0], &length, 4), text, (size_t)length);
    }
    snprintf(shown, sizeof shown, "%016llx", (unsigned long long)hash[0]);
    line = next_line(&rest);
    CHECK(strcmp(line, shown) == 0, "texts of 4000 id sequences hash to %s, llama.cpp's to %s", shown, line);

    size_t n_string = 0;
    for (; *string_rest != 0; n_string++) {
        char *escaped = next_line(&string_rest), *expected[4];
        size_t length;
        char *string = unescape(escaped, &length);
        for (int i = 0; i < 4; i++) expected[i] = next_line(&rest);
        for (int special = 0; special < 2 && test_repeats(n_string); special++) {
            unsigned flags = special ? PLUMB_ADD_SPECIAL | PLUMB_PARSE_SPECIAL : 0;
            n_ids = tokenizer_encode(l.t, string, length, flags, ids, max, &err);
            if (!CHECK(n_ids >= 0 && (uint64_t)n_ids <= max, "%ld ids: %s", (long)n_ids, err.message)) continue;
            note_ids(shown, sizeof shown, ids, n_ids);
            CHECK(equal_ids(expected[special], ids, n_ids), "\"%.150s\", special %d: %.300s, llama.cpp has %.300s",
                  escaped, special, shown, expected[special]);
            int64_t n_text = tokenizer_decode(l.t, ids, (size_t)n_ids, special, text, max);
            CHECK(n_text >= 0 && equal_text(expected[2 + special], text, (size_t)n_text, string, length),
                  "\"%.150s\", special %d: text %.*s, llama.cpp has %.300s", escaped, special,
                  n_text > 0 && n_text < 300 ? (int)n_text : 0, text, expected[2 + special]);
        }
        free(string);
    }
    CHECK(n_string >= 200 && *rest == 0, "%lu strings, at least 200 expected; left over: %.50s",
          (unsigned long)n_string, rest);
done:
    free(ids);
    free(text);
    free(strings);
    free(vectors);
    unload(l);
}

/* ---- every pre-tokenizer -------------------------------------------------------------------------------------- */

static size_t find_bytes(const uint8_t *data, size_t n, const char *what, size_t n_what) {
    size_t i = 0;
    while (i + n_what < n && memcmp(data + i, what, n_what) != 0) i++;
    return i;
}

static uint64_t hash_string(const char *name, struct tokenizer *t, uint64_t hash, const char *string, size_t length,
                            int32_t *ids, char *text, size_t max) {
    struct error err = {PLUMB_OK, ""};
    for (int special = 0; special < 2; special++) {
        unsigned flags = special ? PLUMB_ADD_SPECIAL | PLUMB_PARSE_SPECIAL : 0;
        int64_t n_ids = tokenizer_encode(t, string, length, flags, ids, max, &err);
        if (!CHECK(n_ids >= 0, "%s: \"%.*s\": %s", name, (int)length, string, err.message)) continue;
        int64_t n_text = tokenizer_decode(t, ids, (size_t)n_ids, special, text, max);
        hash = fnv(fnv(hash, ids, (size_t)n_ids * 4), text, (size_t)n_text);
    }
    return hash;
}

/* The hash that oracle.c computes over a vocabulary: end-of-turn flags and pieces of all tokens, ids and texts of all
 * strings and of random.h's. */
static void equals_hash(const char *name, struct gguf *g, const char *strings, const char *expected) {
    struct error err = {PLUMB_OK, ""};
    struct tokenizer *t = NULL;
    const size_t max = 1 << 16;
    char *text = malloc(max), *lines = malloc(strlen(strings) + 1);
    int32_t *ids = malloc(max * sizeof *ids);
    if (!CHECK(g && text && lines && ids && tokenizer_create(&t, g, &err) == PLUMB_OK, "%s: %s", name, err.message)) {
        goto done;
    }
    uint64_t hash = FNV_START;
    for (int32_t i = 0; i < (int32_t)tokenizer_n_vocab(t); i++) {
        int32_t facts[3] = {tokenizer_is_eog(t, i), 0, 0};
        for (int special = 0; special < 2; special++) {
            facts[1 + special] = (int32_t)tokenizer_piece(t, i, special, text, max);
            hash = fnv(hash, text, (size_t)facts[1 + special]);
        }
        hash = fnv(hash, facts, sizeof facts);
    }
    strcpy(lines, strings);
    for (char *rest = lines; *rest != 0;) {
        char *line = next_line(&rest);
        if (strncmp(line, "\\*", 2) == 0) continue;
        size_t length;
        char *string = unescape(line, &length);
        hash = hash_string(name, t, hash, string, length, ids, text, max);
        free(string);
    }
    uint64_t state = 1;
    for (int i = 0; i < N_RANDOM; i++) {
        char string[RANDOM_MAX];
        hash = hash_string(name, t, hash, string, random_text(&state, string), ids, text, max);
    }
    char shown[20];
    snprintf(shown, sizeof shown, "%016llx", (unsigned long long)hash);
    CHECK(strcmp(shown, expected) == 0, "%s: ids and texts hash to %s, llama.cpp's to %s", name, shown, expected);
done:
    tokenizer_free(t);
    free(text);
    free(lines);
    free(ids);
}

/* small.gguf with each tokenizer.ggml.pre of pre.txt. */
static void pre_equals_llama(void) {
    static const char key[] = "tokenizer.ggml.pre\x08\0\0";   /* with the final 0: type string */
    size_t n_small = 0, n_file, n_name = 0;
    uint8_t *small = test_read_all("tests/vectors/tokenizer/small.gguf", &n_small), *patched = malloc(n_small + 64);
    char *names = test_read_all("tests/vectors/tokenizer/pre.txt", &n_file), *rest = names;
    char *strings = test_read_all("tests/vectors/tokenizer/strings.txt", &n_file);
    if (!CHECK(small && patched && names && strings, "no vectors")) goto done;
    size_t at = find_bytes(small, n_small, key, sizeof key) + sizeof key, old = (size_t)load_u64(small + at);
    for (; *rest != 0; n_name++) {
        char *name = next_line(&rest), *expected = strchr(name, ' ');
        *expected++ = 0;
        size_t n = strlen(name);
        memcpy(patched, small, at + 8);
        patched[at] = (uint8_t)n;   /* the other seven bytes of both lengths are 0 */
        memcpy(patched + at + 8, name, n);
        memcpy(patched + at + 8 + n, small + at + 8 + old, n_small - at - 8 - old);
        struct gguf *g = test_repeats(n_name) ? read_header(name, patched, n_small - old + n) : NULL;
        if (test_repeats(n_name)) equals_hash(name, g, strings, expected);
        gguf_free(g);
    }
    CHECK(n_name >= 89, "%lu names", (unsigned long)n_name);
done:
    free(small);
    free(patched);
    free(names);
    free(strings);
}

/* Compares the hashes of a list with those of vocabularies at pattern, where * stands for a name. */
static void hashes_equal(const char *list, const char *pattern, size_t n_expected) {
    size_t n, n_name = 0;
    char *names = test_read_all(list, &n), *rest = names;
    char *strings = test_read_all("tests/vectors/tokenizer/strings.txt", &n);
    for (; names != NULL && strings != NULL && *rest != 0; n_name++) {
        char *name = next_line(&rest), *expected = strchr(name, ' '), path[128];
        *expected++ = 0;
        size_t star = strcspn(pattern, "*");
        snprintf(path, sizeof path, "%.*s%s%s", (int)star, pattern, name, pattern + star + 1);
        struct gguf *g = read_header(path, NULL, 0);
        equals_hash(name, g, strings, expected);
        gguf_free(g);
    }
    CHECK(n_name == n_expected, "%s has %lu vocabularies, expected %lu", list, (unsigned long)n_name,
          (unsigned long)n_expected);
    free(names);
    free(strings);
}

/* Tokens are control tokens, end turns or strip white space by their texts, by keys or by the names of the model, its
 * pre-tokenizer or its architecture. */
static void roles_equal_llama(void) {
    hashes_equal("tests/vectors/tokenizer/roles.txt", "tests/vectors/tokenizer/roles/*.gguf", 19);
}
static void kinds_equal_llama(void) {
    hashes_equal("tests/vectors/tokenizer/kinds.txt", "tests/vectors/tokenizer/kinds/*.gguf", 14);
}
static void models_equal_llama(void) {
    hashes_equal("tests/vectors/tokenizer/models.txt", "models/ggml-vocab-*.gguf", 7);
}

/* The texts of NAME.inp or others.inp, and their ids in NAME.out, as llama.cpp's own test compares them. */
static void pairs_equal_llama(void) {
    static const char *const names[] = {
        "bert-bge", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "llama-bpe",
        "llama-spm", "mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder",
    };
    static const char between[] = "\n__ggml_vocab_test__\n";
    struct error err = {PLUMB_OK, ""};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[96], shown[600];
        size_t n, n_text = 0;
        bool own = strcmp(names[i], "gemma-4") == 0 || strcmp(names[i], "qwen35") == 0;
        snprintf(path, sizeof path, "tests/vectors/tokenizer/pairs/%s.inp", own ? names[i] : "others");
        char *texts = test_read_all(path, &n), *text = texts;
        snprintf(path, sizeof path, "tests/vectors/tokenizer/pairs/%s.out", names[i]);
        char *expected = test_read_all(path, &n), *rest = expected;
        snprintf(path, sizeof path, "models/ggml-vocab-%s.gguf", names[i]);
        struct loaded l = load(path);
        bool ok = CHECK(texts && expected && l.t, "%s cannot be tested", names[i]);
        for (; ok && *rest != 0; n_text++) {
            char *end = strstr(text, between), *line = next_line(&rest);
            size_t length = end != NULL ? (size_t)(end - text) : strlen(text);
            int32_t ids[2048];
            int64_t n_ids = tokenizer_encode(l.t, text, length, 0, ids, 2048, &err);
            note_ids(shown, sizeof shown, ids, n_ids);
            line += *line == ' ';
            CHECK(equal_ids(line, ids, n_ids), "%s: \"%.*s\": %s, llama.cpp has %.300s", names[i], (int)length, text,
                  shown, line);
            text = end != NULL ? end + sizeof between - 1 : text + length;
        }
        CHECK(n_text >= 45, "%s: %lu texts", names[i], (unsigned long)n_text);
        free(texts);
        free(expected);
        unload(l);
    }
}

/* The selfcheck of a tokenizer takes a kind that changes texts for what it is, and others must restore them. */
static void selfchecks(void) {
    static const struct { const char *path, *says; } rows[] = {
        {"models/ggml-vocab-bert-bge.gguf", "changes texts"},
        {"models/ggml-vocab-nomic-bert-moe.gguf", "changes texts"},
        {"models/ggml-vocab-gemma-4.gguf", "are restored"},
        {"tests/vectors/tokenizer/kinds/rwkv.gguf", "are restored"},
        {"tests/vectors/tokenizer/kinds/plamo2.gguf", "are restored"},
        {"tests/vectors/tokenizer/kinds/whitespace.gguf", "changes texts"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct loaded l = load(rows[i].path);
        struct check c = {0};
        if (l.t != NULL) selfcheck_tokenizer(&c, l.t);
        CHECK(c.verdict == VERDICT_OK && strstr(c.why, rows[i].says), "%s: %s%s%s", rows[i].path, c.why,
              c.n_detail > 0 ? ": " : "", c.n_detail > 0 ? c.details[0] : "");
        free(c.details);
        unload(l);
    }
}

static void classes_equal_llama(void) {
    size_t n;
    char *expected = test_read_all("tests/vectors/tokenizer/unicode.txt", &n), shown[20];
    uint64_t hash = FNV_START;
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        uint32_t facts[] = {unicode_class_of(cp) | (unsigned)unicode_is_space(cp) << 3, unicode_lower(cp),
                            unicode_first(cp)};
        for (size_t i = 0; i < 3; i++) hash = (hash ^ facts[i]) * 1099511628211ull;
    }
    snprintf(shown, sizeof shown, "%016llx\n", (unsigned long long)hash);
    CHECK(expected != NULL && strcmp(expected, shown) == 0, "%s, llama.cpp's tables hash to %s", shown, expected);
    free(expected);
}

/* ---- vocabularies that contradict themselves ------------------------------------------------------------------ */

/* A vocabulary as keys of a file, the result of loading it and, if it loads, of tokenizing a text. */
struct vocabulary {
    const char *name;
    const char *model, *pre;       /* NULL: no such key */
    const char *tokens[8];         /* ends at the first NULL */
    bool no_tokens;                /* no such key */
    int n_types, n_scores;         /* 0: no such key */
    int32_t types[8];
    float scores[8];
    const char *merges[8];         /* no such key if the first is NULL */
    uint32_t bos, sep;             /* 0: no such key */
    const char *map;               /* tokenizer.ggml.precompiled_charsmap of n_map bytes */
    size_t n_map;
    const char *wrong;             /* this key is a scalar uint64 instead */
    plumb_status status;           /* expected from loading */
    const char *message;           /* part of it */
    const char *text;              /* special tokens parsed, BOS added */
    int64_t n_ids;                 /* or a status */
    int32_t ids[8];
};

struct writer {
    struct bytes file;
    const char *wrong;
    bool is_wrong;   /* that key is written */
};

static void write_text(struct writer *w, const char *s) { put_string(&w->file, s, strlen(s)); }

/* Writes name and type.  Returns false if the key is the one of the wrong type, which is then complete. */
static bool write_key(struct writer *w, const char *name, enum gguf_type type) {
    bool wrong = w->wrong != NULL && strcmp(w->wrong, name) == 0;
    w->file.data[16]++;   /* the number of keys */
    put_key(&w->file, name, wrong ? GGUF_UINT64 : type);
    if (wrong) put_number(&w->file, UINT64_MAX, 8);
    w->is_wrong |= wrong;
    return !wrong;
}

static void write_texts(struct writer *w, const char *name, const char *const *texts) {
    uint64_t n = 0;
    while (n < 8 && texts[n] != NULL) n++;
    if (!write_key(w, name, GGUF_ARRAY)) return;
    put_number(&w->file, GGUF_STRING, 4);
    put_number(&w->file, n, 8);
    for (uint64_t i = 0; i < n; i++) write_text(w, texts[i]);
}

static void write_words(struct writer *w, const char *name, enum gguf_type type, const void *words, int n) {
    if (n == 0 || !write_key(w, name, GGUF_ARRAY)) return;
    put_number(&w->file, type, 4);
    put_number(&w->file, (uint64_t)n, 8);
    for (int i = 0; i < n; i++) put_number(&w->file, load_u32((const uint8_t *)words + 4 * i), 4);
}

static void write_vocabulary(struct writer *w, const struct vocabulary *v) {
    *w = (struct writer){.wrong = v->wrong};
    put(&w->file, "GGUF\3\0\0\0" "\0\0\0\0\0\0\0\0" "\0\0\0\0\0\0\0\0", 24);
    if (write_key(w, "general.architecture", GGUF_STRING)) write_text(w, "llama");   /* llama.cpp requires this key */
    if (v->model != NULL && write_key(w, "tokenizer.ggml.model", GGUF_STRING)) write_text(w, v->model);
    if (v->pre != NULL && write_key(w, "tokenizer.ggml.pre", GGUF_STRING)) write_text(w, v->pre);
    if (!v->no_tokens) write_texts(w, "tokenizer.ggml.tokens", v->tokens);
    write_words(w, "tokenizer.ggml.scores", GGUF_FLOAT32, v->scores, v->n_scores);
    write_words(w, "tokenizer.ggml.token_type", GGUF_INT32, v->types, v->n_types);
    if (v->merges[0] != NULL) write_texts(w, "tokenizer.ggml.merges", v->merges);
    if (v->bos > 0 && write_key(w, "tokenizer.ggml.bos_token_id", GGUF_UINT32)) {
        put_number(&w->file, v->bos, 4);
    }
    if (v->sep > 0 && write_key(w, "tokenizer.ggml.seperator_token_id", GGUF_UINT32)) put_number(&w->file, v->sep, 4);
    if (v->map != NULL && write_key(w, "tokenizer.ggml.precompiled_charsmap", GGUF_ARRAY)) {
        put_number(&w->file, GGUF_UINT8, 4);
        put_number(&w->file, v->n_map, 8);
        put(&w->file, v->map, v->n_map);
    }
    if (v->wrong != NULL && !w->is_wrong) write_key(w, v->wrong, GGUF_BOOL);
}

/* A text of a byte-level vocabulary that has a character for no byte, as llama.cpp shows it. */
static void unknown_bytes(void) {
    static const struct vocabulary v = {"v", .model = "gpt2", .pre = "gpt-2", .tokens = {"a\xe6\x97\xa5", "b"},
                                        .merges = {"a b"}};
    struct error err = {PLUMB_OK, ""};
    struct writer w;
    write_vocabulary(&w, &v);
    struct loaded l = {read_header(v.name, w.file.data, w.file.n), NULL};
    free(w.file.data);
    REQUIRE(l.g != NULL && tokenizer_create(&l.t, l.g, &err) == PLUMB_OK, "%s", err.message);
    char piece[80];
    static const char expected[] = "a[UNK_BYTE_0xe697a5a\xe6\x97\xa5]";
    int64_t n = tokenizer_piece(l.t, 0, true, piece, sizeof piece);
    CHECK(n == sizeof expected - 1 && memcmp(piece, expected, sizeof expected - 1) == 0, "%.*s", (int)n, piece);
    unload(l);
}

static void answers(const void *row) {
    const struct vocabulary *v = row;
    struct error err = {PLUMB_OK, ""};
    struct writer w;
    write_vocabulary(&w, v);
    struct loaded l = {read_header(v->name, w.file.data, w.file.n), NULL};
    free(w.file.data);
    REQUIRE(l.g != NULL, "the file is well formed");
    plumb_status status = tokenizer_create(&l.t, l.g, &err);
    CHECK(status == v->status, "%s (%s), expected %s", plumb_status_name(status), err.message,
          plumb_status_name(v->status));
    CHECK((status == PLUMB_OK) == (l.t != NULL), "a tokenizer only if it loads");
    if (v->message != NULL && status != PLUMB_OK) {
        CHECK(strstr(err.message, v->message) != NULL, "\"%s\" does not say \"%s\"", err.message, v->message);
    }
    if (status == PLUMB_OK && v->text != NULL) {
        int32_t ids[40];
        int64_t n = tokenizer_encode(l.t, v->text, strlen(v->text), PLUMB_ADD_SPECIAL | PLUMB_PARSE_SPECIAL, ids, 40,
                                     &err);
        char shown[200];
        note_ids(shown, sizeof shown, ids, n);
        CHECK(n == v->n_ids && (n < 0 || memcmp(ids, v->ids, (size_t)(n < 8 ? n : 8) * 4) == 0),
              "%ld ids: %s %s", (long)n, shown,
              n < 0 ? err.message : "");
        if (n < 0 && v->message != NULL) {
            CHECK(strstr(err.message, v->message) != NULL, "\"%s\" does not say \"%s\"", err.message, v->message);
        }
    }
    unload(l);
}

/* A map of characters: 128 entries, of which those of 'a' (entry 97, and 96 for its replacement) are not 0. */
#define U32(x) (char)((x) & 255), (char)((x) >> 8 & 255), (char)((x) >> 16 & 255), (char)((x) >> 24)
#define ZEROS_31 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
#define ZEROS_32 0, ZEROS_31
#define ZEROS_384 ZEROS_32, ZEROS_32, ZEROS_32, ZEROS_32, ZEROS_32, ZEROS_32, ZEROS_32, ZEROS_32, ZEROS_32, ZEROS_32, \
                  ZEROS_32, ZEROS_32
#define ZEROS_120 ZEROS_32, ZEROS_32, ZEROS_32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
#define MAP(place, entry) U32(512), ZEROS_384, U32(place), U32(entry), ZEROS_120
#define ENDS_HERE(base) ((base) << 10 | 1 << 8 | 'a')
#define CHARSMAP(name) .map = name, .n_map = sizeof name
static const char map_short[] = {U32(512), 0}, map_outside[] = {U32(4), U32(1000u << 10), 0};
static const char map_good[] = {MAP(0x80000000u, ENDS_HERE(1)), 'b', 'b', 0};
static const char map_beyond[] = {MAP(0x80000003u, ENDS_HERE(1)), 'b', 'b', 0};
static const char map_endless[] = {MAP(0x80000000u, ENDS_HERE(1)), 'b', 'b', 'b'};
static const char map_far[] = {MAP(0x80000000u, ENDS_HERE(1u << 20)), 'b', 'b', 0};
static const char map_circle[] = {MAP(0x80000000u, 97u << 10 | 'a'), 'b', 'b', 0};
static const char map_long[] = {MAP(0x80000000u, ENDS_HERE(1)), 'b', 'b', 'b', 'b', 'b', 'b', 'b', 'b', 'b', 'b',
                                'b', 'b', 'b', 'b', 'b', 'b', 'b', 'b', 'b', 'b', 'b', 'b', 'b', 'b', 'b', 'b', 'b',
                                'b', 'b', 'b', 'b', 'b', 0};
#define UNIGRAM .model = "t5", .tokens = {"<pad>", "</s>", "<unk>", "a", "b", "bb"}, .n_types = 6, \
                .types = {3, 3, 2, 1, 1, 1}, .n_scores = 6
#define BERT .model = "bert", .tokens = {"[UNK]", "[CLS]", "[SEP]", "\xe2\x96\x81", "a", "ab"}
#define SPM .model = "llama"
#define BPE .model = "gpt2", .pre = "gpt-2"
#define AB .tokens = {"a", "b", "ab"}
static const struct vocabulary vocabularies[] = {
    {"no tokenizer.ggml.model", AB, .status = PLUMB_ERROR_METADATA, .message = "tokenizer.ggml.model is missing"},
    {"an unknown tokenizer.ggml.model", AB, .model = "no-such", .status = PLUMB_ERROR_UNSUPPORTED,
     .message = "\"no-such\""},
    {"an unknown pre-tokenizer", AB, .model = "gpt2", .pre = "no-such", .merges = {"a b"},
     .status = PLUMB_ERROR_UNSUPPORTED, .message = "\"no-such\""},
    {"no tokens", SPM, .no_tokens = true, .status = PLUMB_ERROR_METADATA,
     .message = "tokenizer.ggml.tokens is missing"},
    {"zero tokens", SPM, .tokens = {NULL}, .status = PLUMB_ERROR_TOKENIZER, .message = "0 tokens"},
    {"a vocabulary of ids without its size", .model = "none", .no_tokens = true, .status = PLUMB_ERROR_TOKENIZER,
     .message = "key llama.vocab_size is 0, expected 1 to 1048576"},
    {"a vocabulary of ids tokenizes nothing", .model = "test", AB, .text = "ab", .n_ids = PLUMB_ERROR_TOKENIZER,
     .message = "the model has no vocabulary of texts"},
    {"no merges", BPE, AB, .status = PLUMB_ERROR_METADATA, .message = "tokenizer.ggml.merges is missing"},
    {"scores shorter than tokens", SPM, AB, .n_scores = 2, .status = PLUMB_ERROR_TOKENIZER,
     .message = "found 2 scores, expected one for each of 3 tokens"},
    {"token_type shorter than tokens", SPM, AB, .n_types = 1, .status = PLUMB_ERROR_TOKENIZER,
     .message = "found 1 types, expected one for each of 3 tokens"},
    {"a byte token <0x-1>", SPM, .tokens = {"a", "<0x-1>"}, .n_types = 2, .types = {1, 6},
     .status = PLUMB_ERROR_TOKENIZER, .message = "token 1 \"<0x-1>\""},
    {"a byte token <0xG1>", SPM, .tokens = {"<0xG1>"}, .n_types = 1, .types = {6}, .status = PLUMB_ERROR_TOKENIZER,
     .message = "token 0 \"<0xG1>\""},
    {"a byte token that is too short", SPM, .tokens = {"<0"}, .n_types = 1, .types = {6},
     .status = PLUMB_ERROR_TOKENIZER, .message = "token 0 \"<0\""},
    {"a byte token without text", SPM, .tokens = {""}, .n_types = 1, .types = {6}, .status = PLUMB_ERROR_TOKENIZER,
     .message = "token 0 \"[EMPTY_0]\""},
    {"equal tokens", SPM, .tokens = {"a", "b", "a"}, .status = PLUMB_ERROR_TOKENIZER,
     .message = "tokens 0 and 2 are both \"a\""},
    {"a model of the wrong type", SPM, AB, .wrong = "tokenizer.ggml.model", .status = PLUMB_ERROR_METADATA,
     .message = "tokenizer.ggml.model"},
    {"a pre-tokenizer of the wrong type", BPE, AB, .wrong = "tokenizer.ggml.pre", .status = PLUMB_ERROR_METADATA,
     .message = "tokenizer.ggml.pre"},
    {"tokens of the wrong type", SPM, AB, .wrong = "tokenizer.ggml.tokens", .status = PLUMB_ERROR_METADATA,
     .message = "tokenizer.ggml.tokens"},
    {"scores of the wrong type", SPM, AB, .n_scores = 3, .wrong = "tokenizer.ggml.scores",
     .status = PLUMB_ERROR_METADATA, .message = "tokenizer.ggml.scores"},
    {"token_type of the wrong type", SPM, AB, .n_types = 3, .wrong = "tokenizer.ggml.token_type",
     .status = PLUMB_ERROR_METADATA, .message = "tokenizer.ggml.token_type"},
    {"merges of the wrong type", BPE, AB, .merges = {"a b"}, .wrong = "tokenizer.ggml.merges",
     .status = PLUMB_ERROR_METADATA, .message = "tokenizer.ggml.merges"},
    {"a BOS id of the wrong type", SPM, AB, .bos = 1, .wrong = "tokenizer.ggml.bos_token_id",
     .status = PLUMB_ERROR_METADATA, .message = "tokenizer.ggml.bos_token_id"},
    {"add_bos_token of the wrong type", SPM, AB, .wrong = "tokenizer.ggml.add_bos_token",
     .status = PLUMB_ERROR_METADATA, .message = "tokenizer.ggml.add_bos_token"},
    {"a map of characters of the wrong type", UNIGRAM, CHARSMAP(map_good),
     .wrong = "tokenizer.ggml.precompiled_charsmap", .status = PLUMB_ERROR_METADATA, .message = "precompiled_charsmap"},
    {"a map of characters that is too short", UNIGRAM, CHARSMAP(map_short), .status = PLUMB_ERROR_TOKENIZER,
     .message = "precompiled_charsmap: 5 bytes, of which 512 are a double array"},
    {"a map of characters without a length", UNIGRAM, .map = map_short, .n_map = 3, .status = PLUMB_ERROR_TOKENIZER,
     .message = "precompiled_charsmap: 3 bytes"},
    {"remove_extra_whitespaces of the wrong type", UNIGRAM, .wrong = "tokenizer.ggml.remove_extra_whitespaces",
     .status = PLUMB_ERROR_METADATA, .message = "remove_extra_whitespaces"},
    {"lowercase of the wrong type", BERT, .wrong = "tokenizer.ggml.normalizer.lowercase",
     .status = PLUMB_ERROR_METADATA, .message = "normalizer.lowercase"},
    {"strip_accents of the wrong type", BERT, .wrong = "tokenizer.ggml.normalizer.strip_accents",
     .status = PLUMB_ERROR_METADATA, .message = "normalizer.strip_accents"},
    {"add_sep_token of the wrong type", BERT, .wrong = "tokenizer.ggml.add_sep_token", .status = PLUMB_ERROR_METADATA,
     .message = "add_sep_token"},
    {"a SEP id of the wrong type", BERT, .wrong = "tokenizer.ggml.seperator_token_id", .status = PLUMB_ERROR_METADATA,
     .message = "seperator_token_id"},
    {"an unknown id of the wrong type", BERT, .wrong = "tokenizer.ggml.unknown_token_id",
     .status = PLUMB_ERROR_METADATA, .message = "unknown_token_id"},
    {"PLaMo 2 without byte tokens", .model = "plamo2", .tokens = {"<unk>", "<0x00>", "<0x01>", "a"}, .n_types = 4,
     .types = {2, 6, 6, 1}, .status = PLUMB_ERROR_TOKENIZER, .message = "no token of type byte is <0x02>"},
    /* From here on they load and give llama.cpp's ids; llama.cpp aborts where an error is expected here. */
    {"a BOS id beyond the vocabulary is the default one", SPM, .tokens = {"\xe2\x96\x81", "a"}, .bos = 99, .text = "a",
     .n_ids = 3, .ids = {1, 0, 1}},
    {"a default BOS beyond the vocabulary is an error of the text that needs it", .model = "gpt2", .pre = "llama-bpe",
     AB, .bos = 99, .merges = {"a b"}, .message = "add_bos_token", .text = "a",
     .n_ids = PLUMB_ERROR_TOKENIZER},
    {"a word that is token 0 needs no merges", .model = "gpt2", .pre = "llama-bpe", .tokens = {"ab", "a", "b"},
     .bos = 1, .merges = {"x y"}, .text = "ab", .n_ids = 2, .ids = {1, 0}},
    {"no byte tokens is an error of the text that needs them", SPM, .tokens = {"\xe2\x96\x81", "a"}, .text = "z",
     .message = "<0x7A>", .n_ids = PLUMB_ERROR_TOKENIZER},
    {"bytes that are tokens by themselves replace byte tokens", SPM, .tokens = {"\xe2\x96\x81", "\xc3", "\xa9"},
     .text = "\xc3\xa9", .n_ids = 4, .ids = {1, 0, 1, 2}},
    {"merges without a space, of unknown tokens, of nothing and twice", BPE, AB,
     .merges = {"ab", "q q", "a", " ", "a ", " b", "a b", "a b"}, .text = "abba", .n_ids = 3, .ids = {2, 1, 0}},
    {"a merge to no token is spelled in bytes", BPE, .tokens = {"a", "b"}, .merges = {"a b"}, .text = "ab", .n_ids = 2,
     .ids = {0, 1}},
    {"bytes that no token spells are left out", BPE, AB, .merges = {"a b"}, .text = "a\xc3\xa9z b", .n_ids = 2,
     .ids = {0, 1}},
    {"tokens without text are named [EMPTY_i]", BPE, .tokens = {"a", "", ""}, .n_types = 3, .types = {1, 4, 4},
     .merges = {"a b"}, .text = "a[EMPTY_2][EMPTY_1]a", .n_ids = 4, .ids = {0, 2, 1, 0}},
    {"scores of infinity, and minus zero beside zero", SPM,
     .tokens = {"\xe2\x96\x81", "a", "b", "ab", "\xe2\x96\x81" "a", "bb"}, .n_scores = 6,
     .scores = {0, 0, 0, -0.0f, 0, -INFINITY}, .text = "abb", .n_ids = 3, .ids = {1, 4, 5}},
    {"token types that do not exist", SPM, .tokens = {"\xe2\x96\x81", "a", "b"}, .n_types = 3, .types = {1, 99, -5},
     .text = "ab", .n_ids = 4, .ids = {1, 0, 1, 2}},
    {"an unknown token is parsed by its text", SPM, .tokens = {"<unk>", "a", "\xe2\x96\x81"}, .n_types = 3,
     .types = {2, 1, 1}, .text = "a<unk>", .n_ids = 4, .ids = {1, 2, 1, 0}},
    {"of nested special tokens the longest is cut out first", BPE, .tokens = {"<x>", "<x><x>", "a", "<x"},
     .n_types = 4, .types = {3, 3, 1, 4}, .merges = {"a b"}, .text = "<x><x><x>a<x", .n_ids = 4, .ids = {1, 0, 2, 3}},
    {"a replacement of characters", UNIGRAM, .scores = {0, 0, 0, -1, -2, -3}, CHARSMAP(map_good), .text = "ab",
     .n_ids = 3, .ids = {4, 5, 1}},
    {"an entry outside of the map", UNIGRAM, CHARSMAP(map_outside), .text = "a", .n_ids = PLUMB_ERROR_TOKENIZER,
     .message = "an entry lies outside of the double array"},
    {"a replacement's entry outside of the map", UNIGRAM, CHARSMAP(map_far), .text = "a",
     .n_ids = PLUMB_ERROR_TOKENIZER, .message = "an entry lies outside of the double array"},
    {"a replacement outside of the list", UNIGRAM, CHARSMAP(map_beyond), .text = "a", .n_ids = PLUMB_ERROR_TOKENIZER,
     .message = "a replacement lies outside of the list"},
    {"a replacement that does not end", UNIGRAM, CHARSMAP(map_endless), .text = "a", .n_ids = PLUMB_ERROR_TOKENIZER,
     .message = "a replacement does not end"},
    {"a replacement that is longer than the text", UNIGRAM, CHARSMAP(map_long), .text = "a", .n_ids = 17,
     .ids = {5, 5, 5, 5, 5, 5, 5, 5}},
    {"a map of characters with a circle", UNIGRAM, .scores = {0, 0, 0, -1, -2, -3}, CHARSMAP(map_circle), .text = "aab",
     .n_ids = 4, .ids = {3, 3, 4, 1}},
    {"scores that are no numbers", UNIGRAM, .scores = {0, 0, 0, NAN, NAN, NAN}, .text = "ab", .n_ids = 2,
     .ids = {2, 1}},
    {"scores of plus and minus infinity", UNIGRAM, .scores = {0, 0, 0, INFINITY, -INFINITY, 0}, .text = "abb",
     .n_ids = 3, .ids = {3, 5, 1}},
    {"an unknown character costs 10 more than the worst token", .model = "t5", .n_types = 5, .types = {3, 3, 2, 1, 1},
     .tokens = {"<pad>", "</s>", "<unk>", "a", "xa"}, .n_scores = 5, .scores = {0, 0, 0, 9.5, -1}, .text = "xaya",
     .n_ids = 4, .ids = {4, 2, 3, 1}},
    {"Chinese characters between two blocks are in words", .model = "bert", .bos = 1, .sep = 2,
     .tokens = {"[UNK]", "[CLS]", "[SEP]", "\xe2\x96\x81" "a", "\xf0\xab\xa0\xa0"}, .text = "a\xf0\xab\xa0\xa0",
     .n_ids = 4, .ids = {1, 3, 4, 2}},
    {"unknown characters in a row are one token", UNIGRAM, .text = "xyzb", .n_ids = 3, .ids = {2, 4, 1}},
    {"a word is unknown if its rest is", .model = "bert", .bos = 1, .sep = 2,
     .tokens = {"[UNK]", "[CLS]", "[SEP]", "\xe2\x96\x81" "a", "b"}, .text = "Ab, abc",
     .n_ids = PLUMB_ERROR_TOKENIZER, .message = "unknown_token_id"},
    {"no BOS for WordPiece", BERT, .bos = 99, .sep = 2, .text = "a", .n_ids = PLUMB_ERROR_TOKENIZER,
     .message = "add_bos_token is true"},
    {"no SEP for WordPiece", BERT, .bos = 1, .sep = 99, .text = "a", .n_ids = PLUMB_ERROR_TOKENIZER,
     .message = "add_sep_token is true"},
    {"a text of no words", BERT, .bos = 1, .sep = 2, .text = " \t\xcc\x81\x01", .n_ids = 2, .ids = {1, 2}},
    {"capitals and accents", BERT, .bos = 1, .sep = 2, .text = "A \xc3\x81" "B", .n_ids = 6, .ids = {1, 3, 4, 3, 5, 2}},
    {"escapes that are cut off", .model = "rwkv", .tokens = {"a\\", "\\x4", "\\x41", "\\\\", "\\q"},
     .text = "aA\\q", .n_ids = 4, .ids = {0, 2, 3, 4}},
    {"a byte that no token of RWKV has", .model = "rwkv", .tokens = {"a", "bc"}, .text = "ab",
     .n_ids = PLUMB_ERROR_TOKENIZER, .message = "unknown_token_id"},
    {"Kimi K2 without merges", .model = "gpt2", .pre = "kimi-k2", .tokens = {"a", "b", "ab"}, .text = "ab", .n_ids = 2,
     .ids = {0, 1}},
    {"Gemma 4 without BOS", .model = "gemma4", .tokens = {"a", "b", "ab"}, .merges = {"a b"}, .text = "ab",
     .n_ids = PLUMB_ERROR_TOKENIZER, .message = "add_bos_token is true"},
    {"DNA whose rest is filled up", .model = "hybriddna", .bos = 1, .merges = {"A C"},
     .tokens = {"<dna>", "</dna>", "<oov>", "ACAAAA\xee\x80\x80", "A"}, .text = "<dna>ac</dna>A<dna>ACAAAAX",
     .n_ids = 7, .ids = {0, 3, 1, 4, 0, 3, 2}},
    {"of special tokens of one length the lower id is cut out first", BPE, .tokens = {"x<", "<x", "<", "x"},
     .n_types = 4, .types = {3, 3, 1, 1}, .merges = {"a b"}, .text = "<x<x", .n_ids = 3, .ids = {2, 0, 3}},
};

/* ---- the rest of the interface -------------------------------------------------------------------------------- */

static void counts_what_does_not_fit(void) {
    struct error err = {PLUMB_OK, ""};
    struct loaded l = load(SMOLLM2[1]);
    REQUIRE(l.t != NULL, "no tokenizer");
    int32_t ids[32], first[2] = {-7, -7};
    const char *text = "<|im_start|>The quick brown fox";
    int64_t n = tokenizer_encode(l.t, text, strlen(text), PLUMB_PARSE_SPECIAL, ids, 32, &err);
    CHECK(n == 5, "%ld ids: %s", (long)n, err.message);
    CHECK(tokenizer_encode(l.t, text, strlen(text), PLUMB_PARSE_SPECIAL, NULL, 0, &err) == n, "no buffer");
    CHECK(tokenizer_encode(l.t, text, strlen(text), PLUMB_PARSE_SPECIAL, first, 1, &err) == n && first[0] == ids[0] &&
          first[1] == -7, "the first id only");
    char buf[64] = "";
    CHECK(tokenizer_decode(l.t, ids, 5, true, buf, 64) == (int64_t)strlen(text) && strcmp(buf, text) == 0, "%s", buf);
    CHECK(tokenizer_decode(l.t, ids, 5, false, buf, 64) == 19, "control tokens are empty");
    CHECK(tokenizer_decode(l.t, ids, 5, true, NULL, 0) == (int64_t)strlen(text), "no buffer");
    memset(buf, 0, sizeof buf);
    CHECK(tokenizer_decode(l.t, ids, 5, true, buf, 14) == (int64_t)strlen(text) && strcmp(buf, "<|im_start|>Th") == 0,
          "the first bytes: %s", buf);
    CHECK(tokenizer_piece(l.t, ids[0], false, buf, 64) == 0 && tokenizer_piece(l.t, ids[0], true, buf, 64) == 12,
          "a control token's piece");
    ids[1] = (int32_t)tokenizer_n_vocab(l.t);
    CHECK(tokenizer_decode(l.t, ids, 5, true, buf, 64) == PLUMB_ERROR_TOKEN, "an id beyond the vocabulary");
    CHECK(tokenizer_piece(l.t, ids[1], true, buf, 64) == PLUMB_ERROR_TOKEN, "its piece");
    CHECK(tokenizer_piece(l.t, -1, true, buf, 64) == PLUMB_ERROR_TOKEN, "a negative id");
    CHECK(!tokenizer_is_eog(l.t, -1) && !tokenizer_is_eog(l.t, ids[1]), "ids outside end no turn");
    unload(l);
}

/* ---- special tokens --------------------------------------------------------------------------------------------- */

static uint32_t draw(uint32_t *x, uint32_t n) {
    *x = *x * 1664525 + 1013904223;
    return (*x >> 8) % n;
}

/* llama.cpp's tokenizer_st_partition, step by step: owner[i] is the special token, from 1, that takes byte i.  A
 * control or unknown token contains no byte with a mark, and neither does one that is only shown as one that users
 * define. */
static void partition_slowly(const struct tokenizer *t, const char *text, const uint8_t *marks, uint32_t n, bool parse,
                             uint32_t *owner) {
    memset(owner, 0, n * sizeof *owner);
    for (uint32_t k = 0; k < t->n_special; k++) {   /* sorted by length, of equal ones by id */
        struct gguf_string wanted = token_text(t, (uint32_t)t->specials[k].id);
        uint16_t attributes = t->attributes[t->specials[k].id];
        if (!parse && (attributes & (TOKEN_CONTROL | TOKEN_UNKNOWN))) continue;
        uint32_t offset = 0;
        while (offset + wanted.n <= n) {
            uint32_t end = offset;
            bool is_user_defined = !(attributes & (TOKEN_CONTROL | TOKEN_UNKNOWN | TOKEN_SHOWN));
            while (end < n && end < offset + wanted.n && owner[end] == 0
                   && (is_user_defined || !marks || !marks[end])) end++;
            if (end < offset + wanted.n || memcmp(text + offset, wanted.data, (size_t)wanted.n) != 0) {
                offset++;
                continue;
            }
            uint32_t left = offset;
            bool to_left = attributes & TOKEN_LSTRIP, to_right = attributes & TOKEN_RSTRIP;
            while (to_left && left > 0 && owner[left - 1] == 0 && strchr(" \t\n", text[left - 1])) left--;
            while (to_right && end < n && owner[end] == 0 && strchr(" \t\n", text[end])) end++;
            for (uint32_t i = left; i < end; i++) owner[i] = k + 1;
            offset = end;
        }
    }
}

/* Vocabularies of up to 8 random special tokens made of a, b and spaces, and random texts of these. */
static void cuts_as_llama_does(void) {
    static const char *const letters[] = {"aab", "aaaaaab", "ab ", "a \n"};
    static const int types[] = {3, 4, 3, 4, 3, 2, 4, 3};
    uint32_t x = 1, n_cut = 0, n_different = 0;
    for (uint32_t round = 0; round < 4000; round++) {
        struct vocabulary v = {.model = "llama", .n_types = 8};
        char texts[8][16], text[201];
        const char *from = letters[draw(&x, 4)];
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t n = 1 + draw(&x, i < 4 ? 5 : 15);
            for (uint32_t k = 0; k < n; k++) texts[i][k] = from[draw(&x, (uint32_t)strlen(from))];
            texts[i][n] = 0;
            for (uint32_t k = 0; k < i; k++) {
                if (strcmp(texts[i], texts[k]) == 0) snprintf(texts[i], sizeof texts[i], "c%u", i);
            }
            v.tokens[i] = texts[i];
            v.types[i] = types[i];
        }
        struct error err = {PLUMB_OK, ""};
        struct writer w;
        write_vocabulary(&w, &v);
        struct loaded l = {read_header("random", w.file.data, w.file.n), NULL};
        free(w.file.data);
        REQUIRE(l.g && tokenizer_create(&l.t, l.g, &err) == PLUMB_OK, "%s", err.message);
        for (uint32_t i = 0; i < 8; i++) {   /* in every fourth vocabulary nothing is stripped */
            uint8_t strip[] = {0, TOKEN_LSTRIP, TOKEN_RSTRIP, TOKEN_LSTRIP | TOKEN_RSTRIP};
            if (round % 4) l.t->attributes[i] |= strip[draw(&x, 4)];
            if (types[i] == 4 && draw(&x, 3) == 0) l.t->attributes[i] |= TOKEN_SHOWN;
        }
        uint32_t n = draw(&x, 200), owner[200], got[200];
        for (uint32_t k = 0; k < n; k++) text[k] = from[draw(&x, (uint32_t)strlen(from))];
        text[n] = 0;
        uint8_t marked[200];
        for (uint32_t k = 0; k < n; k++) marked[k] = draw(&x, 6) == 0 ? 1 : 0;
        /* All tokens in one automaton, in several, and in none. */
        static const uint64_t most[] = {8 << 20, 400, 0};
        for (uint32_t k = 0; k < 9 && n > 0; k++) {
            struct cuts cuts = {0};
            uint64_t n_step = 0;
            bool parse = k % 3 > 0;
            const uint8_t *marks = k % 3 == 2 ? marked : NULL;
            l.t->matcher_max_bytes = most[k / 3];
            for (size_t i = 0; i < N_SET; i++) {
                matcher_free(l.t->matchers[i]);
                l.t->matchers[i] = NULL;
            }
            partition_slowly(l.t, text, marks, n, parse, owner);
            REQUIRE(specials_find(l.t, text, marks, n, parse, &cuts, &n_step, &err) == PLUMB_OK, "%s", err.message);
            uint32_t place = 0;
            for (uint32_t i = 0; i < n; i++) {
                const struct cut *cut = cuts.owner && cuts.owner[i] != 0 ? &cuts.items[cuts.owner[i] - 1] : NULL;
                got[i] = 0;
                for (uint32_t s = 0; cut && s < l.t->n_special; s++) {
                    if (l.t->specials[s].id == cut->id) got[i] = s + 1;
                }
                if (got[i] != owner[i] && place == 0) place = i + 1;
                n_different += i > 0 && owner[i] != owner[i - 1];
            }
            n_cut += (uint32_t)cuts.n;
            CHECK(place == 0, "\"%s\", %u bytes for automata, parse %d, marks %d: at byte %u special %u, expected %u",
                  text, (unsigned)most[k / 3], parse, marks != NULL, place - 1, got[place ? place - 1 : 0],
                  owner[place ? place - 1 : 0]);
            specials_free(&cuts);
        }
        unload(l);
    }
    CHECK(n_cut > 100000 && n_different > 100000, "%u cuts, %u of them beside another", n_cut, n_different);
}

/* ---- cost ------------------------------------------------------------------------------------------------------- */

/* Steps for a text of n bytes; 0 if it fails. */
static uint64_t steps_of(const struct adversary *a, const char *kind, size_t n) {
    struct attack attack;
    struct error err = {PLUMB_OK, ""};
    if (!CHECK(attack_create(&attack, a, kind, n), "%s, %s: cannot be made", a->name, kind ? kind : "SPM")) return 0;
    int64_t n_id = tokenizer_encode(attack.t, attack.text, n, PLUMB_PARSE_SPECIAL, NULL, 0, &err);
    CHECK(n_id >= 0, "%s, %s: %s", a->name, kind ? kind : "SPM", err.message);
    uint64_t n_step = attack.t->n_step;
    attack_free(&attack);
    return n_step;
}

/* Unigram and PLaMo 2 try all tokens that may be at a place of the text, at most 256 (encode.c). */
static bool tries_all(const char *kind) {
    return kind && (strcmp(kind, "model t5") == 0 || strcmp(kind, "model plamo2") == 0);
}

/* Four times the text takes at most four times the steps, with some allowance for the logarithm of a heap.  In "deep
 * merges" the number of tokens at each place grows with the text. */
static void cost_grows_with_the_text(void) {
    enum { SMALL = 1 << 12, LARGE = 1 << 14 };
    const double most_per_byte = 150;
    double worst = 0, most = 0;
    for (const struct adversary *a = adversaries; a->name; a++) {
        for (const char *const *kind = adversary_kinds; !*kind || **kind; kind++) {
            if (!test_repeats((size_t)(a - adversaries + (kind - adversary_kinds)))) continue;
            uint64_t small = steps_of(a, *kind, SMALL), large = steps_of(a, *kind, LARGE);
            double growth = (double)large / (double)small, per_byte = (double)large / (double)LARGE;
            CHECK(small >= SMALL, "%s, %s: only %.0f steps", a->name, *kind ? *kind : "SPM", (double)small);
            if (tries_all(*kind) && strcmp(a->name, "deep merges") == 0) {
                CHECK(per_byte < 256, "%s: %.1f steps for each byte", *kind, per_byte);
                continue;
            }
            CHECK(growth < 5 && per_byte < most_per_byte, "%s, %s: %.1f steps for each byte, %.2f times as many for 4 "
                  "times the text", a->name, *kind ? *kind : "SPM", per_byte, growth);
            worst = fmax(worst, growth);
            most = fmax(most, per_byte);
        }
    }
    test_note("4 times the text takes at most %.2f times the steps, and at most %.0f for each byte", worst, most);
}

/* Steps for special tokens of a's in a text of n a's if no automaton may be built. */
static uint64_t steps_without_automaton(const struct adversary *a, size_t n) {
    struct attack attack;
    struct error err = {PLUMB_OK, ""};
    struct cuts cuts = {0};
    uint64_t n_step = 0;
    if (!CHECK(attack_create(&attack, a, "gpt-2", n), "%s", attack.err.message)) return 0;
    memset(attack.text, 'a', n);
    attack.t->matcher_max_bytes = 0;
    CHECK(specials_find(attack.t, attack.text, NULL, (uint32_t)n, true, &cuts, &n_step, &err) == PLUMB_OK
          && cuts.n > 10,
          "%zu cuts", cuts.n);
    specials_free(&cuts);
    attack_free(&attack);
    return n_step;
}

static void long_specials_cost_grows(void) {
    const struct adversary *a = adversaries;
    while (a->name && strncmp(a->name, "special tokens aaa", 18) != 0) a++;
    REQUIRE(a->name, "no such vocabulary");
    uint64_t small = steps_without_automaton(a, 1 << 14), large = steps_without_automaton(a, 1 << 16);
    CHECK(small >= 1 << 14 && large < 5 * small, "%.0f steps, for 4 times the text %.0f", (double)small, (double)large);
}

/* Merging to the longest token passes through every token; otherwise "deep merges" would measure nothing. */
static void deep_merges_are_deep(void) {
    enum { N = 1 << 14, LONGEST = 1 << 7 };
    const struct adversary *a = adversaries;
    while (a->name && strcmp(a->name, "deep merges") != 0) a++;
    REQUIRE(a->name, "no such vocabulary");
    for (const char *const *kind = adversary_kinds; !*kind || **kind; kind++) {
        struct attack attack;
        struct error err = {PLUMB_OK, ""};
        const char *name = *kind ? *kind : "SPM";
        if (!CHECK(attack_create(&attack, a, *kind, N), "%s: %s", name, attack.err.message)) continue;
        int64_t n_id = tokenizer_encode(attack.t, attack.text, N, 0, NULL, 0, &err);
        CHECK(n_id >= N / LONGEST && n_id <= N / LONGEST + 8, "%s: %ld tokens", name, (long)n_id);
        attack_free(&attack);
    }
}

/* Unigram and PLaMo 2 refuse a vocabulary that has more than 256 tokens at one place. */
static void nested_tokens_are_refused(void) {
    static const char *const kinds[] = {"model t5", "model plamo2"};
    const struct adversary *a = adversaries;
    while (a->name && strcmp(a->name, "deep merges") != 0) a++;
    for (size_t i = 0; a->name && i < 2; i++) {
        for (size_t n = 255; n <= 257; n += 2) {
            struct attack attack;
            struct error err = {PLUMB_OK, ""};
            if (!CHECK(attack_create(&attack, a, kinds[i], n * n), "%s: %s", kinds[i], attack.err.message)) continue;
            int64_t n_id = tokenizer_encode(attack.t, attack.text, 1000, 0, NULL, 0, &err);
            CHECK(n < 256 ? n_id > 0 : n_id == PLUMB_ERROR_TOKENIZER && strstr(err.message, "257 tokens may be at one"),
                  "%s, %zu tokens: %ld, %s", kinds[i], n, (long)n_id, err.message);
            attack_free(&attack);
        }
    }
}

/* Some collisions are accepted, too many are refused: 300 colliding tokens cannot all be within 256 slots. */
static void collisions_are_refused(void) {
    static const struct { size_t taken, refused; } rows[] = { {128, 300}, {16, 17} };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct adversary *a = &refused_adversaries[i];
        struct attack attack;
        CHECK(attack_create(&attack, a, NULL, rows[i].taken), "%s: %s", a->name, attack.err.message);
        attack_free(&attack);
        bool taken = attack_create(&attack, a, NULL, rows[i].refused);
        CHECK(!taken && attack.err.status == PLUMB_ERROR_TOKENIZER
              && strstr(attack.err.message, "collides with too many others"), "%s: %s", a->name, attack.err.message);
        attack_free(&attack);
    }
}

void test_tokenizer(void) {
    test_row("tokenizer: SmolLM2 (BPE, smollm) equals llama.cpp", equals_llama, SMOLLM2);
    test_row("tokenizer: llama-bpe (BPE, llama-bpe) equals llama.cpp", equals_llama, LLAMA_BPE);
    test_case("tokenizer: a character that stands for no byte is shown as llama.cpp shows it", unknown_bytes);
    test_row("tokenizer: qwen2 (BPE, qwen2) equals llama.cpp", equals_llama, QWEN2);
    test_row("tokenizer: llama-spm (SPM, space prefix) equals llama.cpp", equals_llama, LLAMA_SPM);
    test_row("tokenizer: Gemma 3 (SPM, user-defined tokens) equals llama.cpp", equals_llama, GEMMA3);
    test_case("tokenizer: every pre-tokenizer equals llama.cpp on a vocabulary that shows splits", pre_equals_llama);
    test_case("tokenizer: token attributes by text, key and model equal llama.cpp's", roles_equal_llama);
    test_case("tokenizer: small vocabularies of each other kind equal llama.cpp", kinds_equal_llama);
    test_case("tokenizer: 7 vocabularies and random texts, BERT and XLM-RoBERTa among them, equal llama.cpp",
              models_equal_llama);
    test_case("tokenizer: llama.cpp's texts and ids of its 15 vocabularies", pairs_equal_llama);
    test_case("tokenizer: the selfcheck knows the kinds that change texts", selfchecks);
    test_case("tokenizer: classes, lower case and letters without accents of all code points equal llama.cpp's",
              classes_equal_llama);
    TEST_ROWS("tokenizer: ", answers, vocabularies);
    test_case("tokenizer: special tokens are split off in llama.cpp's order", cuts_as_llama_does);
    test_case("tokenizer: the steps for 19 hostile texts grow linearly, with every tokenizer",
              cost_grows_with_the_text);
    test_case("tokenizer: the steps for special tokens too long for an automaton grow linearly",
              long_specials_cost_grows);
    test_case("tokenizer: hostile merges are as deep as intended", deep_merges_are_deep);
    test_case("tokenizer: too many tokens at one place of a text are refused", nested_tokens_are_refused);
    test_case("tokenizer: a vocabulary with too many hash collisions is refused", collisions_are_refused);
    test_case("tokenizer: ids that do not fit are counted, and ids out of range are errors", counts_what_does_not_fit);
}

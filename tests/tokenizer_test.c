/* Text <-> ids against llama.cpp (tests/vectors/tokenizer), and vocabularies that contradict themselves. */
#include "test.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- loading ----------------------------------------------------------------------------------------------------- */

static const char *const SMOLLM2[] = {"smollm2", "models/SmolLM2-135M-Instruct.Q4_1.gguf"};
static const char *const GEMMA3[] = {"gemma3", "models/gemma-3-270m.Q4_K_M.gguf"};
static const char *const LLAMA_SPM[] = {"llama-spm", "models/ggml-vocab-llama-spm.gguf"};
static const char *const LLAMA_BPE[] = {"llama-bpe", "models/ggml-vocab-llama-bpe.gguf"};
static const char *const QWEN2[] = {"qwen2", "models/ggml-vocab-qwen2.gguf"};

/* The header of a GGUF, from bytes or (bytes NULL) a file; NULL, and a failed check, if it cannot be had. */
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

/* ---- llama.cpp's vectors ------------------------------------------------------------------------------------------- */

#define FNV_START 14695981039346656037ull
static uint64_t fnv(uint64_t h, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)bytes)[i]) * 1099511628211ull;
    return h;
}

/* \xNN, and \*N; at the start for N times what follows.  The length is *n; to be freed. */
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

/* Cuts the next line off *rest; "" at the end. */
static char *next_line(char **rest) {
    char *line = *rest, *end = strchr(line, '\n');
    *rest = end != NULL ? end + 1 : line + strlen(line);
    if (end != NULL) *end = 0;
    return line;
}

/* "#count hash" when long, as in oracle.c; otherwise the numbers.  Returns line. */
static bool equal_ids(const char *line, const int32_t *ids, int64_t n) {
    if (line[0] == '#') {
        char expected[64];
        snprintf(expected, sizeof expected, "#%ld %016llx", (long)n,
                 (unsigned long long)fnv(FNV_START, ids, (size_t)n * 4));
        return strcmp(line, expected) == 0;
    }
    char *end = (char *)(uintptr_t)line;
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
        for (int special = 0; special < 2; special++) {
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

/* ---- chats -------------------------------------------------------------------------------------------------------- */

static void equals_templates(void) {
    struct error err = {PLUMB_OK, ""};
    size_t n, n_case = 0, n_message = 0;
    char *file = test_read_all("tests/vectors/tokenizer/chat.txt", &n), *rest = file;
    const char *name = "";
    struct gguf_string template = {NULL, 0};
    plumb_message messages[8];
    char text[4096];
    bool in_case = false;
    while (rest != NULL && *rest != 0) {
        char *line = next_line(&rest), *tab = strchr(line, '\t');
        if (line[0] == 'T' || line[0] == 'U') {
            *tab = 0;
            name = line + 2;
            free((void *)(uintptr_t)template.data);
            template.data = unescape(tab + 1, &n);
            template.n = n;
            if (line[0] == 'T') continue;
            const plumb_message hello = {"user", "Hello"};
            int64_t status = chat_format(&template, &hello, 1, true, text, sizeof text, &err);
            CHECK(status == PLUMB_ERROR_TEMPLATE, "%s: %ld for a template of no known family", name, (long)status);
        } else if (line[0] == 'M') {
            if (in_case) {
                for (size_t i = 0; i < n_message; i++) free((void *)(uintptr_t)messages[i].content);
                n_message = 0;
                in_case = false;
            }
            *tab = 0;
            char *content = unescape(tab + 1, &n);
            content[n] = 0;
            messages[n_message++] = (plumb_message){line + 2, content};
        } else {
            in_case = true;
            n_case++;
            int64_t length = chat_format(&template, messages, n_message, line[0] == 'A', text, sizeof text, &err);
            CHECK(length >= 0 && (size_t)length <= sizeof text && equal_text(line + 2, text, (size_t)length, "", 0),
                  "%s: \"%.*s\", its template gives \"%s\"", name, length > 0 ? (int)length : 0, text, line + 2);
            char part[8];   /* a small buffer gets the start, and the same length */
            int64_t again = chat_format(&template, messages, n_message, line[0] == 'A', part, sizeof part, &err);
            CHECK(again == length && memcmp(part, text, sizeof part) == 0, "%s: %ld bytes, then %ld", name,
                  (long)length, (long)again);
        }
    }
    for (size_t i = 0; i < n_message; i++) free((void *)(uintptr_t)messages[i].content);
    free((void *)(uintptr_t)template.data);
    free(file);
    CHECK(n_case > 150, "%lu cases", (unsigned long)n_case);
}

static void chat_refuses(void) {
    struct error err = {PLUMB_OK, ""};
    const plumb_message tool = {"tool", "x"};
    const struct gguf_string chatml = {"<|im_start|>", 12}, empty = {"", 0};
    CHECK(chat_format(NULL, &tool, 1, true, NULL, 0, &err) == PLUMB_ERROR_TEMPLATE, "no template: %s", err.message);
    CHECK(chat_format(&empty, &tool, 1, true, NULL, 0, &err) == PLUMB_ERROR_TEMPLATE, "empty: %s", err.message);
    CHECK(chat_format(&chatml, &tool, 1, true, NULL, 0, &err) == PLUMB_ERROR_ARGUMENT && strstr(err.message, "tool"),
          "an unknown role: %s", err.message);
    CHECK(chat_format(&chatml, NULL, 0, true, NULL, 0, &err) == 22, "no messages: only the assistant's turn");
}

void test_tokenizer(void) {
    test_row("tokenizer: SmolLM2 (BPE, smollm) equals llama.cpp", equals_llama, SMOLLM2);
    test_row("tokenizer: llama-bpe (BPE, llama-bpe) equals llama.cpp", equals_llama, LLAMA_BPE);
    test_row("tokenizer: qwen2 (BPE, qwen2) equals llama.cpp", equals_llama, QWEN2);
    test_row("tokenizer: llama-spm (SPM, space prefix) equals llama.cpp", equals_llama, LLAMA_SPM);
    test_row("tokenizer: Gemma 3 (SPM, user-defined tokens) equals llama.cpp", equals_llama, GEMMA3);
    test_case("tokenizer: chats of 21 templates equal jinja2's, others are refused", equals_templates);
    test_case("tokenizer: chats without a template, or with unknown roles, are errors", chat_refuses);
}

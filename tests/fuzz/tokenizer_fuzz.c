/* The input gives a small vocabulary and a text.
 *
 *   flags | n | n bytes: tokens, one a line, the first byte of a line its type | text
 *   flags: 1 add special, 2 parse special, 4 not BPE, 8 all tokens normal, 16.. number of the pre-tokenizer or model
 *
 * A BPE vocabulary starts with the 256 bytes; a line "x y" is a merge and the token xy.  The others start with <unk>,
 * and PLaMo 2 with the 256 byte tokens, too.  Unigram's map of characters is the list of tokens.  With any vocabulary
 * nothing crashes, ids are in range, and counting without a buffer gives the same number.  BPE without special tokens:
 * decoding restores the text, except for invalid UTF-8.
 */
#include "../bytes.h"
#include "tokenizer/encoder.h"
#include "fuzz.h"

#include <stdio.h>

static void add_key(struct bytes *file, const char *name, enum gguf_type type) {
    file->data[16]++;
    put_key(file, name, type);
}
static void add_array(struct bytes *file, const char *name, enum gguf_type type, uint64_t n,
                      const struct bytes *items) {
    add_key(file, name, GGUF_ARRAY);
    put_number(file, type, 4);
    put_number(file, n, 8);
    put(file, items->data, items->n);
}

static void write_file(struct bytes *file, unsigned flags, const char *lines, size_t n) {
    static const char *const pres[] =
        {"smollm", "qwen2", "tekken", "deepseek-v3", "deepseek-coder", "viking", "qwen35", "jais-2", "exaone-moe",
         "chameleon", "superbpe", "afmoe", "deepseek-llm", "gemma4", "kimi-k2", "whitespace"};
    static const char *const bpe_models[] = {[11] = "hybriddna", [13] = "gemma4", [15] = "whitespace"};
    static const char *const models[] = {"llama", "bert", "t5", "rwkv", "plamo2"};
    static struct bytes tokens, types, scores, merges;
    uint64_t n_token = 0, n_merge = 0;
    tokens.n = types.n = scores.n = merges.n = 0;
    file->n = 0;
    put(file, "GGUF\3\0\0\0" "\0\0\0\0\0\0\0\0" "\0\0\0\0\0\0\0\0", 24);
    bool bpe = !(flags & 4);
    for (; bpe && n_token < 256; n_token++) {
        char utf8[4];
        put_string(&tokens, utf8, unicode_encode(byte_to_cp((uint8_t)n_token), utf8));
        put_number(&types, 1, 4);
        put_number(&scores, 0, 4);
    }
    const char *model = bpe ? bpe_models[flags >> 4 & 15] : models[(flags >> 4) % 5];
    if (model == NULL) model = "gpt2";
    for (int i = -1; !bpe && i < (strcmp(model, "plamo2") == 0 ? 256 : 0); i++, n_token++) {
        char text[8];
        put_string(&tokens, text, (size_t)snprintf(text, sizeof text, i < 0 ? "<unk>" : "<0x%02X>", (unsigned)i));
        put_number(&types, i < 0 ? 2 : 6, 4);
        put_number(&scores, 0, 4);
    }
    for (size_t i = 0; i < n; n_token++) {
        const char *line = lines + i + 1, *end = memchr(lines + i, '\n', n - i);
        size_t length = end == NULL ? n - i - 1 : end < line ? 0 : (size_t)(end - line);
        unsigned type = flags & 8 ? 1 : (uint8_t)lines[i] % 8;
        const char *space = memchr(line, ' ', length);
        if (bpe && space != NULL) {
            size_t left = (size_t)(space - line);
            put_string(&merges, line, length);
            n_merge++;
            put_number(&tokens, length - 1, 8);
            put(&tokens, line, left);
            put(&tokens, space + 1, length - left - 1);
        } else {
            put_string(&tokens, line, length);
        }
        put_number(&types, type, 4);
        put_number(&scores, (uint64_t)(uint8_t)lines[i] * 0x01010101u, 4);
        i += length + 2;
    }
    add_key(file, "tokenizer.ggml.model", GGUF_STRING);
    put_string(file, model, strlen(model));
    const char *pre = pres[flags >> 4 & 15];
    add_key(file, "tokenizer.ggml.pre", GGUF_STRING);
    put_string(file, pre, strlen(pre));
    add_array(file, "tokenizer.ggml.tokens", GGUF_STRING, n_token, &tokens);
    add_array(file, "tokenizer.ggml.token_type", GGUF_INT32, n_token, &types);
    add_array(file, "tokenizer.ggml.scores", GGUF_FLOAT32, n_token, &scores);
    add_array(file, "tokenizer.ggml.merges", GGUF_STRING, n_merge, &merges);
    static const char *const ids[] = {"unknown", "bos", "seperator"};
    for (uint64_t i = 0; !bpe && i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "tokenizer.ggml.%s_token_id", ids[i]);
        add_key(file, name, GGUF_UINT32);
        put_number(file, i, 4);
    }
    if (strcmp(model, "t5") != 0) return;
    add_key(file, "tokenizer.ggml.precompiled_charsmap", GGUF_ARRAY);
    put_number(file, GGUF_UINT8, 4);
    put_number(file, n + 4, 8);
    put_number(file, n / 2 & ~(size_t)3, 4);
    put(file, lines, n);
    add_key(file, "tokenizer.ggml.remove_extra_whitespaces", GGUF_BOOL);
    put_number(file, flags & 1, 1);
}

/* A query and a text, of at most n_max tokens: joined by a template, which is the text itself, and without one. */
static void check_pair(struct tokenizer *t, const char *text, size_t n) {
    enum { N_MAX = 9 };
    for (int has_template = 0; has_template < 2; has_template++) {
        const struct gguf_string rerank = {has_template ? text : NULL, n}, query = {text, n / 2}, other = {text, n};
        struct error err = {PLUMB_OK, ""};
        int32_t ids[N_MAX];
        int64_t n_ids = tokenizer_encode_input(t, rerank, query, other, 0, N_MAX, ids, N_MAX, &err);
        require(n_ids <= N_MAX, "too many tokens");
        require(n_ids >= 0 || err.message[0] != 0, "an error without a message");
        for (int64_t i = 0; i < n_ids; i++) require((uint32_t)ids[i] < t->n_vocab, "an id outside the vocabulary");
    }
}

static void check(struct tokenizer *t, unsigned flags, const char *text, size_t n) {
    if (n < 256) check_pair(t, text, n);
    struct error err = {PLUMB_OK, ""};
    size_t cap = (t->n_map > 0 ? 260 : 4) * n + 8, cap_text = 64;   /* a replacement may be longer than the text */
    int32_t *ids = malloc(cap * sizeof *ids);
    unsigned how = flags & (PLUMB_ADD_SPECIAL | PLUMB_PARSE_SPECIAL);
    int64_t n_ids = tokenizer_encode(t, text, n, how, ids, cap, &err);
    require(tokenizer_encode(t, text, n, how, NULL, 0, &err) == n_ids, "counting differs");
    require(n_ids < 0 || (uint64_t)n_ids <= cap, "more tokens than bytes");
    for (int64_t i = 0; i < n_ids; i++) require((uint32_t)ids[i] < t->n_vocab, "an id outside the vocabulary");
    if (n_ids >= 0) {
        int64_t length = tokenizer_decode(t, ids, (size_t)n_ids, true, NULL, 0);
        require(length >= 0, "decoding fails");
        cap_text += (size_t)length;
        char *out = malloc(cap_text);
        require(tokenizer_decode(t, ids, (size_t)n_ids, true, out, cap_text) == length, "lengths differ");
        bool restores = t->kind->encode == encode_bpe && !(t->pre->flags & PRE_PLAIN) && !t->clean_spaces;
        if (restores && flags & 8 && !(flags & PLUMB_ADD_SPECIAL) && t->n_special == 0) {
            size_t at = 0;
            for (size_t i = 0; i < n;) {
                char utf8[4];
                uint32_t cp;
                i += unicode_decode(text + i, n - i, &cp);
                size_t k = unicode_encode(cp, utf8);
                require(at + k <= (size_t)length && memcmp(out + at, utf8, k) == 0, "the text differs");
                at += k;
            }
            require(at == (size_t)length, "text is left over");
        }
        free(out);
    }
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct bytes file;
    if (size < 2 || size > 4096) return 0;
    size_t n = data[1] < size - 2 ? data[1] : size - 2;
    write_file(&file, data[0], (const char *)data + 2, n);
    struct error err = {PLUMB_OK, ""};
    struct gguf *g = gguf_create(file.n);
    for (size_t at = 0; !gguf_has_header(g);) {
        void *window;
        size_t len;
        require(gguf_window(g, &window, &len, &err) == PLUMB_OK, err.message);
        if (len > file.n - at) len = file.n - at;
        memcpy(window, file.data + at, len);
        at += len;
        require(len > 0 && gguf_commit(g, len, &err) == PLUMB_OK, err.message);
    }
    struct tokenizer *t;
    if (tokenizer_create(&t, g, &err) == PLUMB_OK) check(t, data[0], (const char *)data + 2 + n, size - 2 - n);
    else require(err.message[0] != 0, "an error without a message");
    tokenizer_free(t);
    gguf_free(g);
    return 0;
}

/* What llama.cpp does with the strings of strings.txt: ids and texts of one vocabulary, for make.py.
 *
 *   oracle MODEL.gguf < strings.txt > MODEL.txt
 *
 *   line 1     n_vocab bos eos
 *   line 2     ids that end a turn
 *   line 3     a hash of the pieces of all tokens, control tokens empty; the same with their texts shown
 *   line 4     a hash of the texts of 4000 random id sequences
 *   then for each string
 *              ids, nothing added and special tokens not parsed
 *              ids, BOS/EOS added as the file asks and special tokens parsed
 *              the text of the former ids, control tokens empty ("=": the string itself)
 *              the text of the latter, control tokens shown
 * More than 400 ids or 2000 bytes are "#count hash".
 *
 *   oracle MODEL.gguf hash < strings.txt
 *
 * One hash over that: of every token whether it ends a turn and its pieces, then ids and texts of the strings that are
 * not repeated and of the texts of random.h.
 *
 *   oracle MODEL.gguf random
 *
 * Each random text and its ids, BOS/EOS added and special tokens parsed.
 */
#include "llama.h"
#include "random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FNV_START 14695981039346656037ull
static uint64_t fnv(uint64_t h, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)bytes)[i]) * 1099511628211ull;
    return h;
}

/* \xNN, and \*N; at the start for N times what follows. */
static size_t unescape(const char *line, char *out) {
    size_t n = 0;
    unsigned long times = 1;
    if (line[0] == '\\' && line[1] == '*') {
        char *end;
        times = strtoul(line + 2, &end, 10);
        line = end + 1;
    }
    for (; *line != 0; line++) {
        unsigned byte = (unsigned char)*line;
        if (*line == '\\') {
            sscanf(line + 2, "%2x", &byte);
            line += 3;
        }
        out[n++] = (char)byte;
    }
    for (size_t total = n * times, i = n; i < total; i++) out[i] = out[i - n];
    return n * times;
}

static void print_ids(const int32_t *ids, int32_t n) {
    if (n > 400) printf("#%d %016llx", n, (unsigned long long)fnv(FNV_START, ids, (size_t)n * 4));
    for (int32_t i = 0; n <= 400 && i < n; i++) printf(i ? " %d" : "%d", ids[i]);
    putchar('\n');
}

static void print_text(const char *text, size_t n, const char *string, size_t n_string) {
    if (n == n_string && memcmp(text, string, n) == 0) {
        putchar('=');
    } else if (n > 2000) {
        printf("#%zu %016llx", n, (unsigned long long)fnv(FNV_START, text, n));
    } else {
        for (size_t i = 0; i < n; i++) {
            unsigned char c = (unsigned char)text[i];
            if (c < 0x20 || c >= 0x7f || c == '\\') printf("\\x%02x", c);
            else putchar(c);
        }
    }
    putchar('\n');
}

static uint64_t hash_text(const struct llama_vocab *vocab, uint64_t h, const char *string, int32_t n_string,
                          int32_t *ids, char *text, int32_t max) {
    for (int special = 0; special < 2; special++) {
        int32_t n_ids = llama_tokenize(vocab, string, n_string, ids, max, special, special);
        int32_t n_text = llama_detokenize(vocab, ids, n_ids, text, max, false, special);
        h = fnv(fnv(h, ids, (size_t)n_ids * 4), text, (size_t)n_text);
    }
    return h;
}

static void quiet(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

int main(int argc, char **argv) {
    llama_log_set(quiet, NULL);
    llama_backend_init();
    struct llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    struct llama_model *model = argc > 1 ? llama_model_load_from_file(argv[1], params) : NULL;
    if (model == NULL) return 1;
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    const int32_t n_vocab = llama_vocab_n_tokens(vocab), max = 1 << 23;
    char *line = malloc((size_t)max), *string = malloc((size_t)max), *text = malloc((size_t)max);
    int32_t *ids = malloc((size_t)max * 4);

    if (argc > 2 && strcmp(argv[2], "random") == 0) {
        uint64_t state = 1;
        for (int i = 0; i < N_RANDOM; i++) {
            size_t n_string = random_text(&state, string);
            print_text(string, n_string, "", SIZE_MAX);
            print_ids(ids, llama_tokenize(vocab, string, (int32_t)n_string, ids, max, true, true));
        }
        return 0;
    }
    if (argc > 2) {
        uint64_t all = FNV_START;
        for (int32_t i = 0; i < n_vocab; i++) {
            int32_t facts[3] = {llama_vocab_is_eog(vocab, i)};
            for (int special = 0; special < 2; special++) {
                facts[1 + special] = llama_token_to_piece(vocab, i, text, max, 0, special);
                all = fnv(all, text, (size_t)facts[1 + special]);
            }
            all = fnv(all, facts, sizeof facts);
        }
        while (fgets(line, max, stdin) != NULL) {
            line[strcspn(line, "\n")] = 0;
            if (strncmp(line, "\\*", 2) == 0) continue;
            all = hash_text(vocab, all, string, (int32_t)unescape(line, string), ids, text, max);
        }
        uint64_t state = 1;
        for (int i = 0; i < N_RANDOM; i++) {
            int32_t n_string = (int32_t)random_text(&state, string);
            all = hash_text(vocab, all, string, n_string, ids, text, max);
        }
        printf("%016llx\n", (unsigned long long)all);
        return 0;
    }
    printf("%d %d %d\n", n_vocab, llama_vocab_bos(vocab), llama_vocab_eos(vocab));
    int32_t n = 0;
    for (int32_t i = 0; i < n_vocab; i++) if (llama_vocab_is_eog(vocab, i)) ids[n++] = i;
    print_ids(ids, n);
    for (int special = 0; special < 2; special++) {
        uint64_t h = FNV_START;
        for (int32_t i = 0; i < n_vocab; i++) {
            int32_t length = llama_token_to_piece(vocab, i, text, max, 0, special);
            h = fnv(fnv(h, &length, 4), text, (size_t)length);
        }
        printf(special ? " %016llx\n" : "%016llx", (unsigned long long)h);
    }
    uint64_t x = 1, h = FNV_START;
    for (int i = 0; i < 4000; i++) {
        for (int k = 0; k < 8; k++) {
            x = x * 6364136223846793005ull + 1442695040888963407ull;
            ids[k] = (int32_t)((x >> 33) % (uint64_t)n_vocab);
        }
        int32_t length = llama_detokenize(vocab, ids, 8, text, max, false, i & 1);
        h = fnv(fnv(h, &length, 4), text, (size_t)length);
    }
    printf("%016llx\n", (unsigned long long)h);

    while (fgets(line, max, stdin) != NULL) {
        line[strcspn(line, "\n")] = 0;
        size_t n_string = unescape(line, string);
        int32_t *added = ids + max / 2;
        int32_t n_plain = llama_tokenize(vocab, string, (int32_t)n_string, ids, max / 2, false, false);
        int32_t n_added = llama_tokenize(vocab, string, (int32_t)n_string, added, max / 2, true, true);
        print_ids(ids, n_plain);
        print_ids(added, n_added);
        print_text(text, (size_t)llama_detokenize(vocab, ids, n_plain, text, max, false, false), string, n_string);
        print_text(text, (size_t)llama_detokenize(vocab, added, n_added, text, max, false, true), string, n_string);
    }
    return 0;
}

/* See adversary.h.
 *
 * Every vocabulary has the 256 bytes, and each string in `repeated` 2, 4, ... up to 1024 times, so that long runs of
 * them merge.  A BPE vocabulary has the merges for that; in SentencePiece the scores decrease with the length. */
#include "adversary.h"
#include "bytes.h"

#include "tokenizer/vocab.h"

#include <stdio.h>
#include <stdlib.h>

struct vocabulary_writer {
    bool bpe;
    struct bytes texts, types, scores, merges;
    uint64_t n_text, n_merge;
};

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, BYTE = 6 };

static void add_token(struct vocabulary_writer *w, const char *s, size_t n, int type, float score) {
    put_string(&w->texts, s, n);
    put_number(&w->types, (uint32_t)type, 4);
    put_number(&w->scores, f32_to_bits(score), 4);
    w->n_text++;
}

static void add_merge(struct vocabulary_writer *w, const char *left, size_t n_left, const char *right, size_t n_right) {
    if (!w->bpe) return;
    put_number(&w->merges, n_left + 1 + n_right, 8);
    put(&w->merges, left, n_left);
    put(&w->merges, " ", 1);
    put(&w->merges, right, n_right);
    w->n_merge++;
}

/* Writes bytes as a vocabulary spells them: BPE has a character for each byte. */
static size_t spell(const struct vocabulary_writer *w, const char *s, size_t n, char *out) {
    size_t n_out = 0;
    for (size_t i = 0; i < n; i++) {
        if (w->bpe) n_out += unicode_encode(byte_to_cp((uint8_t)s[i]), out + n_out);
        else if (s[i] == ' ') n_out += (size_t)sprintf(out + n_out, "\xe2\x96\x81");
        else out[n_out++] = s[i];
    }
    return n_out;
}

static void add_repeated(struct vocabulary_writer *w, const char *s, size_t n) {
    char text[12 * 1024] = "";
    size_t n_text = spell(w, s, n, text);
    if (!w->bpe) add_token(w, text, n_text, NORMAL, -1);
    for (float score = -2; n_text * 2 <= sizeof text && score > -12; score--) {
        add_merge(w, text, n_text, text, n_text);
        memcpy(text + n_text, text, n_text);
        n_text *= 2;
        add_token(w, text, n_text, NORMAL, score);
    }
}

static void add_all_repeated(struct vocabulary_writer *w) {
    static const char *const repeated[] = {" ", "1", "\n", "\xcc", "\xe4\xb8", "\xf0\x9f"};
    for (int byte = 0; byte < 256; byte++) {
        char text[8], c = (char)byte;
        if (w->bpe) add_token(w, text, spell(w, &c, 1, text), NORMAL, 0);
        else add_token(w, text, (size_t)snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte), BYTE, 0);
    }
    for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++) {
        char text[8];
        if (w->bpe && repeated[i][1]) {   /* the two bytes themselves */
            size_t n = spell(w, repeated[i], 1, text), n_right = spell(w, repeated[i] + 1, 1, text + n);
            add_merge(w, text, n, text + n, n_right);
            add_token(w, text, n + n_right, NORMAL, 0);
        }
        add_repeated(w, repeated[i], strlen(repeated[i]));
    }
}

/* ---- vocabularies that depend on the size of the text ------------------------------------------------------------ */

static char *of_a(size_t n) {
    char *text = malloc(n + 1);
    if (text) memset(text, 'a', n);
    return text;
}

/* One special token of n a's and a b. */
static void add_a_b(struct vocabulary_writer *w, size_t n) {
    char *text = of_a(n);
    if (!text) return;
    text[n] = 'b';
    add_token(w, text, n + 1, CONTROL, 0);
    free(text);
}
static void add_short_a_b(struct vocabulary_writer *w, size_t n) { add_a_b(w, n / 32); }
static void add_long_a_b(struct vocabulary_writer *w, size_t n) { add_a_b(w, n / 4); }

/* 40,000 special tokens for a text of 2^20 bytes, which contains nearly all of them. */
static size_t n_numbered(size_t n) { return (size_t)((double)n * 40000 / (1 << 20)); }
static void add_numbered(struct vocabulary_writer *w, size_t n) {
    char text[32];
    for (size_t i = 0; i < n_numbered(n); i++) {
        add_token(w, text, (size_t)snprintf(text, sizeof text, "<special_%zu>", i), CONTROL, 0);
    }
}
static void fill_numbered(char *text, size_t n) {
    char one[32];
    for (size_t at = 0, i = 0; at < n; i++) {
        size_t length = (size_t)snprintf(one, sizeof one, "x<special_%zu>", i * 7919 % n_numbered(n));
        memcpy(text + at, one, length < n - at ? length : n - at);
        at += length;
    }
}

static size_t root_of(size_t n) {
    size_t root = 1;
    while ((root + 1) * (root + 1) <= n) root++;
    return root;
}

/* The longer half of the special tokens a, aa, aaa...; every run of a's in the text is a little too short for more. */
static void add_nested(struct vocabulary_writer *w, size_t n) {
    size_t most = root_of(n);
    char *text = of_a(most);
    for (size_t i = most / 2; text && i <= most; i++) add_token(w, text, i, CONTROL, 0);
    free(text);
}
static void fill_nested(char *text, size_t n) {
    size_t most = root_of(n);
    for (size_t i = 0; i < n; i++) text[i] = i % (most + most / 2 - 1) == 0 ? 'b' : 'a';
}

/* Each of a, aa, aaa... merges with one more a, the longest first. */
static void add_deep(struct vocabulary_writer *w, size_t n) {
    size_t most = root_of(n);
    char *text = of_a(most);
    if (!w->bpe) add_token(w, "a", 1, NORMAL, 0);
    for (size_t i = most - 1; text && i > 0; i--) {
        add_merge(w, text, i, "a", 1);
        add_token(w, text, i + 1, NORMAL, (float)i);
    }
    free(text);
}

/* ab, abab, abababab... up to half of the text. */
static void add_alternating(struct vocabulary_writer *w, size_t n) {
    char *text = malloc(n + 2);
    if (!text) return;
    memcpy(text, "ab", 2);
    if (!w->bpe) {
        add_token(w, "a", 1, NORMAL, 0);
        add_token(w, "b", 1, NORMAL, 0);
    }
    add_merge(w, "a", 1, "b", 1);
    add_token(w, text, 2, NORMAL, -1);
    float score = -2;
    for (size_t length = 2; length * 2 <= n / 2; length *= 2, score--) {
        add_merge(w, text, length, text, length);
        memcpy(text + length, text, length);
        add_token(w, text, length * 2, NORMAL, score);
    }
    free(text);
}

/* Distinct texts: the numbers from 0 on. */
static size_t spell_number(char *text, size_t cap, size_t i) { return (size_t)snprintf(text, cap, "Z%zx", i); }

static uint32_t slot_of(const void *text, size_t n, uint32_t n_slot) {
    return hash_fold(hash_text(text, n)) % n_slot;
}

/* The string at byte *at of the strings written so far; *at advances to the next one. */
static struct bytes string_at(const struct bytes *strings, size_t *at) {
    struct bytes s = {.data = strings->data + *at + 8, .n = (size_t)load_u64(strings->data + *at)};
    *at += 8 + s.n;
    return s;
}

/* Adds n_run strings that fill consecutive slots of the hash index, beginning at the slot of the text `from`.  Each is
 * in its own home slot, because it is added before the string of the slot below.  A search for `from` passes them all.
 * n_string strings are written already; a merge is a number and " Z". */
static void add_run(struct vocabulary_writer *w, const struct bytes *strings, uint64_t n_string, uint32_t n_run,
                    const char *from, bool merges) {
    uint32_t n_slot = 16;
    while (n_slot / 2 < n_string + n_run) n_slot *= 2;
    struct { bool taken; uint32_t number; } *slots = calloc(n_slot, sizeof *slots);
    if (!slots) return;
    uint32_t first = hash_fold(hash_text(from, strlen(from))), n_left = n_run;
    for (size_t at = 0; at < strings->n;) {
        struct bytes s = string_at(strings, &at);
        uint32_t slot = (slot_of(s.data, s.n, n_slot) - first) % n_slot;
        while (slots[slot].taken) slot = (slot + 1) % n_slot;
        slots[slot].taken = true;
        n_left -= slot < n_run;
    }
    char text[32];
    for (uint32_t i = 1; n_left > 0; i++) {
        size_t n = spell_number(text, sizeof text, i);
        if (merges) n += (size_t)sprintf(text + n, " Z");
        uint32_t slot = (slot_of(text, n, n_slot) - first) % n_slot;
        if (slot >= n_run || slots[slot].taken) continue;
        slots[slot].taken = true;
        slots[slot].number = i;
        n_left--;
    }
    for (uint32_t slot = n_run; slot-- > 0;) {
        if (slots[slot].number == 0) continue;
        size_t n = spell_number(text, sizeof text, slots[slot].number);
        if (merges) add_merge(w, text, n, "Z", 1);
        else add_token(w, text, n, NORMAL, 0);
    }
    free(slots);
}
static void add_runs(struct vocabulary_writer *w, size_t n) {
    add_run(w, &w->texts, w->n_text, (uint32_t)(n / 8), "aa", false);
    if (w->bpe) add_run(w, &w->merges, w->n_merge, (uint32_t)(n / 8), "a a", true);
}

/* n different tokens with the same slot, even if there are so many that the index has 2048 slots. */
static void add_same_slot(struct vocabulary_writer *w, size_t n) {
    enum { SLOTS = 2048 };
    char text[32];
    for (size_t i = 0, k = 0; k < n; i++) {
        size_t n_text = spell_number(text, sizeof text, i);
        if (slot_of(text, n_text, SLOTS) != 0) continue;
        add_token(w, text, n_text, NORMAL, 0);
        k++;
    }
}

/* Tokens with the same 64-bit hash: the Thue-Morse sequence and its complement have the same polynomial hash modulo
 * 2^64, for any base, and so have all texts that are concatenations of the two. */
static void add_same_hash(struct vocabulary_writer *w, size_t n) {
    enum { HALF = 1024, N_HALF = 5 };
    char *text = malloc(HALF * N_HALF);
    for (size_t k = 0; text && k < n && k < 1 << N_HALF; k++) {
        for (size_t i = 0; i < HALF * N_HALF; i++) {
            size_t ones = k >> i / HALF & 1;
            for (size_t bits = i % HALF; bits; bits &= bits - 1) ones++;
            text[i] = ones & 1 ? 'b' : 'a';
        }
        add_token(w, text, HALF * N_HALF, NORMAL, 0);
    }
    free(text);
}

/* One word of pseudo-random letters. */
static void fill_word(char *text, size_t n) {
    uint32_t x = 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        text[i] = (char)('a' + (x >> 24) % 26);
    }
}

const struct adversary adversaries[] = {
    {"a's, and a special token aaa...b of a 32nd of them", "a", 0, add_short_a_b, NULL},
    {"a's, and a special token aaa...b of a quarter of them", "a", 0, add_long_a_b, NULL},
    {"40,000 special tokens per MiB", NULL, 0, add_numbered, fill_numbered},
    {"special tokens aaa, aaaa... that do not fit", NULL, 0, add_nested, fill_nested},
    {"spaces", " ", 0, NULL, NULL},
    {"one word without breaks", NULL, 0, NULL, fill_word},
    {"digits", "1", 0, NULL, NULL},
    {"newlines", "\n", 0, NULL, NULL},
    {"white space of all kinds", " \n    \r\n \t  \xc2\xa0    ", 0, NULL, NULL},
    {"combining marks", "\xcc\x81", 0, NULL, NULL},
    {"CJK", "\xe4\xb8\xad\xe4\xb8\x80", 0, NULL, NULL},
    {"emoji", "\xf0\x9f\x91\xa9\xe2\x80\x8d", 0, NULL, NULL},
    {"invalid UTF-8", "\xff\xf0\x9f\xc2", 0, NULL, NULL},
    {"capitals, and letters without a case", "A\xd7\x90" "BB", 0, NULL, NULL},
    {"punctuation", "'.$/\"", 0, NULL, NULL},
    {"zeros", "\0", 1, NULL, NULL},
    {"alternating merges", "ab", 0, add_alternating, NULL},
    {"deep merges", "a", 0, add_deep, NULL},
    {"tokens that fill an index without a gap", "a", 0, add_runs, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

const struct adversary refused_adversaries[] = {
    {"tokens with the same slot", "a", 0, add_same_slot, NULL},
    {"tokens with the same hash", "a", 0, add_same_hash, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

const char *const adversary_kinds[] = {
    NULL, "default", "gpt-2", "smollm", "falcon", "llama-bpe", "qwen2", "qwen35", "ufakzeka", "seed-coder", "minicpm5",
    "gpt-4o", "tekken", "deepseek-v3", "deepseek-coder", "laguna", "bloom", "viking", "jais-2", "kimi-k2", "exaone-moe",
    "chameleon", "superbpe", "afmoe", "tiny_aya", "youtu", "spark2_5", "granite-embed-multi-97m", "deepseek-llm",
    "gemma4", "whitespace", "model bert", "model t5", "model rwkv", "model plamo2", "",
};

/* ---- the file --------------------------------------------------------------------------------------------------- */

static void put_array(struct bytes *file, const char *name, enum gguf_type type, uint64_t n,
                      const struct bytes *items) {
    put_key(file, name, GGUF_ARRAY);
    put_number(file, type, 4);
    put_number(file, n, 8);
    put(file, items->data, items->n);
}

/* The value of tokenizer.ggml.model if it is neither gpt2 nor llama; otherwise NULL. */
static const char *model_of(const char *kind) { return kind && strncmp(kind, "model ", 6) == 0 ? kind + 6 : NULL; }

static void write_file(struct bytes *file, const struct vocabulary_writer *w, const char *kind) {
    const char *model = model_of(kind) ? model_of(kind) : w->bpe ? "gpt2" : "llama";
    put(file, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0", 16);
    put_number(file, w->bpe ? 6 : 5, 8);
    put_key(file, "tokenizer.ggml.model", GGUF_STRING);
    put_string(file, model, strlen(model));
    put_key(file, "tokenizer.ggml.unknown_token_id", GGUF_UINT32);
    put_number(file, 0, 4);
    put_array(file, "tokenizer.ggml.tokens", GGUF_STRING, w->n_text, &w->texts);
    put_array(file, "tokenizer.ggml.token_type", GGUF_INT32, w->n_text, &w->types);
    if (w->bpe) {
        put_key(file, "tokenizer.ggml.pre", GGUF_STRING);
        put_string(file, kind, strlen(kind));
        put_array(file, "tokenizer.ggml.merges", GGUF_STRING, w->n_merge, &w->merges);
    } else {
        put_array(file, "tokenizer.ggml.scores", GGUF_FLOAT32, w->n_text, &w->scores);
    }
}

static bool load(struct attack *out, const struct bytes *file) {
    out->n_file = file->n;
    out->g = gguf_create(file->n);
    size_t at = 0, len;
    for (void *data; out->g && !gguf_has_header(out->g); at += len) {
        if (gguf_window(out->g, &data, &len, &out->err) != PLUMB_OK || at == file->n) return false;
        if (len > file->n - at) len = file->n - at;
        memcpy(data, file->data + at, len);
        if (gguf_commit(out->g, len, &out->err) != PLUMB_OK) return false;
    }
    return out->g && tokenizer_create(&out->t, out->g, &out->err) == PLUMB_OK;
}

bool attack_create(struct attack *out, const struct adversary *a, const char *kind, size_t n) {
    struct vocabulary_writer w = {.bpe = kind != NULL && !model_of(kind)};
    struct bytes file = {0};
    *out = (struct attack){.text = malloc(n + 1), .n = n};
    if (model_of(kind)) add_token(&w, "<unk>", 5, UNKNOWN, 0);
    add_all_repeated(&w);
    if (a->add) a->add(&w, n);
    write_file(&file, &w, kind);
    bool ok = load(out, &file) && out->text;
    size_t n_unit = a->n_unit > 0 || !a->unit ? a->n_unit : strlen(a->unit);
    if (ok && a->fill) a->fill(out->text, n);
    for (size_t i = 0; ok && !a->fill && i < n; i++) out->text[i] = a->unit[i % n_unit];
    struct bytes *const owned[] = {&file, &w.texts, &w.types, &w.scores, &w.merges};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]->data);
    if (!ok) attack_free(out);
    return ok;
}

void attack_free(struct attack *a) {
    tokenizer_free(a->t);
    gguf_free(a->g);
    free(a->text);
    *a = (struct attack){.err = a->err};
}

/* tokenizer.ggml.* -> struct tokenizer.  Every array is checked against the vocabulary's size before it is used.
 *
 * Ids that llama.cpp replaces by defaults (a special token outside the vocabulary) are replaced here too.  Where
 * llama.cpp aborts (duplicate tokens, byte tokens whose text is not that of a byte), loading fails with an error.
 */
#include "tokenizer/automaton.h"
#include "tokenizer/encoder.h"
#include "tokenizer/specials.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- string index --------------------------------------------------------------------------------------------- */

struct text_hash hash_text(const char *s, uint64_t n) {
    struct text_hash h = {0, 1};
    for (uint64_t i = 0; i < n; i++) {
        h.value = h.value * HASH_BASE + (uint8_t)s[i] + 1;   /* + 1 so that leading zero bytes change the hash */
        h.power *= HASH_BASE;
    }
    return h;
}

uint32_t hash_fold(struct text_hash h) {
    uint64_t hash = (h.value ^ h.value >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return (uint32_t)(hash ^ hash >> 32);
}

/* Makes an empty index for n strings whose numbers are below end. */
static plumb_status index_create(struct string_index *index, uint32_t n, uint32_t end, struct error *err) {
    uint32_t size = 16;
    while (size / 2 < n) size *= 2;   /* n <= 2^30 */
    index->mask = size - 1;
    while (end >> index->n_bits != 0) index->n_bits++;   /* at most 31 */
    index->slots = alloc_array(size, sizeof *index->slots);
    if (index->slots == NULL) {
        return error_set(err, PLUMB_ERROR_MEMORY, "tokenizer: out of memory: an index of %u strings", (unsigned)n);
    }
    memset(index->slots, 0, (size_t)size * sizeof *index->slots);
    return PLUMB_OK;
}

/* A file can be made so that all its strings collide.  Loading it, or tokenizing a text, would then take time quadratic
 * in their number.  So a string is stored less than MAX_PROBES slots after the one that its hash leads to, a search
 * looks no further, and at most MAX_EQUAL strings with the same stored bits of the hash are compared.  A file that
 * needs more is refused.  In an index that is half full, a random hash needs 256 slots with a probability of 10^-21. */
enum { MAX_PROBES = 256, MAX_EQUAL = 16 };
/* The number of slots in a cache line. */
enum { SLOTS_PER_STEP = 16 };

/* Returns the number of the next string, from slot *i on, whose stored hash bits are those of hash, and moves *i past
 * it.  Returns -1 if there is none; *i is then the slot that ended the search: a free one, or the first that is too far
 * away. */
static int64_t index_next(const struct string_index *index, uint32_t hash, uint32_t *i) {
    for (;;) {
        uint32_t slot = index->slots[*i & index->mask];
        if (slot == 0 || *i - hash >= MAX_PROBES) return -1;
        ++*i;
        if (slot >> index->n_bits == hash >> index->n_bits) return (slot & ((1u << index->n_bits) - 1)) - 1;
    }
}

/* Adds string number `entry` and returns -1.  If an equal string is there already, returns its number instead; -2 means
 * that there are too many collisions. */
static int64_t index_add(struct string_index *index, uint32_t entry, const char *s, uint64_t n,
                         struct gguf_string (*text)(const struct tokenizer *, uint32_t), const struct tokenizer *t) {
    uint32_t hash = hash_fold(hash_text(s, n)), i = hash;
    int64_t other;
    int n_equal = 0;
    while ((other = index_next(index, hash, &i)) >= 0) {
        struct gguf_string existing = text(t, (uint32_t)other);
        if (existing.n == n && memcmp(existing.data, s, (size_t)n) == 0) return other;
        if (++n_equal == MAX_EQUAL) return -2;
    }
    if (i - hash >= MAX_PROBES) return -2;
    index->slots[i & index->mask] = hash >> index->n_bits << index->n_bits | (entry + 1);
    return -1;
}

/* ---- lookups -------------------------------------------------------------------------------------------------- */

struct gguf_string token_text(const struct tokenizer *t, uint32_t id) {
    if (t->texts == NULL) return (struct gguf_string){"", 0};
    if (t->texts[id].n != 0) return t->texts[id];
    uint32_t low = 0, high = t->n_empty;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (t->empties[middle].id <= id) low = middle;
        else high = middle;
    }
    return (struct gguf_string){t->empties[low].text, strlen(t->empties[low].text)};
}

struct gguf_string token_shown(const struct tokenizer *t, uint32_t id) {
    enum { N_MARK = sizeof KMER_MARK - 1 };
    struct gguf_string s = token_text(t, id);
    bool marked = id >= t->first_kmer && s.n > N_MARK && memcmp(s.data + s.n - N_MARK, KMER_MARK, N_MARK) == 0;
    if (marked) s.n -= N_MARK;
    return s;
}

static struct gguf_string merge_text(const struct tokenizer *t, uint32_t rank) { return t->merges[rank]; }

int32_t token_find_hashed(const struct tokenizer *t, struct text_hash h, const char *text, uint64_t n,
                          uint64_t *n_step) {
    uint32_t hash = hash_fold(h), i = hash;
    int64_t id;
    while ((id = index_next(&t->index, hash, &i)) >= 0) {
        struct gguf_string other = token_text(t, (uint32_t)id);
        if (other.n == n && memcmp(other.data, text, (size_t)n) == 0) break;
    }
    *n_step += 1 + (i - hash) / SLOTS_PER_STEP;
    return (int32_t)id;
}

int32_t token_find(const struct tokenizer *t, const char *text, uint64_t n) {
    uint64_t n_step = 0;
    return token_find_hashed(t, hash_text(text, n), text, n, &n_step);
}

float token_score(const struct tokenizer *t, uint32_t id) {
    if (t->scores == NULL) return 0;
    uint32_t bits = load_u32(t->scores + (size_t)id * 4);
    return t->integer_scores ? (float)(int32_t)bits : f32_from_bits(bits);
}

int64_t merge_find(const struct tokenizer *t, const char *text, struct text_hash left, size_t n_left,
                   struct text_hash right, size_t n_right, uint64_t *n_step) {
    static const struct text_hash space = {' ' + 1, HASH_BASE};
    uint32_t hash = hash_fold(hash_join(hash_join(left, space), right)), i = hash;
    int64_t rank;
    while ((rank = index_next(&t->merge_index, hash, &i)) >= 0) {
        struct gguf_string merge = t->merges[rank];
        if (merge.n == (uint64_t)n_left + 1 + n_right && merge.data[n_left] == ' '
            && memcmp(merge.data, text, n_left) == 0
            && memcmp(merge.data + n_left + 1, text + n_left, n_right) == 0) break;
    }
    *n_step += 1 + (i - hash) / SLOTS_PER_STEP;
    return rank;
}

uint32_t byte_to_cp(uint8_t byte) {
    if (byte <= 0x20) return 0x100u + byte;
    if (byte >= 0x7f && byte <= 0xa0) return 0x121u + (byte - 0x7fu);
    return byte == 0xad ? 0x143 : byte;
}

int cp_to_byte(uint32_t cp) {
    if (cp >= 0x100 && cp <= 0x120) return (int)(cp - 0x100);
    if (cp >= 0x121 && cp <= 0x142) return (int)(cp - 0x121 + 0x7f);
    if (cp == 0x143) return 0xad;
    bool prints = cp > 0x20 && cp <= 0xff && !(cp >= 0x7f && cp <= 0xa0) && cp != 0xad;
    return prints ? (int)cp : -1;
}

/* ---- arrays --------------------------------------------------------------------------------------------------- */

static plumb_status load_empties(struct tokenizer *t, struct error *err) {
    for (uint32_t i = 0; i < t->n_vocab; i++) t->n_empty += t->texts[i].n == 0;
    if (t->n_empty == 0) return PLUMB_OK;
    t->empties = alloc_array(t->n_empty, sizeof *t->empties);
    if (t->empties == NULL) {
        return error_set(err, PLUMB_ERROR_MEMORY, "tokenizer: out of memory: %u empty tokens", (unsigned)t->n_empty);
    }
    for (uint32_t i = 0, k = 0; i < t->n_vocab; i++) {
        if (t->texts[i].n != 0) continue;
        t->empties[k].id = i;
        snprintf(t->empties[k].text, sizeof t->empties[k].text, "[EMPTY_%u]", (unsigned)i);
        k++;
    }
    return PLUMB_OK;
}

static plumb_status load_texts(struct tokenizer *t, const struct gguf *g, struct error *err) {
    const struct gguf_key *key;
    PLUMB_TRY(gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_STRING, &key, err));
    if (key == NULL) return error_set(err, PLUMB_ERROR_METADATA, "tokenizer.ggml.tokens is missing");
    if (key->n == 0 || key->n > 1u << 30) {
        return error_set(err, PLUMB_ERROR_TOKENIZER, "tokenizer.ggml.tokens: %llu tokens, expected 1 to %u",
                         (unsigned long long)key->n, 1u << 30);
    }
    t->n_vocab = (uint32_t)key->n;
    t->texts = key->strings;
    PLUMB_TRY(load_empties(t, err));
    PLUMB_TRY(index_create(&t->index, t->n_vocab, t->n_vocab, err));
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        struct gguf_string text = token_text(t, i);
        int64_t other = index_add(&t->index, i, text.data, text.n, token_text, t);
        if (other == -1) continue;
        struct shown shown;
        if (other < 0) {
            return error_set(err, PLUMB_ERROR_TOKENIZER,
                             "tokenizer.ggml.tokens: the hash of token %u \"%s\" collides with too many others",
                             (unsigned)i, show_bytes(&shown, text.data, (size_t)text.n));
        }
        return error_set(err, PLUMB_ERROR_TOKENIZER, "tokenizer.ggml.tokens: tokens %u and %u are both \"%s\"",
                         (unsigned)other, (unsigned)i, show_bytes(&shown, text.data, (size_t)text.n));
    }
    return PLUMB_OK;
}

static plumb_status load_scores(struct tokenizer *t, const struct gguf *g, struct error *err) {
    const struct gguf_key *key = gguf_find_key(g, "tokenizer.ggml.scores");
    t->integer_scores = key != NULL && key->is_array && key->type == GGUF_INT32;
    PLUMB_TRY(gguf_get_array(g, "tokenizer.ggml.scores", t->integer_scores ? GGUF_INT32 : GGUF_FLOAT32, &key, err));
    if (key == NULL) return PLUMB_OK;
    if (key->n < t->n_vocab) {
        return error_set(err, PLUMB_ERROR_TOKENIZER,
                         "tokenizer.ggml.scores: found %llu scores, expected one for each of %u tokens",
                         (unsigned long long)key->n, (unsigned)t->n_vocab);
    }
    t->scores = key->values;
    return PLUMB_OK;
}

int byte_of_text(struct gguf_string s) {
    if (s.n != 6 || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>') return -1;
    const uint32_t high = digit_value(s.data[3]), low = digit_value(s.data[4]);
    return high > 15 || low > 15 ? -1 : (int)(high << 4 | low);
}

static plumb_status load_attributes(struct tokenizer *t, const struct gguf *g, struct error *err) {
    /* tokenizer.ggml.token_type: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte */
    static const uint8_t by_type[] = {0, TOKEN_NORMAL, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, 0, TOKEN_BYTE};
    const struct gguf_key *key;
    PLUMB_TRY(gguf_get_array(g, "tokenizer.ggml.token_type", GGUF_INT32, &key, err));
    if (key != NULL && key->n < t->n_vocab) {
        return error_set(err, PLUMB_ERROR_TOKENIZER,
                         "tokenizer.ggml.token_type: found %llu types, expected one for each of %u tokens",
                         (unsigned long long)key->n, (unsigned)t->n_vocab);
    }
    t->types = key != NULL ? key->values : NULL;
    t->attributes = alloc_array(t->n_vocab, sizeof *t->attributes);
    if (t->attributes == NULL) {
        return error_set(err, PLUMB_ERROR_MEMORY, "tokenizer: out of memory: the types of %u tokens",
                         (unsigned)t->n_vocab);
    }
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        uint32_t type = key != NULL ? load_u32(key->values + (size_t)i * 4) : 1;
        t->attributes[i] = type < sizeof by_type ? by_type[type] : 0;
        struct gguf_string text = token_text(t, i);
        if (t->attributes[i] == TOKEN_BYTE && byte_of_text(text) < 0 && !(t->kind->flags & KIND_ANY_BYTES)) {
            struct shown shown;
            return error_set(err, PLUMB_ERROR_TOKENIZER,
                             "tokenizer.ggml.tokens: token %u \"%s\" has type byte, expected <0x00> to <0xFF>",
                             (unsigned)i, show_bytes(&shown, text.data, (size_t)text.n));
        }
    }
    return PLUMB_OK;
}

enum { MIN_MERGE = 3 };   /* two bytes and the space between them */

static plumb_status load_merges(struct tokenizer *t, const struct gguf *g, struct error *err) {
    const struct gguf_key *key;
    PLUMB_TRY(gguf_get_array(g, "tokenizer.ggml.merges", GGUF_STRING, &key, err));
    if (key == NULL && t->pre->flags & PRE_NO_MERGES) return index_create(&t->merge_index, 0, 0, err);
    if (key == NULL) return error_set(err, PLUMB_ERROR_METADATA, "tokenizer.ggml.merges is missing");
    if (key->n > 1u << 30) {
        return error_set(err, PLUMB_ERROR_TOKENIZER, "tokenizer.ggml.merges: %llu merges, expected at most %u",
                         (unsigned long long)key->n, 1u << 30);
    }
    t->n_merge = (uint32_t)key->n;
    t->merges = key->strings;
    uint32_t n_used = 0;
    for (uint32_t i = 0; i < t->n_merge; i++) n_used += t->merges[i].n >= MIN_MERGE;
    PLUMB_TRY(index_create(&t->merge_index, n_used, t->n_merge, err));
    for (uint32_t i = 0; i < t->n_merge; i++) {
        /* If merges are equal, the first one counts.  A merge without a space is never found, which is harmless.  Both
         * are as in llama.cpp. */
        struct gguf_string text = t->merges[i];
        if (text.n >= MIN_MERGE && index_add(&t->merge_index, i, text.data, text.n, merge_text, t) == -2) {
            struct shown shown;
            return error_set(err, PLUMB_ERROR_TOKENIZER,
                             "tokenizer.ggml.merges: the hash of merge %u \"%s\" collides with too many others",
                             (unsigned)i, show_bytes(&shown, text.data, (size_t)text.n));
        }
    }
    return PLUMB_OK;
}

/* single: a byte without a token <0xHH> is the token whose text is that byte. */
static void find_byte_tokens(struct tokenizer *t, bool single) {
    for (int b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        t->byte_tokens[b] = token_find(t, name, 6);
        char byte = (char)b;
        /* llama.cpp looks up the byte as a C string, so the zero byte becomes the empty text, which no token has */
        if (single && t->byte_tokens[b] < 0 && b != 0) t->byte_tokens[b] = token_find(t, &byte, 1);
    }
}

plumb_status automaton_of_tokens(struct automaton **out, const struct tokenizer *t,
                                 bool (*wanted)(const struct tokenizer *t, uint32_t id), bool backward,
                                 struct error *err) {
    struct automaton_text *texts = alloc_array(t->n_vocab, sizeof *texts);
    uint32_t n = 0;
    for (uint32_t id = 0; texts != NULL && id < t->n_vocab; id++) {
        struct gguf_string text = token_text(t, id);
        if (text.n > TEXT_MAX_BYTES || (wanted != NULL && !wanted(t, id))) continue;
        texts[n++] = (struct automaton_text){text.data, (uint32_t)text.n, (int32_t)id};
    }
    *out = texts != NULL ? automaton_create(texts, n, backward) : NULL;
    free(texts);
    if (*out != NULL) return PLUMB_OK;
    return error_set(err, PLUMB_ERROR_MEMORY, "tokenizer: out of memory: an automaton of %u tokens",
                     (unsigned)t->n_vocab);
}

static plumb_status load_spm(struct tokenizer *t, const struct gguf *g, struct error *err) {
    (void)g, (void)err;
    find_byte_tokens(t, true);
    return PLUMB_OK;
}

static plumb_status load_bpe(struct tokenizer *t, const struct gguf *g, struct error *err) {
    if (t->pre->flags & PRE_PLAIN) find_byte_tokens(t, false);
    return load_merges(t, g, err);
}

static plumb_status load_dna(struct tokenizer *t, const struct gguf *g, struct error *err) {
    int32_t oov = token_find(t, "<oov>", 5);
    if (oov >= 0) t->first_kmer = (uint32_t)oov + 1;
    return load_bpe(t, g, err);
}

/* ---- special tokens ------------------------------------------------------------------------------------------- */

/* Reads the id of a special token.  An id outside the vocabulary leaves the default in *id; a default outside it
 * becomes -1. */
static plumb_status load_id(const struct tokenizer *t, const struct gguf *g, const char *name, int32_t *id,
                            struct error *err) {
    if (*id >= 0 && (uint32_t)*id >= t->n_vocab) *id = -1;
    uint32_t value = UINT32_MAX;
    PLUMB_TRY(gguf_get_u32(g, name, &value, err));
    if (value < t->n_vocab) *id = (int32_t)value;
    return PLUMB_OK;
}

static int32_t find_text(const struct tokenizer *t, const char *text) { return token_find(t, text, strlen(text)); }

/* Special tokens that are found by their text if no key gives their id.  Tokens found so become control tokens,
 * whatever their type says.  llama.cpp takes the first one in the order of its hash table, and this code the first one
 * of the list.  That matters only for the fill-in-the-middle tokens of a file that has several spellings of one. */
struct role {
    const char *key, *old_key;
    bool ends_turn;
    const char *texts[8];
};
static const struct role roles[] = {
    {"tokenizer.ggml.eot_token_id", NULL, true, {NULL}},   /* eog_texts has all texts that llama.cpp looks for */
    {"tokenizer.ggml.eom_token_id", NULL, true, {NULL}},
    {"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id", false,
     {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>",
      "▁<PRE>", "<|code_prefix|>", "<|prefix|>"}},
    {"tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id", false,
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>",
      "▁<SUF>", "<|code_suffix|>", "<|suffix|>"}},
    {"tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id", false,
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>",
      "▁<MID>", "<|code_middle|>", "<|middle|>"}},
    {"tokenizer.ggml.fim_pad_token_id", NULL, true, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
    {"tokenizer.ggml.fim_rep_token_id", NULL, true,
     {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {"tokenizer.ggml.fim_sep_token_id", NULL, true, {"<|file_sep|>"}},
};

/* Texts of tokens that end a turn in every vocabulary that has them. */
static const char *const eog_texts[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>",
    "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
};

static bool ends_turn(const struct tokenizer *t, const char *text) {
    int32_t id = find_text(t, text);
    return id >= 0 && (t->attributes[id] & TOKEN_EOG);
}

static void show(struct tokenizer *t, int32_t id, unsigned others) {
    t->attributes[id] = (uint16_t)(others | TOKEN_USER_DEFINED | TOKEN_SHOWN);
}

static plumb_status load_roles(struct tokenizer *t, const struct gguf *g, struct error *err) {
    PLUMB_TRY(load_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos, err));
    PLUMB_TRY(load_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos, err));
    PLUMB_TRY(load_id(t, g, "tokenizer.ggml.unknown_token_id", &t->unk, err));
    PLUMB_TRY(load_id(t, g, "tokenizer.ggml.seperator_token_id", &t->sep, err));   /* the key is spelled so */
    for (size_t r = 0; r < sizeof roles / sizeof roles[0]; r++) {
        int32_t id = -1;
        PLUMB_TRY(load_id(t, g, roles[r].key, &id, err));
        if (roles[r].old_key != NULL) PLUMB_TRY(load_id(t, g, roles[r].old_key, &id, err));
        for (size_t k = 0; id < 0 && k < 8 && roles[r].texts[k] != NULL; k++) {
            id = find_text(t, roles[r].texts[k]);
            if (id >= 0) t->attributes[id] |= TOKEN_CONTROL;
        }
        if (id >= 0 && roles[r].ends_turn) t->attributes[id] |= TOKEN_EOG;
    }
    for (size_t k = 0; k < sizeof eog_texts / sizeof eog_texts[0]; k++) {
        int32_t id = find_text(t, eog_texts[k]);
        if (id >= 0) t->attributes[id] |= TOKEN_CONTROL | TOKEN_EOG;
    }
    /* tokens of gpt-oss that are always shown */
    static const char *const shown[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};
    for (size_t k = 0; k < sizeof shown / sizeof shown[0]; k++) {
        int32_t id = find_text(t, shown[k]);
        if (id >= 0) show(t, id, t->attributes[id] & TOKEN_EOG);
    }
    if (t->eos >= 0) t->attributes[t->eos] |= TOKEN_EOG;
    /* In these vocabularies a text of the list means something else. */
    bool call = ends_turn(t, "<|call|>") || ends_turn(t, "<|calls|>");
    if (call && (ends_turn(t, "<|return|>") || ends_turn(t, "<|flush|>")) && ends_turn(t, "<|end|>")) {
        show(t, find_text(t, "<|end|>"), 0);
    }
    if (ends_turn(t, "<|tool_response>") && ends_turn(t, "</s>")) t->attributes[find_text(t, "</s>")] = TOKEN_NORMAL;
    return PLUMB_OK;
}

static int longer_first(const void *a, const void *b) {
    const struct special *x = a, *y = b;
    if (x->n != y->n) return x->n > y->n ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* The automaton over the special tokens may take as many bytes as they do in the file, and at least this many. */
enum { MATCHER_BYTES = 2 << 20 };

static plumb_status collect_specials(struct tokenizer *t, struct error *err) {
    const uint8_t special = TOKEN_CONTROL | TOKEN_USER_DEFINED | TOKEN_UNKNOWN;
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_vocab; i++) n += (t->attributes[i] & special) != 0;
    t->specials = alloc_array(n, sizeof *t->specials);
    if (t->specials == NULL) {
        return error_set(err, PLUMB_ERROR_MEMORY, "tokenizer: out of memory: %u special tokens", (unsigned)n);
    }
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        uint64_t length = token_shown(t, i).n;
        if (!(t->attributes[i] & special) || length > TEXT_MAX_BYTES) continue;
        t->matcher_max_bytes += length + 12;   /* in the file a token also has a length (8 bytes) and a type (4) */
        t->specials[t->n_special++] = (struct special){(uint32_t)length, (int32_t)i};
    }
    if (t->matcher_max_bytes < MATCHER_BYTES) t->matcher_max_bytes = MATCHER_BYTES;
    qsort(t->specials, t->n_special, sizeof *t->specials, longer_first);
    return PLUMB_OK;
}

static bool is_text(struct gguf_string s, const char *text) {
    return s.n == strlen(text) && memcmp(s.data, text, strlen(text)) == 0;
}

static bool contains(struct gguf_string s, const char *word, bool fold) {
    size_t n = strlen(word);
    for (uint64_t i = 0; n <= s.n && i <= s.n - n; i++) {
        size_t k = 0;
        for (; k < n; k++) {
            char c = s.data[i + k];
            if ((fold && c >= 'A' && c <= 'Z' ? c + 32 : c) != word[k]) break;
        }
        if (k == n) return true;
    }
    return false;
}

/* Sets which special tokens take white space along.  No key says so; like llama.cpp, this goes by the names of model,
 * pre-tokenizer and architecture. */
static plumb_status load_strips(struct tokenizer *t, const struct gguf *g, struct error *err) {
    struct gguf_string name = {"", 0}, pre = {"", 0}, architecture = {"", 0};
    PLUMB_TRY(gguf_get_string(g, "general.name", &name, err));
    PLUMB_TRY(gguf_get_string(g, "tokenizer.ggml.pre", &pre, err));
    PLUMB_TRY(gguf_get_string(g, "general.architecture", &architecture, err));
    const char *lstrip = NULL;
    if (contains(pre, "jina-v2-de", false) || contains(pre, "jina-v2-es", false) ||
        contains(pre, "jina-v2-code", false) || is_text(architecture, "nomic-bert-moe") ||
        is_text(architecture, "jina-bert-v3")) {
        lstrip = "<mask>";
    } else if (contains(name, "phi-3", true) || contains(name, "phi3", true)) {
        static const char *const plain[] = {"<unk>", "<s>", "<|endoftext|>"};
        for (uint32_t i = 0; i < t->n_special; i++) t->attributes[t->specials[i].id] |= TOKEN_RSTRIP;
        for (size_t k = 0; k < sizeof plain / sizeof plain[0]; k++) {
            int32_t id = find_text(t, plain[k]);
            if (id >= 0) t->attributes[id] &= (uint16_t)~TOKEN_RSTRIP;
        }
    } else if (contains(name, "modern-bert", true)) {
        lstrip = "[MASK]";
    }
    int32_t id = lstrip != NULL ? find_text(t, lstrip) : -1;
    if (id >= 0) t->attributes[id] |= TOKEN_LSTRIP;
    return PLUMB_OK;
}

/* ---- creation ------------------------------------------------------------------------------------------------- */

static const struct vocab_kind kinds[] = {
    {"llama", load_spm, encode_spm, put_spm, 1, 2, 0, -1, KIND_ADD_BOS | KIND_ADD_SPACE},
    {"gpt2", load_bpe, encode_bpe, put_bpe, 11, 11, -1, -1, KIND_BPE},
    {"gemma4", load_bpe, encode_bpe, put_bpe, -1, -1, -1, -1, KIND_BPE},
    {"hybriddna", load_dna, encode_dna, put_bpe, 11, 11, -1, -1, KIND_BPE},
    {"whitespace", load_bpe, encode_spaced, put_bpe, 11, 11, -1, -1, KIND_BPE | KIND_NORMALIZES},
    {"bert", NULL, encode_wordpiece, put_spm, 101, -1, 100, 102,
     KIND_ADD_BOS | KIND_ADD_SEP | KIND_BOS_AND_SEP | KIND_CLEAN_SPACES | KIND_NORMALIZES},
    {"t5", load_unigram, encode_unigram, put_spm, -1, 1, 2, -1, KIND_ADD_EOS | KIND_NORMALIZES},
    {"rwkv", NULL, encode_rwkv, put_rwkv, -1, -1, -1, -1, KIND_NO_ENDS | KIND_ANY_BYTES},
    {"plamo2", load_plamo2, encode_plamo2, put_plamo2, 1, 2, 0, -1, KIND_NO_ENDS | KIND_ANY_BYTES},
    {"test", NULL, NULL, put_text, -1, -1, -1, -1, 0},
    {"none", NULL, NULL, put_text, -1, -1, -1, -1, 0},
    {"no_vocab", NULL, NULL, put_text, -1, -1, -1, -1, 0},
};

static plumb_status find_kind(struct tokenizer *t, const struct gguf *g, struct error *err) {
    struct gguf_string model = {NULL, 0};
    PLUMB_TRY(gguf_get_string(g, "tokenizer.ggml.model", &model, err));
    if (model.data == NULL) return error_set(err, PLUMB_ERROR_METADATA, "tokenizer.ggml.model is missing");
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        const char *name = kinds[k].model;
        if (model.n == strlen(name) && memcmp(model.data, name, (size_t)model.n) == 0) t->kind = &kinds[k];
    }
    if (t->kind == NULL) {
        struct shown shown;
        return error_set(err, PLUMB_ERROR_UNSUPPORTED, "tokenizer.ggml.model \"%s\": this kind of vocabulary is not "
                         "supported", show_bytes(&shown, model.data, (size_t)model.n));
    }
    unsigned flags = t->kind->flags;
    t->bos = t->kind->bos;
    t->eos = t->kind->eos;
    t->unk = t->kind->unk;
    t->sep = t->kind->sep;
    t->add_bos = (flags & KIND_ADD_BOS) != 0;
    t->add_eos = (flags & KIND_ADD_EOS) != 0;
    t->add_sep = (flags & KIND_ADD_SEP) != 0;
    t->add_space_prefix = (flags & KIND_ADD_SPACE) != 0;
    t->clean_spaces = (flags & KIND_CLEAN_SPACES) != 0;
    t->lowercase = true;
    t->first_kmer = UINT32_MAX;
    return PLUMB_OK;
}

static plumb_status find_pretokenizer(struct tokenizer *t, const struct gguf *g, struct error *err) {
    struct gguf_string pre = {"default", 7};
    PLUMB_TRY(gguf_get_string(g, "tokenizer.ggml.pre", &pre, err));
    if (pre.n == 0) pre = (struct gguf_string){"default", 7};
    if (strcmp(t->kind->model, "gemma4") == 0) pre = (struct gguf_string){"gemma4", 6};
    t->pre = pretokenizer_find(pre.data, (size_t)pre.n);
    if (t->pre == NULL) {
        struct shown shown;
        return error_set(err, PLUMB_ERROR_UNSUPPORTED, "tokenizer.ggml.pre \"%s\": this pre-tokenizer is not supported",
                         show_bytes(&shown, pre.data, (size_t)pre.n));
    }
    if (t->pre->flags & PRE_NO_BOS) t->bos = -1;
    t->add_bos = (t->pre->flags & PRE_ADD_BOS) != 0;
    t->add_sep = (t->pre->flags & PRE_ADD_SEP) != 0;
    t->clean_spaces = (t->pre->flags & PRE_CLEAN_SPACES) != 0;
    t->lowercase = !(t->pre->flags & PRE_KEEP_CASE);
    return PLUMB_OK;
}

/* For a vocabulary without text: its size is that of the list of tokens or, without a list, the model's vocab_size.
 * MAX_IDS bounds the memory that a small file can take. */
static plumb_status load_ids(struct tokenizer *t, const struct gguf *g, struct error *err) {
    enum { MAX_IDS = 1 << 20 };
    const struct gguf_key *key;
    PLUMB_TRY(gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_STRING, &key, err));
    if (key != NULL) {
        PLUMB_TRY(load_texts(t, g, err));
    } else {
        struct gguf_string architecture = {"", 0};
        char name[128];
        struct shown shown;
        PLUMB_TRY(gguf_get_string(g, "general.architecture", &architecture, err));
        snprintf(name, sizeof name, "%.64s.vocab_size",
                 show_bytes(&shown, architecture.data, (size_t)(architecture.n < 64 ? architecture.n : 64)));
        PLUMB_TRY(gguf_get_u32(g, name, &t->n_vocab, err));
        if (t->n_vocab == 0 || t->n_vocab > MAX_IDS) {
            return error_set(err, PLUMB_ERROR_TOKENIZER, "key %s is %u, expected 1 to %d, because the file has no "
                             "tokenizer.ggml.tokens", name, (unsigned)t->n_vocab, MAX_IDS);
        }
    }
    t->attributes = alloc_array(t->n_vocab, sizeof *t->attributes);
    if (t->attributes == NULL) {
        return error_set(err, PLUMB_ERROR_MEMORY, "tokenizer: out of memory: %u tokens", (unsigned)t->n_vocab);
    }
    for (uint32_t i = 0; i < t->n_vocab; i++) t->attributes[i] = TOKEN_NORMAL;
    PLUMB_TRY(load_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos, err));
    PLUMB_TRY(load_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos, err));
    if (t->eos >= 0) t->attributes[t->eos] |= TOKEN_EOG;
    return PLUMB_OK;
}

static plumb_status load(struct tokenizer *t, const struct gguf *g, struct error *err) {
    PLUMB_TRY(find_kind(t, g, err));
    if (t->kind->encode == NULL) return load_ids(t, g, err);
    if (t->kind->flags & KIND_BPE) PLUMB_TRY(find_pretokenizer(t, g, err));
    PLUMB_TRY(load_texts(t, g, err));
    PLUMB_TRY(load_scores(t, g, err));
    PLUMB_TRY(load_attributes(t, g, err));
    if (t->kind->load != NULL) PLUMB_TRY(t->kind->load(t, g, err));
    PLUMB_TRY(load_roles(t, g, err));
    PLUMB_TRY(gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->add_bos, err));
    PLUMB_TRY(gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &t->add_eos, err));
    PLUMB_TRY(gguf_get_bool(g, "tokenizer.ggml.add_sep_token", &t->add_sep, err));
    PLUMB_TRY(gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &t->add_space_prefix, err));
    if (t->pre != NULL && t->pre->flags & PRE_ALWAYS_BOS) t->add_bos = true;
    PLUMB_TRY(gguf_get_bool(g, "tokenizer.ggml.normalizer.lowercase", &t->lowercase, err));
    t->strip_accents = t->lowercase;
    PLUMB_TRY(gguf_get_bool(g, "tokenizer.ggml.normalizer.strip_accents", &t->strip_accents, err));
    PLUMB_TRY(collect_specials(t, err));
    return load_strips(t, g, err);
}

plumb_status tokenizer_create(struct tokenizer **out, const struct gguf *g, struct error *err) {
    *out = NULL;
    struct tokenizer *t = alloc_array(1, sizeof *t);
    if (t == NULL) return error_set(err, PLUMB_ERROR_MEMORY, "tokenizer: out of memory: %zu bytes", sizeof *t);
    *t = (struct tokenizer){.bos = -1, .eos = -1, .unk = -1, .sep = -1};
    plumb_status status = load(t, g, err);
    if (status != PLUMB_OK) {
        tokenizer_free(t);
        return status;
    }
    *out = t;
    return PLUMB_OK;
}

void tokenizer_weak_ref_set(struct tokenizer_weak_ref *ref, struct tokenizer *t) {
    if (ref->t != NULL) {
        *ref->before = ref->next;
        if (ref->next != NULL) ref->next->before = ref->before;
    }
    *ref = (struct tokenizer_weak_ref){.t = t};
    if (t == NULL) return;
    ref->next = t->weak_refs;
    ref->before = &t->weak_refs;
    if (ref->next != NULL) ref->next->before = &ref->next;
    t->weak_refs = ref;
}

void tokenizer_free(struct tokenizer *t) {
    if (t == NULL) return;
    while (t->weak_refs != NULL) tokenizer_weak_ref_set(t->weak_refs, NULL);
    free(t->attributes);
    free(t->index.slots);
    free(t->merge_index.slots);
    free(t->specials);
    for (int i = 0; i < N_SET; i++) matcher_free(t->matchers[i]);
    automaton_free(t->automaton);
    automaton_free(t->user_automaton);
    free(t->empties);
    free(t);
}

uint32_t tokenizer_n_vocab(const struct tokenizer *t) { return t->n_vocab; }
int32_t tokenizer_bos(const struct tokenizer *t) { return t->bos; }
int32_t tokenizer_eos(const struct tokenizer *t) { return t->eos; }
bool tokenizer_is_eog(const struct tokenizer *t, int32_t id) {
    return id >= 0 && (uint32_t)id < t->n_vocab && (t->attributes[id] & TOKEN_EOG);
}

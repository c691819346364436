#include "trace/tokens.h"

#include "tokenizer/vocab.h"

#include <stdio.h>
#include <stdlib.h>

/* Texts are compared for this many tokens of each side.  A mistake in a prompt shows near its beginning. */
enum { MAX_COMPARED = 4096 };

/* ---- texts of tokens --------------------------------------------------------------------------------------------- */

static const char *own_piece(const struct plumb_trace *trace, uint32_t i) {
    return trace->pieces && trace->pieces[i] ? trace->pieces[i] : NULL;
}

/* Returns the text of an id from the pieces of the first MAX_COMPARED tokens or from the trace's texts; NULL if it is
 * in neither. */
static const char *find_piece(const struct plumb_trace *trace, int32_t id) {
    for (uint32_t i = 0; trace->pieces && trace->tokens && i < trace->n_token && i < MAX_COMPARED; i++) {
        if (trace->tokens[i] == id && trace->pieces[i]) return trace->pieces[i];
    }
    return trace_text(trace, id);
}

/* Writes a piece as people read it and returns its length, like tokens_piece.  Escapes bytes below 0x20; the pieces of
 * traces have them escaped already (trace_set_piece).  The pieces of other engines may be raw texts of the vocabulary,
 * where other characters stand for a space and for the end of a line. */
static size_t plain(const char *piece, size_t n_piece, char *buf, size_t cap) {
    static const struct { const char *raw, *text; } stand_ins[] = {
        { "\xe2\x96\x81", " " }, { "\xc4\xa0", " " }, { "\xc4\x8a", "\\n" },   /* one of SPM, two of byte-level BPE */
        { "\n", "\\n" }, { "\t", "\\t" }, { "\r", "\\r" },
    };
    size_t n = 0;
    for (size_t i = 0; i < n_piece;) {
        char own[8];
        size_t n_raw = 1;
        snprintf(own, sizeof own, (uint8_t)piece[i] < 0x20 ? "\\x%02x" : "%c", (uint8_t)piece[i]);
        const char *text = own;
        for (size_t k = 0; k < sizeof stand_ins / sizeof *stand_ins; k++) {
            size_t n_this = strlen(stand_ins[k].raw);
            if (n_this > n_piece - i || memcmp(piece + i, stand_ins[k].raw, n_this) != 0) continue;
            text = stand_ins[k].text;
            n_raw = n_this;
        }
        for (; *text; text++, n++) {
            if (n < cap) buf[n] = *text;
        }
        i += n_raw;
    }
    return n;
}

/* Like tokens_piece, but looks only in the vocabulary.  Returns -1 if there is none or if the id is not in it. */
static int64_t vocabulary_piece(const struct tokenizer *t, int32_t id, char *buf, size_t cap) {
    char raw[256];   /* a longer text is cut */
    int64_t n = t ? tokenizer_piece(t, id, true, raw, sizeof raw) : -1;
    if (n < 0) return -1;
    return (int64_t)plain(raw, n < (int64_t)sizeof raw ? (size_t)n : sizeof raw, buf, cap);
}

int64_t tokens_piece(const struct plumb_trace *a, const struct plumb_trace *b, const struct tokenizer *t, int32_t id,
                     char *buf, size_t cap) {
    int64_t n = vocabulary_piece(t, id, buf, cap);
    if (n >= 0) return n;
    const char *piece = find_piece(b, id);
    if (!piece) piece = find_piece(a, id);
    return piece ? (int64_t)plain(piece, strlen(piece), buf, cap) : -1;
}

/* The tokens of one side.  If BOS is known, the BOS tokens at the beginning are left out. */
struct side {
    const struct plumb_trace *trace, *other;
    const struct tokenizer *t;
    uint32_t n_bos, n;       /* how many BOS tokens were left out, and how many tokens are left */
    const int32_t *ids;      /* (n) */
    char *text;              /* (n_text) text of the first min(n, MAX_COMPARED) tokens, and a final 0 */
    size_t n_text, diff_at;  /* diff_at: offset in text of the first token that differs */
};

static int64_t side_piece(const struct side *s, uint32_t i, char *buf, size_t cap) {
    int64_t n = vocabulary_piece(s->t, s->ids[i], buf, cap);
    if (n >= 0) return n;
    const char *own = own_piece(s->trace, s->n_bos + i);
    if (own) return (int64_t)plain(own, strlen(own), buf, cap);
    return tokens_piece(s->trace, s->other, NULL, s->ids[i], buf, cap);
}

/* Sets s->text, n_text and diff_at.  diff: index in ids of the first token that differs.  Sets *known to false, and no
 * text, if the text of a token is not known. */
static plumb_status side_read(struct side *s, uint32_t diff, bool *known, struct error *err) {
    uint64_t total = 0;
    *known = true;
    for (uint32_t i = 0; i < s->n && i < MAX_COMPARED; i++) {
        int64_t n = side_piece(s, i, NULL, 0);
        if (n < 0) *known = false;
        else total += (uint64_t)n;
    }
    if (!*known) return PLUMB_OK;
    s->text = alloc_array(total + 1, 1);
    if (!s->text) return error_set(err, PLUMB_ERROR_MEMORY, "out of memory: the text of %u tokens", s->n);
    for (uint32_t i = 0; i < s->n && i < MAX_COMPARED; i++) {
        if (i == diff) s->diff_at = s->n_text;
        s->n_text += (size_t)side_piece(s, i, s->text + s->n_text, (size_t)(total - s->n_text));
    }
    if (diff >= s->n || diff >= MAX_COMPARED) s->diff_at = s->n_text;
    s->text[s->n_text] = 0;
    return PLUMB_OK;
}

/* ---- recognizing each kind --------------------------------------------------------------------------------------- */

static bool same_ids(const int32_t *x, const int32_t *y, uint32_t n) { return memcmp(x, y, n * sizeof *x) == 0; }

/* Returns true if `with` has one token more at index diff: the tokens after it are those that `without` has from diff
 * on, up to the end of the shorter list, and there is at least one such token. */
static bool is_one_more(const struct plumb_trace *with, const struct plumb_trace *without, uint32_t diff) {
    uint32_t n_with = with->n_token - diff - 1, n_without = without->n_token - diff;
    uint32_t n = n_with < n_without ? n_with : n_without;
    return n > 0 && same_ids(with->tokens + diff + 1, without->tokens + diff, n);
}

/* Returns true if the first token that differs is a special token on the side `special`, and if the side `spelled` has
 * the text of this token at the same point. */
static bool is_spelled(const struct side *special, const struct side *spelled, uint32_t diff) {
    char piece[128];
    if (diff >= special->n || diff >= MAX_COMPARED) return false;
    int64_t n = side_piece(special, diff, piece, sizeof piece);
    if (n < 3 || n > (int64_t)sizeof piece) return false;
    bool is_control = special->t && tokenizer_piece(special->t, special->ids[diff], false, NULL, 0) == 0;
    bool is_bracketed = (piece[0] == '<' && piece[n - 1] == '>') || (piece[0] == '[' && piece[n - 1] == ']');
    if (!is_control && !is_bracketed) return false;
    const char *at = spelled->text + spelled->diff_at;
    if (*at == ' ' && piece[0] != ' ') at++;   /* the space that SPM puts before text */
    return strncmp(at, piece, (size_t)n) == 0;
}

/* Returns true if the text of `with` is the text of `without` after a space. */
static bool has_space_more(const struct side *with, const struct side *without) {
    return with->n_text == without->n_text + 1 && with->text[0] == ' '
        && memcmp(with->text + 1, without->text, without->n_text) == 0;
}

/* Marks that show which chat template a text was made with.  Some families of models share a mark. */
static const struct { const char *mark, *family; } templates[] = {
    { "<|im_start|>", "ChatML" }, { "<|start_header_id|>", "Llama 3" }, { "[INST]", "Llama 2 or Mistral" },
    { "<start_of_turn>", "Gemma" }, { "<|user|>", "Zephyr or Phi-3" }, { "### Instruction", "Alpaca" },
    { "USER:", "Vicuna" },
};

/* Returns the index in templates of the first mark that the text contains, or the number of templates if it contains
 * none.  Sets *n_turn to how often the text contains the mark. */
static size_t find_template(const struct side *s, uint32_t *n_turn) {
    *n_turn = 0;
    size_t i = 0, n = sizeof templates / sizeof *templates;
    while (i < n && !strstr(s->text, templates[i].mark)) i++;
    for (const char *at = s->text; i < n && (at = strstr(at, templates[i].mark)); at++) ++*n_turn;
    return i;
}

/* Sets the kind and appends a sentence to the text. */
static void add(struct tokens_difference *out, enum tokens_kind kind, const char *sentence) {
    out->kind = kind;
    size_t n = strlen(out->text);
    snprintf(out->text + n, sizeof out->text - n, "%s", sentence);
}

/* The name_... functions recognize a difference, add its kind and sentence to *out, and return true.  They return false
 * if it is none of their kinds. */
static bool name_template(struct tokens_difference *out, const struct side *a, const struct side *b) {
    uint32_t turns_a, turns_b;
    size_t none = sizeof templates / sizeof *templates, in_a = find_template(a, &turns_a),
           in_b = find_template(b, &turns_b);
    char sentence[200] = "";
    if (in_a != none && in_b != none && strcmp(templates[in_a].family, templates[in_b].family) != 0) {
        snprintf(sentence, sizeof sentence, "the chat templates differ: A uses %s, B uses %s",
                 templates[in_a].family, templates[in_b].family);
    } else if (in_a != none && in_b != none && turns_a != turns_b) {
        snprintf(sentence, sizeof sentence, "the chat templates differ: both use %s, but the number of \"%s\" is %u in "
                 "A and %u in B", templates[in_a].family, templates[in_a].mark, turns_a, turns_b);
    } else if ((in_a == none) != (in_b == none)) {
        snprintf(sentence, sizeof sentence, "the chat templates differ: %s uses %s, %s uses none that is known",
                 in_a == none ? "B" : "A", templates[in_a == none ? in_b : in_a].family, in_a == none ? "A" : "B");
    }
    if (sentence[0]) add(out, TOKENS_TEMPLATE, sentence);
    return sentence[0] != 0;
}

static bool name_special(struct tokens_difference *out, const struct side *a, const struct side *b, uint32_t diff) {
    if (is_spelled(b, a, diff)) {
        add(out, TOKENS_SPECIAL_SPELLED, "special tokens are not parsed in A: several tokens spell the text of one");
    } else if (is_spelled(a, b, diff)) {
        add(out, TOKENS_SPECIAL_PARSED, "special tokens are not parsed in B: several tokens spell the text of one");
    }
    return out->text[0] != 0;
}

/* The last of them: it always adds a sentence. */
static void name_text(struct tokens_difference *out, const struct side *a, const struct side *b) {
    if (has_space_more(a, b)) {
        add(out, TOKENS_SPACE_ADDED, "the text of A has one space more at its beginning than that of B "
            "(add_space_prefix)");
    } else if (has_space_more(b, a)) {
        add(out, TOKENS_SPACE_MISSING, "the text of A has one space less at its beginning than that of B "
            "(add_space_prefix)");
    } else if (a->n_text == b->n_text && memcmp(a->text, b->text, a->n_text) == 0) {
        add(out, TOKENS_SPLIT, "the same text is split into different tokens: check merges, scores and the "
            "pre-tokenizer");
    } else if (!name_template(out, a, b)) {
        add(out, TOKENS_TEXT, "the texts differ");
    }
}

/* Returns true if a token consists of spaces only.  Two of them in a row are plain text, not one token fed twice. */
static bool is_blank(const struct plumb_trace *a, const struct plumb_trace *b, const struct tokenizer *t, int32_t id) {
    char piece[8];
    int64_t n = tokens_piece(a, b, t, id, piece, sizeof piece);
    for (int64_t i = 0; i < n && i < (int64_t)sizeof piece; i++) {
        if (piece[i] != ' ') return false;
    }
    return n > 0;
}

/* Handles one extra token on one side: BOS, a first token that may be BOS, or a token that repeats the one before. */
static bool name_one_more(struct tokens_difference *out, const struct plumb_trace *a, const struct plumb_trace *b,
                          const struct tokenizer *t, int32_t bos) {
    uint32_t diff = out->first;
    bool in_a = is_one_more(a, b, diff), in_b = !in_a && is_one_more(b, a, diff);
    if (!in_a && !in_b) return false;
    const int32_t *ids = in_a ? a->tokens : b->tokens;
    if (diff == 0 && ids[0] == bos) {
        if (in_a) add(out, TOKENS_BOS_ADDED, "A begins with BOS, B does not");
        else add(out, TOKENS_BOS_MISSING, "BOS is missing in A");
    } else if (diff == 1 && ids[1] == bos && ids[0] == bos) {
        if (in_a) add(out, TOKENS_BOS_DOUBLED, "BOS is doubled in A");
        else add(out, TOKENS_BOS_SINGLE, "BOS is doubled in B");
    } else if (diff == 0 && bos < 0) {
        if (in_a) add(out, TOKENS_BOS_ADDED, "A has one more token at the start: if it is BOS, B lacks it");
        else add(out, TOKENS_BOS_MISSING, "the first token is missing in A: it is most likely BOS");
    } else if (diff > 0 && ids[diff] == ids[diff - 1] && !is_blank(a, b, t, ids[diff])) {
        add(out, TOKENS_REPEATED, in_a ? "A is fed one token twice" : "B is fed one token twice");
    }
    return out->text[0] != 0;
}

static struct side side_of(const struct plumb_trace *trace, const struct plumb_trace *other, const struct tokenizer *t,
                           int32_t bos) {
    struct side s = { .trace = trace, .other = other, .t = t };
    while (s.n_bos < trace->n_token && bos >= 0 && trace->tokens[s.n_bos] == bos) s.n_bos++;
    s.ids = trace->tokens + s.n_bos;
    s.n = trace->n_token - s.n_bos;
    return s;
}

static uint32_t first_difference(const int32_t *x, uint32_t n_x, const int32_t *y, uint32_t n_y) {
    uint32_t i = 0;
    while (i < n_x && i < n_y && x[i] == y[i]) i++;
    return i;
}

/* Compares the texts without the BOS tokens at the beginning (bos -1: with them).  only_special: only looks for special
 * tokens that one side spells out. */
static plumb_status name_by_texts(struct tokens_difference *out, const struct plumb_trace *a,
                                  const struct plumb_trace *b, const struct tokenizer *t, int32_t bos,
                                  bool only_special, struct error *err) {
    struct side sides[2] = { side_of(a, b, t, bos), side_of(b, a, t, bos) };
    uint32_t diff = first_difference(sides[0].ids, sides[0].n, sides[1].ids, sides[1].n);
    bool known[2] = { false, false };
    plumb_status status = side_read(&sides[0], diff, &known[0], err);
    if (status == PLUMB_OK) status = side_read(&sides[1], diff, &known[1], err);
    if (status == PLUMB_OK) {
        bool is_named = known[0] && known[1] && name_special(out, &sides[0], &sides[1], diff);
        if (!is_named && !only_special) {
            if (known[0] && known[1]) name_text(out, &sides[0], &sides[1]);
            else add(out, TOKENS_DIFFER, "the ids differ, and their texts are not known");
        }
        if (sides[0].n_bos != sides[1].n_bos) {
            char also[96];
            snprintf(also, sizeof also, "; also, the number of BOS tokens at the beginning is %u in A and %u in B",
                     sides[0].n_bos, sides[1].n_bos);
            add(out, out->kind, also);
        }
    }
    free(sides[0].text);
    free(sides[1].text);
    return status;
}

plumb_status tokens_compare(struct tokens_difference *out, const struct plumb_trace *a, const struct plumb_trace *b,
                            const struct tokenizer *t, struct error *err) {
    *out = (struct tokens_difference) { .kind = TOKENS_SAME };
    if (!a->tokens || !b->tokens) {
        add(out, TOKENS_UNKNOWN, a->tokens ? "B does not list its tokens: they are assumed to be the same"
            : b->tokens ? "A does not list its tokens: they are assumed to be the same"
            : "neither side lists its tokens: they are assumed to be the same");
        return PLUMB_OK;
    }
    out->first = first_difference(a->tokens, a->n_token, b->tokens, b->n_token);
    if (out->first == a->n_token || out->first == b->n_token) {
        if (a->n_token == b->n_token) add(out, TOKENS_SAME, "the same tokens");
        else add(out, TOKENS_PREFIX, a->n_token < b->n_token ? "A is a prefix of B: only its tokens are compared"
                 : "B is a prefix of A: only its tokens are compared");
        const struct plumb_trace *longer = a->n_token > b->n_token ? a : b;
        uint32_t n = out->first;   /* length of the shorter one */
        if (n > 0 && longer->n_token == n + 1 && longer->tokens[n] == longer->tokens[n - 1]) {
            add(out, TOKENS_PREFIX, longer == a ? "; A has its last token twice" : "; B has its last token twice");
        }
        return PLUMB_OK;
    }
    int32_t bos = t ? tokenizer_bos(t) : b->bos >= 0 ? b->bos : a->bos;
    if (name_one_more(out, a, b, t, bos)) return PLUMB_OK;
    PLUMB_TRY(name_by_texts(out, a, b, t, -1, true, err));   /* with BOS, because one side may spell out BOS itself */
    return out->text[0] ? PLUMB_OK : name_by_texts(out, a, b, t, bos, false, err);
}

const char *tokens_warning(const struct plumb_trace *theirs, const struct tokenizer *t) {
    const int32_t *ids = theirs->tokens;
    uint32_t n = theirs->n_prompt;
    int32_t bos = tokenizer_bos(t);
    if (n > 0 && bos >= 0 && t->add_bos && ids[0] != bos) {
        return "they do not begin with BOS, although this model's texts do";
    }
    if (n > 1 && bos >= 0 && ids[0] == bos && ids[1] == bos) return "they begin with BOS twice";
    if (n > 2 && ids[n - 1] == ids[n - 2]) return "the last two of the prompt are the same token: was it fed twice?";
    return NULL;
}

const char *tokens_kind_name(enum tokens_kind kind) {
    static const char *const names[] = {
        [TOKENS_SAME] = "same", [TOKENS_UNKNOWN] = "unknown", [TOKENS_PREFIX] = "prefix",
        [TOKENS_BOS_MISSING] = "bos_missing", [TOKENS_BOS_ADDED] = "bos_added", [TOKENS_BOS_DOUBLED] = "bos_doubled",
        [TOKENS_BOS_SINGLE] = "bos_single", [TOKENS_REPEATED] = "repeated", [TOKENS_SPACE_ADDED] = "space_added",
        [TOKENS_SPACE_MISSING] = "space_missing", [TOKENS_SPECIAL_SPELLED] = "special_spelled",
        [TOKENS_SPECIAL_PARSED] = "special_parsed", [TOKENS_TEMPLATE] = "template", [TOKENS_SPLIT] = "split",
        [TOKENS_TEXT] = "text", [TOKENS_DIFFER] = "differ",
    };
    return names[kind];
}

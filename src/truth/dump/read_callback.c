/* Reads the text that llama.cpp's llama-eval-callback prints, and that of other programs that print in the same way.
 *
 *   common_debug_cb_eval:   Qcur-0 = (f32)   ROPE(Qcur-0{64, 9, 5, 1}, inp_pos{5, 1, 1, 1}}) = {64, 9, 5, 1}
 *       [
 *           [
 *               [     -1.2133,      -0.2072,      -0.6158,    ...,      -0.6944,      -0.2500,       0.3392  ],
 *               ...,
 *           ],
 *       ]
 *       sum = -58.235123
 *
 * This is llama.cpp v0.5.0 (common/debug.cpp).  In older versions the lines began with "ggml_debug:" and the indents
 * differed.  The program prints the first three and the last three elements of each dimension, and "..." in place of
 * the others.  The elements after "..." are the last ones of the dimension, as many as there are before it; the reader
 * also accepts none there, as in the README of llama-eval-callback.  Before all this the program writes to stderr
 * "number of input tokens = 5" and the ids, one a line.  The reader takes the ids if they are in the file.
 *
 * A block is a header line and the values below it.  The reader turns the blocks into a trace as follows:
 * - If a layer has several blocks with the name of one tap, the last of them counts: Q, K and V after their bias, split
 *   into heads, where more of their values are printed.  The blocks of ROPE are Qcur_rope and Kcur_rope, and blocks
 *   named Qcur or Kcur that follow them do not count.
 * - attn_post_norm after ffn_inp is ffn_norm.
 * - With a quantized cache, llama.cpp multiplies parts of the heads of Q, K and V by a Hadamard matrix, and the result
 *   of attention by it once more, which undoes that.  The block after the second product counts as kqv_out; without
 *   it, kqv_out is dropped, with a remark.
 * - If the last layer continues with the last token alone, its rows belong to that token.
 * - kq_soft_max is {keys, tokens, heads}.  Its keys are padded, for instance to 256; the padding is dropped.
 * - If the graph runs again, its tokens follow those of the run before.  This happens for a prompt of more than 512
 *   tokens, and for each decoded token of a program that generates text.  llama-eval-callback makes no warm-up run.
 * - sum is over the whole tensor.  It gives the mean of the token, or of all tokens together if there are several.  A
 *   sum over several tokens is dropped if the graph ran more than once.  Older versions summed only what they printed;
 *   such a sum says nothing new and is dropped too.
 * - If the last block breaks off, it is dropped, with a remark.  The program ends without waiting for the thread that
 *   prints, so its last lines may be missing or garbled.  In other blocks, text that differs from the above is an
 *   error, whose message has the line.
 */
#include "dump/dump.h"

#include "base/decimal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A layer has fewer blocks than this, even if every operation that has the name of a tap is counted.  The limit bounds
 * the work of add_block, whatever the text says. */
enum { MAX_LAYER_BLOCKS = 256 };

struct span { const char *at; size_t n; };

/* A tensor that was printed under the name of a tap. */
struct block {
    const char *body;         /* the text after the header's line */
    enum tap_id id;
    int32_t layer;
    uint32_t pass;
    struct span op;
    uint64_t ne[3];           /* dimensions, fastest first */
    bool heads;               /* true: ne is (head_dim, n_head, n_token).  false: it is (n, n_token) or, for
                               * kq_soft_max, (n_key, n_token, n_head) */
    bool replaced;            /* this block does not count: see the top of the file */
};

/* One run of the graph: n_token tokens after n_past others. */
struct pass { uint64_t n_token, n_past; };

/* A printed value. */
struct cell { uint32_t token, place; float value; };

struct callback_reader {
    struct plumb_trace *t;
    struct error *err;        /* the trace's own */
    const char *text, *end;
    size_t n_block, cap_block, n_pass, cap_pass, n_cell, cap_cell, n_id, cap_id;
    struct block *blocks;
    struct pass *passes;
    struct cell *cells;       /* values of one block */
    int32_t *ids;
    size_t group;             /* index of the first block of the layer that is being read */
    const char *last;         /* the text after the last header, of a tap or not; only this block may break off */
    bool unrotates;           /* the header before is the product that undoes the rotation of kqv_out */
};

static plumb_status no_memory(struct callback_reader *r, size_t n) {
    return error_set(r->err, PLUMB_ERROR_MEMORY, "out of memory: more than %zu records", n);
}

static size_t line_of(const struct callback_reader *r, const char *at) {
    size_t line = 1;
    for (const char *p = r->text; p < at; p++) line += *p == '\n';
    return line;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static struct span trim(const char *at, const char *end) {
    while (at < end && is_space(*at)) at++;
    while (at < end && is_space(end[-1])) end--;
    return (struct span){at, (size_t)(end - at)};
}

static bool span_is(struct span s, const char *text) { return s.n == strlen(text) && memcmp(s.at, text, s.n) == 0; }

static const char *find(const char *at, const char *end, const char *text) {
    size_t n = strlen(text);
    for (; (size_t)(end - at) >= n; at++)
        if (memcmp(at, text, n) == 0) return at;
    return NULL;
}

/* Reads a shape such as "{576, 5, 1, 1}" at *at and advances *at past it.  Returns false if there is none, if one of
 * its dimensions is 0, or if it has more elements than a trace can number. */
static bool read_shape(const char **at, const char *end, uint64_t ne[4]) {
    const char *p = *at;
    uint64_t total = 1;
    for (int i = 0; i < 4; i++) {
        uint64_t v = 0;
        if (p == end || *p++ != (i == 0 ? '{' : ',')) return false;
        while (p < end && *p == ' ') p++;
        const char *digits = p;
        for (; p < end && *p >= '0' && *p <= '9' && p - digits < 19; p++) v = 10 * v + (uint64_t)(*p - '0');
        if (p == digits || v == 0 || !mul_u64(total, v, &total)) return false;
        ne[i] = v;
    }
    *at = p + 1;
    return p < end && *p == '}' && total < UINT32_MAX;
}

/* Reads "nan" and "inf" in all spellings of printf: with a sign, in capitals, "infinity", "nan(ind)". */
static bool read_word(struct span s, double *v) {
    char word[10];
    size_t n = 0;
    bool negative = s.n > 0 && *s.at == '-';
    if (negative || (s.n > 0 && *s.at == '+')) s = (struct span){s.at + 1, s.n - 1};
    for (; n < s.n && n < sizeof word - 1 && s.at[n] != '('; n++) word[n] = (char)(s.at[n] | 32);
    word[n] = 0;
    if (strcmp(word, "nan") == 0) {
        *v = NAN;
        return n == s.n || s.at[s.n - 1] == ')';
    }
    *v = negative ? -INFINITY : INFINITY;
    return n == s.n && (strcmp(word, "inf") == 0 || strcmp(word, "infinity") == 0);
}

/* Reads one number, which may also be "nan" or "inf", and advances *at past it.  *quantum is the step of its last
 * digit, or 0 if it has no decimal point or has an exponent. */
static bool read_number(const char **at, const char *end, double *v, float *quantum) {
    struct span s = {*at, 0};
    while (s.at + s.n < end && !is_space(s.at[s.n]) && !strchr("\n,[]", s.at[s.n])) s.n++;
    *at += s.n;
    *quantum = 0;
    if (decimal_read(s.at, s.n, v) != s.n || s.n == 0) return read_word(s, v);
    const char *point = memchr(s.at, '.', s.n);
    if (!point || memchr(s.at, 'e', s.n) || memchr(s.at, 'E', s.n)) return true;
    double scale = 1;
    for (const char *digit = point + 1; digit < *at; digit++) scale *= 10;
    *quantum = (float)(1 / scale);
    return true;
}

/* ---- headers: which blocks there are, and which of them count ---------------------------------------------------- */

struct header {
    struct span name, op, sources;
    uint64_t src0, ne[4];     /* src0: first dimension of the first source; 0: not known */
};

/* Parses "PROGRAM: NAME = (TYPE) OP(SRC{..}, SRC{..}}) = {..}".  Returns false for other lines. */
static bool read_header(const char *at, const char *end, struct header *h) {
    while (end > at && is_space(end[-1])) end--;
    if (end == at || end[-1] != '}') return false;   /* rules out lines of numbers quickly */
    const char *equals = find(at, end, " = ("), *open = equals;
    if (!equals) return false;
    h->name = trim(at, equals);
    for (const char *p = equals; p > at + 1; p--) {
        if (p[-2] != ':' || p[-1] != ' ') continue;
        h->name = trim(p, equals);
        break;
    }
    const char *type_end = memchr(equals, ')', (size_t)(end - equals));
    if (!type_end || !(open = memchr(type_end, '(', (size_t)(end - type_end)))) return false;
    h->op = trim(type_end + 1, open);
    h->sources = trim(open + 1, end);
    const char *source = memchr(open, '{', (size_t)(end - open)), *shape = end - 1;
    uint64_t ne[4];
    while (*shape != '{' && shape > open) shape--;
    h->src0 = source && read_shape(&source, end, ne) ? ne[0] : 0;
    return read_shape(&shape, end, h->ne) && shape == end;
}

static bool is_qkv(enum tap_id id) { return id >= TAP_QCUR && id <= TAP_KCUR_ROPE; }

/* Returns true for taps whose blocks may have three dimensions: heads, or the experts that a token uses. */
static bool may_have_heads(enum tap_id id) {
    return is_qkv(id) || (id >= TAP_FFN_WEIGHTS && id <= TAP_EXPERT_WEIGHTED);
}

/* Finds the tap of a block by its name and operation.  Knows the names of current and of older versions of
 * llama.cpp. */
static bool tap_of(const struct header *h, enum tap_id *id, int32_t *layer) {
    struct span name = h->name;
    static const char RESHAPED[] = " (reshaped)", MERGED[] = "kqv_merged_cont-", SOFT_MAX[] = "kq_soft_max_ext-";
    char text[32];
    bool reshaped = name.n > strlen(RESHAPED) && span_is(h->op, "RESHAPE") &&
                    memcmp(name.at + name.n - strlen(RESHAPED), RESHAPED, strlen(RESHAPED)) == 0;
    if (reshaped) name.n -= strlen(RESHAPED);
    if (name.n >= sizeof text) return false;
    memcpy(text, name.at, name.n);
    text[name.n] = 0;
    bool merged = strncmp(text, MERGED, strlen(MERGED)) == 0;
    if (merged) snprintf(text, sizeof text, "kqv_out-%.*s", (int)(name.n - strlen(MERGED)), name.at + strlen(MERGED));
    if (strncmp(text, SOFT_MAX, strlen(SOFT_MAX)) == 0)
        snprintf(text, sizeof text, "kq_soft_max-%.*s", (int)(name.n - strlen(SOFT_MAX)), name.at + strlen(SOFT_MAX));
    /* llama.cpp's "norm" is the final norm before the multiplication by its weights.  tap_parse would take it for
     * result_norm, the name of transformers. */
    if (strcmp(text, "norm") == 0 || !tap_parse(text, strlen(text), id, layer)) return false;
    if (reshaped && !is_qkv(*id)) return false;
    /* In older versions kqv_out was the result of the output matrix, and kqv_merged_cont its input. */
    if (*id == TAP_KQV_OUT && !merged && (span_is(h->op, "MUL_MAT") || span_is(h->op, "ADD"))) *id = TAP_ATTN_OUT;
    /* With a softmax over the experts that are used, the scores are called probabilities. */
    if (*id == TAP_FFN_PROBS && (span_is(h->op, "ADD") || span_is(h->op, "MUL_MAT"))) *id = TAP_FFN_ROUTER;
    if (span_is(h->op, "ROPE") && *id == TAP_QCUR) *id = TAP_QCUR_ROPE;
    if (span_is(h->op, "ROPE") && *id == TAP_KCUR) *id = TAP_KCUR_ROPE;
    return true;
}

/* Returns a number that is the same for all blocks of a layer, and that never descends within a pass. */
static int32_t group_of(const struct block *b) {
    return b->id == TAP_EMBD ? -1 : b->id >= TAP_RESULT_NORM ? INT32_MAX : b->layer;
}

/* Adds a block to the current pass.  Begins the next pass if the block belongs to an earlier layer than the one before,
 * if the layer has the same operation of the same tap already, or if it has MAX_LAYER_BLOCKS blocks. */
static plumb_status add_block(struct callback_reader *r, const struct block *new) {
    struct block b = *new;
    const struct block *last = r->n_block > 0 ? &r->blocks[r->n_block - 1] : NULL;
    bool again = last && (group_of(&b) < group_of(last) || r->n_block - r->group == MAX_LAYER_BLOCKS);
    if (!last || group_of(&b) != group_of(last)) r->group = r->n_block;
    for (size_t i = r->group; i < r->n_block; i++) {
        const struct block *old = &r->blocks[i];
        again = again || (old->id == b.id && old->op.n == b.op.n && memcmp(old->op.at, b.op.at, b.op.n) == 0);
    }
    if (again) r->group = r->n_block;
    if (!last || again) {
        if (!ARRAY_GROW(r->passes, r->n_pass, &r->cap_pass)) return no_memory(r, r->n_pass);
        r->passes[r->n_pass++] = (struct pass){0, 0};
    }
    b.pass = (uint32_t)r->n_pass - 1;
    for (size_t i = r->group; i < r->n_block; i++)
        if (b.id == TAP_ATTN_POST_NORM && r->blocks[i].id == TAP_FFN_INP) b.id = TAP_FFN_NORM;
    /* A block named Qcur or Kcur that comes after the block of ROPE is not the value before RoPE. */
    for (size_t i = r->group; i < r->n_block; i++)
        b.replaced = b.replaced || (b.id == TAP_QCUR && r->blocks[i].id == TAP_QCUR_ROPE) ||
                     (b.id == TAP_KCUR && r->blocks[i].id == TAP_KCUR_ROPE);
    for (size_t i = r->group; i < r->n_block && !b.replaced; i++)
        if (r->blocks[i].id == b.id) r->blocks[i].replaced = true;
    if (!ARRAY_GROW(r->blocks, r->n_block, &r->cap_block)) return no_memory(r, r->n_block);
    r->blocks[r->n_block++] = b;
    return PLUMB_OK;
}

/* Returns true for a product with the Hadamard matrix of K or V. */
static bool is_rotation(const struct header *h) {
    static const char K[] = "attn_inp_k_rot{", V[] = "attn_inp_v_rot{";
    size_t n = strlen(K);
    return span_is(h->op, "MUL_MAT") && h->sources.n > n
        && (memcmp(h->sources.at, K, n) == 0 || memcmp(h->sources.at, V, n) == 0);
}

/* Returns true if the first header at or after `at` is that of such a product. */
static bool is_rotation_next(const struct callback_reader *r, const char *at) {
    struct header h;
    for (const char *end; at < r->end && (end = memchr(at, '\n', (size_t)(r->end - at))); at = end + 1)
        if (read_header(at, end, &h)) return is_rotation(&h);
    return false;
}

/* Drops a block whose values are those of a rotation that nothing in the file undoes. */
static plumb_status drop_rotated(struct callback_reader *r, struct block *b) {
    struct tap_text tap;
    tap_show(&tap, b->id, b->layer);
    b->replaced = true;
    return remarks_add(&r->t->remarks, r->err, REMARK_FORM, tap.text, strlen(tap.text), "its values are rotated, and "
                       "those behind the rotation were not printed");
}

static plumb_status take_header(struct callback_reader *r, const struct header *h, const char *body) {
    struct block b = {.body = body, .op = h->op, .ne = {h->ne[0], h->ne[1], h->ne[2]}};
    struct block *last = r->n_block > 0 ? &r->blocks[r->n_block - 1] : NULL;
    bool is_rotated = r->unrotates;
    while (body < r->end && (is_space(*body) || *body == '\n')) body++;
    bool has_body = body == r->end || *body == '[';   /* quantized tensors are not printed */
    r->unrotates = is_rotation(h) && last && last->id == TAP_KQV_OUT;
    bool is_undone = is_rotated && span_is(h->op, "RESHAPE") && memcmp(last->ne, b.ne, sizeof b.ne) == 0;
    if (is_undone && has_body && h->ne[3] == 1) last->body = b.body;
    else if (is_rotated) PLUMB_TRY(drop_rotated(r, last));
    if (is_undone) return PLUMB_OK;
    if (!tap_of(h, &b.id, &b.layer)) {
        return remarks_add(&r->t->remarks, r->err, REMARK_UNKNOWN, h->name.at, h->name.n, "no tap has this name");
    }
    if (h->ne[3] != 1 || !has_body) {
        return remarks_add(&r->t->remarks, r->err, REMARK_FORM, h->name.at, h->name.n, "%s",
                           has_body ? "it has four dimensions" : "its values were not printed");
    }
    bool splits = h->ne[2] > 1 || h->ne[0] < h->src0;   /* a RESHAPE into heads; the others join heads */
    if (is_qkv(b.id) && span_is(h->op, "RESHAPE") && (!splits || is_rotation_next(r, body))) return PLUMB_OK;
    b.heads = (may_have_heads(b.id) && h->ne[2] > 1)
           || (is_qkv(b.id) && (span_is(h->op, "ROPE") || span_is(h->op, "RESHAPE")));
    return add_block(r, &b);
}

/* If the line says "number of input tokens = 5", reads the ids on the lines after it and moves *at past them.  Each id
 * is on a line of its own, perhaps after a time and the log level, I for info.  If there are other lines between them,
 * the ids stay unknown. */
static plumb_status take_ids(struct callback_reader *r, const char *line, const char *line_end, const char **at) {
    static const char TITLE[] = "number of input tokens = ";
    const char *count = find(line, line_end, TITLE);
    if (!count || r->n_id > 0) return PLUMB_OK;
    uint64_t n = 0;
    for (const char *p = count + strlen(TITLE); *p >= '0' && *p <= '9' && n < UINT32_MAX; p++)
        n = 10 * n + (uint64_t)(*p - '0');
    const char *p = *at;
    while (r->n_id < n && p < r->end) {
        const char *end = memchr(p, '\n', (size_t)(r->end - p));
        if (!end) break;
        struct span s = trim(p, end);
        const char *digits = s.at + s.n;
        int64_t id = 0, unit = 1;
        while (digits > s.at && digits[-1] >= '0' && digits[-1] <= '9' && unit < 10000000000) {
            id += unit * (*--digits - '0');
            unit *= 10;
        }
        struct span front = trim(s.at, digits);
        bool is_id = unit > 1 && id <= INT32_MAX && (front.n == 0 || front.at[front.n - 1] == 'I');
        if (!is_id) break;
        if (!ARRAY_GROW(r->ids, r->n_id, &r->cap_id)) return no_memory(r, r->n_id);
        r->ids[r->n_id++] = (int32_t)id;
        p = end + 1;
    }
    if (r->n_id != n) r->n_id = 0;   /* there are other lines between them */
    else *at = p;
    return PLUMB_OK;
}

static plumb_status find_blocks(struct callback_reader *r) {
    for (const char *at = r->text; at < r->end;) {
        const char *line = at, *end = memchr(at, '\n', (size_t)(r->end - at));
        struct header h;
        if (!end) return PLUMB_OK;   /* a line that was cut */
        at = end + 1;
        if (read_header(line, end, &h)) PLUMB_TRY(take_header(r, &h, r->last = at));
        else PLUMB_TRY(take_ids(r, line, end, &at));
    }
    return PLUMB_OK;
}

/* ---- the number of tokens ---------------------------------------------------------------------------------------- */

static uint64_t tokens_of(const struct block *b) { return b->heads ? b->ne[2] : b->ne[1]; }

static plumb_status count_tokens(struct callback_reader *r) {
    /* A pass has as many tokens as the tap with the most tokens.  A {64, 9} of Q, K or V may also be nine heads of one
     * token, so such blocks count only if the pass has no others. */
    for (int sure = 1; sure >= 0; sure--) {
        for (size_t i = 0; i < r->n_block; i++) {
            const struct block *b = &r->blocks[i];
            struct pass *pass = &r->passes[b->pass];
            if (!sure && pass->n_token > 0) continue;
            bool counts = !may_have_heads(b->id) || b->heads || !sure;
            if (counts && tokens_of(b) > pass->n_token) pass->n_token = tokens_of(b);
        }
    }
    /* If all blocks have one token, but more tokens were fed, only taps of the last token were printed. */
    if (r->n_pass == 1 && r->passes[0].n_token == 1 && r->n_id > 0) r->passes[0].n_token = r->n_id;
    uint64_t n = 0, n_prompt = 0;
    for (size_t i = 0; i < r->n_pass; i++) {
        r->passes[i].n_past = n;
        n += r->passes[i].n_token;
        if (i == 0 || r->passes[i].n_token > 1) n_prompt = n;   /* passes of one token at the end are decoding steps */
    }
    if (n < r->n_id) n = r->n_id;
    if (n > UINT32_MAX - 1) {
        return error_set(r->err, PLUMB_ERROR_TENSOR, "%llu tokens are too many", (unsigned long long)n);
    }
    if (n > 0 && r->n_id == n) return trace_set_tokens(r->t, r->ids, r->n_id, r->n_id);
    r->t->n_token = (uint32_t)n;
    r->t->n_prompt = (uint32_t)n_prompt;
    return PLUMB_OK;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

struct body {
    bool whole;           /* its last bracket is there; otherwise the block breaks off */
    bool all;             /* all values were printed: there is no "..." */
    double sum, printed;  /* the sum in the text, NAN if there is none; the sum of the printed values */
    float quantum;        /* the finest step of the printed values; 0 if none of them is rounded */
};

/* Adds the value at index i of the tensor (fastest dimension first) to r->cells, unless it is padding. */
static plumb_status add_cell(struct callback_reader *r, const struct block *b, const uint64_t i[3], double value) {
    bool weights = b->id == TAP_KQ_SOFT_MAX;
    uint64_t n = weights ? r->t->n_token : b->ne[0];
    if (i[0] >= n) return PLUMB_OK;
    uint64_t token = b->heads ? i[2] : i[1], head = weights ? i[2] : b->heads ? i[1] : 0, place = head * n + i[0];
    if (place >= UINT32_MAX) {
        return error_set(r->err, PLUMB_ERROR_TENSOR, "%llu places are too many", (unsigned long long)place);
    }
    if (!ARRAY_GROW(r->cells, r->n_cell, &r->cap_cell)) return no_memory(r, r->n_cell);
    r->cells[r->n_cell++] = (struct cell){(uint32_t)token, (uint32_t)place, (float)value};
    return PLUMB_OK;
}

/* Reads the brackets after a header, and the sum after them.  Puts the values into r->cells and the rest into *body. */
static plumb_status read_body(struct callback_reader *r, const struct block *b, struct body *body) {
    /* The number of elements at each depth of brackets: 1 tensor, its matrices, their rows, their numbers. */
    const uint64_t extent[4] = {1, b->ne[2], b->ne[1], b->ne[0]};
    uint64_t index[4] = {0}, n_tail[4] = {0};   /* n_tail: how many elements follow "..."; 0: there was no "..." */
    struct tap_text tap;
    tap_show(&tap, b->id, b->layer);
    *body = (struct body){.all = true, .sum = NAN};
    r->n_cell = 0;
    int depth = 0;
    const char *p = b->body;
    float quantum = 0;
    while (!body->whole) {
        while (p < r->end && (is_space(*p) || *p == '\n' || *p == ',')) p++;
        if (p == r->end) return PLUMB_OK;
        const char *at = p;
        double v;
        bool right = true;
        if (*p == '[') {
            right = depth < 3 && index[depth] < extent[depth];
            if (right) depth++;
            index[depth] = n_tail[depth] = 0;
            p++;
        } else if (*p == ']') {
            /* After "..." there must be all n_tail elements, or none (as in the README). */
            right = depth > 0 && (index[depth] == extent[depth] || index[depth] + n_tail[depth] == extent[depth]);
            if (right) index[--depth]++;
            body->whole = depth == 0;
            p++;
        } else if (r->end - p >= 3 && memcmp(p, "...", 3) == 0) {
            right = depth > 0 && index[depth] > 0 && index[depth] <= extent[depth] / 2 && n_tail[depth] == 0;
            n_tail[depth] = index[depth];
            index[depth] = extent[depth] - index[depth];
            body->all = false;
            p += 3;
        } else {
            right = depth == 3 && index[3] < extent[3] && read_number(&p, r->end, &v, &quantum);
            if (right) PLUMB_TRY(add_cell(r, b, (uint64_t[3]){index[3]++, index[2], index[1]}, v));
            if (right) body->printed += v;
            if (right && quantum > 0 && (body->quantum == 0 || quantum < body->quantum)) body->quantum = quantum;
        }
        if (!right && b->body == r->last) return PLUMB_OK;
        if (!right)
            return error_set(r->err, PLUMB_ERROR_TENSOR,
                             "line %zu, %s of {%llu, %llu, %llu}: expected the next line of its values", line_of(r, at),
                             tap.text, (unsigned long long)b->ne[0], (unsigned long long)b->ne[1],
                             (unsigned long long)b->ne[2]);
    }
    while (p < r->end && (is_space(*p) || *p == '\n')) p++;
    if (r->end - p < 6 || memcmp(p, "sum = ", 6) != 0 || (p += 6, !read_number(&p, r->end, &body->sum, &quantum)))
        body->sum = NAN;
    return PLUMB_OK;
}

static int compare_cells(const void *a, const void *b) {
    const struct cell *x = a, *y = b;
    if (x->token != y->token) return x->token < y->token ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Adds the row of one token, whose values are in cells, (n_cell). */
static plumb_status add_block_row(struct callback_reader *r, const struct block *b, uint32_t pos, uint32_t n_head,
                                  uint32_t n, const struct cell *cells, size_t n_cell, struct trace_row **row) {
    float *values = alloc_array(n_cell, sizeof *values);
    uint32_t *places = alloc_array(n_cell, sizeof *places);
    plumb_status status = PLUMB_OK;
    if (!values || !places)
        status = error_set(&r->t->err, PLUMB_ERROR_MEMORY, "out of memory: a row of %zu values", n_cell);
    for (size_t i = 0; i < n_cell && status == PLUMB_OK; i++) {
        values[i] = cells[i].value;
        places[i] = cells[i].place;
    }
    if (status == PLUMB_OK) status = trace_new_row(r->t, b->id, b->layer, pos, row);
    if (status == PLUMB_OK) status = trace_set_values(r->t, *row, b->id, n_head, n, values, places, (uint32_t)n_cell);
    free(values);
    free(places);
    return status;
}

static plumb_status add_rows(struct callback_reader *r, struct block *b) {
    const struct pass *pass = &r->passes[b->pass];
    /* In a pass of one token, {64, 9} can only be the token's heads. */
    if (may_have_heads(b->id) && !b->heads && pass->n_token == 1 && b->ne[1] > 1) b->heads = true;
    uint64_t n_token = tokens_of(b), n_all = r->t->n_token;
    struct tap_text tap;
    tap_show(&tap, b->id, b->layer);
    if (n_token != pass->n_token && n_token != 1) {
        return remarks_add(&r->t->remarks, r->err, REMARK_FORM, tap.text, strlen(tap.text), "it has %llu of %llu "
                           "tokens, and nothing says which", (unsigned long long)n_token,
                           (unsigned long long)pass->n_token);
    }
    struct body body;
    PLUMB_TRY(read_body(r, b, &body));
    if (!body.whole || r->n_cell == 0) {
        return remarks_add(&r->t->remarks, r->err, REMARK_FORM, tap.text, strlen(tap.text), "%s",
                           body.whole ? "no value of it was printed" : "the file breaks off within its values");
    }
    qsort(r->cells, r->n_cell, sizeof *r->cells, compare_cells);
    bool weights = b->id == TAP_KQ_SOFT_MAX;
    uint64_t n_head = weights ? b->ne[2] : b->heads ? b->ne[1] : 1, n = weights ? n_all : b->ne[0];
    uint64_t first = pass->n_past + pass->n_token - n_token;
    struct trace_row *row = NULL;
    for (size_t i = 0, end; i < r->n_cell; i = end) {
        for (end = i + 1; end < r->n_cell && r->cells[end].token == r->cells[i].token;) end++;
        uint32_t pos = (uint32_t)first + r->cells[i].token;
        PLUMB_TRY(add_block_row(r, b, pos, (uint32_t)n_head, (uint32_t)n, r->cells + i, end - i, &row));
        row->quantum = body.quantum;
    }
    /* Is the sum only that of the printed values?  Each of them differs from the value in the sum by at most half a
     * step.  Up to twice that much is allowed. */
    bool of_printed = !body.all && fabs(body.sum - body.printed) <= (double)body.quantum * (double)r->n_cell;
    if (!isfinite(body.sum) || of_printed) return PLUMB_OK;
    /* The sum covers the tokens of this pass, so it is that of all tokens only if there is one pass. */
    if (n_token > 1 && r->n_pass > 1) return PLUMB_OK;
    if (n_token > 1) PLUMB_TRY(trace_new_row(r->t, b->id, b->layer, TRACE_ALL_TOKENS, &row));
    row->n_head = (uint32_t)n_head;
    row->n = (uint32_t)n;
    row->stats.mean = body.sum / ((double)n_token * (double)n_head * (double)n);
    return PLUMB_OK;
}

/* Returns true for the table that dump_write_table writes: its second line names the columns and begins with "tap". */
static bool is_table(const char *bytes, size_t n) {
    const char *line = memchr(bytes, '\n', n), head[] = "\ntap   ";
    return line && n - (size_t)(line - bytes) > strlen(head) && memcmp(line, head, strlen(head)) == 0;
}

plumb_status dump_read_callback(struct plumb_trace *t, const char *bytes, size_t n) {
    size_t n_blank = 0;
    while (n_blank < n && memchr(" \t\r\n", bytes[n_blank], 4)) n_blank++;
    if (n_blank == n) return error_set(&t->err, PLUMB_ERROR_METADATA, "the file is empty");
    if (is_table(bytes, n)) {
        return error_set(&t->err, PLUMB_ERROR_METADATA, "this is the table that `plumb trace` prints for people; "
                         "-o FILE.json writes a trace that can be read");
    }
    while (n > 0 && bytes[n - 1] != '\n') n--;   /* a last line that was cut may end within a number */
    struct callback_reader reader = {.t = t, .err = &t->err, .text = bytes, .end = bytes + n}, *r = &reader;
    plumb_status status = find_blocks(r);
    if (status == PLUMB_OK && r->unrotates) status = drop_rotated(r, &r->blocks[r->n_block - 1]);
    if (status == PLUMB_OK && r->n_block == 0)
        status = error_set(&t->err, PLUMB_ERROR_METADATA, "not a trace: the file is not JSON, GGUF or .npz, and "
                           "no line names a tap as llama-eval-callback does");
    if (status == PLUMB_OK) status = count_tokens(r);
    if (status == PLUMB_OK) status = trace_set_source(t, "llama-eval-callback", strlen("llama-eval-callback"));
    for (size_t i = 0; i < r->n_block && status == PLUMB_OK; i++)
        if (!r->blocks[i].replaced) status = add_rows(r, &r->blocks[i]);
    free(r->blocks);
    free(r->passes);
    free(r->cells);
    free(r->ids);
    return status;
}

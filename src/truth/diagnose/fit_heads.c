/* See fit_heads.h. */
#include "diagnose/fit_heads.h"

#include "trace/report.h"

#include <stdio.h>

void reader_begin(struct reader *r) {
    r->right_heads = fit_new(r->f, r->n_head, sizeof *r->right_heads);
    r->slots = fit_new(r->f, (uint64_t)r->n_token * r->n_key, sizeof *r->slots);
    r->row = fit_new(r->f, r->dim, sizeof *r->row);
    if (r->f->out_of_memory) return;
    for (uint32_t h = 0; h < r->n_head; h++) r->right_heads[h] = h / (r->n_head / r->n_kv);
}

uint32_t reader_filled(const struct reader *r, uint32_t t) {
    uint32_t pos = r->f->theirs.pos[t], n = pos < r->f->n_prompt ? r->f->n_prompt : pos + 1;
    return n < r->n_key ? n : r->n_key;
}

const float *reader_row(const struct reader *r, const struct reading *how, uint32_t t, uint32_t h, uint32_t j) {
    const float *x = how->rows ? how->rows->x : r->rows.x;
    uint32_t slot = how->slots ? how->slots[(size_t)t * r->n_key + j] : j;
    uint32_t g = how->heads ? how->heads[h] : r->right_heads[h], n = how->is_whole ? r->n_key : reader_filled(r, t);
    if (slot >= r->n_key || g >= r->n_kv || (how->order != ORDER_RIGHT && slot >= n)) return NULL;
    if (how->order == ORDER_RIGHT) return x + ((size_t)slot * r->n_kv + g) * r->dim;
    for (uint32_t i = 0; i < r->dim; i++) {
        size_t from = cache_place(how->order, n, r->n_kv, r->n_head / r->n_kv, r->dim, slot, g, i);
        r->row[i] = from != SIZE_MAX ? x[from] : 0;
    }
    return r->row;
}

bool reader_take(const struct reader *r, enum tap_id id, int32_t layer, struct fit_rows *rows) {
    bool is_alike = fit_tap(r->f, id, layer, rows) && rows->n_token == r->n_key
                 && fit_width(rows) == (size_t)r->n_kv * r->dim;
    rows->n_head = r->n_kv, rows->n = r->dim;
    return is_alike;
}

/* ---- heads ------------------------------------------------------------------------------------------------------- */

enum { HEAD_RULES = 4, HEAD_TEXT = 64 };

/* Fills heads (n_head) by a rule, with n_kv or more for heads of zeros, and writes what it says about head h. */
static void use_rule(const struct reader *r, uint32_t rule, uint32_t *heads, char text[HEAD_TEXT]) {
    static const enum kv_rule rules[HEAD_RULES] = { KV_MODULO, KV_FIRST, N_KV_RULE, KV_REVERSED };
    for (uint32_t h = 0; h < r->n_head; h++) heads[h] = rule == 2 ? h : kv_head_by(rules[rule], h, r->n_head, r->n_kv);
    switch (rule) {
    case 0: snprintf(text, HEAD_TEXT, "h %% %u", r->n_kv); break;
    case 1: snprintf(text, HEAD_TEXT, "0"); break;
    case 2: snprintf(text, HEAD_TEXT, "h, and zeros from head %u on,", r->n_kv); break;
    default: snprintf(text, HEAD_TEXT, "n_head_kv - 1 - h / %u", r->n_head / r->n_kv); break;
    }
}

/* Puts the right heads in the place of those of heads in which the right step is right for every token. */
static void keep_right(const struct reader *r, uint32_t *heads) {
    for (uint32_t h = 0; h < r->n_head; h++) {
        bool any = false;
        for (uint32_t t = 0; t < r->n_token; t++) any = any || r->f->wrong[(size_t)t * r->n_head + h];
        if (!any) heads[h] = r->right_heads[h];
    }
}

/* Writes which heads (n_head) are read.  Returns what this costs (struct finding). */
static uint32_t say_heads(const struct reader *r, const uint32_t *heads, char *text, size_t size) {
    uint32_t n_other = 0, other = 0;
    size_t n = 0;
    for (uint32_t h = 0; h < r->n_head; h++) {
        if (heads[h] != r->right_heads[h]) n_other++, other = h;
    }
    bool is_one = n_other == 1 && r->n_head > 1;
    if (is_one) report_append(text, size, &n, "has head %u read head", other);
    else report_append(text, size, &n, "has heads that read the heads");
    for (uint32_t h = 0; h < r->n_head; h++) {
        if (is_one && h != other) continue;
        report_append(text, size, &n, "%s ", h > 0 && !is_one ? "," : "");
        if (heads[h] < r->n_kv) report_append(text, size, &n, "%u", heads[h]);
        else report_append(text, size, &n, "of zeros");
    }
    report_append(text, size, &n, " of %s", r->of);
    if (is_one) report_append(text, size, &n, ", not %u", r->right_heads[other]);
    return is_one ? 0 : 1;
}

void reader_try_heads(struct reader *r) {
    char text[FIT_SENTENCE], rule[HEAD_TEXT];
    uint32_t *heads = fit_new(r->f, r->n_head, sizeof *heads), *all = fit_new(r->f, r->n_head, sizeof *all);
    double *least = fit_new(r->f, r->n_head, sizeof *least);
    if (!heads || !all || !least) return;
    for (uint32_t i = 0; i < HEAD_RULES && r->n_kv > 1; i++) {
        use_rule(r, i, heads, rule);
        r->read(r, &(struct reading){ .heads = heads });
        /* No engine is known for the last rule: a list of heads is as likely. */
        r->propose(r, i == 3 ? 1 : 0, fit_say(r->f, "has %s read head %s of %s, not h / %u", r->by, rule, r->of,
                                              r->n_head / r->n_kv));
    }
    for (uint32_t g = 0; g <= r->n_kv; g++) {   /* n_kv: zeros */
        for (uint32_t h = 0; h < r->n_head; h++) all[h] = g;
        r->read(r, &(struct reading){ .heads = all });
        for (uint32_t h = 0; h < r->n_head; h++) {
            double error = r->error(r, h);
            if (g > 0 && !(error < least[h])) continue;
            least[h] = error;
            heads[h] = g;
        }
    }
    keep_right(r, heads);
    uint32_t cost = say_heads(r, heads, text, sizeof text);
    r->read(r, &(struct reading){ .heads = heads });
    r->propose(r, cost, text);
}

/* ---- slots, orders, layers --------------------------------------------------------------------------------------- */

void reader_try_shifts(struct reader *r) {
    for (int by = -1; by <= 1; by += 2) {
        for (size_t i = 0; i < (size_t)r->n_token * r->n_key; i++) {
            r->slots[i] = (uint32_t)((int64_t)(i % r->n_key) + by);   /* -1: zeros */
        }
        r->read(r, &(struct reading){ .slots = r->slots });
        r->propose(r, 0, fit_say(r->f, "has %s of the token %s each key", r->of, by < 0 ? "before" : "after"));
    }
}

void reader_try_slots(struct reader *r, const uint32_t *slots, uint32_t at, uint32_t n_other) {
    const char *more = n_other == 1 ? "" : ", as the last of several such tokens";
    for (size_t i = 0; i < (size_t)r->n_token * r->n_key; i++) r->slots[i] = slots[i % r->n_key];
    r->read(r, &(struct reading){ .slots = r->slots });
    r->propose(r, n_other, slots[at] == UINT32_MAX
               ? fit_say(r->f, "has %s of zeros at token %u%s", r->of, at, more)
               : fit_say(r->f, "has %s of token %u at token %u%s", r->of, slots[at], at, more));
}

void reader_overwrite(struct reader *r) {
    for (size_t i = 0; i < (size_t)r->n_token * r->n_key; i++) {
        uint32_t pos = r->f->theirs.pos[i / r->n_key], j = (uint32_t)(i % r->n_key), n_prompt = r->f->n_prompt;
        r->slots[i] = j == n_prompt && pos > n_prompt ? pos : j;
    }
}

void reader_try_orders(struct reader *r) {
    static const struct { const char *what, *stored, *read; } texts[N_CACHE_ORDER] = {
        [ORDER_ROWS_BY_HEAD] = { "rows", "token, head", "head, token" },
        [ORDER_ROWS_BY_SLOT] = { "rows", "head, token", "token, head" },
        [ORDER_ELEMENTS_BY_SLOT] = { "the elements of each head", "token, element", "element, token" },
        [ORDER_SLOTS_BY_ELEMENT] = { "the elements of each head", "element, token", "token, element" },
        [ORDER_ELEMENTS_BY_HEAD] = { "the elements", "head, element", "element, head" },
    };
    for (int order = ORDER_RIGHT + 1; order < N_CACHE_ORDER; order++) {
        for (int is_whole = 0; is_whole < 2; is_whole++) {
            r->read(r, &(struct reading){ .order = (enum cache_order)order, .is_whole = is_whole });
            r->propose(r, 0, order == ORDER_STRIDE_OF_Q
                ? fit_say(r->f, "has %s of each token read n_head heads after that of the token before, but stored "
                          "n_head_kv heads after it", r->of)
                : fit_say(r->f, "has %s of %s, stored as (%s), read as (%s)", texts[order].what, r->of,
                          texts[order].stored, texts[order].read));
        }
    }
}

void reader_try_layers(struct reader *r) {
    for (int32_t il = 0; il < (int32_t)r->f->model->plan.n_layer; il++) {
        struct fit_rows rows;
        if (il == r->f->layer || !trace_find_tap(r->f->dump, r->id, il) || !reader_take(r, r->id, il, &rows)) continue;
        r->read(r, &(struct reading){ .rows = &rows });
        r->propose(r, 0, fit_say(r->f, "has %s of layer %d", r->of, (int)il));
    }
}

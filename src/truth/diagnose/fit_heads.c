/* See fit_heads.h. */
#include "diagnose/fit_heads.h"

#include "trace/report.h"

#include <stdio.h>

uint32_t fit_filled(const struct fit *f, uint32_t pos, uint32_t n_key) {
    uint32_t n = pos < f->n_prompt ? f->n_prompt : pos + 1;
    return n < n_key ? n : n_key;
}

void fit_keep_right_heads(const struct fit *f, const uint32_t *right, uint32_t n_head, uint32_t *heads) {
    for (uint32_t h = 0; h < n_head; h++) {
        bool any = false;
        for (uint32_t t = 0; t < f->theirs.n_token; t++) any = any || f->wrong[(size_t)t * n_head + h];
        if (!any) heads[h] = right[h];
    }
}

bool fit_head_rule(uint32_t rule, uint32_t n_head, uint32_t n_kv, uint32_t *heads, char text[FIT_HEAD_TEXT]) {
    uint32_t group = n_head / n_kv;
    for (uint32_t h = 0; h < n_head; h++) {
        static const enum kv_rule rules[FIT_HEAD_RULES] = { KV_MODULO, KV_FIRST, N_KV_RULE, KV_REVERSED };
        heads[h] = rule == 2 ? h : kv_head_by(rules[rule], h, n_head, n_kv);
    }
    switch (rule) {
    case 0: snprintf(text, FIT_HEAD_TEXT, "h %% %u", n_kv); break;
    case 1: snprintf(text, FIT_HEAD_TEXT, "0"); break;
    case 2: snprintf(text, FIT_HEAD_TEXT, "h, and zeros from head %u on,", n_kv); break;
    default: snprintf(text, FIT_HEAD_TEXT, "n_head_kv - 1 - h / %u", group); break;
    }
    return n_kv > 1;
}

uint32_t fit_say_heads(char *text, size_t size, const char *of, const uint32_t *heads, uint32_t n_head,
                       uint32_t n_kv) {
    uint32_t group = n_head / n_kv, n_other = 0, other = 0;
    size_t n = 0;
    for (uint32_t h = 0; h < n_head; h++) {
        if (heads[h] != h / group) n_other++, other = h;
    }
    bool is_one = n_other == 1 && n_head > 1;
    if (is_one) report_append(text, size, &n, "has head %u read head", other);
    else report_append(text, size, &n, "has heads that read the heads");
    for (uint32_t h = 0; h < n_head; h++) {
        if (is_one && h != other) continue;
        report_append(text, size, &n, "%s ", h > 0 && !is_one ? "," : "");
        if (heads[h] < n_kv) report_append(text, size, &n, "%u", heads[h]);
        else report_append(text, size, &n, "of zeros");
    }
    report_append(text, size, &n, " of %s", of);
    if (is_one) report_append(text, size, &n, ", not %u", other / group);
    return is_one ? 0 : 1;
}

void fit_say_order(char *text, size_t size, enum cache_order order, const char *of) {
    static const struct { const char *what, *stored, *read; } texts[N_CACHE_ORDER] = {
        [ORDER_ROWS_BY_HEAD] = { "rows", "token, head", "head, token" },
        [ORDER_ROWS_BY_SLOT] = { "rows", "head, token", "token, head" },
        [ORDER_ELEMENTS_BY_SLOT] = { "the elements of each head", "token, element", "element, token" },
        [ORDER_SLOTS_BY_ELEMENT] = { "the elements of each head", "element, token", "token, element" },
        [ORDER_ELEMENTS_BY_HEAD] = { "the elements", "head, element", "element, head" },
    };
    if (order == ORDER_STRIDE_OF_Q) {
        snprintf(text, size, "has %s of each token read n_head heads after that of the token before, but stored "
                 "n_head_kv heads after it", of);
        return;
    }
    snprintf(text, size, "has %s of %s, stored as (%s), read as (%s)", texts[order].what, of, texts[order].stored,
             texts[order].read);
}

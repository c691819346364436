/* plumb_chat_render and its like: the template of a plumb_model. */
#include "api/model.h"
#include "template/template.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The text of a special token; "" if there is none.  To be freed; NULL if out of memory. */
static char *special_text(const struct tokenizer *t, int32_t id) {
    int64_t n = id >= 0 ? tokenizer_piece(t, id, true, NULL, 0) : 0;
    if (n < 0) n = 0;
    char *text = malloc((size_t)n + 1);
    if (!text) return NULL;
    if (n > 0) tokenizer_piece(t, id, true, text, (size_t)n);
    text[n] = 0;
    return text;
}

/* Seconds since 1970 on the clock of the place. */
static int64_t local_time(void) {
    time_t now = time(NULL);
    const struct tm *utc = gmtime(&now);
    struct tm from = utc ? *utc : (struct tm){ .tm_sec = 0 };
    const struct tm *to = localtime(&now);
    if (!utc || !to) return (int64_t)now;
    int days = to->tm_year != from.tm_year ? to->tm_year - from.tm_year : to->tm_yday - from.tm_yday;
    return (int64_t)now + 86400 * days + 3600 * (to->tm_hour - from.tm_hour) + 60 * (to->tm_min - from.tm_min);
}

plumb_status plumb_chat_use_template(plumb_model *m, const char *source, size_t n) {
    char *copy = malloc(n + 1);
    if (!copy) return error_set(&m->err, PLUMB_ERROR_MEMORY, "out of memory: the chat template");
    memcpy(copy, source, n);
    free(m->chat_template);
    m->chat_template = copy;
    m->n_chat_template = n;
    return PLUMB_OK;
}

/* The template in use: the one that was given, or the file's; none: data is NULL. */
static plumb_status given_source(const plumb_model *m, struct text *source, struct error *err) {
    struct gguf_string own = { NULL, 0 };
    if (!m->chat_template) PLUMB_TRY(gguf_get_string(m->parts[0], "tokenizer.chat_template", &own, err));
    *source = m->chat_template ? (struct text){ m->chat_template, m->n_chat_template, 0 }
                               : (struct text){ own.data, (size_t)own.n, 0 };
    return PLUMB_OK;
}

bool plumb_chat_has_template(const plumb_model *m) {
    struct text source;
    struct error err = { PLUMB_OK, "" };
    return m->tokenizer && given_source(m, &source, &err) == PLUMB_OK && source.data;
}

int64_t plumb_chat_render(plumb_model *m, const char *json, size_t n, const char **prompt, const uint8_t **marks) {
    *prompt = "";
    *marks = NULL;
    if (!m->tokenizer) return error_set(&m->err, PLUMB_ERROR_STATE, "the vocabulary is not loaded");
    struct text source;
    PLUMB_TRY(given_source(m, &source, &m->err));
    plumb_model_info info = { 0 };
    plumb_model_get_info(m, &info);
    if (!source.data && info.has_encoder) {   /* a decoder that writes about a text knows no chats */
        return error_set(&m->err, PLUMB_ERROR_TEMPLATE, "the file has no tokenizer.chat_template");
    }
    char *bos = special_text(m->tokenizer, tokenizer_bos(m->tokenizer));
    char *eos = special_text(m->tokenizer, tokenizer_eos(m->tokenizer));
    size_t n_prompt = 0;
    plumb_status status = PLUMB_ERROR_MEMORY;
    free(m->prompt);
    m->prompt = NULL;
    if (bos && eos) {
        const struct chat_template t = { .source = chat_source(source), .bos = text_of(bos),
                                         .eos = text_of(eos), .now = local_time(), .tells_tools = true };
        status = template_render(&t, json, n, true, TEMPLATE_LIMITS, &m->prompt, &n_prompt, &m->err);
    } else {
        error_set(&m->err, status, "out of memory: the texts of BOS and EOS");
    }
    free(bos);
    free(eos);
    if (status != PLUMB_OK) return status;
    *prompt = m->prompt;
    *marks = (const uint8_t *)m->prompt + n_prompt + 1;
    return (int64_t)n_prompt;
}

const char *plumb_chat_stop(const plumb_model *m) {
    struct text source;
    struct error err = { PLUMB_OK, "" };
    return m->tokenizer && given_source(m, &source, &err) == PLUMB_OK ? chat_stop(chat_source(source)) : NULL;
}

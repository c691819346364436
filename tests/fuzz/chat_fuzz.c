/* Any chat template and any messages, and the resulting text as a stream of characters.
 *
 *   cut | add assistant | template | messages, each after a zero byte: role, content
 *
 * The first byte of a message selects its role.  The messages are formatted or refused with an error message.  The text
 * does not depend on the buffer size, stays inside the buffer, and contains the messages of users and assistants in
 * order.  As a stream it gives the same characters however it is cut.
 */
#include "tokenizer/tokenizer.h"
#include "fuzz.h"

enum { MAX_MESSAGES = 16 };

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Finds the text, without white space at its ends, in s; NULL if it is not there. */
static const char *find_content(const char *s, const char *end, const char *text) {
    while (is_space(*text)) text++;
    size_t n = strlen(text);
    while (n > 0 && is_space(text[n - 1])) n--;
    for (; (size_t)(end - s) >= n; s++) {
        if (memcmp(s, text, n) == 0) return s + n;
    }
    return NULL;
}

/* Pushes the text in pieces whose length depends on cut, and appends the output; returns its bytes. */
static size_t stream(const char *text, size_t n, uint32_t cut, char *out) {
    plumb_text state = {{0}, 0};
    size_t n_out = 0, cap = 3 * n + 12;
    for (size_t at = 0, piece; at < n; at += piece) {
        cut = cut * 1664525u + 1013904223u;
        piece = cut % 256 == 0 ? n - at : 1 + (cut >> 24) % 9;
        if (piece > n - at) piece = n - at;
        char *exact = malloc(3 * piece + 12);
        require(exact != NULL, "no memory");
        size_t got = plumb_text_push(&state, text + at, piece, exact, 3 * piece + 12);
        require(got <= 3 * piece + 12 && got <= cap - n_out, "more characters than there is room for");
        memcpy(out + n_out, exact, got);
        n_out += got;
        free(exact);
    }
    char rest[12];
    size_t got = plumb_text_flush(&state, rest, sizeof rest);
    require(got <= 12 && got <= cap - n_out, "more characters than there is room for");
    memcpy(out + n_out, rest, got);
    return n_out + got;
}

static void check_stream(const char *text, size_t n, uint32_t cut) {
    char *whole = malloc(3 * n + 12), *pieces = malloc(3 * n + 12);
    require(whole != NULL && pieces != NULL, "no memory");
    size_t n_whole = stream(text, n, 0, whole), n_pieces = stream(text, n, cut, pieces);
    require(n_whole == n_pieces && memcmp(whole, pieces, n_whole) == 0, "the cuts change the characters");
    free(whole);
    free(pieces);
}

static void check(const struct gguf_string *chat_template, const plumb_message *messages, size_t n, bool add_assistant,
                  uint32_t cut) {
    struct error err = {PLUMB_OK, ""};
    int64_t length = chat_format(chat_template, messages, n, add_assistant, NULL, 0, &err);
    require((length < 0) == (err.status != PLUMB_OK) && (length < 0) == (err.message[0] != 0),
            "a failure without a sentence, or a sentence without a failure");
    if (length < 0) {
        require(length == PLUMB_ERROR_TEMPLATE || length == PLUMB_ERROR_ARGUMENT, "another failure");
        return;
    }
    char *all = malloc((size_t)length + 1), *some = malloc((size_t)length / 2 + 1);
    require(all != NULL && some != NULL, "no memory");
    size_t half = (size_t)length / 2;
    require(chat_format(chat_template, messages, n, add_assistant, all, (size_t)length, &err) == length
            && chat_format(chat_template, messages, n, add_assistant, some, half, &err) == length,
            "the length depends on cap");
    require(memcmp(all, some, half) == 0, "the text depends on cap");
    const char *at = all;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(messages[i].role, "system") == 0) continue;
        at = find_content(at, all + length, messages[i].content);
        require(at != NULL, "a message is not in the text");
    }
    check_stream(all, (size_t)length, cut);
    free(all);
    free(some);
}

/* The next bytes up to a zero or the end, in a block of exactly their size plus a final 0. */
static char *take(const uint8_t **data, size_t *size) {
    const uint8_t *end = *size > 0 ? memchr(*data, 0, *size) : NULL;
    size_t n = end ? (size_t)(end - *data) : *size;
    char *text = malloc(n + 1);
    require(text != NULL, "no memory");
    if (n > 0) memcpy(text, *data, n);
    text[n] = 0;
    if (end) n++;
    *data += n;
    *size -= n;
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const roles[] = {"system", "user", "assistant", "tool", ""};
    if (size < 2 || size > 1 << 16) return 0;
    uint32_t cut = data[0];
    bool add_assistant = data[1] & 1;
    data += 2;
    size -= 2;
    char *texts[MAX_MESSAGES + 1];
    plumb_message messages[MAX_MESSAGES];
    size_t n = 0;
    texts[0] = take(&data, &size);
    struct gguf_string chat_template = {texts[0], strlen(texts[0])};
    for (; size > 0 && n < MAX_MESSAGES; n++) {
        char *text = texts[n + 1] = take(&data, &size);
        unsigned role = (uint8_t)text[0] % 16;   /* mostly known roles */
        messages[n] = (plumb_message){roles[role < 13 ? role % 3 : role == 13 ? 3 : 4], text[0] ? text + 1 : text};
    }
    check(&chat_template, messages, n, add_assistant, cut);
    check(NULL, messages, n, add_assistant, cut);
    check_stream(texts[0], (size_t)chat_template.n, cut);
    for (size_t i = 0; i <= n; i++) free(texts[i]);
    return 0;
}

/* Any chat template and any variables, and the resulting text as a stream of characters.
 *
 *   cut | flags | template, a zero byte, JSON
 *
 * Bit 0 of the flags: the messages are adapted to the template.  The text is made or refused with an error message
 * within small limits.  It is the same the second time.  As a stream it gives the same characters however it is cut.
 */
#include "template/template.h"
#include "fuzz.h"

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

static plumb_status render(struct text source, struct text json, bool is_chat, char **text, size_t *n) {
    struct chat_template t = {.source = source, .bos = text_of("<s>"), .eos = text_of("</s>"), .now = 1784980800,
                              .tells_tools = true};
    struct template_limits limits = {1u << 22, 1u << 22};
    struct error err = {PLUMB_OK, ""};
    plumb_status status = template_render(&t, json.data, json.n, is_chat, limits, text, n, &err);
    bool ok = status == PLUMB_OK;
    require(status == err.status && ok == (err.message[0] == 0) && ok == (*text != NULL),
            "a failure without a sentence, or a sentence without a failure");
    require(status == PLUMB_OK || status == PLUMB_ERROR_TEMPLATE || status == PLUMB_ERROR_ARGUMENT, "another failure");
    return status;
}

/* A block of exactly the size of the text. */
static struct text copy(const uint8_t *data, size_t n) {
    char *block = malloc(n);
    require(block != NULL || n == 0, "no memory");
    if (n > 0) memcpy(block, data, n);
    return (struct text){block, n, 0};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2 || size > 1 << 16) return 0;
    const uint8_t *end = memchr(data + 2, 0, size - 2);
    size_t n = end ? (size_t)(end - data) - 2 : size - 2;
    struct text source = copy(data + 2, n), json = end ? copy(end + 1, size - n - 3) : copy((const uint8_t *)"{}", 2);
    char *text, *again;
    size_t n_text, n_again;
    if (render(source, json, data[1] & 1, &text, &n_text) == PLUMB_OK) {
        require(render(source, json, data[1] & 1, &again, &n_again) == PLUMB_OK && n_again == n_text
                && memcmp(text, again, n_text) == 0, "the second text is another");
        check_stream(text, n_text, data[0]);
        free(again);
    }
    free(text);
    check_stream(source.data, source.n, data[0]);
    free((void *)(uintptr_t)source.data);
    free((void *)(uintptr_t)json.data);
    return 0;
}

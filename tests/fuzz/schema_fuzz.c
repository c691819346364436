/* The first byte has options of the JSON Schema compiler, the next four the seed of a text, the rest is a schema.
 *
 * A grammar that comes out is parsed without a mistake.  Texts that follow it at random are JSON if they end. */
#include "base/json.h"
#include "grammar/recognizer.h"

#include "../grammar_make.h"
#include "fuzz.h"

enum { MAX_TEXT = 400 };

/* Follows the grammar at random.  Near the limit it takes closing brackets where they are allowed. */
static void check_text(struct recognizer *r, uint32_t random) {
    static char text[MAX_TEXT];
    struct position position;
    if (position_init(&position, r) != PLUMB_OK) return;
    uint32_t state = position_state(&position);
    size_t n = 0;
    while (n < MAX_TEXT) {
        uint64_t allowed[4];
        unsigned bytes[256], n_byte = 0;
        recognizer_bytes(r, state, allowed);
        for (unsigned b = 0; b < 256; b++) {
            if (bytes_have(allowed, b)) bytes[n_byte++] = b;
        }
        random = random * 1664525 + 1013904223;
        bool may_end = state_has(r, state, STATE_MAY_END);
        require(n_byte > 0 || may_end, "a dead end");
        if (may_end && (n_byte == 0 || n > 20 || random >> 30 == 0)) {
            struct error err = {PLUMB_OK, ""};
            struct json j;
            json_begin(&j, text, n, &err);
            j.max_depth = 63;
            json_skip(&j);
            plumb_status status = json_end(&j);
            require(status == PLUMB_OK || strstr(err.message, "levels") != NULL, err.message);
            break;
        }
        unsigned byte = bytes[(random >> 8) % n_byte];
        static const char closing[] = "\"]}";
        for (int i = 0; i < 3; i++) {
            if (n > MAX_TEXT / 4 && bytes_have(allowed, (uint8_t)closing[i])) byte = (uint8_t)closing[i];
        }
        text[n++] = (char)byte;
        if (recognizer_step(r, state, (uint8_t)byte, &state) != PLUMB_OK) break;
    }
    position_free(&position);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 5 || size > 4096) return 0;
    static const uint32_t drafts[] = {0, 4, 7, 2020};
    const struct json_schema_options options = {
        .lenient = data[0] & 1, .any_order = data[0] & 2, .closed = data[0] & 4, .format_is_note = data[0] & 8,
        .space = (plumb_json_space)((data[0] >> 4 & 3) % 3), .draft = drafts[data[0] >> 6]};
    uint32_t seed;
    memcpy(&seed, data + 1, 4);
    struct grammar_text warnings = {0};
    struct error err = {PLUMB_OK, ""};
    struct grammar *g = NULL;
    struct recognizer *r = NULL;
    struct rules *b = rules_create(&err);
    require(b != NULL, err.message);
    plumb_status status = rules_add_schema(b, (const char *)data + 5, size - 5, &options, &warnings);
    require(status == PLUMB_OK || err.message[0] != 0, "an error without a message");
    const bool is_valid = status == PLUMB_OK;
    status = make_of_rules(&g, b, status);
    require(!is_valid || status != PLUMB_ERROR_ARGUMENT, err.message);
    if (status == PLUMB_OK && recognizer_create(&r, g, &err) == PLUMB_OK) {
        for (uint32_t i = 0; i < 3; i++) check_text(r, seed + i);
    }
    recognizer_free(r);
    grammar_free(g);
    grammar_text_free(&warnings);
    return 0;
}

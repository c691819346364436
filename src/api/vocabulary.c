/* The vocabulary of a plumb_model, as grammars see it. */
#include "api/grammar.h"
#include "api/model.h"

static int64_t piece(void *user, int32_t id, bool special, char *buf, size_t cap) {
    const plumb_model *model = user;
    return tokenizer_piece(model->tokenizer, id, special, buf, cap);
}

static bool is_eog(void *user, int32_t id) {
    const plumb_model *model = user;
    return tokenizer_is_eog(model->tokenizer, id);
}

static int32_t find_token(void *user, const char *text, size_t n) {
    plumb_model *model = user;
    struct error ignored;
    int32_t id;
    int64_t count = tokenizer_encode(model->tokenizer, text, n, PLUMB_PARSE_SPECIAL, &id, 1, &ignored);
    return count == 1 ? id : -1;
}

plumb_grammar *plumb_grammar_create(plumb_model *model) {
    if (!model) return grammar_create(NULL);
    model->vocabulary = (struct vocabulary){
        .n_vocab = model->tokenizer ? tokenizer_n_vocab(model->tokenizer) : 0,
        .find = find_token, .piece = piece, .is_eog = is_eog, .user = model, .pieces = model->vocabulary.pieces,
    };
    return grammar_create(&model->vocabulary);
}

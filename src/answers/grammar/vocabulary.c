/* The vocabulary of a plumb_model, as grammars see it. */
#include "api/model.h"
#include "grammar/recognizer.h"

#include <stdlib.h>

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

static void free_vocabulary(void *vocabulary) {
    struct vocabulary *v = vocabulary;
    pieces_free(v->pieces);
    free(v);
}

plumb_grammar *plumb_grammar_create(plumb_model *model) {
    if (!model) return grammar_create(NULL);
    struct vocabulary *v = model->vocabulary;
    if (!v) v = calloc(1, sizeof *v);
    if (!v) return NULL;
    *v = (struct vocabulary){
        .n_vocab = model->tokenizer ? tokenizer_n_vocab(model->tokenizer) : 0,
        .find = find_token, .piece = piece, .is_eog = is_eog, .user = model, .pieces = v->pieces,
    };
    model->vocabulary = v;
    model->free_vocabulary = free_vocabulary;
    return grammar_create(v);
}

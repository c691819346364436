/* The fields of plumb_model, for the files that implement plumb.h and plumb_truth.h. */
#ifndef PLUMB_API_MODEL_H
#define PLUMB_API_MODEL_H

#include "gguf/gguf.h"
#include "kernels/kernels.h"
#include "model/adapter.h"
#include "model/model.h"
#include "repack/repack.h"
#include "tokenizer/tokenizer.h"

struct plumb_model {
    struct error err;
    struct gguf **parts;           /* (n_part) one for each file of a split model; the last one is being read */
    size_t n_part;
    struct repacker repacker;      /* repacks the weights of the part that is being read */
    bool headers_only;             /* plumb_model_headers_only was called */
    uint8_t *ring;                 /* the zeros that plumb_model_rehearse uses as weights; NULL: none */
    uint64_t bytes_before;         /* bytes of the current file that arrived before the last plumb_model_begin */
    struct tokenizer *tokenizer;   /* NULL before plumb_model_load_vocab */
    char *prompt;                  /* the last one of plumb_chat_render */
    char *chat_template;           /* of plumb_chat_use_template, n_chat_template bytes; NULL: the file's */
    size_t n_chat_template;
    void *vocabulary;              /* what grammars keep of the tokenizer; NULL: nothing */
    void (*free_vocabulary)(void *vocabulary);
    struct model *model;           /* NULL before plumb_model_end or plumb_model_rehearse */
    struct kernel_speeds speeds;   /* shared by all sessions; measured while the weights arrive */
    _Atomic uint64_t digest;       /* what saved sessions know the model by; 0: not computed yet */
    uint64_t measured_at;          /* byte of the current file at the last measurement; 0: none yet */
};

struct plumb_adapter {
    struct error err;
    plumb_model *model;
    struct gguf *file;             /* the reader until plumb_adapter_end, then NULL */
    struct adapter *adapter;       /* NULL before it */
};

/* The model that the session was created with. */
const plumb_model *session_model(const plumb_session *session);

#endif

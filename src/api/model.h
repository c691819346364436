/* The inside of plumb_model, for the api room only. */
#ifndef PLUMB_API_MODEL_H
#define PLUMB_API_MODEL_H

#include "gguf/gguf.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "repack/repack.h"
#include "tokenizer/tokenizer.h"

struct plumb_model {
    struct error err;
    struct gguf **parts;           /* (n_part) one for each file of a split model */
    size_t n_part;
    struct repacker repacker;      /* of the part that is being read */
    bool headers_only;             /* plumb_model_headers_only was called */
    uint8_t *ring;                 /* made-up weights of plumb_model_rehearse */
    uint64_t bytes_before;         /* of the current gguf's bytes, those that earlier begin calls delivered */
    struct tokenizer *tokenizer;   /* after plumb_model_load_vocab */
    struct model *model;           /* after plumb_model_end */
    struct kernel_speeds speeds;   /* for all sessions; measured while the weights are on their way, */
    uint64_t measured_at;          /* the last time at this byte of the current file */
};

/* The model that a session runs. */
const plumb_model *session_model(const plumb_session *session);

#endif

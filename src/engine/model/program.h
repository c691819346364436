/* The program of a layer: a short list of steps that read and write streams.  program.c makes it of the plan and of the
 * weights that the file has; the fast pass and the reference pass each are a loop over it.
 *
 * A layer of Llama is, with h a scratch stream:
 *
 *   h = norm(attn_norm, x)      tap attn_norm
 *   h = attention(h)
 *   x += h                      tap ffn_inp
 *   h = norm(ffn_norm, x)       tap ffn_norm
 *   h = feed_forward(h)
 *   x += h                      tap l_out
 */
#ifndef PLUMB_MODEL_PROGRAM_H
#define PLUMB_MODEL_PROGRAM_H

#include "model/plan.h"
#include "model/tap.h"

struct affine;

/* Each is (n_token, n_embd). */
enum stream {
    STREAM_X,        /* the residual stream */
    STREAM_H,        /* what is computed of x, before it is added to x */
    STREAM_INPUT,    /* the input of the layer, or its norm */
    STREAM_EMBD,     /* the embeddings */
    STREAM_LOW, STREAM_HIGH,   /* the states of HRM */
    STREAM_COUNT
};

enum step_kind {
    STEP_NORM,           /* out = norm(weight, in) */
    STEP_NORM_OUTPUT,    /* out = norm(output_norm, in) */
    STEP_COPY,           /* out = in */
    STEP_ADD,            /* out += in */
    STEP_ADD_RESIDUAL,   /* out += in * residual_scale, where in is the output of attention or feed forward; weight:
                          * W_ATTN_OUTPUT or W_FFN_DOWN, whichever it is */
    STEP_ADD_SCALED,     /* out += in * weight[0] */
    STEP_ADD_STATES,     /* out = low + high */
    STEP_ATTENTION,      /* out = attention(in) */
    STEP_FEED_FORWARD,   /* out = feed_forward(in) */
    STEP_ROUTER,         /* chooses the experts by in */
    STEP_EXPERTS,        /* keeps the sum of the experts for in, of which STEP_SHARED makes out */
    STEP_SHARED,         /* out = that sum and the output of the expert that every token uses, for in */
    STEP_KINDS
};

/* tap: shows out after the step; TAP_COUNT: none does.  Steps have further taps inside. */
struct step {
    enum step_kind kind;
    enum stream in, out;
    enum weight_id weight;
    enum tap_id tap;
};

enum { PROGRAM_MAX_STEPS = 24 };

struct program { struct step steps[PROGRAM_MAX_STEPS]; uint32_t n; };

/* The program of layer il with the weights w (W_LAYER_COUNT): steps whose weights the file lacks are left out. */
struct program program_of(const struct plan *p, uint32_t il, const struct affine *w);
/* Whether a step reads or writes the stream. */
bool program_uses(const struct program *program, enum stream stream);

/* Whether the layer has this norm: its weight, or a norm without a weight. */
bool program_has_norm(const struct plan *p, uint32_t il, const struct affine *w, enum weight_id weight);

#endif

/* A view of a dump: the taps that can be compared, numbered as the model numbers its layers, and remarks on everything
 * else.  The dump itself stays as it is.
 *
 *   view_begin -> view_shift, if its layers count from 1 -> view_fit, if there is a model -> view_check_values
 */
#ifndef PLUMB_TRACE_VIEW_H
#define PLUMB_TRACE_VIEW_H

#include "model/model.h"
#include "trace/trace.h"

struct trace_view {
    struct plumb_trace t;       /* owns its list of taps and its remarks, and borrows everything else */
    struct trace_row *logits;   /* rows of result_output without padding; NULL: they are the dump's own */
    void **owned;               /* (n_owned) rows and values of view_exchange_axes */
    size_t n_owned, cap;
};

/* Sets *v to all of t, which must outlive it.  Release it with view_free, also after a failure.  The only possible
 * failure of this and of the functions below is PLUMB_ERROR_MEMORY. */
plumb_status view_begin(struct trace_view *v, const struct plumb_trace *t, struct error *err);
void view_free(struct trace_view *v);

/* How the layers of a dump are numbered.  A dump that has layer n_layer, but not layer 0, counts from 1.  One that has
 * neither may count in both ways (VIEW_UNSURE). */
enum view_numbering { VIEW_FROM_0, VIEW_FROM_1, VIEW_UNSURE };
enum view_numbering view_numbering(const struct plumb_trace *t, const struct model *m);
/* Lowers the number of each layer by 1 and says so in a remark.  No tap may be in layer 0. */
plumb_status view_shift(struct trace_view *v, struct error *err);
/* Reads the taps of a set (TAP_SET) in the other order of their axes: the heads become tokens and the tokens heads.
 * Leaves alone those that do not have as many whole rows as heads. */
plumb_status view_exchange_axes(struct trace_view *v, id_set set, struct error *err);
/* Drops taps in layers that the model does not have, taps of another length, and padding of logits.  Adds remarks on
 * these, on steps that the model does not have, on ids that are out of range and on rows of further tokens. */
plumb_status view_fit(struct trace_view *v, const struct model *m, struct error *err);
/* Adds a remark on token ids among the likeliest that the vocabulary of n_vocab tokens does not have. */
plumb_status view_check_vocabulary(struct trace_view *v, uint32_t n_vocab, struct error *err);
/* Adds a remark on the first value that is not finite, in the order of the computation, and on the first token or head
 * that is all zeros.  m: NULL, or the model, which then says how many heads and which inputs a tap has. */
plumb_status view_check_values(struct trace_view *v, const struct model *m, struct error *err);

/* The first value that is not finite, in the order of the computation.  A logit of -infinity counts as finite, because
 * models and samplers exclude tokens with it. */
struct view_not_finite {
    const struct trace_tap *tap;   /* NULL: all values are finite */
    const struct trace_row *row;
    bool has_place, has_head;      /* has_place is false if only the row's statistics say so */
    uint32_t head, element;
    float value;
    size_t n_tap;                  /* how many taps have such values */
};
/* m as above. */
struct view_not_finite view_not_finite(const struct trace_view *v, const struct model *m);

/* Returns the number of elements in a row of a tap of the model, in the form that traces have: kq_soft_max has a key
 * for each of n_token tokens.  0: the layer does not have the tap. */
uint64_t view_row_size(const struct model *m, enum tap_id id, int32_t layer, uint32_t n_token);

#endif

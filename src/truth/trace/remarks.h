/* What a report says about a dump besides its numbers: which records were left out and why, and what about the others
 * had to be assumed or is odd.  The readers of files add remarks while they read; view.h adds those that need a
 * model.  A dump may give any number of reasons, so only the first few of each kind are kept, and the others counted.
 */
#ifndef PLUMB_TRACE_REMARKS_H
#define PLUMB_TRACE_REMARKS_H

#include "trace/report.h"

enum remark_kind {
    /* Records that were left out: see remark_ignores. */
    REMARK_UNKNOWN,       /* no tap has their name */
    REMARK_SECOND,        /* the tap is there already, under another name */
    REMARK_FORM,          /* they lack something, or contradict themselves or other records */
    REMARK_LAYER,         /* the model does not have the layer */
    REMARK_LENGTH,        /* the tap has another length in this model */
    /* Records that were used. */
    REMARK_ABSENT,        /* the model does not have the step, unless it has a mistake */
    REMARK_AXES,          /* the file does not say which axis is which */
    REMARK_SHIFTED,       /* layers were counted from 1 */
    REMARK_PADDING,       /* padded keys or logits were dropped */
    REMARK_RANGE,         /* the id of a token or expert that the model does not have */
    REMARK_TOKENS,        /* rows of tokens that are not listed */
    REMARK_NOT_FINITE,    /* NaN or infinity */
    REMARK_ZEROS,         /* tokens or heads of zeros */
    REMARK_COUNT
};

enum { REMARKS_KEPT = 16 };   /* of each kind */

struct remark {
    enum remark_kind kind;
    char name[68];            /* the tap, or what the file calls the record, of which at most 64 bytes are shown */
    char text[280];           /* one sentence without its full stop, to be written after the name and a colon */
};

struct remarks {
    uint32_t n_of[REMARK_COUNT];   /* how many there are, also of those that are not kept */
    size_t n, cap;
    struct remark *list;           /* (n) those that are kept, in the order in which they were added */
};

static inline bool remark_ignores(enum remark_kind kind) { return kind < REMARK_ABSENT; }
/* Returns "unknown_name", "length"...: the names in reports (docs/diagnose.md). */
const char *remark_kind_name(enum remark_kind kind);

/* Adds a remark with a printf-like text.  n: bytes of the name, which may be of any length and need not be UTF-8.  The
 * only possible failure is PLUMB_ERROR_MEMORY. */
PRINTF_LIKE(6, 7)
plumb_status remarks_add(struct remarks *r, struct error *err, enum remark_kind kind, const char *name, size_t n,
                         const char *format, ...);
/* Sets *out, which must be empty, to a copy. */
plumb_status remarks_copy(struct remarks *out, const struct remarks *r, struct error *err);
void remarks_free(struct remarks *r);
/* Returns how many records were left out. */
uint32_t remarks_n_ignored(const struct remarks *r);
/* Returns the first remark on a record that was left out; NULL if there is none. */
const struct remark *remarks_first_ignored(const struct remarks *r);

/* Writes lines of at most 80 columns, each indented by three spaces; nothing if there are no remarks. */
void remarks_text(const struct remarks *r, struct report_writer *w);
/* Writes an array of {"kind", "name", "text", "ignored"}. */
void remarks_json(const struct remarks *r, struct report_writer *w);

#endif

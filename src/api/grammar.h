/* How the rest of the library makes a plumb_grammar. */
#ifndef PLUMB_API_GRAMMAR_H
#define PLUMB_API_GRAMMAR_H

#include "grammar/grammar.h"

/* v must outlive the grammar, and the caller frees its pieces.  NULL: the grammar has no tokens.  Returns NULL if there
 * is no memory. */
plumb_grammar *grammar_create(struct vocabulary *v);

#endif

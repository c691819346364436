/* How a vocabulary is copied from the engine's module to the module of grammars: for token i its text is
 * texts[ends[i - 1] .. ends[i]), where ends[-1] stands for 0, and kinds[i] is a sum of these. */
#ifndef PLUMB_WASM_VOCABULARY_H
#define PLUMB_WASM_VOCABULARY_H

enum { KIND_CONTROL = 1, KIND_EOG = 2 };   /* the text is only a name; the token ends a turn */

#endif

/* Runs the tree of a template. */
#ifndef PLUMB_TEMPLATE_EVALUATE_H
#define PLUMB_TEMPLATE_EVALUATE_H

#include "template/tree.h"

/* Variables by name.  A name that is not in a scope is looked for in its parent. */
struct scope { struct object variables; struct scope *parent; };

/* Writes what the template prints with the variables. */
void template_evaluate(struct render *r, struct scope *variables, struct nodes statements, struct output *out);

#endif

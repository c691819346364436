/* Regular expressions -> trees.  Private to the files of regular.h. */
#ifndef PLUMB_GRAMMAR_REGEX_H
#define PLUMB_GRAMMAR_REGEX_H

#include "grammar/language.h"

/* As language_regex.  named, unless it is NULL, gives the language of (?&NAME), which the expressions of formats use to
 * refer to each other. */
const struct language *regex_language(struct languages *all, const char *regex, size_t n, enum regex_match match,
                                      const struct language *(*named)(struct languages *all, const char *name,
                                                                      size_t n));

#endif

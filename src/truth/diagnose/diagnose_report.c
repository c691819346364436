/* Writes a diagnosis as text for a terminal, and as JSON (docs/diagnose.md). */
#include "diagnose/diagnose.h"

#include <math.h>

/* ---- what is said about a set ------------------------------------------------------------------------------------ */

/* Returns true if set i has as many known mistakes as the first set, and the same score: this dump cannot tell the two
 * apart. */
static bool is_tied(const struct diagnosis *d, size_t i) {
    const struct outcome *first = &d->ranked[0], *o = &d->ranked[i];
    return i > 0 && o->n_known == first->n_known && fabs(o->score - first->score) < 1e-6;
}

static const char *tap_name(struct tap_text *buf, const struct diagnosis *d, size_t i) {
    return tap_show(buf, d->theirs->taps[i].id, d->theirs->taps[i].layer);
}

/* Prints "rope.pairing=halves + ffn.act=gelu". */
static void print_set(struct report_writer *w, const struct outcome *o) {
    for (uint32_t k = 0; k < o->n_known; k++) report_printf(w, "%s%s", k > 0 ? " + " : "", o->known[k]->name);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* Prints "cosine 0.612".  A cosine within 0.005 of 1 gets more digits: "cosine 0.9999900". */
static void print_cosine(struct report_writer *w, double cosine) {
    if (isnan(cosine)) report_printf(w, "no cosine");
    else report_printf(w, fabs(1 - cosine) < 0.005 ? "cosine %.7f" : "cosine %.3f", cosine);
}

/* Prints the cosine and the error of tap i without a known mistake (base) and with it (o). */
static void print_evidence(struct report_writer *w, const struct diagnosis *d, size_t i, const struct outcome *base,
                           const struct outcome *o) {
    const char *without = base->n_known == 0 ? "the truth" : base->n_known == 1 ? "the other mistake alone"
                                                                                : "the other mistakes alone";
    struct tap_text name;
    report_printf(w, "   their %s (%s): ", tap_name(&name, d, i), tap_title(d->theirs->taps[i].id));
    print_cosine(w, base->cosine[i]);
    report_printf(w, ", error %.2g against %s; ", base->error[i], without);
    print_cosine(w, o->cosine[i]);
    report_printf(w, ", error %.2g with it\n", o->error[i]);
}

/* Prints the ranked set `at`, how well it explains the dump, and the evidence for each of its known mistakes. */
static void print_explanation(struct report_writer *w, const struct diagnosis *d, size_t at) {
    const struct outcome *o = &d->ranked[at];
    struct tap_text name;
    report_printf(w, "\n%zu. ", at + 1);
    print_set(w, o);
    if (o->n_known == 1) report_printf(w, ": %s", o->known[0]->text);
    if (at == 0 && d->is_outdone) {
        report_printf(w, "\n   is near in all %zu taps, but not exact; largest relative error %.2g\n",
                      diagnose_n_compared(d), diagnose_largest(d, o));
    } else if (diagnose_explains(d, o)) {
        report_printf(w, "\n   explains all %zu taps; largest relative error %.2g\n", diagnose_n_compared(d),
                      diagnose_largest(d, o));
    } else {
        size_t over = diagnose_first(d, o);
        report_printf(w, "\n   diverges again at %s: relative error %.2g\n", tap_name(&name, d, over), o->error[over]);
    }
    for (uint32_t k = 0; k < o->n_known; k++) {
        const struct outcome *base = diagnose_without(d, o, k);
        size_t i = base ? diagnose_evidence(d, base, o) : SIZE_MAX;
        if (o->n_known > 1) report_printf(w, "   %s: %s\n", o->known[k]->name, o->known[k]->text);
        if (i != SIZE_MAX) print_evidence(w, d, i, base, o);
    }
}

/* Prints what tap `at`, the first wrong step, is computed from, the last step before it that agrees, and experiments
 * that narrow the fault down. */
static void print_first_wrong_step(struct report_writer *w, const struct diagnosis *d, const struct outcome *o,
                                   size_t at) {
    const struct trace_tap *tap = &d->theirs->taps[at];
    const char *weights = tap_weights(tap->id);
    struct tap_text name;
    struct tap_inputs_text inputs;
    id_set feeds = model_tap_inputs(d->model, tap->id, tap->layer);
    report_printf(w, "   it is computed from %s", tap_show_inputs(&inputs, tap->id, feeds));
    if (*weights) report_printf(w, " with the weights %s", weights);
    report_printf(w, "\n");
    for (size_t i = at; i-- > 0;) {   /* finds the last tap that agrees */
        if (isnan(o->error[i]) || diagnose_is_over(d, o, i)) continue;
        report_printf(w, "   the last step before it that agrees is %s\n", tap_name(&name, d, i));
        break;
    }
    report_printf(w, "   to narrow it down:\n");
    if (diagnose_inputs_known(d, at)) {
        report_printf(w, "   - its inputs are all theirs, so the fault is in this step:\n     "
                      "plumb diff shows where in it the difference is largest\n");
    } else {
        report_printf(w, "   - dump all values of more of the steps before it: every step is then judged from its own "
                      "input\n");
    }
    if (*weights) {
        report_printf(w, "   - compare your weights with this file: write yours as a GGUF or dump a row; plumb weights "
                      "compares two files\n   - run an F32 or F16 file of the model: if the error disappears, the "
                      "dequantizer is wrong\n");
    }
    bool is_after = tap->id >= TAP_QCUR_ROPE || tap->layer > 0;   /* RoPE or attention may be the cause */
    if (is_after && (!diagnose_inputs_known(d, at) || (tap->id >= TAP_QCUR_ROPE && tap->id <= TAP_KQV_OUT))) {
        report_printf(w, "   - feed one token: at position 0 RoPE rotates nothing and attention returns V; if it still "
                      "diverges, the cause is neither\n   - feed the prompt at once, then token by token: if only "
                      "one of them diverges, the cause is the cache or the positions\n");
    }
}

/* Returns true if this layer diverges from base, but not from `with`.  with NULL: base alone decides. */
static bool is_local(const struct diagnosis *d, const struct outcome *base, const struct outcome *with, int32_t layer) {
    return diagnose_diverges(d, base, layer) && !(with && diagnose_diverges(d, with, layer));
}

/* Prints "layer 7" or "layers 7, 10-29": the layers whose flag is set.  There must be one. */
static void print_flagged(struct report_writer *w, const uint8_t *is_in, int32_t n_layer) {
    int32_t n = 0;
    for (int32_t il = 0; il < n_layer; il++) n += is_in[il];
    report_printf(w, n > 1 ? "layers " : "layer ");
    report_ranges(w, is_in, (size_t)n_layer, 1);
}

/* The layers that a trace can have taps of. */
static int32_t count_layers(const struct diagnosis *d) {
    int32_t n_layer = (int32_t)d->model->plan.n_layer;
    return n_layer < TAP_MAX_LAYER ? n_layer : TAP_MAX_LAYER;
}

/* Prints the layers for which is_local is true.  There must be one. */
static void print_layers(struct report_writer *w, const struct diagnosis *d, const struct outcome *base,
                         const struct outcome *with) {
    uint8_t is_in[TAP_MAX_LAYER];
    for (int32_t il = 0; il < count_layers(d); il++) is_in[il] = is_local(d, base, with, il);
    print_flagged(w, is_in, count_layers(d));
}

/* ---- what was measured ------------------------------------------------------------------------------------------- */

/* Prints "their attn_norm-0 is x: the norm is skipped". */
static void print_sentence(struct report_writer *w, const struct fit *f, const struct finding *finding) {
    struct tap_text name;
    enum tap_id id = f->is_supposed ? finding->step : f->id;
    report_printf(w, "their %s %s", tap_show(&name, id, f->layer), finding->sentence);
    if (*finding->where) report_printf(w, ", %s", finding->where);
}

/* Prints which further tap would tell the tied findings apart, and how to dump it. */
static void print_further(struct report_writer *w, const struct diagnosis *d, const struct fit *f) {
    struct tap_text buf;
    int32_t layer = d->theirs->taps[diagnose_first(d, &d->truth)].layer;
    const char *name = tap_show(&buf, f->further, layer < 0 ? 0 : layer);
    report_printf(w, "   8 values of %s (%s) would tell %u groups of them apart; for each token t and "
                  "its row x:\n", name, tap_title(f->further), f->n_apart);
    report_printf(w, "      Python:  taps.append({\"name\": \"%s\", \"token\": t, \"shape\": [%u, %u],\n"
                  "                            \"values\": x.flatten()[:8].tolist()})\n", name, f->further_shape[0],
                  f->further_shape[1]);
    report_printf(w, "      C:       printf(\"{\\\"name\\\": \\\"%s\\\", \\\"token\\\": %%d, "
                  "\\\"shape\\\": [%u, %u], \\\"values\\\": [%%.9g\", t, x[0]);\n"
                  "               for (int i = 1; i < 8; i++) printf(\", %%.9g\", x[i]);\n"
                  "               printf(\"]},\\n\");\n", name, f->further_shape[0], f->further_shape[1]);
}

/* Prints the finding of a step with its evidence, the findings that are tied with it, and the layers in which the same
 * step is wrong. */
static void print_finding(struct report_writer *w, const struct diagnosis *d, const struct fit *f) {
    for (uint32_t i = 0; i < f->n_clear; i++) {
        const struct finding *finding = &f->findings[i];
        if (i > 0) report_printf(w, "\n   or ");
        print_sentence(w, f, finding);
        report_printf(w, " (error %.2g; of the right step %.2g)", finding->error, finding->right_error);
    }
    if (f->n_clear > 1) report_printf(w, ": this dump cannot tell them apart");
    report_printf(w, "\n");
    if (f->n_apart > 0) print_further(w, d, f);
    uint8_t is_in[TAP_MAX_LAYER];
    int32_t n = 0;
    for (int32_t il = 0; il < count_layers(d) && f->layer >= 0; il++) {
        n += is_in[il] = diagnose_is_measured_in(d, f, il);
    }
    if (n == 0 || count_layers(d) == 1) return;
    report_printf(w, "   %s is wrong in ", tap_spec(f->id)->name);
    if (n == count_layers(d)) report_printf(w, "all layers");
    else print_flagged(w, is_in, count_layers(d));
    report_printf(w, "; it was %s in layer %d\n", f->is_supposed ? "found" : "measured", (int)f->layer);
}

/* Prints what was measured, as far as something fits: for a dump that a known mistake explains, or that agrees. */
static void print_clear(struct report_writer *w, const struct diagnosis *d) {
    for (uint32_t k = 0; k < d->n_measured; k++) {
        if (d->measured[k].n_clear == 0) continue;
        report_printf(w, "   measured: ");
        print_finding(w, d, &d->measured[k]);
    }
}

/* Prints what was measured of the steps from number `from` on, and what comes nearest in the first step. */
static void print_measured(struct report_writer *w, const struct diagnosis *d, uint32_t from) {
    struct tap_text name;
    for (uint32_t k = from; k < d->n_measured; k++) {
        const struct fit *f = &d->measured[k];
        if (f->n_clear > 0) {
            report_printf(w, "   measured: ");
            print_finding(w, d, f);
        } else if (from > 0) {
            report_printf(w, "   %s is wrong too, and nothing that was tried fits it\n",
                          tap_show(&name, f->id, f->layer));
        } else if (f->n_finding > 0 && k == 0) {
            report_printf(w, "   nothing that was tried fits; the nearest: ");
            print_sentence(w, f, &f->findings[0]);
            report_printf(w, " (error %.2g; of the right step %.2g)\n", f->findings[0].error,
                          f->findings[0].right_error);
        }
    }
}

/* Points out the largest error if it is 1e-4 or more: it is within the tolerance, but larger than rounding to f32 would
 * make it. */
static void print_inexact(struct report_writer *w, const struct diagnosis *d, const struct outcome *o) {
    double largest = diagnose_largest(d, o);
    size_t worst = 0, n_less = 0;
    if (largest < 1e-4) return;
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        if (o->error[i] == largest) worst = i;
        n_less += o->error[i] * 100 < largest;
    }
    struct tap_text name;
    report_printf(w, "   but not exactly: %s has an error of %.2g%s another value or form of %s\n",
                  tap_name(&name, d, worst), largest,
                  2 * n_less < diagnose_n_compared(d) ? ": the cause is rounded activations, or"
                                                      : ", 100 times that of most others: the cause is",
                  o->n_known > 0 ? "this mistake" : "that step");
}

#define BUT_NOISE "except for noise of an unknown kind"

/* Says how large the remaining errors are.  If they are over the tolerance, they count as those of rounded activations.
 * If they are not, print_inexact says the rest.  or_else: for a mistake made in some layers only, the second outcome;
 * otherwise o itself. */
static void print_noise(struct report_writer *w, const struct diagnosis *d, const struct outcome *o,
                        const struct outcome *or_else) {
    double left = diagnose_left(d, o, or_else);
    if (left <= d->tolerance) {
        if (o == or_else) print_inexact(w, d, o);
    } else if (diagnose_needs_noise(d, o, or_else)) {
        report_printf(w, "   their first products have errors of %.2g, as rounding activations to 8 bits leaves, so "
                      "errors up to\n   %.2g count as agreement; the largest is %.2g; if that engine does not round "
                      "activations, it has\n   an unknown mistake; --tolerance X allows no error above X\n",
                      diagnose_noise(d, o), diagnose_allowed(d, o), left);
    } else {
        report_printf(w, "   except for errors up to %.2g: a difference in the last bit of a sum changes how the next "
                      "sums are\n   rounded, so this noise returns where errors add up; errors up to %.2g count as "
                      "agreement\n", left, diagnose_allowed(d, o));
    }
}

/* Prints the end of the first line of a verdict, and what follows about noise. */
static void print_reproduces(struct report_writer *w, const struct diagnosis *d, const struct outcome *o,
                             const struct outcome *or_else) {
    report_printf(w, " reproduces their numbers%s\n", diagnose_needs_noise(d, o, or_else) ? " " BUT_NOISE : "");
}

/* Says which rounding was recognized.  The truth is then rounded in the same way. */
static void print_rounding(struct report_writer *w, const struct diagnosis *d) {
    const struct noise *noise = &d->noise;
    const struct { const char *text; const struct lowered *lowered; } said[] = {
        { noise->attention, &noise->of_attention }, { noise->products, &noise->of_products } };
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        if (!said[i].text) continue;
        report_printf(w, "their noise: %s\n", said[i].text);
        if (said[i].lowered->before == 0) continue;
        report_printf(w, "   with that rounding the median error of the truth falls from %.2g to %.2g; it is kept "
                      "below\n", said[i].lowered->before, said[i].lowered->after);
    }
}

/* Names the taps whose rows have nothing in common with those of the pass. */
static void print_not_compared(struct report_writer *w, const struct diagnosis *d) {
    enum { SHOWN = 6 };
    char text[SHOWN * sizeof(struct tap_text) + 120];
    size_t n = 0, n_tap = 0;
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        struct tap_text name;
        if (!isnan(d->truth.error[i]) || n_tap++ >= SHOWN) continue;
        report_append(text, sizeof text, &n, "%s%s", n_tap > 1 ? ", " : "not compared, because there is no value, "
                      "statistic or token that both sides have: ", tap_name(&name, d, i));
    }
    if (n_tap > SHOWN) report_append(text, sizeof text, &n, " and %zu more", n_tap - SHOWN);
    if (n_tap == 0) return;
    report_printf(w, "   ");
    report_wrapped(w, text, n, 3);
}

/* Prints at most 12 names of known mistakes, indented. */
static void print_names(struct report_writer *w, const struct known_mistake *const *known, size_t n) {
    for (size_t i = 0; i < n && i < 12; i++) {
        report_printf(w, "%s%s", i == 0 ? "\n      " : i % 4 == 0 ? ",\n      " : ", ", known[i]->name);
    }
    if (n > 12) report_printf(w, ",\n      and %zu more", n - 12);
    report_printf(w, "\n");
}

/* Says which known mistakes a dump that agrees does not exclude. */
static void print_hidden(struct report_writer *w, const struct diagnosis *d) {
    const struct hidden *hidden = &d->hidden;
    size_t n_shown = hidden->n_tried - hidden->n - hidden->n_without_effect;
    report_printf(w, "   %zu of the %zu known mistakes that were tried would show in this dump\n", n_shown,
                  hidden->n_tried);
    if (hidden->n > 0) report_printf(w, "   %zu would hide in its noise:", hidden->n);
    if (hidden->n > 0) print_names(w, hidden->known, hidden->n);
    if (hidden->n_without_effect > 0) report_printf(w, "   %zu would change nothing in it:", hidden->n_without_effect);
    if (hidden->n_without_effect > 0) print_names(w, hidden->without_effect, hidden->n_without_effect);
    if (hidden->n_untried == 0) return;
    report_printf(w, "   %zu more were not tried, because that would take long\n", hidden->n_untried);
}

/* Prints what theirs is, how it was read, and which rounding was recognized. */
static void print_dump(struct report_writer *w, const struct diagnosis *d) {
    const struct plumb_trace *t = d->theirs;
    report_printf(w, "theirs: ");
    const char *source = d->report->name_a ? d->report->name_a : t->source ? t->source : "a dump";
    report_text(w, source, strlen(source));
    report_printf(w, ", %u tokens (prompt of %u), %zu taps compared, %s\n", t->n_token, t->n_prompt,
                  diagnose_n_compared(d),
                  d->experiment->forced ? "with whole activations: the steps after these are computed from them"
                                        : "without whole activations: errors add up along the pass");
    remarks_text(&t->remarks, w);
    print_not_compared(w, d);
    if (d->doubt) report_printf(w, "their tokens: %s\n", d->doubt);
    print_rounding(w, d);
    if (d->experiment->permuted.taps) {
        report_printf(w, "their Qcur and Kcur have the elements of a head in transformers' order (pairs are half a "
                      "head apart); they were permuted to the GGUF's order (pairs are adjacent)\n");
    }
}

static void print_agrees(struct report_writer *w, const struct diagnosis *d, bool needs_noise) {
    report_printf(w, "verdict: agrees with the truth%s; largest relative error %.2g, tolerance %.2g\n",
                  needs_noise ? " " BUT_NOISE : "", diagnose_largest(d, &d->truth), d->tolerance);
    print_noise(w, d, &d->truth, &d->truth);
    print_hidden(w, d);
    print_clear(w, d);
}

/* Prints the verdict that their numbers are those of a set of known mistakes. */
static void print_ranked(struct report_writer *w, const struct diagnosis *d) {
    const struct outcome *best = diagnose_best(d);
    print_set(w, best);
    print_reproduces(w, d, best, best);
    print_noise(w, d, best, best);
    for (size_t i = 1; i < d->n_ranked && is_tied(d, i); i++) {
        report_printf(w, "   so does ");
        print_set(w, &d->ranked[i]);
        report_printf(w, ": this dump cannot tell them apart\n");
    }
    print_clear(w, d);
}

/* Prints the verdict that a known mistake is made in some layers only. */
static void print_local(struct report_writer *w, const struct diagnosis *d) {
    const struct local *local = &d->local;
    for (uint32_t k = 0; k < local->with->n_known; k++) {
        const struct known_mistake *q = local->with->known[k];
        report_printf(w, "%s%s%s", k > 0 ? " + " : "", q->name, q == local->known ? " in " : "");
        if (q == local->known) print_layers(w, d, local->base, local->with);
        if (q == local->known) report_printf(w, " alone");
    }
    print_reproduces(w, d, local->base, local->with);
    print_evidence(w, d, local->at, local->base, local->with);
    print_noise(w, d, local->base, local->with);
    print_clear(w, d);
}

/* Prints where the first NaN or infinity is, if that is the first wrong step. */
static void print_not_finite(struct report_writer *w, const struct diagnosis *d) {
    const struct view_not_finite *odd = &d->odd;
    struct tap_text name;
    report_printf(w, "%s first appears in %s", !odd->has_place || isnan(odd->value) ? "NaN" : "infinity",
                  tap_show(&name, odd->tap->id, odd->tap->layer));
    if (odd->row->pos == TRACE_ALL_TOKENS) report_printf(w, " (all tokens together)");
    else report_printf(w, ", token %u", odd->row->pos);
    if (odd->has_head) report_printf(w, ", head %u", odd->head);
    if (odd->has_place) report_printf(w, ", element %u", odd->element);
    report_printf(w, "; no number is near it, so no known mistake explains it\n");
}

/* Prints that no set explains theirs, which comes closest, and where it diverges. */
static void print_unexplained(struct report_writer *w, const struct diagnosis *d) {
    const struct outcome *best = diagnose_best(d);
    const struct local *local = &d->local;
    report_printf(w, "no set of up to %u known mistakes%s reproduces their numbers", d->max_known,
                  d->experiment->forced ? ", made in all layers," : "");
    if (d->n_ranked > 0) {
        report_printf(w, "; ");
        print_set(w, best);
        report_printf(w, " comes closest");
    }
    bool in_layers = false;
    for (int32_t il = 0; il < (int32_t)d->model->plan.n_layer; il++) in_layers |= diagnose_diverges(d, best, il);
    if (d->experiment->forced && in_layers) {
        report_printf(w, "\n   it diverges in ");
        print_layers(w, d, best, NULL);
    } else if (d->experiment->forced) {
        report_printf(w, "\n   it diverges only outside the layers");
    }
    if (local->known) {
        report_printf(w, "; in ");
        print_layers(w, d, local->base, local->with);
        report_printf(w, " alone %s reproduces their numbers", local->known->name);
    }
    if (d->is_cut) {
        report_printf(w, "\n   not every other mistake was tried in a layer, because that would take too long");
    }
    report_printf(w, "\n");
}

/* Prints a verdict that names no mistake, and how to go on. */
static void print_open(struct report_writer *w, const struct diagnosis *d) {
    const struct outcome *best = diagnose_best(d);
    size_t at = diagnose_first(d, best);
    struct tap_text name;
    if (d->odd.tap == &d->theirs->taps[at]) print_not_finite(w, d);
    else print_unexplained(w, d);
    report_printf(w, "   %sthe first wrong step is %s (%s)\n", d->n_ranked > 0 ? "with it, " : "",
                  tap_name(&name, d, at), tap_title(d->theirs->taps[at].id));
    print_measured(w, d, 0);
    print_first_wrong_step(w, d, best, at);
}

void diagnose_text(const struct diagnosis *d, plumb_verdict verdict, struct report_writer *w) {
    print_dump(w, d);
    if (verdict != PLUMB_VERDICT_DIFFERS) {
        print_agrees(w, d, verdict == PLUMB_VERDICT_AGREES_BUT_NOISE);
        return;
    }
    size_t at = diagnose_first(d, &d->truth);
    struct tap_text name;
    report_printf(w, "%s: %s (%s): relative error %.2g, ",
                  diagnose_explains(d, &d->truth) ? "no tap diverges from the truth; the first that is not exact"
                                                  : "the first tap that diverges from the truth",
                  tap_name(&name, d, at), tap_title(d->theirs->taps[at].id), d->truth.error[at]);
    print_cosine(w, d->truth.cosine[at]);
    report_printf(w, "\n");
    size_t n_shown = d->n_ranked < DIAGNOSE_SHOWN ? d->n_ranked : DIAGNOSE_SHOWN;
    while (n_shown < d->n_ranked && is_tied(d, n_shown)) n_shown++;
    for (size_t i = 0; i < n_shown; i++) print_explanation(w, d, i);

    report_printf(w, "\nverdict: ");
    if (d->n_ranked > 0 && !d->is_outdone && diagnose_explains(d, diagnose_best(d))) {
        print_ranked(w, d);
    } else if (d->local.explains && !d->is_outdone) {
        print_local(w, d);
    } else if (d->n_measured > 0 && d->measured[0].n_clear > 0) {
        print_finding(w, d, &d->measured[0]);
        print_measured(w, d, 1);
    } else {
        print_open(w, d);
    }
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void json_fit(struct report_writer *w, const char *key, const struct outcome *o, size_t i) {
    report_printf(w, "\"%s\": {\"error\": %s, \"cosine\": %s}", key, JSON_NUMBER(o->error[i]),
                  JSON_NUMBER(o->cosine[i]));
}

static void json_names(struct report_writer *w, const char *key, const struct known_mistake *const *known, size_t n) {
    report_printf(w, "\"%s\": [", key);
    for (size_t i = 0; i < n; i++) report_printf(w, "%s\"%s\"", i > 0 ? ", " : "", known[i]->name);
    report_printf(w, "]");
}

static void json_explanation(struct report_writer *w, const struct diagnosis *d, size_t at) {
    const struct outcome *o = &d->ranked[at];
    struct tap_text name;
    report_printf(w, "%s\n    {", at > 0 ? "," : "");
    json_names(w, "mistakes", o->known, o->n_known);
    bool explains = diagnose_explains(d, o) && !(at == 0 && d->is_outdone);
    report_printf(w, ", \"score\": %s, \"explains\": %s, \"tied_with_first\": %s, \"largest_error\": %s, "
                  "\"evidence\": [", JSON_NUMBER(d->truth.score - diagnose_score(o)), explains ? "true" : "false",
                  is_tied(d, at) ? "true" : "false", JSON_NUMBER(diagnose_largest(d, o)));
    for (uint32_t k = 0; k < o->n_known; k++) {
        const struct outcome *base = diagnose_without(d, o, k);
        size_t i = base ? diagnose_evidence(d, base, o) : SIZE_MAX;
        report_printf(w, "%s{\"mistake\": \"%s\"", k > 0 ? ", " : "", o->known[k]->name);
        report_json_text(w, ", \"text\": ", o->known[k]->text);
        if (i != SIZE_MAX) {
            report_printf(w, ", \"tap\": \"%s\", ", tap_name(&name, d, i));
            json_fit(w, "before", base, i);
            report_printf(w, ", ");
            json_fit(w, "after", o, i);
        }
        report_printf(w, "}");
    }
    report_printf(w, "]}");
}

static void json_layers(struct report_writer *w, const struct diagnosis *d, const struct outcome *base,
                        const struct outcome *with) {
    const char *between = "[";
    for (int32_t il = 0; il < (int32_t)d->model->plan.n_layer; il++) {
        if (!is_local(d, base, with, il)) continue;
        report_printf(w, "%s%d", between, (int)il);
        between = ", ";
    }
    report_printf(w, "]");
}

static void json_local(struct report_writer *w, const struct diagnosis *d) {
    const struct local *local = &d->local;
    struct tap_text name;
    if (!local->known) {
        report_printf(w, "null");
        return;
    }
    report_printf(w, "{");
    json_names(w, "mistakes", local->with->known, local->with->n_known);
    report_printf(w, ", \"mistake\": \"%s\", \"layers\": ", local->known->name);
    json_layers(w, d, local->base, local->with);
    report_printf(w, ", \"parted\": ");
    json_layers(w, d, local->base, NULL);
    report_printf(w, ", \"explains\": %s, \"tap\": \"%s\", ", local->explains && !d->is_outdone ? "true" : "false",
                  tap_name(&name, d, local->at));
    json_fit(w, "before", local->base, local->at);
    report_printf(w, ", ");
    json_fit(w, "after", local->with, local->at);
    report_printf(w, "}");
}

static void json_finding(struct report_writer *w, const struct fit *f, const struct finding *finding) {
    struct tap_text name;
    report_printf(w, "{\"tap\": \"%s\"", tap_show(&name, f->is_supposed ? finding->step : f->id, f->layer));
    report_json_text(w, ", \"text\": ", finding->sentence);
    report_json_text(w, ", \"where\": ", finding->where);
    report_printf(w, ", \"error\": %s, \"right_error\": %s, \"cost\": %u}", JSON_NUMBER(finding->error),
                  JSON_NUMBER(finding->right_error), finding->cost);
}

static void json_measured(struct report_writer *w, const struct diagnosis *d) {
    struct tap_text name;
    report_printf(w, "[");
    for (uint32_t k = 0; k < d->n_measured; k++) {
        const struct fit *f = &d->measured[k];
        report_printf(w, "%s\n    {\"tap\": \"%s\", \"floor\": %.3g, \"explained_by\": %u, \"layers\": [",
                      k > 0 ? "," : "", tap_show(&name, f->id, f->layer), f->floor, f->n_clear);
        const char *between = "";
        for (int32_t il = 0; il < count_layers(d) && f->layer >= 0; il++) {
            if (!diagnose_is_measured_in(d, f, il)) continue;
            report_printf(w, "%s%d", between, (int)il);
            between = ", ";
        }
        report_printf(w, "], \"found_by\": \"%s\", \"further\": ", f->is_supposed ? "trying" : "measuring");
        if (f->n_apart > 0) report_printf(w, "\"%s\"", tap_show(&name, f->further, f->layer < 0 ? 0 : f->layer));
        else report_printf(w, "null");
        report_printf(w, ", \"findings\": [");
        for (uint32_t i = 0; i < f->n_finding; i++) {
            report_printf(w, i > 0 ? ", " : "");
            json_finding(w, f, &f->findings[i]);
        }
        report_printf(w, "]}");
    }
    report_printf(w, "]");
}

/* Writes which known mistakes a dump that agrees does not exclude, or null. */
static void json_hidden(struct report_writer *w, const struct diagnosis *d, bool agree) {
    const struct hidden *hidden = &d->hidden;
    if (!agree) {
        report_printf(w, "null");
        return;
    }
    report_printf(w, "{\"tried\": %zu, \"untried\": %zu, ", hidden->n_tried, hidden->n_untried);
    json_names(w, "in_noise", hidden->known, hidden->n);
    report_printf(w, ", ");
    json_names(w, "without_effect", hidden->without_effect, hidden->n_without_effect);
    report_printf(w, "}");
}

static void json_rounding(struct report_writer *w, const char *key, const char *text, const struct lowered *lowered) {
    if (!text) report_printf(w, "\"%s\": null", key);
    else report_printf(w, "\"%s\": {\"text\": \"%s\", \"before\": %s, \"after\": %s}", key, text,
                       JSON_NUMBER(lowered->before), JSON_NUMBER(lowered->after));
}

static void json_not_finite(struct report_writer *w, const struct diagnosis *d) {
    const struct view_not_finite *odd = &d->odd;
    struct tap_text name;
    if (!odd->tap || !odd->has_place) {
        report_printf(w, "null");
        return;
    }
    report_printf(w, "{\"tap\": \"%s\", \"token\": %u, \"head\": ", tap_show(&name, odd->tap->id, odd->tap->layer),
                  odd->row->pos);
    if (odd->has_head) report_printf(w, "%u", odd->head);
    else report_printf(w, "null");
    report_printf(w, ", \"element\": %u, \"value\": \"%s\"}", odd->element,
                  isnan(odd->value) ? "NaN" : odd->value > 0 ? "infinity" : "-infinity");
}

/* Returns true if what the verdict says needs noise of an unknown kind. */
static bool needs_noise(const struct diagnosis *d, plumb_verdict verdict) {
    const struct outcome *best = diagnose_best(d);
    if (verdict != PLUMB_VERDICT_DIFFERS) return verdict == PLUMB_VERDICT_AGREES_BUT_NOISE;
    if (d->is_outdone) return false;
    if (d->n_ranked > 0 && diagnose_explains(d, best)) return diagnose_needs_noise(d, best, best);
    return d->local.explains && diagnose_needs_noise(d, d->local.base, d->local.with);
}

void diagnose_json(const struct diagnosis *d, plumb_verdict verdict, struct report_writer *w) {
    struct tap_text name;
    bool agree = verdict != PLUMB_VERDICT_DIFFERS;
    const struct outcome *best = d->local.explains ? d->local.base : diagnose_best(d);
    report_printf(w, "{\n  \"agree\": %s, \"needs_noise\": %s, \"forced\": %s, \"qk_permuted\": %s, "
                  "\"tokens\": %u, \"n_prompt\": %u, \"taps\": %zu,\n  \"tokens_warning\": %s%s%s, "
                  "\"tolerance\": %.9g, \"noise\": %.9g, \"allowed\": %.9g,\n  \"rounding\": {",
                  agree ? "true" : "false", needs_noise(d, verdict) ? "true" : "false",
                  d->experiment->forced ? "true" : "false", d->experiment->permuted.taps ? "true" : "false",
                  d->theirs->n_token, d->theirs->n_prompt, diagnose_n_compared(d), d->doubt ? "\"" : "",
                  d->doubt ? d->doubt : "null", d->doubt ? "\"" : "", d->tolerance, diagnose_noise(d, best),
                  diagnose_allowed(d, best));
    json_rounding(w, "products", d->noise.products, &d->noise.of_products);
    report_printf(w, ", ");
    json_rounding(w, "attention", d->noise.attention, &d->noise.of_attention);
    report_printf(w, "},\n  \"truth\": {\"largest_error\": %s", JSON_NUMBER(diagnose_largest(d, &d->truth)));
    if (!agree) {
        size_t at = diagnose_first(d, &d->truth);
        report_printf(w, ", \"first_parted\": \"%s\", ", tap_name(&name, d, at));
        json_fit(w, "fit", &d->truth, at);
    }
    report_printf(w, "},\n  \"not_finite\": ");
    json_not_finite(w, d);
    report_printf(w, ",\n  \"n_ignored\": %u, \"remarks\": ", remarks_n_ignored(&d->theirs->remarks));
    remarks_json(&d->theirs->remarks, w);
    report_printf(w, ",\n  \"not_compared\": [");
    const char *between = "";
    for (size_t i = 0; i < d->theirs->n_tap; i++) {
        if (!isnan(d->truth.error[i])) continue;
        report_printf(w, "%s\"%s\"", between, tap_name(&name, d, i));
        between = ", ";
    }
    report_printf(w, "],\n  \"ranking\": [");
    for (size_t i = 0; i < d->n_ranked && (i < 4 * DIAGNOSE_SHOWN || is_tied(d, i)); i++) json_explanation(w, d, i);
    report_printf(w, "],\n  \"is_cut\": %s, \"local\": ", d->is_cut ? "true" : "false");
    json_local(w, d);
    report_printf(w, ",\n  \"hidden\": ");
    json_hidden(w, d, agree);
    report_printf(w, ",\n  \"measured\": ");
    json_measured(w, d);
    report_printf(w, "\n}\n");
}


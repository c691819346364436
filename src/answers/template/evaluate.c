#include "template/evaluate.h"

#include "template/builtins.h"

#include <math.h>

static struct value eval(struct render *r, struct scope *scope, const struct node *node);
static void run_loop(struct render *r, struct scope *outer, const struct node *node, struct value all, size_t depth,
                     struct output *out);
static void run_all(struct render *r, struct scope *scope, struct nodes statements, struct output *out);

/* ---- variables and functions ------------------------------------------------------------------------------------- */

static struct value make_function(struct render *r, struct function made) {
    struct function *function = render_alloc(r, sizeof *function);
    if (!function) return value_undefined();
    *function = made;
    return (struct value){FUNCTION, {.function = function}};
}

static struct value lookup(struct render *r, struct scope *scope, struct text name) {
    struct value key = value_string(name), *found = NULL;
    for (; scope && !found; scope = scope->parent) found = object_find(r, &scope->variables, key);
    if (found && found->kind != UNDEFINED) return *found;
    const struct builtin *builtin = builtin_function(name);
    return builtin ? make_function(r, (struct function){.name = name, .builtin = builtin}) : value_undefined();
}

static void assign(struct render *r, struct scope *scope, struct text name, struct value v) {
    object_set(r, &scope->variables, value_string(name), v);
}

/* A method of v, or undefined if v has none of that name. */
static struct value method(struct render *r, struct value v, struct text name) {
    const struct builtin *builtin = builtin_method(v, name);
    if (!builtin) return value_undefined();
    return make_function(r, (struct function){.name = name, .builtin = builtin, .is_bound = true, .self = v});
}

static struct scope *make_scope(struct render *r, struct scope *parent) {
    struct scope *scope = render_alloc(r, sizeof *scope);
    if (scope) *scope = (struct scope){{NULL, 0, 0, true, NULL}, parent};
    return scope;
}

/* The argument with that name, or NULL. */
static const struct named *named_argument(const struct call *c, struct text name) {
    for (size_t i = 0; i < c->n; i++) {
        if (c->args[i].kind == NAMED && text_is(c->args[i].as.named->name, name)) return c->args[i].as.named;
    }
    return NULL;
}

static bool is_parameter(struct nodes parameters, struct text name) {
    for (size_t i = 0; i < parameters.n; i++) {
        const struct node *parameter = parameters.items[i];
        if (text_is(parameter->kind == NODE_NAMED ? parameter->a->text : parameter->text, name)) return true;
    }
    return false;
}

/* Sets the variables varargs and kwargs of a macro, if there are arguments for which it has no parameter. */
static void bind_rest(struct render *r, struct scope *scope, struct nodes parameters, const struct call *c,
                      size_t n_place) {
    struct value varargs = value_empty(r, TUPLE), kwargs = value_empty(r, OBJECT);
    for (size_t i = 0; i < c->n && r->stop == STOP_NOT && render_work(r, parameters.n); i++) {
        const struct named *named = c->args[i].kind == NAMED ? c->args[i].as.named : NULL;
        if (!named && i >= n_place) list_add(r, varargs.as.list, c->args[i]);
        if (!named || is_parameter(parameters, named->name)) continue;
        object_set(r, kwargs.as.object, value_string(named->name), named->value);
    }
    if (r->stop != STOP_NOT) return;
    assign(r, scope, text_of("varargs"), varargs);
    assign(r, scope, text_of("kwargs"), kwargs);
}

/* Sets the parameters of a macro in its scope. */
static void bind(struct render *r, struct scope *scope, struct nodes parameters, const struct call *c) {
    for (size_t i = 0; i < parameters.n && r->stop == STOP_NOT && render_work(r, c->n); i++) {
        const struct node *parameter = parameters.items[i];
        bool has_default = parameter->kind == NODE_NAMED;
        const struct node *variable = has_default ? parameter->a : parameter;
        r->at = parameter->at;
        if (variable->kind != NODE_VARIABLE) {
            render_fail(r, "macro %.*s: a parameter is not a name", (int)c->name.n, c->name.data);
            return;
        }
        const struct named *named = named_argument(c, variable->text);
        bool has_place = i < c->n && c->args[i].kind != NAMED;
        struct value v = has_place ? c->args[i] : named ? named->value : value_undefined();
        if (!has_place && !named && has_default) v = eval(r, scope, parameter->b);
        assign(r, scope, variable->text, v);
    }
    if (r->stop == STOP_NOT && c->n > 0) bind_rest(r, scope, parameters, c, parameters.n);
}

/* args: n arguments, with the room for one more before them.  caller: the body of a call block, or undefined. */
static struct value invoke(struct render *r, const struct function *f, struct value *args, size_t n,
                           struct value caller) {
    if (f->is_bound) *--args = f->self, n++;
    struct call c = {r, f->name, args, n, f->builtin ? f->builtin->way : 0};
    struct output out = {NULL, 0, 0};
    if (f->builtin) return f->builtin->call(&c);
    if (f->node->kind == NODE_FOR) {
        if (n != 1) render_fail(r, "loop: expected 1 argument, found %zu", n);
        else run_loop(r, f->scope, f->node, args[0], f->depth, &out);
        return value_output(&out);
    }
    struct scope *scope = make_scope(r, f->scope);
    if (!scope) return value_undefined();
    if (f->node->kind == NODE_MACRO) assign(r, scope, text_of("caller"), caller);
    bind(r, scope, f->node->list, &c);
    run_all(r, scope, f->node->more, &out);
    return value_output(&out);
}

/* Adds the items of a list as arguments, or the members of an object as arguments with names. */
static void spread(struct render *r, struct list *args, struct value v, bool named) {
    bool fits = named ? v.kind == OBJECT : is_list(v);
    if (!fits) render_fail(r, "%s: not for a value of the kind %s", named ? "**" : "*", kind_name(v.kind));
    for (size_t i = 0; fits && !named && i < v.as.list->n && r->stop == STOP_NOT; i++) {
        list_add(r, args, v.as.list->items[i]);
    }
    for (size_t i = 0; fits && named && i < v.as.object->n && r->stop == STOP_NOT; i++) {
        const struct member *m = &v.as.object->members[i];
        struct named *argument = render_alloc(r, sizeof *argument);
        if (!argument) return;
        *argument = (struct named){value_text(r, m->key), m->value};
        list_add(r, args, (struct value){NAMED, {.named = argument}});
    }
}

/* Evaluates arguments.  *args has them behind the room for one more.  Returns false after a failure. */
static bool eval_arguments(struct render *r, struct scope *scope, struct nodes list, struct list *args) {
    *args = (struct list){NULL, 0, 0, false};
    list_add(r, args, value_undefined());
    for (size_t i = 0; i < list.n && r->stop == STOP_NOT; i++) {
        const struct node *node = list.items[i];
        struct value v = eval(r, scope, node->kind == NODE_SPREAD ? node->a : node);
        if (r->stop == STOP_NOT && node->kind == NODE_SPREAD) spread(r, args, v, node->flag);
        else if (r->stop == STOP_NOT) list_add(r, args, v);
    }
    return r->stop == STOP_NOT;
}

/* What an expression is called in a message: the name of a variable or a member, or nothing. */
static struct text written(const struct node *node) {
    if (node->kind == NODE_VARIABLE) return node->text;
    return node->kind == NODE_MEMBER && !node->flag ? node->b->text : text_of("");
}

/* Returns what a value calls, or NULL after a failure. */
static const struct function *callee_of(struct render *r, const struct node *node, struct value v) {
    if (v.kind == FUNCTION) return v.as.function;
    if (v.kind == OBJECT && v.as.object->call) return v.as.object->call;
    struct text name = written(node);
    render_fail(r, "a value of the kind %s cannot be called%s%.*s", kind_name(v.kind), name.n > 0 ? ": " : "",
                (int)name.n, name.data);
    return NULL;
}

static struct value eval_call(struct render *r, struct scope *scope, const struct node *node, struct value caller) {
    struct list args;
    if (!eval_arguments(r, scope, node->list, &args)) return value_undefined();
    struct value callee = eval(r, scope, node->a);
    r->at = node->at;
    const struct function *function = r->stop == STOP_NOT ? callee_of(r, node->a, callee) : NULL;
    return function ? invoke(r, function, args.items + 1, args.n - 1, caller) : value_undefined();
}

/* filter: a name, or a call of one. */
static struct value apply_filter(struct render *r, struct scope *scope, const struct node *filter, struct value v) {
    const struct node *variable = filter->kind == NODE_CALL ? filter->a : filter;
    r->at = filter->at;
    if (variable->kind != NODE_VARIABLE) return render_fail(r, "a filter is not a name");
    struct nodes none = {NULL, 0, 0};
    struct list args;
    if (!eval_arguments(r, scope, filter->kind == NODE_CALL ? filter->list : none, &args)) return value_undefined();
    r->at = filter->at;
    args.items[0] = v;
    return builtin_filter(r, variable->text, args.items, args.n);
}

/* Applies the filters of a block one after the other. */
static struct value apply_filters(struct render *r, struct scope *scope, struct nodes filters, struct value v) {
    for (size_t i = 0; i < filters.n && r->stop == STOP_NOT; i++) v = apply_filter(r, scope, filters.items[i], v);
    return v;
}

static struct value eval_test(struct render *r, struct scope *scope, const struct node *node) {
    struct value v = eval(r, scope, node->a);
    const struct node *test = node->b, *variable = test->kind == NODE_CALL ? test->a : test;
    struct nodes none = {NULL, 0, 0};
    struct list args;
    if (r->stop != STOP_NOT || !eval_arguments(r, scope, test->kind == NODE_CALL ? test->list : none, &args)) return v;
    r->at = node->at;
    if (variable->kind != NODE_VARIABLE) return render_fail(r, "a test is not a name");
    args.items[0] = v;
    return value_bool(builtin_test(r, variable->text, args.items, args.n) != node->flag);
}

/* ---- operators and members --------------------------------------------------------------------------------------- */

/* Joins two texts.  llama.cpp adds what is not a string to a string, and Python refuses that: none and undefined are
 * empty then.  as_texts: for the operator ~, beside which none is 'None'. */
static struct value concatenate(struct render *r, bool as_texts, struct value a, struct value b) {
    struct output out = {NULL, 0, 0};
    const struct text *s = &a.as.text;
    bool grows = a.kind == STRING && s->n > 0 && s->data == r->grown.data && s->n == r->grown.n
                 && s->marks == r->grown.cap;
    if (grows) out = r->grown;
    else if (as_texts || a.kind > NONE) value_write(r, &out, a);
    if (as_texts || b.kind > NONE) value_write(r, &out, b);
    if (out.n >= r->grown.n) r->grown = out;
    return value_output(&out);
}

/* a to the power of b >= 0.  Returns false if it does not fit 64 bits. */
static bool integer_power(int64_t a, int64_t b, int64_t *x) {
    *x = 1;
    for (bool fits = true; fits && b > 0; b >>= 1) {
        if (b & 1) fits = !__builtin_mul_overflow(*x, a, x);
        if (b > 1 && __builtin_mul_overflow(a, a, &a)) fits = false;
        if (!fits) return false;
    }
    return true;
}

/* The operators of integers, as Python's: // and % round down. */
static struct value compute_integer(struct render *r, struct text operator, int64_t a, int64_t b) {
    int64_t x = 0;
    bool fits = true;
    switch (operator.data[0]) {
    case '+': fits = !__builtin_add_overflow(a, b, &x); break;
    case '-': fits = !__builtin_sub_overflow(a, b, &x); break;
    case '*': fits = operator.n == 2 ? integer_power(a, b, &x) : !__builtin_mul_overflow(a, b, &x); break;
    case '/': fits = a != INT64_MIN || b != -1;
        x = fits ? a / b - (a % b != 0 && (a < 0) != (b < 0)) : 0;
        break;
    default: x = b == -1 ? 0 : a % b;
        if (x != 0 && (x < 0) != (b < 0)) x += b;
    }
    if (!fits) render_fail(r, "%.*s: the result does not fit 64 bits", (int)operator.n, operator.data);
    return value_int(x);
}

/* The operators + - * / % // ** of numbers, true and false. */
static struct value compute(struct render *r, struct text operator, struct value left, struct value right) {
    double a = value_number(r, left), b = value_number(r, right);
    char first = operator.data[0];
    bool integers = left.kind != FLOAT && right.kind != FLOAT, is_power = first == '*' && operator.n == 2;
    if ((first == '/' || first == '%') && !(b < 0 || b > 0)) {
        return render_fail(r, "%.*s: division by 0", (int)operator.n, operator.data);
    }
    bool by_integers = integers && !(first == '/' && operator.n == 1) && !(is_power && b < 0);
    if (by_integers) return compute_integer(r, operator, value_integer(r, left), value_integer(r, right));
    if (is_power) return value_float(pow(a, b));
    if (first == '/') return value_float(operator.n == 2 ? floor(a / b) : a / b);
    if (first == '%') return value_float(a - b * floor(a / b));
    return value_float(first == '+' ? a + b : first == '-' ? a - b : a * b);
}

static struct value repeat(struct render *r, struct text text, int64_t n) {
    struct output out = {NULL, 0, 0};
    for (int64_t i = 0; i < n && r->stop == STOP_NOT; i++) output_add(r, &out, text);
    return value_output(&out);
}

/* Compares two values by < > <= or >=. */
static struct value compare(struct render *r, struct text operator, struct value a, struct value b) {
    bool or_equal = operator.n == 2 && value_equal(r, a, b);
    return value_bool(or_equal || (operator.data[0] == '<' ? value_precedes(r, a, b) : value_precedes(r, b, a)));
}

static struct value joined_lists(struct render *r, struct value a, struct value b) {
    struct value both = value_empty(r, a.kind);
    for (size_t i = 0; i < a.as.list->n && r->stop == STOP_NOT; i++) list_add(r, both.as.list, a.as.list->items[i]);
    for (size_t i = 0; i < b.as.list->n && r->stop == STOP_NOT; i++) list_add(r, both.as.list, b.as.list->items[i]);
    return both;
}

/* Applies the operator of a node, which is neither "and" nor "or". */
static struct value operate(struct render *r, const struct node *node, struct value a, struct value b) {
    struct text operator = node->text;
    r->at = node->at;
    if (r->stop != STOP_NOT) return a;
    char first = operator.data[0];
    bool numbers = a.kind >= BOOLEAN && a.kind <= FLOAT && b.kind >= BOOLEAN && b.kind <= FLOAT;
    bool has_text = a.kind == STRING || b.kind == STRING;
    if (operator.n == 2 && operator.data[1] == '=' && (first == '=' || first == '!')) {
        return value_bool(value_equal(r, a, b) == (first == '='));
    }
    if (first == 'i' || first == 'n') return value_bool(builtin_in(r, a, b) == (first == 'i'));
    if (first == '<' || first == '>') return compare(r, operator, a, b);
    if (first == '~') return concatenate(r, true, a, b);
    if (numbers) return compute(r, operator, a, b);
    if (first == '+' && is_list(a) && a.kind == b.kind) return joined_lists(r, a, b);
    if (first == '+' && has_text) return concatenate(r, false, a, b);
    if (first == '%' && a.kind == STRING) return builtin_format(r, a.as.text, b);
    if (operator.n == 1 && first == '*' && a.kind == STRING && b.kind == INTEGER) {
        return repeat(r, a.as.text, b.as.integer);
    }
    if (operator.n == 1 && first == '*' && a.kind == INTEGER && b.kind == STRING) {
        return repeat(r, b.as.text, a.as.integer);
    }
    return render_fail(r, "%.*s: not for a value of the kind %s and one of the kind %s", (int)operator.n, operator.data,
                       kind_name(a.kind), kind_name(b.kind));
}

static struct value eval_binary(struct render *r, struct scope *scope, const struct node *node) {
    struct value a = eval(r, scope, node->a);
    if (r->stop != STOP_NOT) return a;
    if (text_is_word(node->text, "and")) return value_truth(a) ? eval(r, scope, node->b) : a;
    if (text_is_word(node->text, "or")) return value_truth(a) ? a : eval(r, scope, node->b);
    return operate(r, node, a, eval(r, scope, node->b));
}

/* Compares up to the first comparison that is false, and evaluates each operand once. */
static struct value eval_chain(struct render *r, struct scope *scope, const struct node *node) {
    struct value a = eval(r, scope, node->list.items[0]->a), result = value_bool(true);
    for (size_t i = 0; i < node->list.n && r->stop == STOP_NOT && value_truth(result); i++) {
        struct value b = eval(r, scope, node->list.items[i]->b);
        result = operate(r, node->list.items[i], a, b);
        a = b;
    }
    return result;
}

static struct value eval_unary(struct render *r, struct scope *scope, const struct node *node) {
    struct value v = eval(r, scope, node->a);
    r->at = node->at;
    if (r->stop != STOP_NOT) return v;
    if (node->text.data[0] == 'n') return value_bool(!value_truth(v));
    if (!is_number(v)) {
        render_fail(r, "%.*s: expected a number, found a value of the kind %s", (int)node->text.n, node->text.data,
                    kind_name(v.kind));
    } else if (node->text.data[0] == '-') {
        return v.kind == FLOAT ? value_float(-v.as.number)
               : value_int(v.as.integer == INT64_MIN ? INT64_MAX : -v.as.integer);
    }
    return v;
}

static struct value eval_slice(struct render *r, struct scope *scope, const struct node *node, struct value v) {
    const struct node *parts[] = {node->a, node->b, node->c};
    struct value ends[3];   /* start, stop, step */
    for (size_t i = 0; i < 3 && r->stop == STOP_NOT; i++) {
        ends[i] = parts[i] ? eval(r, scope, parts[i]) : value_undefined();
        if (ends[i].kind != INTEGER && ends[i].kind > NONE) render_fail(r, "an end of a slice is not an integer");
    }
    r->at = node->at;
    return r->stop == STOP_NOT ? builtin_slice(r, v, ends[0], ends[1], ends[2]) : v;
}

/* The item at a place, counted from the end if it is negative, or undefined. */
static struct value item_at(struct render *r, struct value v, int64_t i) {
    int64_t n = (int64_t)(v.kind == STRING ? text_length(r, v.as.text) : v.as.list->n);
    if (i < 0) i += n;
    if (i < 0 || i >= n) return value_undefined();
    if (v.kind != STRING) {
        v.as.list->is_read = true;
        return v.as.list->items[i];
    }
    size_t at = text_prefix(r, v.as.text, (size_t)i);
    struct text rest = text_part(v.as.text, at, v.as.text.n - at);
    return value_string(text_part(rest, 0, text_prefix(r, rest, 1)));
}

/* What is in brackets or behind a point.  Where Python has no such member, it is undefined. */
static struct value eval_member(struct render *r, struct scope *scope, const struct node *node) {
    struct value v = eval(r, scope, node->a), key;
    if (r->stop != STOP_NOT) return v;
    r->at = node->at;
    if (node->flag && node->b->kind == NODE_SLICE) return eval_slice(r, scope, node->b, v);
    if (node->flag) {
        key = eval(r, scope, node->b);
        r->at = node->at;
    } else if (node->b->kind == NODE_LITERAL && node->b->literal.kind == INTEGER) {
        key = node->b->literal;
    } else if (node->b->kind == NODE_VARIABLE) {
        /* A method comes before a member of the same name. */
        struct value found = method(r, v, node->b->text);
        if (found.kind != UNDEFINED) return found;
        key = value_string(node->b->text);
    } else {
        return render_fail(r, "what follows a point is not a name");
    }
    if (r->stop != STOP_NOT) return v;
    if (v.kind == OBJECT && value_is_key(r, key)) {
        const struct value *found = object_find(r, v.as.object, key);
        if (found) return *found;
    } else if ((is_list(v) || v.kind == STRING) && (key.kind == INTEGER || key.kind == BOOLEAN)) {
        return item_at(r, v, value_integer(r, key));
    }
    return node->flag && key.kind == STRING ? method(r, v, key.as.text) : value_undefined();
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

static struct value eval_items(struct render *r, struct scope *scope, const struct node *node, enum kind kind) {
    struct value v = value_empty(r, kind);
    for (size_t i = 0; i < node->list.n && r->stop == STOP_NOT; i++) {
        list_add(r, v.as.list, eval(r, scope, node->list.items[i]));
    }
    return v;
}

static struct value eval_object(struct render *r, struct scope *scope, const struct node *node) {
    struct value v = value_empty(r, OBJECT);
    for (size_t i = 0; i + 1 < node->list.n && r->stop == STOP_NOT; i += 2) {
        struct value key = eval(r, scope, node->list.items[i]);
        struct value item = r->stop == STOP_NOT ? eval(r, scope, node->list.items[i + 1]) : key;
        r->at = node->at;
        if (r->stop == STOP_NOT && !value_is_key(r, key)) {
            render_fail(r, "a value of the kind %s cannot be a key", kind_name(key.kind));
        }
        if (r->stop == STOP_NOT) object_set(r, v.as.object, key, item);
    }
    return v;
}

static struct value eval_named(struct render *r, struct scope *scope, const struct node *node) {
    struct named *named = render_alloc(r, sizeof *named);
    if (node->a->kind != NODE_VARIABLE) render_fail(r, "the name of an argument is not a name");
    if (r->stop != STOP_NOT) return value_undefined();
    *named = (struct named){node->a->text, eval(r, scope, node->b)};
    return (struct value){NAMED, {.named = named}};
}

static struct value eval_inner(struct render *r, struct scope *scope, const struct node *node) {
    switch (node->kind) {
    case NODE_LITERAL: return node->literal;
    case NODE_VARIABLE: return lookup(r, scope, node->text);
    case NODE_LIST: return eval_items(r, scope, node, LIST);
    case NODE_TUPLE: return eval_items(r, scope, node, TUPLE);
    case NODE_OBJECT: return eval_object(r, scope, node);
    case NODE_BINARY: return eval_binary(r, scope, node);
    case NODE_CHAIN: return eval_chain(r, scope, node);
    case NODE_UNARY: return eval_unary(r, scope, node);
    case NODE_FILTER: {
        struct value v = eval(r, scope, node->a);
        return r->stop == STOP_NOT ? apply_filter(r, scope, node->b, v) : v;
    }
    case NODE_TEST: return eval_test(r, scope, node);
    case NODE_SELECT: case NODE_TERNARY: {
        struct value test = eval(r, scope, node->kind == NODE_SELECT ? node->b : node->a);
        if (r->stop != STOP_NOT) return test;
        bool truth = value_truth(test);
        if (node->kind == NODE_TERNARY) return eval(r, scope, truth ? node->b : node->c);
        return truth ? eval(r, scope, node->a) : value_undefined();
    }
    case NODE_MEMBER: return eval_member(r, scope, node);
    case NODE_BLANK: return value_undefined();
    case NODE_CALL: return eval_call(r, scope, node, value_undefined());
    case NODE_NAMED: return eval_named(r, scope, node);
    default: return render_fail(r, "expected an expression");
    }
}

static struct value eval(struct render *r, struct scope *scope, const struct node *node) {
    r->at = node->at;
    if (!render_work(r, 32) || !render_enter(r)) return value_undefined();
    struct value v = eval_inner(r, scope, node);
    render_leave(r);
    return v;
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

/* Assigns v to a variable, to several from a list, or, in a set statement, to a member. */
static void assign_to(struct render *r, struct scope *scope, const struct node *target, struct value v) {
    r->at = target->at;
    if (target->kind == NODE_VARIABLE) {
        assign(r, scope, target->text, v);
    } else if (target->kind == NODE_TUPLE) {
        if (!is_list(v) || v.as.list->n != target->list.n) {
            render_fail(r, "expected a list of %zu items for as many names, found a value of the kind %s with %zu",
                        target->list.n, kind_name(v.kind), is_list(v) ? v.as.list->n : 0);
        }
        for (size_t i = 0; i < target->list.n && r->stop == STOP_NOT; i++) {
            assign_to(r, scope, target->list.items[i], v.as.list->items[i]);
        }
    } else if (target->kind == NODE_MEMBER && !target->flag && target->b->kind == NODE_VARIABLE) {
        struct value object = eval(r, scope, target->a);
        r->at = target->at;
        if (r->stop != STOP_NOT) return;
        if (object.kind == OBJECT) object_set(r, object.as.object, value_string(target->b->text), v);
        else render_fail(r, "a value of the kind %s has no members to set", kind_name(object.kind));
    } else {
        render_fail(r, "what is before = or in is not a name");
    }
}

/* The text of statements, which have a scope of their own. */
static struct value block_text(struct render *r, struct scope *outer, struct nodes statements) {
    struct output out = {NULL, 0, 0};
    struct scope *scope = make_scope(r, outer);
    if (scope) run_all(r, scope, statements, &out);
    return value_output(&out);
}

static void run_set(struct render *r, struct scope *scope, const struct node *node) {
    struct value v = node->b ? eval(r, scope, node->b) : block_text(r, scope, node->list);
    if (r->stop == STOP_NOT) v = apply_filters(r, scope, node->more, v);
    if (r->stop == STOP_NOT) assign_to(r, scope, node->a, v);
}

static void run_if(struct render *r, struct scope *scope, const struct node *node, struct output *out) {
    for (;;) {
        struct value test = eval(r, scope, node->a);
        if (r->stop != STOP_NOT) return;
        bool truth = value_truth(test), is_elif = !truth && node->more.n == 1 && node->more.items[0]->kind == NODE_IF;
        if (!is_elif) {
            run_all(r, scope, truth ? node->list : node->more, out);
            return;
        }
        node = node->more.items[0];
    }
}

static void run_with(struct render *r, struct scope *outer, const struct node *node, struct output *out) {
    struct scope *scope = make_scope(r, outer);
    for (size_t i = 0; scope && i < node->list.n && r->stop == STOP_NOT; i++) {
        struct value v = eval(r, outer, node->list.items[i]->b);
        if (r->stop == STOP_NOT) assign_to(r, scope, node->list.items[i]->a, v);
    }
    if (r->stop == STOP_NOT) run_all(r, scope, node->more, out);
}

/* Sets the members of the variable `loop` for iteration i. */
static void set_loop(struct render *r, struct object *loop, const struct list *list, size_t i, size_t depth) {
    int64_t n = (int64_t)list->n, k = (int64_t)i;
    const struct { const char *name; struct value value; } facts[] = {
        {"index", value_int(k + 1)}, {"index0", value_int(k)}, {"revindex", value_int(n - k)},
        {"revindex0", value_int(n - k - 1)}, {"first", value_bool(k == 0)}, {"last", value_bool(k == n - 1)},
        {"length", value_int(n)}, {"previtem", k > 0 ? list->items[i - 1] : value_undefined()},
        {"nextitem", k < n - 1 ? list->items[i + 1] : value_undefined()}, {"depth", value_int((int64_t)depth)},
        {"depth0", value_int((int64_t)depth - 1)},
    };
    enum { N = sizeof facts / sizeof facts[0] };
    if (!loop->members) loop->members = render_alloc(r, N * sizeof *loop->members);
    if (!loop->members || !render_work(r, N)) return;
    for (size_t f = 0; f < N; f++) {
        loop->members[f] = (struct member){value_string(text_of(facts[f].name)), facts[f].value};
    }
    if (loop->n == 0) loop->n = loop->cap = N;   /* loop.changed may have added a member */
}

/* The items of a value that a loop visits. */
static struct value loop_source(struct render *r, struct value all, bool pairs) {
    bool by_pairs = all.kind == OBJECT && pairs;   /* llama.cpp gives keys and values to two variables */
    return by_pairs ? builtin_pairs(r, all.as.object) : builtin_items(r, all);
}

/* The items of a for statement that pass its condition. */
static struct value loop_items(struct render *r, struct scope *outer, const struct node *node, struct value all) {
    r->at = node->at;
    struct value source = loop_source(r, all, node->a->kind == NODE_TUPLE), list = value_empty(r, LIST);
    if (is_list(all)) all.as.list->is_read = true;
    if (r->stop != STOP_NOT || !node->c) return source;
    struct scope *scope = make_scope(r, outer);
    for (size_t i = 0; scope && i < source.as.list->n && r->stop == STOP_NOT; i++) {
        assign_to(r, scope, node->a, source.as.list->items[i]);
        struct value test = r->stop == STOP_NOT ? eval(r, scope, node->c) : value_undefined();
        if (r->stop == STOP_NOT && value_truth(test)) list_add(r, list.as.list, source.as.list->items[i]);
    }
    return list;
}

/* Makes the variable `loop`. */
static struct value make_loop(struct render *r, struct scope *outer, const struct node *node, size_t depth) {
    struct value loop = value_empty(r, OBJECT);
    struct function *again = node->flag ? render_alloc(r, sizeof *again) : NULL;
    if (again) *again = (struct function){.name = text_of("loop"), .node = node, .scope = outer, .depth = depth + 1};
    if (r->stop == STOP_NOT) *loop.as.object = (struct object){.plain = true, .call = again};
    return loop;
}

/* Each iteration begins without the variables that the one before has set. */
static void run_loop(struct render *r, struct scope *outer, const struct node *node, struct value all, size_t depth,
                     struct output *out) {
    struct value list = loop_items(r, outer, node, all), loop = make_loop(r, outer, node, depth);
    struct scope *scope = make_scope(r, outer);
    bool is_complete = false;   /* at least one iteration ended without break and continue */
    for (size_t i = 0; r->stop == STOP_NOT && i < list.as.list->n; i++) {
        scope->variables.n = 0;
        set_loop(r, loop.as.object, list.as.list, i, depth);
        assign(r, scope, text_of("loop"), loop);
        assign_to(r, scope, node->a, list.as.list->items[i]);
        if (r->stop == STOP_NOT) run_all(r, scope, node->list, out);
        bool is_last = r->stop == STOP_BREAK;
        if (r->stop == STOP_NOT) is_complete = true;
        else if (r->stop != STOP_FAILED) r->stop = STOP_NOT;
        if (is_last) break;
    }
    /* As in Jinja 2, else also follows a loop whose iterations all ended early. */
    if (r->stop != STOP_NOT || is_complete) return;
    scope->variables.n = 0;
    run_all(r, scope, node->more, out);
}

static void run_for(struct render *r, struct scope *outer, const struct node *node, struct output *out) {
    struct value all = eval(r, outer, node->b);
    if (r->stop == STOP_NOT) run_loop(r, outer, node, all, 1, out);
}

static void run_call_block(struct render *r, struct scope *scope, const struct node *node, struct output *out) {
    struct function body = {.name = text_of("caller"), .node = node, .scope = scope};
    struct value caller = make_function(r, body);
    struct value text = r->stop == STOP_NOT ? eval_call(r, scope, node->a, caller) : caller;
    if (r->stop == STOP_NOT) value_write(r, out, text);
}

static void run(struct render *r, struct scope *scope, const struct node *node, struct output *out) {
    r->at = node->at;
    switch (node->kind) {
    case NODE_TEXT: output_add(r, out, node->literal.as.text); break;
    case NODE_NOTHING: break;
    case NODE_IF: run_if(r, scope, node, out); break;
    case NODE_FOR: run_for(r, scope, node, out); break;
    case NODE_SET: run_set(r, scope, node); break;
    case NODE_WITH: run_with(r, scope, node, out); break;
    case NODE_MACRO:
        if (node->a->kind != NODE_VARIABLE) render_fail(r, "macro: its name is not a name");
        else assign(r, scope, node->a->text,
                    make_function(r, (struct function){.name = node->a->text, .node = node, .scope = scope}));
        break;
    case NODE_CALL_BLOCK: run_call_block(r, scope, node, out); break;
    case NODE_FILTER_BLOCK: {
        struct value text = block_text(r, scope, node->list);
        if (r->stop == STOP_NOT) text = apply_filters(r, scope, node->more, text);
        if (r->stop == STOP_NOT) value_write(r, out, text);
        break;
    }
    case NODE_BREAK: r->stop = STOP_BREAK; break;
    case NODE_CONTINUE: r->stop = STOP_CONTINUE; break;
    default: {
        struct value v = eval(r, scope, node);
        if (r->stop == STOP_NOT) value_write(r, out, v);
    }
    }
}

static void run_all(struct render *r, struct scope *scope, struct nodes statements, struct output *out) {
    for (size_t i = 0; i < statements.n && r->stop == STOP_NOT; i++) {
        if (!render_work(r, 32) || !render_enter(r)) return;
        run(r, scope, statements.items[i], out);
        render_leave(r);
    }
}

void template_evaluate(struct render *r, struct scope *variables, struct nodes statements, struct output *out) {
    static const struct { const char *name; enum kind kind; bool truth; } constants[] = {
        {"true", BOOLEAN, true}, {"True", BOOLEAN, true}, {"false", BOOLEAN, false}, {"False", BOOLEAN, false},
        {"none", NONE, false}, {"None", NONE, false},
    };
    struct scope base = {{NULL, 0, 0, true, NULL}, NULL};
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
        struct value v = {constants[i].kind, {.truth = constants[i].truth}};
        assign(r, &base, text_of(constants[i].name), v);
    }
    variables->parent = &base;
    if (r->stop == STOP_NOT) run_all(r, variables, statements, out);
    if (r->stop == STOP_BREAK || r->stop == STOP_CONTINUE) {
        render_fail(r, "%s outside of a loop", r->stop == STOP_BREAK ? "break" : "continue");
    }
}

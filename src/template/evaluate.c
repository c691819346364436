#include "template/evaluate.h"

#include "template/builtins.h"

#include <math.h>

static struct value eval(struct render *r, struct scope *scope, const struct node *node);
static void run_all(struct render *r, struct scope *scope, struct nodes statements, struct output *out);

/* ---- variables and functions ------------------------------------------------------------------------------------- */

static struct value lookup(struct render *r, struct scope *scope, struct text name) {
    struct value key = value_string(name), *found = NULL;
    for (; scope && !found; scope = scope->parent) found = object_find(r, &scope->variables, key);
    if (found && found->kind != UNDEFINED) return *found;
    const struct builtin *builtin = builtin_function(name);
    struct function *function = builtin ? render_alloc(r, sizeof *function) : NULL;
    if (!function) return value_undefined();
    *function = (struct function){.name = name, .builtin = builtin};
    return (struct value){FUNCTION, {.function = function}};
}

static void assign(struct render *r, struct scope *scope, struct text name, struct value v) {
    object_set(r, &scope->variables, value_string(name), v);
}

/* A filter or a method of v, or undefined if v has none of that name. */
static struct value method(struct render *r, struct value v, struct text name) {
    if (v.kind == FUNCTION || v.kind == NAMED) {
        render_fail(r, "a %s has no members", kind_name(v.kind));
        return value_undefined();
    }
    const struct builtin *builtin = builtin_method(v, name);
    struct function *function = builtin ? render_alloc(r, sizeof *function) : NULL;
    if (!function) return value_undefined();
    *function = (struct function){.name = name, .builtin = builtin, .is_bound = true, .self = v};
    return (struct value){FUNCTION, {.function = function}};
}

static struct value make_function(struct render *r, struct text name, const struct node *node, struct scope *scope) {
    struct function *function = render_alloc(r, sizeof *function);
    if (!function) return value_undefined();
    *function = (struct function){.name = name, .node = node, .scope = scope};
    return (struct value){FUNCTION, {.function = function}};
}

static struct scope *make_scope(struct render *r, struct scope *parent) {
    struct scope *scope = render_alloc(r, sizeof *scope);
    if (scope) *scope = (struct scope){{NULL, 0, 0, true}, parent};
    return scope;
}

/* Sets the parameters of a macro in its scope.  As in llama.cpp, parameter i has its default only if there are not more
 * than i arguments, with or without names. */
static void bind(struct render *r, struct scope *scope, struct scope *caller, struct nodes parameters, struct call *c) {
    for (size_t i = 0; i < parameters.n && r->stop == STOP_NOT && render_work(r, c->n); i++) {
        const struct node *parameter = parameters.items[i];
        bool has_default = parameter->kind == NODE_NAMED;
        const struct node *variable = has_default ? parameter->a : parameter;
        r->at = parameter->at;
        if (variable->kind != NODE_VARIABLE) {
            render_fail(r, "macro %.*s: a parameter is not a name", (int)c->name.n, c->name.data);
        } else if (i >= c->n && !has_default) {
            render_fail(r, "macro %.*s: the argument %.*s is missing", (int)c->name.n, c->name.data,
                        (int)variable->text.n, variable->text.data);
        } else if (i >= c->n) {
            assign(r, scope, variable->text, eval(r, caller, parameter->b));
        } else {
            struct value v = i < c->n && c->args[i].kind != NAMED ? c->args[i] : value_undefined();
            for (size_t k = 0; k < c->n; k++) {
                if (c->args[k].kind != NAMED || !text_is(c->args[k].as.named->name, variable->text)) continue;
                if (c->args[k].as.named->value.kind != UNDEFINED) v = c->args[k].as.named->value;
                break;
            }
            assign(r, scope, variable->text, v);
        }
    }
}

/* args: n arguments, with the room for one more before them. */
static struct value invoke(struct render *r, struct scope *caller, const struct function *f, struct value *args,
                           size_t n) {
    if (f->is_bound) *--args = f->self, n++;
    struct call c = {r, f->name, args, n};
    if (f->builtin) return f->builtin->call(&c);
    /* A macro sees the variables of the place where it is called, as in llama.cpp. */
    struct scope *scope = make_scope(r, f->scope ? f->scope : caller);
    if (!scope) return value_undefined();
    bind(r, scope, caller, f->node->list, &c);
    struct output out = {NULL, 0, 0};
    run_all(r, scope, f->node->more, &out);
    return value_output(&out);
}

/* Evaluates arguments; returns where the first one is.  Before it is room for one more. */
static struct value *eval_arguments(struct render *r, struct scope *scope, struct nodes list) {
    struct value *args = render_alloc(r, (uint64_t)(list.n + 1) * sizeof *args);
    if (!args) return NULL;
    args++;
    for (size_t i = 0; i < list.n && r->stop == STOP_NOT; i++) args[i] = eval(r, scope, list.items[i]);
    return r->stop == STOP_NOT ? args : NULL;
}

static struct value eval_call(struct render *r, struct scope *scope, const struct node *node) {
    struct value *args = eval_arguments(r, scope, node->list);
    if (!args) return value_undefined();
    struct value callee = eval(r, scope, node->a);
    r->at = node->at;
    if (r->stop != STOP_NOT) return callee;
    if (callee.kind != FUNCTION) {
        render_fail(r, "a value of the kind %s cannot be called%s%.*s", kind_name(callee.kind),
                    node->a->kind == NODE_VARIABLE ? ": " : node->a->kind == NODE_MEMBER && !node->a->flag ? ": " : "",
                    node->a->kind == NODE_VARIABLE ? (int)node->a->text.n
                    : node->a->kind == NODE_MEMBER && !node->a->flag ? (int)node->a->b->text.n : 0,
                    node->a->kind == NODE_VARIABLE ? node->a->text.data
                    : node->a->kind == NODE_MEMBER && !node->a->flag ? node->a->b->text.data : "");
        return callee;
    }
    return invoke(r, scope, callee.as.function, args, node->list.n);
}

/* filter: a name, or a call of one. */
static struct value apply_filter(struct render *r, struct scope *scope, const struct node *filter, struct value v) {
    static const struct { const char *name, *other; } aliases[] = {
        {"count", "length"}, {"d", "default"}, {"trim", "strip"},
    };
    static const char *const of_text[] = {"capitalize", "lower", "replace", "strip", "title", "upper"};
    const struct node *variable = filter->kind == NODE_CALL ? filter->a : filter;
    r->at = filter->at;
    if (variable->kind != NODE_VARIABLE) {
        render_fail(r, "a filter is not a name");
        return value_undefined();
    }
    struct text name = variable->text;
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
        if (text_is_word(name, aliases[i].name)) name = text_of(aliases[i].other);
    }
    struct nodes none = {NULL, 0, 0}, list = filter->kind == NODE_CALL ? filter->list : none;
    for (size_t i = 0; i < sizeof of_text / sizeof of_text[0] && filter->kind == NODE_VARIABLE; i++) {
        bool is_text = v.kind == UNDEFINED || v.kind == STRING;
        if (!is_text && text_is_word(name, of_text[i])) v = value_string(value_text(r, v));
    }
    struct value *args = eval_arguments(r, scope, list);
    r->at = filter->at;
    struct value function = args ? method(r, v, name) : value_undefined();
    if (r->stop != STOP_NOT) return function;
    if (function.kind != FUNCTION) {
        render_fail(r, "there is no filter %.*s for a value of the kind %s", (int)name.n, name.data, kind_name(v.kind));
        return function;
    }
    return invoke(r, scope, function.as.function, args, list.n);
}

static struct value eval_test(struct render *r, struct scope *scope, const struct node *node) {
    struct value v = eval(r, scope, node->a);
    const struct node *test = node->b, *variable = test->kind == NODE_CALL ? test->a : test;
    struct nodes none = {NULL, 0, 0}, list = test->kind == NODE_CALL ? test->list : none;
    struct value *args = r->stop == STOP_NOT ? eval_arguments(r, scope, list) : NULL;
    r->at = node->at;
    if (!args) return value_undefined();
    if (variable->kind != NODE_VARIABLE) {
        render_fail(r, "a test is not a name");
        return value_undefined();
    }
    args[-1] = v;
    return value_bool(builtin_test(r, variable->text, args - 1, list.n + 1) != node->flag);
}

/* ---- operators and members --------------------------------------------------------------------------------------- */

static struct value concatenate(struct render *r, struct value a, struct value b) {
    struct output out = {NULL, 0, 0};
    if (a.kind > NONE) value_write(r, &out, a);   /* none and undefined are empty texts here */
    if (b.kind > NONE) value_write(r, &out, b);
    return value_output(&out);
}

/* Integers are computed as doubles, as in llama.cpp. */
static struct value compute(struct render *r, char operator, struct value left, struct value right) {
    double a = value_number(r, left), b = value_number(r, right), x = 0;
    bool is_integer = left.kind == INTEGER && right.kind == INTEGER;
    switch (operator) {
    case '+': x = a + b; break;
    case '-': x = a - b; break;
    case '*': x = a * b; break;
    case '/': return value_float(a / b);
    default:
        if (!(b < 0 || b > 0)) render_fail(r, "%%: division by 0");
        else x = fmod(a, b);
    }
    return is_integer ? value_int(integer_of(x)) : value_float(x);
}

static struct value repeat(struct render *r, struct text text, int64_t n) {
    struct output out = {NULL, 0, 0};
    for (int64_t i = 0; i < n && r->stop == STOP_NOT; i++) output_add(r, &out, text);
    return value_output(&out);
}

static struct value eval_binary(struct render *r, struct scope *scope, const struct node *node) {
    struct text operator = node->text;
    struct value a = eval(r, scope, node->a);
    if (r->stop != STOP_NOT) return a;
    if (text_is_word(operator, "and")) return value_truth(r, a) ? eval(r, scope, node->b) : a;
    if (text_is_word(operator, "or")) return value_truth(r, a) ? a : eval(r, scope, node->b);
    struct value b = eval(r, scope, node->b);
    r->at = node->at;
    if (r->stop != STOP_NOT) return a;
    char first = operator.data[0];
    bool is_sum = first == '+' || first == '~', is_in = first == 'i', is_not_in = first == 'n';
    if (operator.n == 2 && operator.data[1] == '=' && (first == '=' || first == '!')) {
        return value_bool(value_equal(r, a, b) == (first == '='));
    }
    if (is_in || is_not_in) {
        /* llama.cpp refuses a list in a list, and undefined in anything but undefined. */
        bool is_valid = b.kind == UNDEFINED || (a.kind != UNDEFINED && b.kind != NONE && !(is_list(a) && is_list(b)));
        if (is_valid) return value_bool(builtin_in(r, a, b) == is_in);
    } else if (is_number(a) && is_number(b)) {
        double x = value_number(r, a), y = value_number(r, b);
        bool or_equal = operator.n == 2;
        if (first == '<') return value_bool(or_equal ? x <= y : x < y);
        if (first == '>') return value_bool(or_equal ? x >= y : x > y);
        if (first != '~') return compute(r, first, a, b);
    } else if (first == '+' && is_list(a) && is_list(b)) {
        struct value both = value_empty(r, LIST);
        for (size_t i = 0; i < a.as.list->n && r->stop == STOP_NOT; i++) list_add(r, both.as.list, a.as.list->items[i]);
        for (size_t i = 0; i < b.as.list->n && r->stop == STOP_NOT; i++) list_add(r, both.as.list, b.as.list->items[i]);
        return both;
    } else if (is_sum && (a.kind == STRING || b.kind == STRING)) {
        return concatenate(r, a, b);
    } else if (first == '*' && a.kind == STRING && b.kind == INTEGER) {
        return repeat(r, a.as.text, b.as.integer);
    } else if (first == '*' && a.kind == INTEGER && b.kind == STRING) {
        return repeat(r, b.as.text, a.as.integer);
    }
    render_fail(r, "%.*s: not for a value of the kind %s and one of the kind %s", (int)operator.n, operator.data,
                kind_name(a.kind), kind_name(b.kind));
    return value_undefined();
}

static struct value eval_unary(struct render *r, struct scope *scope, const struct node *node) {
    struct value v = eval(r, scope, node->a);
    r->at = node->at;
    if (r->stop != STOP_NOT) return v;
    if (node->text.data[0] == 'n') return value_bool(!value_truth(r, v));
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
    const struct node *parts[] = {node->c, node->a, node->b};
    struct value ends[3];   /* step, start, stop */
    int64_t n = v.kind == STRING ? (int64_t)v.as.text.n : is_list(v) ? (int64_t)v.as.list->n : 0;
    for (size_t i = 0; i < 3 && r->stop == STOP_NOT; i++) {
        bool forward = i == 0 || value_integer(r, ends[0]) >= 0;
        int64_t otherwise = i == 0 ? 1 : i == 1 ? (forward ? 0 : n - 1) : forward ? n : -1;
        ends[i] = parts[i] ? eval(r, scope, parts[i]) : value_int(otherwise);
    }
    r->at = node->at;
    if (r->stop != STOP_NOT) return v;
    if (v.kind != STRING && !is_list(v)) {
        render_fail(r, "a value of the kind %s has no slices", kind_name(v.kind));
        return v;
    }
    if (ends[1].kind != INTEGER) render_fail(r, "the start of a slice is not an integer");
    int64_t start = value_integer(r, ends[1]), stop = value_integer(r, ends[2]), step = value_integer(r, ends[0]);
    return r->stop == STOP_NOT ? builtin_slice(r, v, start, stop, step) : v;
}

/* Whether llama.cpp accepts it in brackets: lists too, if what they contain cannot change. */
static bool is_subscript(struct render *r, struct value v) {
    bool is_valid = v.kind == OBJECT || v.kind == LIST || value_is_key(r, v);
    for (size_t i = 0; v.kind == LIST && i < v.as.list->n && is_valid && render_work(r, 1); i++) {
        is_valid = value_is_key(r, v.as.list->items[i]);
    }
    for (size_t i = 0; v.kind == OBJECT && i < v.as.object->n && is_valid && render_work(r, 1); i++) {
        is_valid = value_is_key(r, v.as.object->members[i].value);
    }
    return is_valid;
}

static struct value eval_member(struct render *r, struct scope *scope, const struct node *node) {
    struct value v = eval(r, scope, node->a), key;
    if (r->stop != STOP_NOT) return v;
    r->at = node->at;
    if (node->flag && node->b->kind == NODE_SLICE) return eval_slice(r, scope, node->b, v);
    if (node->flag) {
        key = eval(r, scope, node->b);
        r->at = node->at;
    } else if (node->b->kind == NODE_LITERAL && node->b->literal.kind == INTEGER && node->b->literal.as.integer >= 0) {
        key = node->b->literal;
    } else if (node->b->kind == NODE_VARIABLE) {
        /* A method comes before a member of the same name. */
        struct value found = method(r, v, node->b->text);
        if (found.kind != UNDEFINED) return found;
        key = value_string(node->b->text);
    } else {
        render_fail(r, "what follows a point is not a name");
        return v;
    }
    if (r->stop != STOP_NOT || key.kind == UNDEFINED) return value_undefined();
    if (!is_subscript(r, key)) {
        render_fail(r, "a value of the kind %s names no member", kind_name(key.kind));
    } else if (v.kind == OBJECT) {
        struct value *found = value_is_key(r, key) ? object_find(r, v.as.object, key) : NULL;
        if (found && found->kind != UNDEFINED) return *found;
        if (!value_is_key(r, key)) render_fail(r, "a value of the kind %s names no member", kind_name(key.kind));
        return method(r, v, value_text(r, key));
    } else if ((is_list(v) || v.kind == STRING) && key.kind == INTEGER) {
        if (v.kind != STRING) v.as.list->is_read = true;
        int64_t i = key.as.integer, n = (int64_t)(v.kind == STRING ? v.as.text.n : v.as.list->n);
        if (i < 0 && v.kind != STRING) i += n;   /* llama.cpp counts only lists from their end */
        if (i < 0 || i >= n) return value_undefined();
        return v.kind == STRING ? value_string(text_part(v.as.text, (size_t)i, 1)) : v.as.list->items[i];
    } else if (key.kind == STRING) {
        return method(r, v, key.as.text);
    } else if (v.kind != UNDEFINED) {
        render_fail(r, "a value of the kind %s names no member of one of the kind %s", kind_name(key.kind),
                    kind_name(v.kind));
    }
    return value_undefined();
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
    case NODE_UNARY: return eval_unary(r, scope, node);
    case NODE_FILTER: {
        struct value v = eval(r, scope, node->a);
        return r->stop == STOP_NOT ? apply_filter(r, scope, node->b, v) : v;
    }
    case NODE_TEST: return eval_test(r, scope, node);
    case NODE_SELECT: case NODE_TERNARY: {
        struct value test = eval(r, scope, node->kind == NODE_SELECT ? node->b : node->a);
        bool truth = r->stop == STOP_NOT && value_truth(r, test);
        if (r->stop != STOP_NOT) return test;
        if (node->kind == NODE_TERNARY) return eval(r, scope, truth ? node->b : node->c);
        return truth ? eval(r, scope, node->a) : value_undefined();
    }
    case NODE_MEMBER: return eval_member(r, scope, node);
    case NODE_BLANK: return value_undefined();
    case NODE_CALL: return eval_call(r, scope, node);
    case NODE_NAMED: return eval_named(r, scope, node);
    case NODE_SPREAD: render_fail(r, "*: arguments from a list are not supported"); return value_undefined();
    default: render_fail(r, "expected an expression"); return value_undefined();
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
            if (target->list.items[i]->kind != NODE_VARIABLE) render_fail(r, "an item before = or in is not a name");
            else assign(r, scope, target->list.items[i]->text, v.as.list->items[i]);
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

static void run_set(struct render *r, struct scope *scope, const struct node *node) {
    struct value v;
    if (node->b) {
        v = eval(r, scope, node->b);
    } else {
        struct output out = {NULL, 0, 0};
        run_all(r, scope, node->list, &out);
        v = value_output(&out);
    }
    if (r->stop == STOP_NOT) assign_to(r, scope, node->a, v);
}

/* Leaves an if or for statement by break or continue: as in llama.cpp, what it has printed is lost. */
static void drop_output(struct render *r, struct output *out, size_t n) {
    if (r->stop == STOP_BREAK || r->stop == STOP_CONTINUE) out->n = n;
}

static void run_if(struct render *r, struct scope *scope, const struct node *node, struct output *out) {
    size_t before = out->n;
    for (;;) {
        struct value test = eval(r, scope, node->a);
        bool truth = r->stop == STOP_NOT && value_truth(r, test);
        bool is_elif = !truth && node->more.n == 1 && node->more.items[0]->kind == NODE_IF;
        if (r->stop != STOP_NOT) return;
        if (!is_elif) {
            run_all(r, scope, truth ? node->list : node->more, out);
            break;
        }
        node = node->more.items[0];
    }
    drop_output(r, out, before);
}

/* Returns the variable `loop` of iteration i. */
static struct value loop_variable(struct render *r, const struct list *list, size_t i) {
    struct value v = value_empty(r, OBJECT);
    struct member *members = render_alloc(r, 9 * sizeof *members);
    if (!members || v.kind != OBJECT) return value_undefined();
    int64_t n = (int64_t)list->n, k = (int64_t)i;
    const struct { const char *name; struct value value; } facts[9] = {
        {"index", value_int(k + 1)}, {"index0", value_int(k)}, {"revindex", value_int(n - k)},
        {"revindex0", value_int(n - k - 1)}, {"first", value_bool(k == 0)}, {"last", value_bool(k == n - 1)},
        {"length", value_int(n)}, {"previtem", k > 0 ? list->items[i - 1] : value_undefined()},
        {"nextitem", k < n - 1 ? list->items[i + 1] : value_undefined()},
    };
    for (size_t f = 0; f < 9; f++) members[f] = (struct member){value_string(text_of(facts[f].name)), facts[f].value};
    *v.as.object = (struct object){members, 9, 9, true};
    return v;
}

/* The items of a for statement that pass its condition. */
static struct value loop_items(struct render *r, struct scope *scope, const struct node *node) {
    bool is_filtered = node->b->kind == NODE_SELECT;
    struct value all = eval(r, scope, is_filtered ? node->b->a : node->b), list = value_empty(r, LIST);
    r->at = node->at;
    if (r->stop != STOP_NOT) return list;
    if (!is_list(all) && all.kind != OBJECT && all.kind != UNDEFINED) {
        render_fail(r, "for: expected a list or an object, found a value of the kind %s", kind_name(all.kind));
    }
    size_t n = all.kind == OBJECT ? all.as.object->n : is_list(all) ? all.as.list->n : 0;
    if (is_list(all)) all.as.list->is_read = true;
    for (size_t i = 0; i < n && r->stop == STOP_NOT; i++) {
        struct value item = all.kind == OBJECT ? all.as.object->members[i].key : all.as.list->items[i];
        if (all.kind == OBJECT && node->a->kind == NODE_TUPLE) {
            struct value pair = value_empty(r, TUPLE);
            if (pair.kind != TUPLE) break;
            list_add(r, pair.as.list, item);
            list_add(r, pair.as.list, all.as.object->members[i].value);
            item = pair;
        }
        if (is_filtered) {
            struct scope *inner = make_scope(r, scope);
            if (inner) assign_to(r, inner, node->a, item);
            struct value test = r->stop == STOP_NOT ? eval(r, inner, node->b->b) : item;
            if (r->stop != STOP_NOT || !value_truth(r, test)) continue;
        }
        list_add(r, list.as.list, item);
    }
    return list;
}

static void run_for(struct render *r, struct scope *outer, const struct node *node, struct output *out) {
    size_t before = out->n;
    struct scope *scope = make_scope(r, outer);
    struct value list = scope ? loop_items(r, scope, node) : value_undefined();
    bool is_complete = false;   /* at least one iteration ended without break and continue */
    for (size_t i = 0; r->stop == STOP_NOT && i < list.as.list->n; i++) {
        assign(r, scope, text_of("loop"), loop_variable(r, list.as.list, i));
        assign_to(r, scope, node->a, list.as.list->items[i]);
        if (r->stop == STOP_NOT) run_all(r, scope, node->list, out);
        bool is_last = r->stop == STOP_BREAK;
        if (r->stop == STOP_NOT) is_complete = true;
        else if (r->stop != STOP_FAILED) r->stop = STOP_NOT;
        if (is_last) break;
    }
    /* As in llama.cpp, else also follows a loop whose iterations all ended early. */
    if (r->stop == STOP_NOT && !is_complete) run_all(r, outer, node->more, out);
    drop_output(r, out, before);
}

static void run_call_block(struct render *r, struct scope *scope, const struct node *node, struct output *out) {
    struct value callee = eval(r, scope, node->a->a);
    r->at = node->at;
    if (r->stop == STOP_NOT && callee.kind != FUNCTION) {
        render_fail(r, "call: a value of the kind %s cannot be called: %.*s", kind_name(callee.kind),
                    (int)node->a->a->text.n, node->a->a->text.data);
    }
    struct scope *inner = make_scope(r, scope);
    if (!inner || r->stop != STOP_NOT) return;
    assign(r, inner, text_of("caller"), make_function(r, text_of("caller"), node, scope));
    struct value *args = eval_arguments(r, scope, node->a->list);
    if (args) value_print(r, out, invoke(r, inner, callee.as.function, args, node->a->list.n));
}

static void run(struct render *r, struct scope *scope, const struct node *node, struct output *out) {
    r->at = node->at;
    switch (node->kind) {
    case NODE_TEXT: output_add(r, out, node->literal.as.text); break;
    case NODE_NOTHING: break;
    case NODE_IF: run_if(r, scope, node, out); break;
    case NODE_FOR: run_for(r, scope, node, out); break;
    case NODE_SET: run_set(r, scope, node); break;
    case NODE_MACRO:
        if (node->a->kind != NODE_VARIABLE) render_fail(r, "macro: its name is not a name");
        else assign(r, scope, node->a->text, make_function(r, node->a->text, node, NULL));
        break;
    case NODE_CALL_BLOCK: run_call_block(r, scope, node, out); break;
    case NODE_FILTER_BLOCK: {
        struct output text = {NULL, 0, 0};
        run_all(r, scope, node->list, &text);
        if (r->stop == STOP_NOT) value_print(r, out, apply_filter(r, scope, node->a, value_output(&text)));
        break;
    }
    case NODE_BREAK: r->stop = STOP_BREAK; break;
    case NODE_CONTINUE: r->stop = STOP_CONTINUE; break;
    default: {
        struct value v = eval(r, scope, node);
        if (r->stop == STOP_NOT) value_print(r, out, v);
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
    struct scope base = {{NULL, 0, 0, true}, NULL};
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

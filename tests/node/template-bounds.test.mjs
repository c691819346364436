/** Chat templates that would not end or would fill the memory.  The bounds are counts, so only the tests of the
 * deadline depend on a clock, and in those only the deadline can end the render. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import fc from 'fast-check';
import { counted, renderBounded } from '../../web/template/jinja.js';
import { LIMITS } from '../../web/template/limits.js';
import { Plumb, PlumbError } from '../../web/node/index.js';
import { NO_FLAGS, platform, wrap } from '../../web/node/platform.js';
import { Renderer } from '../../web/template/template.js';
import { fails, plumbOn, root, tiny, tinyPath } from './helpers.mjs';

const CHARACTERS = /processes more than 67108864 characters/, STEPS = /takes more than 300000 steps/;
const RANGE = /a range of more than 10000 numbers/, TEXT = /produces a text of more than 16777216 characters/;
const DEEP = /nested more than 250 levels deep/;
const doubled = (value, times, more) => `{% set ns = namespace(x=${value}) %}{% for i in range(${times}) %}`
  + `{% set ns.x = ${more ?? 'ns.x + ns.x'} %}{% endfor %}`;
const lists = doubled('[1]', 60, '[ns.x, ns.x]');
const many = body => `{% for i in range(9999) %}${body}{% endfor %}`;
const often = body => `{% for i in range(9999) %}{% for j in range(9999) %}${body}{% endfor %}{% endfor %}`;

const BOMBS = [
  ['a list of itself, 60 times, printed', `${lists}{{ ns.x }}`, CHARACTERS],
  ['... as text', `${lists}{{ ns.x ~ "" }}`, CHARACTERS],
  ['... compared', `${lists}{{ ns.x == "" }}`, CHARACTERS],
  ['... joined', `${lists}{{ ns.x | join }}`, CHARACTERS],
  ['... as JSON', `${lists}{{ ns.x | tojson(indent=4) }}`, CHARACTERS],
  ['... as a string', `${lists}{{ ns.x | string }}`, CHARACTERS],
  ['... in an exception', `${lists}{{ raise_exception(ns.x) }}`, CHARACTERS],
  ['... in a range', `${lists}{{ range(ns.x) }}`, CHARACTERS],
  ['... with sorted names', `${doubled('{"a": 1}', 60, '{"a": ns.x, "b": ns.x}')}{{ ns.x | tojson(sort_keys=true) }}`,
    CHARACTERS],
  ['a namespace in itself', '{% set ns = namespace() %}{% set ns.a = ns %}{% set ns.b = ns %}{{ ns }}',
    /nested more than 100 levels deep/],
  ['upper of a large text, often', doubled('"ab"', 22) + many('{% set y = ns.x | upper %}'), CHARACTERS],
  ['... as a method', `${doubled('"ab"', 22)}{% set f = ns.x.upper %}${many('{% set y = f() %}')}`, CHARACTERS],
  ['... as a test', doubled('"ab"', 22) + many('{% if ns.x is upper %}{% endif %}'), CHARACTERS],
  ['... by its characters', `${doubled('"ab"', 22)}${often('{% set y = (ns.x ~ j)[0] %}')}`, CHARACTERS],
  ['a text that doubles', `${doubled('"ab"', 40)}{{ ns.x }}`, TEXT],
  ['a list that doubles', `${doubled('[1]', 40)}{{ ns.x | length }}`, CHARACTERS],
  ['white space', `${' '.repeat(200000)}x`, CHARACTERS],
  ['white space behind a tag', `${'{%'.padEnd(2000)}`.repeat(100), CHARACTERS],
  ['a template without end', 'x'.repeat(1 << 21), /it has 2097152 characters; the limit is 1048576/],
  ['loops in loops', often('{{ j }}'), CHARACTERS],
  ['nothing but steps', `{% for i in range(99) %}${'{{ 1 }}'.repeat(9000)}{% endfor %}`, STEPS],
  ['a range', '{% for i in range(1000000000) %}x{% endfor %}', RANGE],
  ['a range from a number on', '{% for i in range(5, 1000000000) %}x{% endfor %}', RANGE],
  ['ranges', '{{ range(10 ** 300, 10 ** 301) }}', RANGE],
  ['a range of no numbers', '{{ range("a") }}', /a range whose bounds are not numbers/],
  ['many ranges', many('{% set y = range(9999) %}'), CHARACTERS],
  ['split of a large text', `${doubled('"ab"', 22)}{{ ns.x.split("a") | length }}`, CHARACTERS],
  ['split by white space', `${doubled('"a "', 22)}{{ ns.x.split() | length }}`, CHARACTERS],
  ['replace by what is large', `${doubled('"aa"', 14)}{{ ns.x | replace("a", ns.x) }}`, CHARACTERS],
  ['replace of nothing', `${doubled('"aa"', 14)}{{ ns.x.replace("", ns.x) }}`, CHARACTERS],
  ['join by what is large', `${doubled('"aa"', 14)}{{ range(9999) | join(ns.x) }}`, CHARACTERS],
  ['an indentation', '{{ "a\nb" | indent(100000000) }}', CHARACTERS],
  ['an indentation of JSON', '{{ [1] | tojson(indent=100000000) }}', CHARACTERS],
  ['a search that goes back', `${doubled('"aa"', 20)}{{ (ns.x[:1000000] ~ "b") in ns.x }}`, CHARACTERS],
  ['a search in a list',
    `${doubled('"aa"', 18)}{% set l = [ns.x, ns.x, ns.x] %}${often('{% if ns.x ~ j in l %}{% endif %}')}`, CHARACTERS],
  ['sorts', many('{% set y = range(9999) | sort %}'), CHARACTERS],
  ['sorts by a long path',
    `${doubled('"a."', 18)}{{ [{}, {}, {}, {}, {}, {}, {}, {}] | sort(attribute=ns.x) }}`, CHARACTERS],
  ['a list in itself, printed', '{% set l = [] %}{% set _ = l.append(l) %}{{ l }}',
    /nested more than 100 levels deep/],
  ['... compared', '{% set l = [1] %}{% set m = [1] %}{% set _ = l.append(m) %}{% set _ = m.append(l) %}{{ l == m }}',
    /nested too deeply|processes more than/],
  ['lists that double, compared', `${lists}{% set y = ns.x %}${lists}{{ ns.x == y }}`, CHARACTERS],
  ['a list that grows in a loop over it', '{% set l = [1] %}{% for i in l if l.append(1) or true %}{% endfor %}',
    STEPS],
  ['a list that grows', `{% set l = [] %}${often('{% set _ = l.append(1) %}')}`, STEPS],
  ['a text many times', '{{ "ab" * 100000000 }}', CHARACTERS],
  ['... and again', `${doubled('"ab"', 22)}${many('{% set y = ns.x * 2 %}')}`, CHARACTERS],
  ['comparisons of large texts', `${doubled('"ab"', 22)}${many('{% set y = ns.x < ns.x ~ "a" %}')}`, CHARACTERS],
  ['characters to strip', `${doubled('"ab"', 22)}${many('{% set y = "a".strip(ns.x) %}')}`, CHARACTERS],
  ['format with what is large', `${doubled('"ab"', 20)}${many('{% set y = "{}".format(ns.x) %}')}`, CHARACTERS],
  ['format of what is large', `${doubled('"{}"', 20)}${many('{% set y = ns.x.format(1) %}')}`, /fewer arguments/],
  ['rsplit of a large text', `${doubled('"ab"', 22)}{{ ns.x.rsplit("a") | length }}`, CHARACTERS],
  ['select by what is large', `${doubled('"ab"', 20)}${many('{% set y = [ns.x] | select("in", ns.x) %}')}`, CHARACTERS],
  ['select by a list', `${lists}${many('{% set y = [ns.x] | select("eq", ns.x) | list %}')}`, CHARACTERS],
  ['map by a filter', many('{% set y = range(9999) | map("string") | list %}'), CHARACTERS],
  ['the largest of a list', many('{% set y = range(9999) | max %}'), CHARACTERS],
  ['dictsort, often', `{% set d = {${Array.from({ length: 999 }, (_, i) => `"k${i}": ${i}`)}} %}`
    + many('{% set y = d | dictsort %}'), CHARACTERS],
  ['dates', often('{{ strftime_now("%Y") }}'), CHARACTERS],
  ['names that are not there', often('{{ nothing }}'), CHARACTERS],
  ['jumps', often('{% continue %}'), CHARACTERS],
  ['deep jumps', often(`${'{% if 1 %}'.repeat(90)}{% continue %}${'{% endif %}'.repeat(90)}`), /more than/],
  ['definitions', many(`{% macro f() %}${'{{ a }}'.repeat(50000)}{% endmacro %}`), CHARACTERS],
  ['tuples', doubled('[1]', 13) + many(`{% set ${Array(8192).fill('a').join()} = ns.x %}`), CHARACTERS],
  ['arguments', `${doubled('[1]', 20)}{% macro f() %}{{ varargs }}{% endmacro %}{% for i in range(99) %}`
    + '{% set y = f(*ns.x) %}{% endfor %}', CHARACTERS],
  ['a macro that calls itself', '{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}', DEEP],
  ['a long sum', `{{ 1${'+1'.repeat(100000)} }}`, DEEP],
  ['parentheses', `{{ ${'('.repeat(100000)}1${')'.repeat(100000)} }}`, /nested too deeply/],
  ['lists in lists', `{{ ${'['.repeat(50000)}${']'.repeat(50000)} }}`, /nested too deeply/],
  ['tags in tags', `${'{% if 1 %}'.repeat(40000)}${'{% endif %}'.repeat(40000)}`, /nested too deeply/],
  ['a long exception', '{{ raise_exception("ab" ~ "cd" ~ range(9999) | join("x" )) }}', /^.{500,600}$/s],
];

/** No deadline that a test could reach. */
const NEVER = { deadline: 600000, lastDeadline: 600000 };

describe('a template that would not end or would fill the memory is an error that names the bound', () => {
  const renderer = new Renderer(platform.startRenderer, NEVER);
  for (const [what, source, message] of BOMBS) {
    test(String(what), async () => {
      await fails(renderer.render(String(source), {}), 'PLUMB_ERROR_TEMPLATE', /** @type {RegExp} */ (message));
      assert.equal(await renderer.render('{{ a }}', { a: 'still there' }), 'still there');
    });
  }
});

test('a long chat stays far below the bounds', () => {
  const turn = { role: 'user', content: 'Tell me a story about a fox and an owl. '.repeat(25) };
  const source = '{% for m in messages %}{{ "<|im_start|>" + m.role + "\\n" + (m.content | trim) + "<|im_end|>\\n" }}'
    + '{% if m.content.split("</think>") | length > 1 %}!{% endif %}{% endfor %}';
  const text = renderBounded(source, { messages: Array(500).fill(turn) });
  const { steps, work } = counted();
  assert.ok(text.length > 500000 && steps < LIMITS.steps / 5 && work < LIMITS.work / 5, `${steps} steps, ${work}`);
});

// --- A grammar of templates -----------------------------------------------------------------------------------------

const pick = (...texts) => fc.constantFrom(...texts);
const join = (...parts) => fc.tuple(...parts.map(part => typeof part === 'string' ? fc.constant(part) : part))
  .map(all => all.join(''));
const NAMES = pick('s', 'n', 'l', 'o', 'messages', 'ns', 'ns.x', 'ns.y', 'loop', 'nothing', 'caller', 'f');
const NUMBERS = pick('0', '1', '2', '-1', '3', '40', '1000', '9999', '100000000', '10 ** 300', '1.5');
const FILTERS = pick('count', 'min', 'max', 'map("upper")', 'select("in", l)', 'reject', 'select("eq", s)',
  'd("x", true)', 'upper', 'lower', 'title', 'capitalize', 'trim', 'length', 'first', 'last', 'list', 'reverse',
  'sort', 'join', 'string', 'unique', 'tojson', 'indent', 'items', 'int', 'float', 'abs', 'safe', 'bool', 'dictsort',
  'tojson(indent=2)', 'tojson(ensure_ascii=true, sort_keys=true)', 'default("x")', 'selectattr("role")',
  'rejectattr("role", "equalto", "user")', 'map(attribute="role")', 'sort(attribute="a.b", reverse=true)');
const { template } = fc.letrec(tie => {
  const e = tie('expression');
  return {
    expression: fc.oneof({ maxDepth: 4, depthIdentifier: 'expression' },
      NAMES, NUMBERS,
      pick('"ab"', '"a b\\nc"', '"\\u00e4\\u2028"', '""', '[]', '{}', 'true', 'none', '[1, 2]', '{"a": s}'),
      join(e, pick(' + ', ' ~ ', ' * ', ' - ', ' == ', ' in ', ' not in ', ' < ', ' and ', ' or ', ' ** ', ' // '), e),
      join('(', e, ' | ', FILTERS, ')'),
      join('(', e, ' | ', pick('join', 'replace', 'indent', 'default', 'int'), '(', e, '))'),
      join('(', e, ' | ', pick('replace', 'sort', 'indent'), '(', e, ', ', e, '))'),
      join(e, '.', pick('upper()', 'lower()', 'strip()', 'title()', 'split()', 'items()', 'keys()', 'values()',
        'append(l)', 'pop()', 'pop(0)', 'format(s, l)', 'rsplit("o")', 'strip(s)', 'rstrip("x")',
        'length', 'startswith(s)', 'get("a")', 'dictsort()', 'dictsort(by="value")', 'a', '0')),
      join(e, '.', pick('split', 'replace', 'startswith', 'get', 'upper', 'append', 'format', 'rsplit', 'lstrip'), '(',
        e, ', ', e, ')'),
      join(e, '[', e, ']'), join(e, '[', e, ':', e, ':', e, ']'),
      join('[', e, ', ', e, ']'), join('{"a": ', e, ', "b": ', e, '}'),
      join('{1: ', e, '}'),
      join('(', e, ' if ', e, ' else ', e, ')'),
      join('(', e, ' is ', pick('defined', 'string', 'upper', 'lower', 'mapping', 'none', 'odd'), ')'),
      join(pick('range', 'f', 'namespace', 'raise_exception', 'strftime_now', 'caller'), '(', e, ')'),
      join('range(', e, ', ', e, ')'), join('f(*', e, ')'), join('f(**', e, ')'), join('not ', e), join('-', e)),
    statement: fc.oneof({ maxDepth: 3, depthIdentifier: 'statement' },
      pick('x', ' \n', '<|im_end|>', '{# c #}', '{% break %}', '{% continue %}'),
      join('{{ ', e, ' }}'), join('{%- set ns.x = ', e, ' -%}'), join('{% set ns.y = [ns.x, ns.y] %}'),
      join('{% set ns.x = ns.x + ns.x %}'), join('{% set s = ', e, ' %}'), join('{% set a, b = ', e, ' %}'),
      join('{% for i in ', e, ' %}', tie('statements'), '{% endfor %}'),
      join('{% for a, b in ', e, ' %}', tie('statements'), '{% endfor %}'), join('{% set _ = l.append(', e, ') %}'),
      join('{% for i in range(', NUMBERS, ') %}', tie('statements'), '{% endfor %}'),
      join('{% for a, b in ', e, ' if ', e, ' %}', tie('statements'), '{% else %}', tie('statements'), '{% endfor %}'),
      join('{% if ', e, ' %}', tie('statements'), '{% elif ', e, ' %}', tie('statements'), '{% endif %}'),
      join('{% macro f(a, b=', e, ') %}', tie('statements'), '{% endmacro %}'),
      join('{% call f(', e, ') %}', tie('statements'), '{% endcall %}'),
      join('{% filter ', pick('upper', 'indent', 'trim', 'title'), ' %}', tie('statements'), '{% endfilter %}'),
      join('{% set ns.x %}', tie('statements'), '{% endset %}')),
    statements: fc.array(tie('statement'), { maxLength: 4 }).map(all => all.join('')),
    template: fc.array(tie('statement'), { maxLength: 12 })
      .map(all => `{% set ns = namespace(x=s, y=l) %}${all.join('')}`),
  };
});
const VARIABLES = {
  s: 'Hello, World', n: 7, l: [3, 1, 'b'], o: { a: 1, b: 'x' },
  messages: [{ role: 'user', content: 'a\nb c' }, { role: 'assistant', content: 'd', a: { b: 2 } }],
};
const SMALL = { steps: 3000, work: 200000 };

/** Runs an action and counts the characters and elements that the built-in functions of JavaScript read and make. */
function metered(action) {
  let touched = 0;
  const size = value => typeof value === 'string' || Array.isArray(value) ? value.length : 0;
  const undo = [];
  for (const [object, names] of /** @type {[any, string[]][]} */ ([
    [String.prototype, ['toUpperCase', 'toLowerCase', 'trim', 'trimEnd', 'trimStart', 'split', 'replace', 'replaceAll',
      'includes', 'repeat', 'slice', 'startsWith', 'endsWith', 'localeCompare']],
    [Array.prototype, ['map', 'join', 'concat', 'slice', 'reverse', 'sort', 'filter', 'find', 'some', 'every', 'splice',
      'reduce']],
    [JSON, ['stringify']], [Array, ['from']],
  ])) {
    for (const name of names) {
      const original = object[name];
      undo.push(() => { object[name] = original; });
      object[name] = function (...args) {
        const result = original.apply(this, args);
        // A slice of a text takes constant time, like a concatenation.
        const isPart = name === 'slice' && typeof result === 'string';
        touched += isPart ? 1 : size(result) + (result === this ? 0 : size(this));
        return result;
      };
    }
  }
  try {
    return { result: action(), touched: () => touched };
  } finally {
    for (const one of undo) one();
  }
}

/** The number of templates that gave a text; errors alone would satisfy any property. */
let texts = 0;

/** Checks that a template gives a result or an error, and that its counts hold. */
function check(source) {
  let error;
  try {
    renderBounded(source, VARIABLES, SMALL);
    texts++;
  } catch (thrown) {
    error = thrown;
  }
  assert.ok(error === undefined || error instanceof PlumbError && error.code === 'PLUMB_ERROR_TEMPLATE', String(error));
  assert.ok(error === undefined || error.message.length <= 600, `a message of ${error?.message.length}`);
  // Again, now that it is parsed: the work equals the count, whether the render completes or is stopped.
  const { touched } = metered(() => {
    try {
      renderBounded(source, VARIABLES, SMALL);
    } catch {
      // as before
    }
  });
  const { steps, work } = counted();
  assert.ok(steps <= SMALL.steps + 1, `${steps} steps`);
  const most = 4 * Math.min(work, SMALL.work) + 100 * steps + 50 * source.length + 1000;   // it may fail to parse
  assert.ok(touched() <= most, `it touches ${touched()} characters, but counts ${steps} steps and ${work} characters`);
}

const RUNS = { numRuns: Number(process.env.RUNS ?? 3000), seed: Number(process.env.SEED ?? 1) };

test('any template gives a text or PLUMB_ERROR_TEMPLATE, and does no more work than it counts', () => {
  texts = 0;
  fc.assert(fc.property(template, check), RUNS);
  assert.ok(texts > RUNS.numRuns / 10, `only ${texts} of ${RUNS.numRuns} templates gave a text`);
});

test('the same holds for a template with a part removed or duplicated', () => {
  texts = 0;
  fc.assert(fc.property(template, fc.nat(), fc.nat(), fc.boolean(), (source, from, length, cut) => {
    const at = from % (source.length + 1), end = at + length % 20;
    check(source.slice(0, at) + (cut ? '' : source.slice(at, end).repeat(2)) + source.slice(end));
  }), RUNS);
  assert.ok(texts > RUNS.numRuns / 50, `only ${texts} of ${RUNS.numRuns} templates gave a text`);
});

// --- The worker -----------------------------------------------------------------------------------------------------

/** A worker of the package. @param {string} file @param {import('node:worker_threads').WorkerOptions} [options] */
const start = (file, options) =>
  wrap(new Worker(new URL(file, new URL('web/node/', `file://${root}`)), { ...options, execArgv: NO_FLAGS }));

const FREE = { steps: Infinity, work: Infinity };

test('the deadline ends a render whatever its counts are, and the next one runs', async () => {
  const renderer = new Renderer(platform.startRenderer, { deadline: 200 });
  const endless = renderer.render(often('{{ j }}'), {}, FREE), next = renderer.render('{{ a }}', { a: 1 });
  await fails(endless, 'PLUMB_ERROR_TEMPLATE', /^tokenizer.chat_template: it takes more than 200 ms$/);
  assert.equal(await next, '1');
});

test('the deadline grows with the messages, but not beyond the last one', async () => {
  for (const [n, ms] of [[100, 233], [500, 300], [1e5, 300]]) {
    const renderer = new Renderer(platform.startRenderer, { deadline: 200, lastDeadline: 300 });
    await fails(renderer.render(often('{{ j }}'), { messages: Array(n).fill(1) }, FREE), 'PLUMB_ERROR_TEMPLATE',
      new RegExp(`it takes more than ${ms} ms$`));
  }
});

test('the memory limit of the worker ends a render too', async () => {
  const small = () => start('./template-worker.js', { resourceLimits: { maxOldGenerationSizeMb: 24 } });
  const renderer = new Renderer(small, NEVER);
  const source = `{% set ns = namespace(x=[]) %}${often('{% set ns.x = [ns.x, "a" ~ j] %}')}`;
  await fails(renderer.render(source, {}, FREE), 'PLUMB_ERROR_TEMPLATE',
    /^tokenizer.chat_template: it takes too much memory: .*memory limit/);
  assert.equal(await renderer.render('{{ a }}', { a: 1 }), '1');
});

test('if no worker starts, the caller\'s thread renders within the same bounds', async () => {
  for (const startRenderer of [
    undefined, () => { throw new DOMException('forbidden', 'SecurityError'); }, () => start('./no-such-file.js'),
  ]) {
    const renderer = new Renderer(startRenderer);
    assert.equal(await renderer.render('{{ a }}', { a: 1 }), '1');
    await fails(renderer.render(`${lists}{{ ns.x }}`, {}), 'PLUMB_ERROR_TEMPLATE', CHARACTERS);
  }
});

test('a variable that cannot be posted to a worker, such as a function, is still defined', async () => {
  const renderer = new Renderer(platform.startRenderer);
  assert.equal(await renderer.render('{{ twice(4) }}', { twice: n => 2 * n }), '8');
  assert.equal(await renderer.render('{{ a }}', { a: 1 }), '1');
});

for (const when of ['has been posted', 'has begun']) {
  test(`closing a model when a render ${when} ends neither that render nor the deadline of the next`, async () => {
    let started = 0, begin = () => {};
    const begun = new Promise(resolve => { begin = () => resolve(undefined); });
    const renderer = new Renderer(() => {
      const worker = platform.startRenderer();
      started++;
      return { ...worker, onMessage: handler => worker.onMessage(message => {
        handler(message);
        if (message.event) begin();
      }) };
    }, { deadline: 2000 });
    renderer.hold();
    const text = renderer.render('{{ a }}', { a: 'said' });
    if (when === 'has begun') await begun;
    else for (let i = 0; i < 4; i++) await null;
    renderer.release();
    renderer.hold();
    assert.equal(await text, 'said');
    assert.equal(started, 1);
    // Without a worker there is no deadline, and this one ends by its count.
    await fails(renderer.render(often('{{ j }}'), {}, { steps: 1e7, work: Infinity }), 'PLUMB_ERROR_TEMPLATE',
      /it takes more than 2000 ms$/);
    renderer.release();
  });
}

for (const worker of [false, true]) {
  test(`models with worker: ${worker} render in one worker, which is started while they load`, async t => {
    let started = 0;
    const ended = [];
    const renderers = { ...platform, startRenderer() {
      const worker = platform.startRenderer(), n = started++;
      return { ...worker, terminate: () => { ended[n] = true; return worker.terminate(); } };
    } };
    const plumb = plumbOn({
      ...renderers, startWorker: () => start('./engine-worker.js'),
      locate: path => ({ kind: 'file', name: String(path), size: tiny.length, path: String(path) }),
    });
    const models = await Promise.all([0, 1].map(() => plumb.load(tinyPath, { worker })));
    after(() => Promise.all(models.map(model => model.close())));
    assert.equal(started, 1);
    for (const model of models) {
      model.metadata['tokenizer.chat_template'] = `${lists}{{ ns.x }}`;
      await fails(model.applyChatTemplate([{ role: 'user', content: 'x' }]), 'PLUMB_ERROR_TEMPLATE',
        /processes more than 67109376 characters/);   // one message allows 512 more
      model.metadata['tokenizer.chat_template'] = '{{ messages[0].content }}';
      assert.equal(await model.applyChatTemplate([{ role: 'user', content: 'x' }]), 'x');
      assert.ok((await model.tokenize('x')).length > 0);
    }
    assert.equal(started, 1);
    await Promise.all(models.map(model => model.close()));
    assert.deepEqual(ended, [true]);
    t.diagnostic(`${started} worker`);
  });
}

for (const [what, variables] of [['', '{}'], [', also if a variable cannot be cloned', '{ twice: n => 2 * n }']]) {
  test(`the worker for templates does not keep a process alive${what}`, () => {
    const text = execFileSync(process.execPath, ['--input-type=module', '-e', `
      import { Plumb } from '${root}web/node/index.js';
      const model = await Plumb.load(${JSON.stringify(tinyPath)}, { worker: false });
      model.metadata['tokenizer.chat_template'] = '{{ messages[0].content }}';
      console.log(await model.applyChatTemplate([{ role: 'user', content: 'said' }], ${variables}));`],
    { encoding: 'utf8', timeout: 60000 });
    assert.equal(text, 'said\n');
    assert.ok(Plumb);
  });
}

test('the chat page says that a template was stopped or refuses the messages', async () => {
  const { explain } = await import('../../web/chat/explain.js');
  const renderer = new Renderer(platform.startRenderer, { deadline: 200 });
  const title = (source, most) => renderer.render(source, {}, most).then(() => 'none', error => explain(error).title);
  for (const source of [`${lists}{{ ns.x }}`, '{{ raise_exception("roles must alternate") }}']) {
    assert.equal(await title(source), 'The model’s chat template failed');
  }
  assert.equal(await title(often('{{ j }}'), FREE), 'The model’s chat template failed');
});

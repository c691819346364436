/** The calculator of the chat page.  Ground truth: Python computes the same random expressions, with floats. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { calculate } from '../../web/chat/tools/calculator.js';
import { random } from './helpers.mjs';

const INEXACT = ['sqrt', 'cbrt', 'exp', 'ln', 'log2', 'log10', 'sin', 'cos', 'atan'];
const PYTHON = `
import json, math, sys
names = {**{n: getattr(math, n) for n in 'sqrt cbrt exp log2 log10 sin cos atan pi e'.split()}, 'abs': math.fabs,
         'min': min, 'max': max, 'ln': math.log, 'floor': lambda x: float(math.floor(x)),
         'ceil': lambda x: float(math.ceil(x))}
def value(text):
    try:
        found = eval(text.replace('^', '**'), {'__builtins__': {}}, names)
        return found if isinstance(found, float) and math.isfinite(found) else None
    except (ArithmeticError, ValueError, TypeError):
        return None
print(json.dumps([value(text) for text in json.load(sys.stdin)]))
`;

/** An expression whose steps IEEE 754 defines to the last bit: powers only of small whole numbers.
 * @param {(n: number) => number} next @param {number} depth @returns {string} */
function exact(next, depth) {
  const inner = () => exact(next, depth - 1), space = () => ' '.repeat(next(2)), small = () => `${next(4)}.`;
  if (depth === 0 || next(8) === 0) {
    return ['pi', 'e', '2.', '.5', '1e3', `${next(100)}.${next(100)}`, `${small()}^${small()}`,
      `${small()} ** ${small()} ^${small()}`][next(8)];
  }
  switch (next(6)) {
    case 0: return `(${inner()})`;
    case 1: return `${'-+'[next(2)]}${inner()}`;
    case 2: return `${['abs', 'floor', 'ceil'][next(3)]}(${inner()})`;
    case 3: return `${['min', 'max'][next(2)]}(${inner()},${space()}${inner()})`;
    default: return `${inner()}${space()}${'+-*/%'[next(5)]}${space()}${inner()}`;
  }
}

/** Such an expression, or a function or a power of some, which may differ in the last bits.
 * @param {(n: number) => number} next */
function expression(next) {
  switch (next(4)) {
    case 0: return `${INEXACT[next(INEXACT.length)]}(${exact(next, 2)})`;
    case 1: return `(${exact(next, 2)})^${exact(next, 0)}`;
    default: return exact(next, 4);
  }
}

test('calculator: 5,000 random expressions have the values that Python computes', () => {
  const next = random(7), all = Array.from({ length: 5000 }, () => expression(next));
  const { stdout, stderr } = spawnSync('python3', ['-c', PYTHON], { input: JSON.stringify(all), encoding: 'utf8' });
  assert.equal(stderr, '');
  const values = JSON.parse(stdout);
  assert.ok(values.filter(value => value !== null).length > 3000);
  values.forEach((value, i) => {
    const compute = () => Number(calculate(all[i]));
    if (value === null) assert.throws(compute, all[i]);
    else assert.ok(Math.abs(compute() - value) <= 1e-14 * Math.abs(value) + 1e-290, `${all[i]} is ${value}`);
  });
});

test('calculator: what is wrong with an expression is said with its place', () => {
  for (const [text, why] of [
    ['', /^expected a number at character 1, found the end$/], ['1 +', /at character 4, found the end$/],
    ['(1', /^expected "\)" at character 3/], ['1 2', /^expected an operator at character 3, found "2"$/],
    ['1 $ 2', /^"\$" at character 3 has no meaning here$/], ['log(10)', /write ln or log10$/],
    ['constructor(1)', /^constructor is not known/], ['__proto__', /^"_" at character 1/],
    ['1/0', /^division by zero$/], ['0^-1', /^division by zero$/], ['sqrt(-1)', /not a real number$/],
    ['10^400', /too large$/], ['sqrt(1, 2)', /^sqrt takes 1 to 1 numbers$/], ['alert`1`', /^"`" at character 6/],
    ['('.repeat(999), /nests deeper/], ['-'.repeat(900), /nests deeper/],
    ['1'.repeat(1001), /at most 1000 characters$/],
  ]) assert.throws(() => calculate(text), { message: why }, text);
  assert.deepEqual(['0.1 + 0.2', '12*7', '2 × 3 − 1', '2^64'].map(calculate), ['0.3', '84', '5',
    '1.84467440737096e+19']);
});

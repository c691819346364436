/** How JavaScript is written here, as far as a program can say it.  tests/tools/style.test.mjs checks it, and
 * `node_modules/.bin/eslint --fix` repairs most of it. */
import stylistic from '@stylistic/eslint-plugin';

const rules = {
  indent: [2, { SwitchCase: 1, ignoredNodes: ['ConditionalExpression'] }], 'max-len': [{ code: 120 }],
  'no-tabs': [], 'no-trailing-spaces': [], 'eol-last': [], 'linebreak-style': ['unix'],
  'no-multiple-empty-lines': [{ max: 1, maxBOF: 0, maxEOF: 0 }], 'padded-blocks': ['never'],
  'lines-between-class-members': ['always', { exceptAfterSingleLine: true }],

  quotes: ['single', { avoidEscape: true }],
  semi: ['always'], 'semi-spacing': [], 'semi-style': ['last'], 'no-extra-semi': [],
  'comma-spacing': [], 'comma-style': ['last'], 'dot-location': ['property'],
  'operator-linebreak': ['before', { overrides: { '=': 'after', '+': 'ignore', '&&': 'ignore', '||': 'ignore' } }],
  'brace-style': ['1tbs', { allowSingleLine: true }], 'curly-newline': [{ consistent: true }],
  'new-parens': [], 'no-extra-parens': ['functions'], 'no-floating-decimal': [], 'wrap-iife': ['inside'],

  'arrow-spacing': [], 'block-spacing': [], 'computed-property-spacing': ['never'],
  'function-call-spacing': ['never'], 'key-spacing': [], 'keyword-spacing': [], 'object-curly-spacing': ['always'],
  'no-multi-spaces': [{ ignoreEOLComments: true }], 'no-whitespace-before-property': [],
  'space-before-blocks': [], 'space-in-parens': ['never'], 'space-infix-ops': [], 'space-unary-ops': [],
  'space-before-function-paren': [{ anonymous: 'always', named: 'never', asyncArrow: 'always' }],
  'spaced-comment': [], 'switch-colon-spacing': [], 'template-curly-spacing': [], 'template-tag-spacing': [],
};

export default [
  { ignores: ['build/', 'web/dist/', '**/node_modules/', 'tests/vectors/'] },
  {
    files: ['**/*.js', '**/*.mjs'],
    plugins: { '@stylistic': stylistic },
    linterOptions: { reportUnusedDisableDirectives: 'off' },
    rules: Object.fromEntries(Object.entries(rules).map(([name, how]) => [`@stylistic/${name}`, ['error', ...how]])),
  },
];

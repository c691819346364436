/* The languages whose code is highlighted, by the names that people write after a fence. */

/** @type {Record<string, string>} */
const ALIASES = {
  bash: 'sh zsh shell console', c: 'h', cpp: 'c++ cc cxx hpp', csharp: 'cs c#', css: '', diff: 'patch', dockerfile:
  'docker', go: 'golang', haskell: 'hs', ini: 'toml', java: '', javascript: 'js jsx mjs cjs node', json: 'jsonc json5',
  kotlin: 'kt', latex: 'tex', lua: '', makefile: 'make mk', markdown: 'md', perl: 'pl', php: '', powershell: 'ps1 pwsh',
  python: 'py python3', r: '', ruby: 'rb', rust: 'rs', scala: '', sql: 'sqlite postgresql mysql', swift: '',
  typescript: 'ts tsx', xml: 'html svg xhtml vue', yaml: 'yml',
};
/** @type {Map<string, string>} */
const LANGUAGES = new Map(Object.entries(ALIASES).flatMap(([language, others]) =>
  [language, ...others.split(' ')].map(name => [name, language])));

/** The names of the files with the languages. */
export const languages = Object.keys(ALIASES);

/** The language that a name means; undefined if its code is not highlighted. @param {string} name */
export const languageOf = name => LANGUAGES.get(name.toLowerCase());

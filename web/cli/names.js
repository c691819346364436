/* tools/tables.mjs writes this file from names.h and options.c in src/cli: change those, `make docs`. */

/** The commands of the C program. */
export const C_COMMANDS = [
  'run', 'chat', 'inspect', 'tokenize', 'score', 'bench', 'trace', 'logits', 'perplexity', 'embed', 'rank', 'grammar',
  'diff', 'selfcheck', 'weights', 'diagnose',
];

/** Other names of options, as llama.cpp and ollama have them. @type {Record<string, string>} */
export const OTHER_NAMES = {
  '-m': '--model',
  '-hfr': '-hf',
  '--hf-repo': '-hf',
  '--prompt': '-p',
  '-f': '--file',
  '-sys': '--system',
  '--system-prompt': '--system',
  '--n-predict': '-n',
  '--predict': '-n',
  '--temperature': '--temp',
  '--typical-p': '--typical',
  '-s': '--seed',
  '-r': '--stop',
  '--reverse-prompt': '--stop',
  '-i': '--interactive',
  '-cnv': '--interactive',
  '--conversation': '--interactive',
  '-no-cnv': '--raw',
  '--no-conversation': '--raw',
  '--grammar-file': '--grammar',
  '-j': '--json-schema',
  '-jf': '--json-schema',
  '--json-schema-file': '--json-schema',
  '-c': '--ctx',
  '--ctx-size': '--ctx',
  '-b': '--batch',
  '--batch-size': '--batch',
  '-t': '--threads',
  '-np': '--parallel',
  '-md': '--model-draft',
  '--draft': '--draft-max',
  '--draft-n': '--draft-max',
  '--draft-n-min': '--draft-min',
};

/** Options that have no effect here. @type {Record<string, {values: number, why: string}>} */
export const IGNORED = {
  '-ngl': { values: 1, why: 'plumb computes on the CPU' },
  '--gpu-layers': { values: 1, why: 'plumb computes on the CPU' },
  '--n-gpu-layers': { values: 1, why: 'plumb computes on the CPU' },
  '--mlock': { values: 0, why: 'plumb reads the whole file into memory' },
  '--no-mmap': { values: 0, why: 'plumb reads the whole file into memory' },
  '--jinja': { values: 0, why: 'plumb always runs the chat template as Jinja' },
  '--no-display-prompt': { values: 0, why: 'plumb does not print the prompt' },
  '--verbose': { values: 0, why: 'plumb always prints the speeds' },
};

/* The functions that peers.mjs calls in its page: packages that run language models, each used as its documentation
 * shows and with its defaults, behind one interface:
 *
 *   load(url, threads)   loads the model, with the package's default threads if none are given; returns their number
 *   answer(question, maxTokens, options, onText)   temperature, top_p and seed by OpenAI's names, or any other option;
 *     onText gets each token
 *   byHand      the functions that give tokens and logits to the user's own code */

const modules = new URL('node_modules/', import.meta.url);
const at = path => new URL(path, modules).href;
const CONTEXT = 2048;
const asked = question => [{ role: 'user', content: question }];
/** The installed packages. */
const functions = (owner, ...names) => names.filter(name => typeof owner?.[name] === 'function');

const packages = {
  async plumb() {
    const { Plumb } = await import('../../build/package/index.js');
    let model;
    return {
      async load(url, given) {
        model = await Plumb.load(url, { contextLength: CONTEXT, ...given && { threads: given } });
        const { threads } = await model.info();
        return { threads, note: model.warnings.map(({ message }) => message).join('; ') };
      },
      async answer(question, maxTokens, options, onText) {
        const stream = await model.chat.completions.create({
          messages: asked(question), max_tokens: maxTokens, stream: true, ...options,
        });
        for await (const { choices: [{ delta }] } of stream) onText(delta.content ?? '');
      },
      byHand: () => functions(model, 'tokenize', 'feed', 'rewind', 'trace'),
    };
  },

  async 'wllama-3'() {
    const { Wllama } = await import(at('@wllama/wllama/esm/index.js'));
    const wllama = new Wllama({ default: at('@wllama/wllama/esm/wasm/wllama.wasm') });
    return {
      ...loaderOf(wllama),
      async answer(question, maxTokens, options, onText) {
        const stream = await wllama.createChatCompletion({
          messages: asked(question), max_tokens: maxTokens, stream: true, ...options,
        });
        for await (const { choices: [{ delta }] } of stream) onText(delta.content ?? '');
      },
    };
  },

  async 'wllama-2'() {
    const { Wllama } = await import(at('wllama-2/esm/index.js'));
    const wllama = new Wllama({
      'single-thread/wllama.wasm': at('wllama-2/esm/single-thread/wllama.wasm'),
      'multi-thread/wllama.wasm': at('wllama-2/esm/multi-thread/wllama.wasm'),
    });
    return {
      ...loaderOf(wllama),
      async answer(question, nPredict, { temperature: temp, ...others }, onText) {
        let n = 0;
        await wllama.createChatCompletion(asked(question), {
          nPredict, sampling: { temp, ...others },
          onNewToken(_, __, text) {
            onText(text.slice(n));
            n = text.length;
          },
        });
      },
    };
  },

  'transformers.js q8': () => transformers('q8'),   // its default in WebAssembly
  'transformers.js q4': () => transformers('q4'),

  async 'web-llm'() {
    await import(at('@mlc-ai/web-llm/lib/index.js'));
    return {};
  },
};

/** The common part of both generations of wllama. */
const loaderOf = wllama => ({
  async load(url, given) {
    await wllama.loadModelFromUrl(url, { n_ctx: CONTEXT, ...given && { n_threads: given } });
    return { threads: wllama.isMultithread() ? wllama.getNumThreads() : 1 };
  },
  byHand: () => functions(wllama, 'tokenize', 'decode', 'getLogits', 'kvRemove'),
});

async function transformers(dtype) {
  const { env, pipeline, TextStreamer } = await import(at('@huggingface/transformers/dist/transformers.min.js'));
  const { wasm } = env.backends.onnx;
  env.allowLocalModels = true;
  env.allowRemoteModels = false;
  wasm.wasmPaths = at('onnxruntime-web/dist/');
  let generator;
  return {
    async load(url, given) {
      const { pathname } = new URL(url), slash = pathname.lastIndexOf('/') + 1;
      env.localModelPath = pathname.slice(0, slash);
      if (given) wasm.numThreads = given;
      generator = await pipeline('text-generation', pathname.slice(slash), { dtype, device: 'wasm' });
      return { threads: wasm.numThreads };
    },
    async answer(question, maxTokens, { temperature, ...others }, onText) {
      const { tokenizer } = generator;
      const streamer = new TextStreamer(tokenizer, {
        skip_prompt: true, token_callback_function: tokens => onText(tokenizer.decode(tokens)),
      });
      await generator(asked(question), {
        max_new_tokens: maxTokens, streamer, do_sample: temperature !== 0,
        ...temperature && { temperature }, ...others,
      });
    },
    byHand: () => [...functions(generator.tokenizer, 'encode'), ...functions(generator.model, 'forward')],
  };
}

const violations = [];
addEventListener('securitypolicyviolation', ({ effectiveDirective, blockedURI }) =>
  violations.push(`${effectiveDirective} ${blockedURI.replace(location.origin, '').slice(0, 60)}`));

let peer;
const now = () => performance.timeOrigin + performance.now();

window.peers = {
  async open(name) { peer = await packages[name](); },
  load: async (url, threads) => structuredClone(await peer.load(new URL(url, location.href).href, threads) ?? {}),
  /** The text, when its first and its last piece came (milliseconds since 1970), and its pieces. */
  async answer(question, maxTokens, options = {}) {
    let text = '', first, last, pieces = 0;
    await peer.answer(question, maxTokens, options, piece => {
      if (!piece) return;
      text += piece;
      first ??= now();
      last = now();
      pieces++;
    });
    return { text, first, last, pieces };
  },
  byHand: () => peer.byHand(),
  violations: () => violations,
};

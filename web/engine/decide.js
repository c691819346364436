/* The log-probabilities of labels: texts that may follow a prompt.  All prompts of a call with their labels make a tree
 * of tokens, in which each token is computed once: what prompts have in common at their start, and what labels have in
 * common.  A label begins a new level of the tree with each of its tokens, and the tokens of a level are computed
 * together, by forks of the session.  host.js calls this. */
import { PlumbError } from '../base/errors.js';
import { exp, log } from '../base/math.js';

/** @typedef {import('./engine.js').Engine} Engine
 * @typedef {import('./session.js').Session} Session */
/** @typedef {object} Prompt
 * @property {Int32Array} ids
 * @property {string[]} labels  what may follow it
 * @property {string} name  for messages */
/** @typedef {object} DecideStats
 * @property {number} promptTokens  of all prompts, each with what it has in common with others
 * @property {number} labelTokens  of all labels of all prompts
 * @property {number} reusedTokens  that the session or another one held already
 * @property {number} computedTokens  of prompts and labels
 * @property {number} seconds */
/** @typedef {object} Run
 * @property {(session: Session, ids: Int32Array) => Promise<void>} feed  rejects if the call was aborted
 * @property {<T>(use: () => T) => T} withRoom  calls use again if other sessions can leave the memory that it has not
 *   found */
/** @typedef {object} Item  a label behind its prompt
 * @property {Int32Array} prompt  its tokens; each prompt has an array of its own
 * @property {Int32Array} label  its tokens
 * @property {number} logprob  of the tokens of the label so far
 * @typedef {{session: Session, items: Item[], at: number}} Branch  a session that holds the first `at` tokens of these
 *   items, which share them */

/** How many forks are computed together at most.  Each holds its logits. */
const FORKS = 32;

/** Computes the log-probability of each label behind its prompt: that the text begins with it.  If a label is the
 * beginning of other labels of its prompt, this is that the text begins with it, and goes on with none of those.
 * Afterwards the session holds what all prompts have in common at their start.
 * @param {Engine} engine @param {Session} session @param {Prompt[]} prompts @param {Run} run
 * @returns {Promise<{logprobs: number[][], stats: DecideStats}>}  logprobs: of each label of each prompt */
export async function decide(engine, session, prompts, run) {
  const start = performance.now(), { hasEncoder, decoderStart } = engine.modelInfo();
  session.setShift(0);
  const begun = Int32Array.of(decoderStart);
  const items = prompts.map(({ ids, labels, name }) => {
    const prompt = hasEncoder ? begun.slice() : ids;
    return labels.map(text => {
      const label = engine.tokenize(text, { continues: true });
      if (label.length === 0) throw argumentError(`${name}: the label ${JSON.stringify(text)} has no tokens`);
      checkRoom(session, name, Math.max(ids.length, prompt.length + label.length - 1));
      return /** @type {Item} */ ({ prompt, label, logprob: 0 });
    });
  });
  const tree = new Tree(engine, session, run);
  try {
    if (hasEncoder) {   // its decoder begins anew behind each prompt
      for (const [i, { ids }] of prompts.entries()) {
        run.withRoom(() => session.encode(ids));
        await tree.compute(items[i]);
      }
    } else await tree.compute(items.flat());
  } finally {
    tree.free();
  }
  const encoded = hasEncoder ? prompts.reduce((n, { ids }) => n + ids.length, 0) : 0;
  return {
    logprobs: items.map(labels => labels.map(({ logprob }) => logprob)),
    stats: {
      promptTokens: prompts.reduce((n, { ids }) => n + ids.length, 0),
      labelTokens: items.flat().reduce((n, { label }) => n + label.length, 0),
      reusedTokens: tree.reused, computedTokens: tree.computed + encoded,
      seconds: (performance.now() - start) / 1000,
    },
  };
}

/** @param {Session} session @param {string} name @param {number} tokens  that it must hold */
function checkRoom({ contextLength }, name, tokens) {
  if (tokens <= contextLength) return;
  throw new PlumbError('PLUMB_ERROR_CONTEXT', `decide: ${name} has ${tokens} tokens with its labels, but the context `
    + `holds ${contextLength}; shorten it or load the model with a larger contextLength`, { tokens, contextLength });
}

/** @param {string} message */
const argumentError = message => new PlumbError('PLUMB_ERROR_ARGUMENT', `decide: ${message}`);

class Tree {
  #engine;
  #session;
  #run;
  /** @type {Set<Session>} */
  #forks = new Set();
  reused = 0;
  computed = 0;

  /** @param {Engine} engine @param {Session} session @param {Run} run */
  constructor(engine, session, run) {
    this.#engine = engine;
    this.#session = session;
    this.#run = run;
  }

  /** Sets logprob of the items. @param {Item[]} items */
  async compute(items) {
    const session = this.#session, isShared = items.every(one => tokenAt(one, 0) === tokenAt(items[0], 0));
    const at = isShared ? endOf(items, 0) : 0;
    if (at === 0) session.clear();
    else {
      const shared = tokensOf(items[0], 0, at), reused = session.reuseAny(shared);
      this.reused += reused;
      await this.#feed([{ session, ids: shared.subarray(reused) }]);
    }
    await this.#visit([{ session, items, at }]);
  }

  /** @param {{session: Session, ids: Int32Array}[]} feeds */
  async #feed(feeds) {
    const fed = await Promise.allSettled(feeds.map(({ session, ids }) => this.#run.feed(session, ids)));
    const failed = fed.find(one => one.status === 'rejected');
    if (failed) throw failed.reason;
    this.computed += feeds.reduce((n, { ids }) => n + ids.length, 0);
  }

  /** @param {Branch[]} branches  those that are not of the user's session are freed */
  async #visit(branches) {
    const next = branches.flatMap(branch => this.#split(branch));
    for (let i = 0; i < next.length; i += FORKS) {
      const some = next.slice(i, i + FORKS), rest = new Set(next.slice(i + FORKS).map(({ session }) => session));
      const ends = some.map(({ items, at }) => endOf(items, at));
      const grown = some.map(({ session, items }, k) => {
        // The last branch of a fork takes it over.
        const isLast = !rest.has(session) && some.findLastIndex(one => one.session === session) === k;
        return { session: isLast && session !== this.#session ? session : this.#fork(session), items, at: ends[k] };
      });
      await this.#feed(grown.map(({ session, items: [item] }, k) =>
        ({ session, ids: tokensOf(item, some[k].at, ends[k]) })));
      await this.#visit(grown);
    }
    for (const { session } of branches) this.#close(session);
  }

  /** Reads the log-probabilities of the tokens that come next.  Returns the branches that need to be computed.
   * @param {Branch} branch @returns {Branch[]} */
  #split({ session, items, at }) {
    const ended = items.filter(item => lengthOf(item) === at);
    const inLabel = items.filter(({ prompt }) => prompt.length <= at);
    const groups = groupBy(items.filter(item => lengthOf(item) > at), item => tokenAt(item, at));
    if (inLabel.length > 0) {
      const tokens = [...new Set(inLabel.flatMap(item => tokenAt(item, at) ?? []))];
      const logprobs = new Map(session.logprobs(tokens).map((logprob, i) => [tokens[i], logprob]));
      for (const item of inLabel) item.logprob += logprobs.get(tokenAt(item, at) ?? -1) ?? 0;
      for (const item of ended) {
        const longer = inLabel.filter(({ prompt }) => prompt === item.prompt).flatMap(one => tokenAt(one, at) ?? []);
        item.logprob += logOfOther([...new Set(longer)].map(token => logprobs.get(token) ?? 0));
      }
    }
    return [...groups.values()].filter(group => group.some(item => lengthOf(item) > at + 1))
      .map(items => ({ session, items, at }));
  }

  /** @param {Session} session */
  #fork(session) {
    const fork = this.#run.withRoom(() => session.fork());
    this.#forks.add(fork);
    return fork;
  }

  /** @param {Session} session */
  #close(session) {
    if (this.#forks.delete(session)) this.#engine.closeSession(session);
  }

  /** Frees what is left after an error. */
  free() {
    try {
      for (const fork of this.#forks) this.#close(fork);
    } catch {
      // The engine has crashed, and will be freed.
    }
  }
}

/** @param {Item} item */
const lengthOf = ({ prompt, label }) => prompt.length + label.length;

/** A token of a prompt and its label; undefined behind both. @param {Item} item @param {number} at
 * @returns {number | undefined} */
const tokenAt = ({ prompt, label }, at) => at < prompt.length ? prompt[at] : label[at - prompt.length];

/** @param {Item} item @param {number} at @param {number} end */
const tokensOf = (item, at, end) => end <= item.prompt.length ? item.prompt.subarray(at, end)
  : Int32Array.from({ length: end - at }, (_, i) => tokenAt(item, at + i) ?? 0);

/** Up to where the items, which have a token at `at` in common, are computed at once: they have all tokens in common,
 * and no logits are needed before.
 * @param {Item[]} items @param {number} at */
function endOf(items, at) {
  const prompts = [...new Set(items.map(({ prompt }) => prompt))], [first] = prompts;
  const most = prompts.reduce((least, { length }) => Math.min(least, length), Infinity);
  let end = at + 1;
  while (end < most && prompts.every(prompt => prompt[end] === first[end])) end++;
  return end;
}

/** ln(1 - the sum of some probabilities). @param {number[]} logprobs */
function logOfOther(logprobs) {
  const sum = [...logprobs].sort((a, b) => a - b).reduce((sum, logprob) => sum + exp(logprob), 0);
  return log(Math.max(1 - sum, Number.EPSILON / 2));   // rounding must not make a label impossible
}

/** @template T, K @param {T[]} all @param {(one: T) => K} keyOf @returns {Map<K, T[]>} */
function groupBy(all, keyOf) {
  const groups = new Map();
  for (const one of all) {
    const key = keyOf(one), group = groups.get(key);
    if (group) group.push(one);
    else groups.set(key, [one]);
  }
  return groups;
}

/* The versions of a message.  Editing a message or answering it again begins a new version of the conversation from
 * that message on; the old one keeps the messages that followed it.  A conversation's `messages` are the versions that
 * are shown, and the first message of a version holds the others, each with all messages that follow it. */

/** What is known here of a message.
 * @typedef {{role: 'user' | 'assistant', content: string, reasoning?: string, figures?: string, versions?: Versions,
 *   steps?: import('../tools/kept.js').Step[]}} Message */
/** The other versions from a message on, the oldest first.
 * @typedef {object} Versions
 * @property {Message[][]} before  those older than the one that is shown
 * @property {Message[][]} after  the newer ones */

/** Takes the messages from index on out of a conversation.  Returns the versions of the message that replaces them; an
 * answer without any text is not kept. @param {Message[]} messages @param {number} index
 * @returns {Versions | undefined} */
export function setAside(messages, index) {
  const old = messages.splice(index), [{ content, reasoning, steps, versions }] = old;
  if (old.length === 1 && !content && !reasoning && !steps) return versions;
  delete old[0].versions;
  return { before: [...versions?.before ?? [], withAnswer(old), ...versions?.after ?? []], after: [] };
}

/** Shows the version before or after the one that is shown.
 * @param {Message[]} messages @param {number} index @param {-1 | 1} step */
export function turn(messages, index, step) {
  const { before = [], after = [] } = messages[index].versions ?? {}, next = step < 0 ? before.at(-1) : after[0];
  if (!next) return;
  const old = withAnswer(messages.splice(index));
  delete old[0].versions;
  next[0].versions = step < 0 ? { before: before.slice(0, -1), after: [old, ...after] }
    : { before: [...before, old], after: after.slice(1) };
  for (const message of next) messages.push(message);
}

/** The version that is shown, counted from 1, and how many there are. @param {Message} message */
export function placeOf({ versions: { before, after } = { before: [], after: [] } }) {
  return { at: before.length + 1, of: before.length + 1 + after.length };
}

/** Adds an answer to a last question, or else the page would answer it at once, because it takes it for one that waits
 * for a model. @param {Message[]} messages */
export function withAnswer(messages) {
  if (messages.at(-1)?.role === 'user') messages.push({ role: 'assistant', content: '', figures: 'not answered' });
  return messages;
}

/** Visits the messages of all versions, each after the one that it follows.
 * @template T @param {Message[]} messages @param {T} parent  of the first message
 * @param {(message: Message, parent: T, isLast: boolean) => T} visit  returns the parent of those that follow;
 *   isLast: nothing follows in this version */
export function walk(messages, parent, visit) {
  for (const [i, message] of messages.entries()) {
    const { before, after } = message.versions ?? { before: [], after: [] };
    for (const other of [...before, ...after]) walk(other, parent, visit);
    parent = visit(message, parent, i === messages.length - 1);
  }
}

/** The messages of all versions. @param {Message[]} messages */
export function everyMessage(messages) {
  /** @type {Message[]} */
  const all = [];
  walk(messages, undefined, message => void all.push(message));
  return all;
}

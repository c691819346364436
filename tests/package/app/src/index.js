// A developer's first page: it loads a model, continues a prompt and shows the text.
import { Plumb } from 'plumb-llm';

const { url, prompt, n } = Object.fromEntries(new URLSearchParams(location.search));
const show = text => { document.body.textContent = text; };

/** There is no top-level await, because Vite 5 and 6 build for browsers without it. */
async function main() {
  try {
    const model = await Plumb.load(url, { precision: 'exact16' });
    const ids = [];
    let logits = await model.feed(prompt.split(',').map(Number));
    while (ids.length < Number(n)) {
      ids.push(logits.reduce((best, logit, id) => logit > logits[best] ? id : best, 0));
      logits = await model.step(ids.at(-1));
    }
    const chat = await model.applyChatTemplate([{ role: 'user', content: 'Hello' }]);
    const { threads } = await model.info();
    await model.close();
    const { out } = await Plumb.command(['--version']);
    show(JSON.stringify({ ids, threads, chat, out }));
  } catch (error) {
    show(JSON.stringify({ error: String(error) }));
  }
}
main();

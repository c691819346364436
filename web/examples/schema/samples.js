/* Schemas to begin with. */

/** @typedef {{name: string, about: string, prompt: string, schema: object}} Sample */

const text = { type: 'string', minLength: 2, maxLength: 40 };
/** @param {Record<string, object>} properties */
const object = properties =>
  ({ type: 'object', properties, required: Object.keys(properties), additionalProperties: false });

/** @type {Sample[]} */
export const SAMPLES = [
  { name: 'A character', about: 'strings, numbers within bounds, values of a list',
    prompt: 'Invent a character for a fairy tale.',
    schema: object({ name: text, age: { type: 'integer', minimum: 1, maximum: 120 },
      role: { enum: ['hero', 'villain', 'helper', 'fool'] }, home: text, alive: { type: 'boolean' } }) },
  { name: 'A ticket', about: 'a verdict, a date, a pattern',
    prompt: 'Customer, 2026-03-14: "The lamp came three days late and the box was crushed. I want my money back."',
    schema: object({ date: { type: 'string', format: 'date' },
      mood: { enum: ['angry', 'disappointed', 'neutral', 'pleased'] }, refund: { type: 'boolean' },
      ticket: { type: 'string', pattern: '^[A-Z]{3}-[0-9]{4}$' } }) },
  { name: 'A recipe', about: 'a list of objects',
    prompt: 'Give me a recipe for pancakes.',
    schema: object({ title: text, minutes: { type: 'integer', minimum: 5, maximum: 90 },
      ingredients: { type: 'array', minItems: 2, maxItems: 4,
        items: object({ what: { type: 'string', minLength: 2, maxLength: 20 },
          amount: { type: 'integer', minimum: 1, maximum: 500 },
          unit: { enum: ['g', 'ml', 'piece', 'spoon'] } }) } }) },
];

/* Decisions have the types of OpenAI's package and of System One's. */
import Theirs from 'openai';
import type { NoulResponse, ChoiceResponse, ScoreResponse, SystemOneRequest } from '@typesafe-ai/sdk';
import OpenAI from '../../web/openai.js';
const client = new OpenAI();
declare const params: Theirs.DecisionCreateParams;
const decision: Theirs.Decision = await client.decisions.create(params);
declare const request: SystemOneRequest;
const { answers } = await client.decisions.systemOne(request);
const all: Record<string, NoulResponse | ChoiceResponse | ScoreResponse> = answers;
const model = await import('../../web/index.js').then(({ Plumb }) => Plumb.load('x'));
const decided = await model.decide('x', { a: { type: 'boolean' }, b: { type: 'choice', choices: ['c', 'd'] } });
const value: boolean = decided.answers.a.value, label: string = decided.answers.b.value;
// @ts-expect-error
decided.answers.b.probability;
export { decision, all, value, label };

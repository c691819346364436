/* The provider of plumb-llm/ai and its models have the types of @ai-sdk/provider. */
import type { EmbeddingModelV4, Experimental_DecisionModelV4, LanguageModelV4, ProviderV4 } from '@ai-sdk/provider';
import { createPlumb } from '../../web/ai.js';
const plumb = createPlumb({ models: { a: 'b' } });
const provider: ProviderV4 = plumb, language: LanguageModelV4 = plumb('a');
const embedding: EmbeddingModelV4 = plumb.embeddingModel('a');
const decision: Experimental_DecisionModelV4 = plumb.decisionModel('a');
export { provider, language, embedding, decision };

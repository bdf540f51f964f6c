/** What a model's chat template does: found by reading it, and by what it makes of a short conversation. */
import {
  CALL_STYLES,
  type CallStyle,
  callStyleOf,
  REASONING_STYLES,
  type ReasoningMarks,
  reasoningStyleOf,
} from '../../models/chat/answerStyles.js';
import { ApiError } from '../apiError.js';
import type { ChatInput, ModelTexts, ServedModel } from '../models.js';

import type { ContentForm } from './messages.js';

export interface TemplateTraits extends ContentForm {
  /** How calls are written; undefined where that is not known. */
  readonly calls: CallStyle | undefined;
  /** How thoughts are marked; undefined for models without. */
  readonly reasoning: ReasoningMarks | undefined;
}

const known = new WeakMap<ServedModel, Promise<TemplateTraits>>();

/** Of a model, found once. */
export function traitsOf(model: ServedModel): Promise<TemplateTraits> {
  let found = known.get(model);
  if (found === undefined) {
    found = findTraits(model);
    known.set(model, found);
    // What fails without a fault of the template may succeed another time.
    found.catch(() => known.delete(model));
  }
  return found;
}

const PROBE = 'Wherefore 17';

async function findTraits({ texts, parsers }: ServedModel): Promise<TemplateTraits> {
  const template = String(texts.tokenizerInfo['chat_template'] ?? '');
  const asText = await writes(texts, PROBE);
  const asParts = await writes(texts, [{ type: 'text', text: PROBE }]);
  const calls = parsers?.toolCalls ?? callStyleOf(template) ?? 'none';
  const reasoning = parsers?.reasoning ?? reasoningStyleOf(template) ?? 'none';
  return {
    // One that writes neither is left to say why.
    takesText: asText || !asParts,
    takesParts: asParts,
    hasDeveloper: template.includes('developer'),
    calls: calls === 'none' ? undefined : CALL_STYLES[calls],
    reasoning: reasoning === 'none' ? undefined : REASONING_STYLES[reasoning],
  };
}

/** Whether the template writes what a user says in this way: the text, and nothing of how it is wrapped. */
async function writes(texts: ModelTexts, content: unknown): Promise<boolean> {
  const conversation: ChatInput = {
    messages: [{ role: 'user', content }],
    addGenerationPrompt: true,
    continueFinalMessage: false,
    variables: {},
  };
  try {
    const { text } = await texts.renderChat(conversation);
    return text.includes(PROBE) && !text.includes(`'${PROBE}'`) && !text.includes(`"${PROBE}"`);
  } catch (error) {
    if (error instanceof ApiError && error.status === 400) return false;
    throw error;
  }
}

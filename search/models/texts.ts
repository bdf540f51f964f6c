/** Text in and out of a model whose tokenizer and template are in this thread. */
import { UserError } from '../../errors.js';
import type { ChatTemplate } from '../../models/chat/template.js';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.js';
import type { Dict, PyValue } from '../../python/value.js';
import type { ChatTurn, SearchTexts } from '../asking.js';

/**
 * What templates that state a day are told, so that a result depends on no calendar: the one that published ones state
 * where they are told none.
 */
export const TEMPLATE_DAY = '26 Jul 2024';

/** `variables`: further ones of the template. */
export const searchTexts = (
  tokenizer: Pick<Tokenizer, 'encodeWritten'>,
  template: Pick<ChatTemplate, 'render'> | undefined,
  variables: Dict = new Map(),
): SearchTexts => ({
  encodeWritten: (text) => tokenizer.encodeWritten(text),
  hasTemplate: template !== undefined,
  writeTurns: async (turns, addGenerationPrompt) => {
    if (template === undefined)
      throw new UserError('the model has no chat template', 'copy the one of the original model into the folder');
    const text = await template.render({
      messages: turns.map(messageOf),
      opensAnswer: addGenerationPrompt,
      variables: new Map<string, PyValue>([['date_string', TEMPLATE_DAY], ...variables]),
    });
    return tokenizer.encodeWritten(text);
  },
});

const messageOf = ({ role, content }: ChatTurn): PyValue =>
  new Map<string, PyValue>([
    ['role', role],
    ['content', content],
  ]);

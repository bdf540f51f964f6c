/** The chat template of a checkpoint. */
import { ChatTemplate, findChatTemplate } from '../models/chat/template.js';

/** Undefined if it has none. Throws UserError for a damaged file. */
export function openTemplate(path: string): ChatTemplate | undefined {
  const found = findChatTemplate(path);
  return found === undefined ? undefined : new ChatTemplate(found);
}

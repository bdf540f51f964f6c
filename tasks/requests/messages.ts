/** A prompt as messages, and how the public harness joins their texts. */
import { isSpace } from '../../python/text.js';

export interface Message {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
  /** Follows the content where there is no chat template. */
  readonly delimiter: string;
}

export interface ChatMessage {
  readonly role: string;
  readonly content: string;
}

const meetsSpace = (before: string, after: string): boolean => isSpace(before.slice(-1)) || isSpace(after.slice(0, 1));

/** Both texts, with the delimiter between them unless one is empty or white space meets there. */
export function delimit(before: string, after: string, delimiter: string): string {
  if (before === '' || after === '') return before + after;
  return meetsSpace(before, after) ? before + after : before + delimiter + after;
}

export const needsDelimiter = (before: string, after: string): boolean => before !== '' && !meetsSpace(before, after);

export const joined = (messages: readonly Message[]): string =>
  messages.map(({ content, delimiter }) => content + delimiter).join('');

const bare = ({ role, content }: Message): ChatMessage => ({ role, content });

/** Each message by itself, or all before the answer's prefix as one of the user. */
export function chatMessages(messages: readonly Message[], isMultiturn: boolean): ChatMessage[] {
  if (isMultiturn) return messages.map(bare);
  const system = messages[0]?.role === 'system' ? [bare(messages[0])] : [];
  const rest = messages.slice(system.length);
  const answer = rest.at(-1)?.role === 'assistant' ? [bare(rest.at(-1)!)] : [];
  const asked = rest.slice(0, rest.length - answer.length);
  const content = joined(asked.slice(0, -1)) + (asked.at(-1)?.content ?? '');
  return [...system, { role: 'user', content }, ...answer];
}

/** Conversations whose last message the model is to go on with: the text ends where that message does. */
import { UserError } from '../../errors.js';
import { type Dict, isDict, isList, type PyValue } from '../../python/value.js';

/**
 * Stands at the end of the last message while a template writes it. What the message says may occur behind it as well:
 * the mark does not. The space tells whether the template strips what it is given.
 */
const MARK = 'END-OF-WHAT-IS-TO-BE-CONTINUED ';

const refused = (what: string): UserError =>
  new UserError(`the last message is to be continued, but ${what}`, 'end the conversation with the text of an answer');

/** The messages with a mark behind the last one's text. Throws UserError where that has none. */
export function markLast(messages: readonly PyValue[]): readonly PyValue[] {
  const last = messages.at(-1) ?? null;
  if (!isDict(last)) throw refused('there is none');
  return [...messages.slice(0, -1), new Map(last).set('content', markedContent(last.get('content') ?? null))];
}

/** A text, or parts of which the last is one. */
function markedContent(content: PyValue): PyValue {
  if (typeof content === 'string') return content + MARK;
  const part: Dict | undefined =
    isList(content) && isDict(content.at(-1) ?? null) ? (content.at(-1) as Dict) : undefined;
  const text = part?.get('text');
  if (part === undefined || typeof text !== 'string') throw refused('it has no text');
  return [...(content as readonly PyValue[]).slice(0, -1), new Map(part).set('text', text + MARK)];
}

/** The text up to the mark, without the spaces that the template strips. Throws UserError where there is no mark. */
export function cutAtMark(text: string): string {
  const at = text.lastIndexOf(MARK.trimEnd());
  if (at < 0) throw refused('the chat template does not write it as it is given');
  const before = text.slice(0, at);
  return text.startsWith(MARK, at) ? before : before.trimEnd();
}

/**
 * Values of a body as Python reads them: 1.0 is not 1, whole numbers have any size, and keys keep their order.
 * Templates write them into prompts.
 */
import { parseJsonValue } from '../python/literal.js';
import { isDict, type PyValue } from '../python/value.js';

const texts = new WeakMap<object, string>();

/** Of a body that was parsed from this text. */
export function rememberText(body: object, text: string): void {
  texts.set(body, text);
}

/** Those of these fields that a body has. Of one that was made by hand, they are as they are. */
export function exactFields(
  body: Readonly<Record<string, unknown>>,
  names: readonly string[],
): Readonly<Record<string, unknown>> {
  const text = texts.get(body);
  const given = names.filter((name) => body[name] !== undefined && body[name] !== null);
  const all: PyValue = text === undefined || given.length === 0 ? null : parseJsonValue(text);
  return Object.fromEntries(given.map((name) => [name, isDict(all) ? all.get(name) : body[name]]));
}

/** Arrays of messages: their types and lengths, before anything else of them is looked at. */
import type { StepMessage } from '../../engine/device.js';

export function refuse(what: string): never {
  throw new RangeError(`A step is refused: ${what}.`);
}

/** Arrays of a message that have an element for each part, and for each row. */
const OF_PARTS = ['keptPages', 'newPages', 'from', 'count'] as const;
const OF_ROWS = ['target', 'keyLow', 'keyHigh', 'keep'] as const;
const OF_BRANCHES = ['of', 'from', 'count', 'page'] as const;

/** Messages cross processes: their types are what they should be, and lengths fit each other. */
export function checkArrays(message: StepMessage): void {
  const { sequence, row, inverseTemperature, filters, copies, branches, states } = message;
  const integers = (name: string, value: unknown, length?: number): void => {
    if (!(value instanceof Int32Array && (length === undefined || value.length === length)))
      refuse(`${name} is no array of ${length ?? 'any number of'} whole numbers`);
  };
  for (const name of ['ended', 'sequence', 'pages', 'tokens', 'row'] as const) integers(name, message[name]);
  for (const name of OF_PARTS) integers(name, message[name], sequence.length);
  for (const name of OF_ROWS) integers(name, message[name], row.length);
  if (message.adapter !== undefined) integers('adapter', message.adapter, sequence.length);
  if (!(inverseTemperature instanceof Float32Array && inverseTemperature.length === row.length))
    refuse(`inverseTemperature is no array of ${row.length} numbers`);
  if (filters !== undefined) {
    integers('topK', filters.topK);
    if (filters.topK.length > row.length) refuse(`${filters.topK.length} filtered rows of ${row.length}`);
  }
  if (branches !== undefined)
    for (const name of OF_BRANCHES) integers(`branches.${name}`, branches[name], branches.of?.length ?? 0);
  if (states !== undefined) {
    integers('states.from', states.from, sequence.length);
    integers('states.token', states.token);
    integers('states.to', states.to, states.token.length);
  }
  if (copies === undefined) return;
  integers('copies.from', copies.from);
  integers('copies.to', copies.to, copies.from.length);
  integers('copies.rows', copies.rows, copies.from.length);
}

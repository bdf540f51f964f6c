/** The inputs of a function that say which rows have which adapter. */
import type { FunctionInterface } from '../../ir/function.js';
import { ADAPTER_INPUTS } from '../../ir/adapterRows.js';
import type { CallArrays } from '../../runtime/call.js';

/** The slot of a row without adapter. */
export const NO_ADAPTER = -1;

/** Inputs beside which those of slots are as long, for each of their extents. */
const BESIDE: Readonly<Record<string, string>> = {
  [ADAPTER_INPUTS['T']!]: 'tokens',
  [ADAPTER_INPUTS['R']!]: 'row',
};

/** The inputs of a call, in all rows of which one slot is named where none is named yet. */
export function withSlots(
  { inputs: declared }: Pick<FunctionInterface, 'inputs'>,
  inputs: CallArrays,
  slot: number,
): CallArrays {
  const missing = declared.filter(({ role, name }) => role.kind === 'adapter' && inputs[name] === undefined);
  if (missing.length === 0) return inputs;
  const filled = missing.map(({ name }): [string, Int32Array] => {
    const beside = inputs[BESIDE[name] ?? ''];
    if (beside === undefined) throw new RangeError(`The input ${name} is missing.`);
    return [name, new Int32Array(beside.length).fill(slot)];
  });
  return { ...inputs, ...Object.fromEntries(filled) };
}

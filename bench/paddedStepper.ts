/** What padding costs: every sequence reads as many keys as the longest may have, most of them not its own. */
import type { StepInputs } from '../generate/stepArrays.js';
import type { Stepper } from '../generate/stepper.js';

/**
 * `inputs` with the list of each path begun by keys of other slots, so that it has `length` entries for its last token,
 * and positions moved by as many. What is computed is another text's: only the work is meant.
 */
export function padded(inputs: StepInputs, length: number, others: readonly number[]): StepInputs {
  const { begin, position, key } = inputs;
  const last = new Map<number, number>();
  begin.forEach((at, i) => last.set(at, Math.max(last.get(at) ?? 0, position[i]!)));
  const places = new Map<number, { readonly begin: number; readonly added: number }>();
  const keys = new Int32Array(last.size * length);
  let filled = 0;
  for (const [at, most] of last) {
    const added = Math.max(0, length - most - 1);
    places.set(at, { begin: filled, added });
    for (let i = 0; i < added; i++) keys[filled + i] = others[(filled + i) % others.length]!;
    keys.set(key.subarray(at, at + most + 1), filled + added);
    filled += added + most + 1;
  }
  return {
    ...inputs,
    begin: begin.map((at) => places.get(at)!.begin),
    position: position.map((at, i) => at + places.get(begin[i]!)!.added),
    key: keys.subarray(0, filled),
  };
}

/** A stepper whose contexts are padded to `length` keys: those of slots that were written before. */
export function paddedStepper(stepper: Stepper, length: number): Stepper {
  const written = new Set<number>();
  let slots: number[] = [];
  const { limits } = stepper;
  return {
    ...stepper,
    // Every token may be a path of its own.
    limits: { ...limits, tokens: Math.min(limits.tokens, Math.floor(limits.keys / length)) },
    step: (inputs) => {
      const before = written.size;
      for (const slot of inputs.slot) if (slot >= 0) written.add(slot);
      if (written.size !== before) slots = [...written];
      return stepper.step(padded(inputs, length, slots));
    },
  };
}

/** Sequences that no step will ever take: each would hang its reader. */
import type { ReplicaMemory } from './replicaMemory.js';
import type { Scheduler } from './scheduler.js';
import type { Sequence } from './sequence.js';

export interface LeftBehind {
  readonly sequence: Sequence;
  readonly error: Error;
}

/**
 * Sequences that can never go on. Asked when the scheduler had nothing for a step and no step was on its way. A
 * sequence is left to wait while pages or its adapter may still come, or while one thinks.
 */
export function leftBehind({ running, waiting, adapters }: Scheduler, memory: ReplicaMemory): readonly LeftBehind[] {
  if ([...running].some(({ isThinking }) => isThinking)) return [];
  const hopeless = [...running, ...waiting].flatMap((sequence) => {
    const error = memory.hopelessness(sequence);
    return error === undefined ? [] : [{ sequence, error }];
  });
  if (hopeless.length > 0 || running.length + waiting.length > 0 || adapters.isLoading) return hopeless;
  return [...adapters].map((sequence) => ({ sequence, error: new Error('No slot was found for an adapter.') }));
}

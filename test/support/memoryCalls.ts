/** What any target must do with the compiled plan of memoryFunction.ts: every call sees what earlier ones left. */
import assert from 'node:assert/strict';
import type { Executor } from '../../runtime/executor.js';
import { emptyMemory, MEMORY_CALLS, remember } from './memoryFunction.js';

export async function checkMemoryCalls(executor: Executor): Promise<void> {
  const memory = emptyMemory();
  for (const call of MEMORY_CALLS) {
    const { outputs } = await executor.call('remember', {
      rows: Float32Array.from(call.rows.flat()),
      slot: Int32Array.from(call.slot),
      old: Int32Array.from(call.old),
      entry: Int32Array.from(call.entry),
    });
    assert.deepEqual(outputs, { found: Float32Array.from(remember(memory, call).flat()) });
  }
}

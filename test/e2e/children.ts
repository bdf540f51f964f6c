/** Processes that own devices of a run: who they are, and moments at which all of them compute. */
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** Is told of the progress of a run, and may press Ctrl-C. */
type OnProgress = (
  progress: { readonly questionsDone: number; readonly questionsTotal: number },
  press: () => void,
) => void;

/** A file in /proc of a process; empty if the process is gone. */
function procFile(pid: number, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'utf8');
  } catch {
    return '';
  }
}

/** State and parent. A zombie that nobody has waited for yet has state Z. */
function statusOf(pid: number): { readonly state: string; readonly parent: number } {
  const [state = '', parent = ''] = procFile(pid, 'stat').split(') ').at(-1)?.split(' ') ?? [];
  return { state, parent: Number(parent) };
}

/** Ids of the processes that own devices of a run whose process is `parent`. */
export const devicesOf = (parent: number): number[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => statusOf(pid).parent === parent && procFile(pid, 'cmdline').includes('devices/child.js'))
    .sort((a, b) => a - b);

export const isAlive = (pid: number): boolean => !/^(Z|X|)$/.test(statusOf(pid).state);

/** Settles when they have ended; where they never do, the test runs out of its time. */
export async function allGone(pids: readonly number[]): Promise<void> {
  while (pids.some(isAlive)) await sleep(20);
}

const pause = (milliseconds: number): unknown =>
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);

/**
 * Holds this process until all of its children that still exist have loaded their kernels, or a driver, and have
 * nothing to do.
 */
export function holdUntilLoaded(): number[] {
  const latest = performance.now() + 240_000;
  for (let calm = 0; performance.now() < latest; pause(20)) {
    const pids = devicesOf(process.pid);
    calm = pids.every((pid) => statusOf(pid).state === 'S' && /kernels\.so|libcuda/.test(procFile(pid, 'maps')))
      ? calm + 1
      : 0;
    if (calm === 5) return pids;
  }
  throw new Error('a process of a device has not loaded within four minutes');
}

/** The number of micro-batches after which every device that is ready has been asked something. */
const ASKED = 6;

/**
 * Acts once in the middle of a run in this process, when all its devices compute. The run is held until the last of
 * them has loaded, however long that takes, and is not near its end.
 */
export function midst(count: number, act: (pids: readonly number[], press: () => void) => void): OnProgress {
  let pids: number[] | undefined;
  let left = ASKED;
  return ({ questionsDone, questionsTotal }, press) => {
    if (questionsDone === 0 || left === 0) return;
    pids ??= holdUntilLoaded();
    if (--left > 0) return;
    if (pids.length !== count) throw new Error(`${pids.length} processes of devices, not ${count}`);
    if (questionsDone > questionsTotal / 2)
      throw new Error(`too late: ${questionsDone} of ${questionsTotal} questions`);
    act(pids, press);
  };
}

/** Lets every device of a run in this process take part: none is so late that the others have done everything. */
export function together(): OnProgress {
  let isHeld = false;
  return ({ questionsDone }) => {
    if (questionsDone === 0 || isHeld) return;
    isHeld = true;
    holdUntilLoaded();
  };
}

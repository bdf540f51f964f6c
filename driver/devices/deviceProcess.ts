/** Processes that own devices: how one starts, is spoken to, and ends no later than this one. */
import { fork, type ChildProcess } from 'node:child_process';
import { childFlags } from './childFlags.js';
import type { ToChild } from './protocol.js';

/** Time to release memory before the process is killed. */
const CLOSE_MS = 10_000;

/** Processes that must not outlive this one. */
const children = new Set<ChildProcess>();
const killChildren = (): void => {
  for (const child of children) child.kill('SIGKILL');
};

/** Starts a process that runs `module`, with those of Node's flags that are meant for it. */
export function startProcess(module: URL): ChildProcess {
  if (children.size === 0) process.once('exit', killChildren);
  const child = fork(module, [], {
    execArgv: childFlags(process.execArgv),
    serialization: 'advanced',
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  children.add(child);
  child.once('exit', () => {
    children.delete(child);
    if (children.size === 0) process.off('exit', killChildren);
  });
  return child;
}

/** Tells a process something. What one that is gone cannot be told needs no word: its exit says so. */
export function tell(child: ChildProcess, message: ToChild): void {
  child.send(message, () => undefined);
}

/**
 * Ends a process, and settles when it has ended. `isIdle`: it has loaded its model and computes nothing, so that it can
 * release its memory first. One that has not loaded anything yet, or hangs, may be far from listening, and has nothing
 * to put in order.
 */
export async function endProcess(child: ChildProcess, isIdle: boolean): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise<void>((resolve) => {
    child.once('exit', () => resolve());
  });
  const timer = setTimeout(() => child.kill('SIGKILL'), CLOSE_MS);
  if (child.connected && isIdle) tell(child, { kind: 'close' });
  else child.kill('SIGKILL');
  await ended;
  clearTimeout(timer);
}

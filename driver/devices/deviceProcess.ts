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

/** Processes that were started before anybody asked, by module and the number of the device that each prepares. */
const spares = new Map<string, ChildProcess>();
const spareKey = (module: URL, device: number): string => `${device} ${module.href}`;

function forkDevice(module: URL, args: readonly string[]): ChildProcess {
  if (children.size === 0) process.once('exit', killChildren);
  const child = fork(module, args, {
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

/**
 * Starts a process that runs `module` and prepares a device, before it is known what it will load: it takes as long to
 * start, and to make the device's context, as this process does to find out. Nothing waits for it. The next
 * startProcess for that device takes it over.
 */
export function startSpare(module: URL, device = 0): void {
  const key = spareKey(module, device);
  if (spares.has(key)) return;
  const child = forkDevice(module, [PREPARE, String(device)]);
  spares.set(key, child);
  const forget = (): void => {
    if (spares.get(key) === child) spares.delete(key);
  };
  child.once('exit', forget).once('error', forget);
  // A command that needs no device ends without it.
  child.unref();
  child.channel?.unref();
}

/** The argument before the number of the device that a process is to prepare. */
export const PREPARE = '--prepare';

/** Starts a process that runs `module` for `device`, with those of Node's flags that are meant for it. */
export function startProcess(module: URL, device = 0): ChildProcess {
  const key = spareKey(module, device);
  const spare = spares.get(key);
  if (spare === undefined || !spare.connected) return forkDevice(module, []);
  spares.delete(key);
  spare.ref();
  spare.channel?.ref();
  return spare;
}

/** Ends the processes that nobody took over. */
export function endSpares(): void {
  for (const child of spares.values()) child.kill('SIGKILL');
  spares.clear();
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

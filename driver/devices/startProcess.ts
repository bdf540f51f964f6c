/** Processes that own devices: how one starts, is spoken to, and ends no later than this one. */
import { type ChildProcess, fork } from 'node:child_process';
import { existsSync } from 'node:fs';
import { UserError } from '../../errors.js';
import { loadCudaAddon } from '../../runtime/cuda/addon.js';
import { deviceEnvironment, readSettings } from '../../settings.js';
import { at } from '../../system/at.js';
import { isArtifact } from '../names.js';
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
    env: deviceEnvironment(),
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

/** Ends the processes that were not taken over. */
export function endSpares(): void {
  for (const child of spares.values()) child.kill('SIGKILL');
  spares.clear();
}

/** Sends a message. Errors are ignored: the exit of a process that has ended is reported elsewhere. */
export function tell(child: ChildProcess, message: ToChild): void {
  child.send(message, () => undefined);
}

/** `SIGKILL`, `exit status 9` */
export const howEnded = (code: number | null, signal: NodeJS.Signals | null): string => signal ?? `exit status ${code}`;

/**
 * Ends a process, and resolves with how when it has ended. `isIdle`: it has loaded its models and computes nothing, so
 * that it can release its memory first. One that has not loaded anything yet, or hangs, may be far from listening, and
 * has nothing to put in order.
 */
export async function endProcess(child: ChildProcess, isIdle: boolean): Promise<string> {
  const { exitCode, signalCode } = child;
  if (exitCode !== null || signalCode !== null) return howEnded(exitCode, signalCode);
  const ended = new Promise<string>((resolve) => {
    child.once('exit', (...how) => resolve(howEnded(...how)));
  });
  const timer = setTimeout(() => child.kill('SIGKILL'), CLOSE_MS);
  if (child.connected && isIdle) tell(child, { kind: 'close' });
  else child.kill('SIGKILL');
  const how = await ended;
  clearTimeout(timer);
  return how;
}

/**
 * Flags that mean the same for any program: memory, code generation, warnings, and what resolves and loads modules.
 * Flags about the parent's program (`--input-type=module -e`), its debugger or its tests would break or stop a child.
 */
const ALONE = new Set([
  '--max-old-space-size',
  '--max-semi-space-size',
  '--stack-size',
  '--no-opt',
  '--jitless',
  '--expose-gc',
  '--enable-source-maps',
  '--no-warnings',
  '--disable-warning',
  '--trace-warnings',
  '--trace-uncaught',
  '--preserve-symlinks',
]);
const WITH_VALUE = new Set(['--import', '--require', '-r', '--loader', '--experimental-loader', '--conditions', '-C']);

/** Those of a process's `execArgv` that its children may have. */
export function childFlags(execArgv: readonly string[]): string[] {
  const flags: string[] = [];
  for (let i = 0; i < execArgv.length; i++) {
    const flag = at(execArgv, i);
    const [name = flag] = flag.split('=', 1);
    const value = execArgv[i + 1];
    if (WITH_VALUE.has(flag)) {
      if (value !== undefined) flags.push(flag, value);
      i++;
    } else if (ALONE.has(name) || WITH_VALUE.has(name)) flags.push(flag);
  }
  return flags;
}

/** The program of a device process. */
export const DEVICE_MODULE = new URL('./child.js', import.meta.url);

/** Whether there is a module to start a process with. There is none if only TypeScript sources exist. */
export const hasDeviceModule = (): boolean => existsSync(DEVICE_MODULE);

/** Files of which a machine with a driver for NVIDIA's GPUs has one: of Linux, and of Linux under Windows. */
const DRIVER_FILES = ['/dev/nvidiactl', '/dev/dxg'];

const mayHaveGpu = (): boolean =>
  readSettings().cudaDriver !== undefined || DRIVER_FILES.some((file) => existsSync(file));

/** Whether a command keeps keys and values in what memory is free; an artifact has room for as many as it has. */
export const willMeasure = ([command, ...rest]: readonly string[]): boolean =>
  (command === 'generate' || command === 'reward' || command === 'serve') && !rest.some((word) => isArtifact(word));

/** Commands that load a model onto a device. */
const LOADING = new Set(['run', 'generate', 'reward', 'serve']);
/** Arguments of commands that load nothing, or not onto a GPU. */
const NOT_LOADING = /^(-h|--help|--dry[-_]run|--print[-_]prompts|--isa(=.*)?|--target=cpu)$/;

/** Whether a command line will probably load a model onto a GPU; a mistake costs a process that is ended unused. */
export const willLoad = ([command, ...rest]: readonly string[]): boolean =>
  command !== undefined &&
  LOADING.has(command) &&
  !rest.some((word, i) => NOT_LOADING.test(word) || (word === '--target' && rest[i + 1] === 'cpu'));

/**
 * Begins what the first `devices` devices need. A command that needs none ends them with endSpares(). `measures`: this
 * process will ask the first device how much of its memory is free, for which it needs a context too.
 */
export function startEarly(devices = 1, measures = false): void {
  if (!mayHaveGpu() || !hasDeviceModule()) return;
  for (let device = 0; device < devices; device++) startSpare(DEVICE_MODULE, device);
  try {
    loadCudaAddon().prepare(readSettings().cudaDriver, measures ? 0 : undefined);
  } catch (error) {
    // A missing addon is reported where it is needed.
    if (!(error instanceof UserError)) throw error;
  }
}

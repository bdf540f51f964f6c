/**
 * What takes a while and depends on no model, begun as soon as a command starts: the device's process with its context,
 * and the driver in this one. Loads next to nothing itself.
 */
import { existsSync } from 'node:fs';
import { UserError } from '../../errors.js';
import { loadCudaAddon } from '../../runtime/cuda/addon.js';
import { readSettings } from '../../settings.js';
import { isArtifact } from '../names.js';
import { startSpare } from './deviceProcess.js';

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
  command === 'generate' && !rest.some((word) => isArtifact(word));

/** Commands that load a model onto a device. */
const LOADING = new Set(['run', 'generate']);
/** Arguments of commands that load nothing, or not onto a GPU. */
const NOT_LOADING = /^(-h|--help|--dry[-_]run|--print[-_]prompts|--isa(=.*)?|--target=cpu)$/;

/** Whether a command line will probably load a model onto a GPU; a mistake costs a process that is ended unused. */
export const willLoad = ([command, ...rest]: readonly string[]): boolean =>
  command !== undefined &&
  LOADING.has(command) &&
  !rest.some((word, i) => NOT_LOADING.test(word) || (word === '--target' && rest[i + 1] === 'cpu'));

/**
 * Begins what the first `devices` devices need. Whoever needs none ends it with endSpares(). `measures`: this process
 * will ask the first device how much of its memory is free, for which it needs a context too.
 */
export function startEarly(devices = 1, measures = false): void {
  if (!mayHaveGpu() || !hasDeviceModule()) return;
  for (let device = 0; device < devices; device++) startSpare(DEVICE_MODULE, device);
  try {
    loadCudaAddon().prepare(readSettings().cudaDriver, measures ? 0 : undefined);
  } catch (error) {
    // An addon that is missing is reported by whoever needs it.
    if (!(error instanceof UserError)) throw error;
  }
}

/** How many threads tokenize a question set while the model is compiled and loaded. */
import { statSync } from 'node:fs';
import type { TargetDevices } from '../driver/targets/target.js';
import type { Question } from '../evaluate/index.js';
import type { TokenizerSpec } from '../models/tokenizer/files.js';

/**
 * Cores for each thread. The tokenizer library is multithreaded, but converting its results to JavaScript numbers is
 * not: a quarter of the processor time for HellaSwag.
 */
const CORES = 4;
const MOST = 4;
/** Sizes in characters and bytes that take less than the quarter of a second in which a thread loads its modules. */
const SMALL_SET = 512 << 10;
const SMALL_TOKENIZER_BYTES = 512 << 10;

/** Infinity if the size is unknown. Problems with a file are reported by the code that reads it. */
function bytesOf(path: string): number {
  try {
    const stat = statSync(path);
    return stat.isFile() ? stat.size : Infinity;
  } catch {
    return Infinity;
  }
}

const isLarge = (spec: TokenizerSpec): boolean =>
  (spec.kind === 'json' ? spec.text.length : bytesOf(spec.path)) > SMALL_TOKENIZER_BYTES;

const threadsOn = ({ isHost }: Pick<TargetDevices, 'isHost'>, cores: number): number =>
  isHost ? 1 : Math.min(MOST, Math.max(1, Math.floor(cores / CORES)));

/**
 * Threads to open before there are questions, so that they open the tokenizer meanwhile. 0 on a host that computes
 * itself where the tokenizer is small: a small question set then needs no thread, and kernels need the processors.
 */
export const threadsAtOnce = (spec: TokenizerSpec, devices: Pick<TargetDevices, 'isHost'>, cores: number): number =>
  devices.isHost && !isLarge(spec) ? 0 : threadsOn(devices, cores);

/**
 * 0, this thread, for a small question set behind which none follows. More than 1 only on a host of GPUs: each thread
 * holds tens of megabytes, which would break the memory bound of a run on a CPU.
 */
export function tokenizerThreads(
  questions: readonly Pick<Question, 'context' | 'choices'>[],
  spec: TokenizerSpec,
  devices: Pick<TargetDevices, 'isHost'>,
  cores: number,
  isFirst = false,
): number {
  const characters = questions.reduce(
    (sum, { context, choices }) => choices.reduce((total, choice) => total + context.length + choice.length, sum),
    0,
  );
  return !isFirst && characters <= SMALL_SET && !isLarge(spec) ? 0 : threadsOn(devices, cores);
}

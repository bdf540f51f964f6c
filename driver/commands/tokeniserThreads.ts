/** How many threads tokenise a question set while the model is compiled and loaded. */
import { statSync } from 'node:fs';
import type { Question } from '../../eval/index.js';
import type { AnyTarget } from '../targets/target.js';
import type { TokenizerSpec } from '../../models/tokenizer.js';

/**
 * Cores for each thread: the package is multithreaded inside, what makes JavaScript's numbers of its results is not.
 */
const CORES = 8;
const MOST = 4;
/** What takes less than the quarter of a second in which a thread loads its modules: characters, bytes. */
const SMALL_SET = 512 << 10;
const SMALL_TOKENIZER_BYTES = 512 << 10;

/** Infinity where nothing can be said; what is wrong with a file is said by who reads it. */
function bytesOf(path: string): number {
  try {
    const stat = statSync(path);
    return stat.isFile() ? stat.size : Infinity;
  } catch {
    return Infinity;
  }
}

/**
 * 0, this thread, for a small question set. More than 1 on a host of GPUs only: each holds tens of megabytes, which a
 * run on a CPU has promised not to use.
 */
export function tokeniserThreads(
  questions: readonly Pick<Question, 'context' | 'choices'>[],
  spec: TokenizerSpec,
  { isHost }: Pick<AnyTarget, 'isHost'>,
  cores: number,
): number {
  const characters = questions.reduce(
    (sum, { context, choices }) => choices.reduce((total, choice) => total + context.length + choice.length, sum),
    0,
  );
  if (
    characters <= SMALL_SET &&
    (spec.kind === 'json' ? spec.text.length : bytesOf(spec.path)) <= SMALL_TOKENIZER_BYTES
  )
    return 0;
  return isHost ? 1 : Math.min(MOST, Math.max(1, Math.floor(cores / CORES)));
}

/**
 * `npm run checkpoint:make -- --out DIR`: a checkpoint of made-up weights, LLaMA-33B's shape by default.
 * Options: options.ts. From a bundle: `checkpoint-make.sh`.
 */
import { UserError } from '../../errors.js';
import { quoteForShell } from '../../system/shell.js';
import { clock } from '../../system/format.js';
import { makeCheckpoint } from './make.js';
import { parseCheckpointOptions, USAGE } from './options.js';

/** Seconds between lines if a terminal does not overwrite them. */
const LINE_SECONDS = 5;
const BLANK = ' '.repeat(8);
const INTERRUPTED = 130;

const gigabytes = (bytes: number): string => (bytes / 1e9).toFixed(2);

/** Shows progress on stderr: one line that changes, or a line from time to time. */
function progressLine(totalBytes: number): { show(doneBytes: number): void; end(): void } {
  const begin = performance.now();
  const { isTTY } = process.stderr;
  let shown = 0;
  return {
    show: (doneBytes) => {
      const seconds = (performance.now() - begin) / 1000;
      if (doneBytes === 0 || (!isTTY && seconds - shown < LINE_SECONDS)) return;
      shown = seconds;
      const rate = doneBytes / seconds;
      const text =
        `${gigabytes(doneBytes)} of ${gigabytes(totalBytes)} GB, ` +
        `${gigabytes(rate)} GB/s, ${clock((totalBytes - doneBytes) / rate)} left`;
      process.stderr.write(isTTY ? `\r${text}${BLANK}` : `${text}\n`);
    },
    end: () => {
      if (isTTY && shown > 0) process.stderr.write('\n');
    },
  };
}

async function main(): Promise<void> {
  const stop = new AbortController();
  process.once('SIGINT', () => stop.abort());
  process.once('SIGTERM', () => stop.abort());
  const begin = performance.now();
  let line: ReturnType<typeof progressLine> | undefined;
  try {
    const options = parseCheckpointOptions(process.argv.slice(2));
    if (options === undefined) {
      console.log(USAGE);
      return;
    }
    const { bytes, files } = await makeCheckpoint(options, {
      signal: stop.signal,
      onPlan: (checkpoint, tokenizer) => {
        console.log(
          `${options.out}: ${gigabytes(checkpoint.bytes)} GB of ${checkpoint.dtype} ` +
            `in ${checkpoint.files.length} files, seed ${options.seed}, tokenizer of ${tokenizer}`,
        );
        line = progressLine(checkpoint.bytes);
      },
      onProgress: (doneBytes) => line?.show(doneBytes),
    });
    line?.end();
    const seconds = (performance.now() - begin) / 1000;
    console.log(
      `${gigabytes(bytes)} GB in ${files.length} files written in ${seconds.toFixed(1)} s, ` +
        `${gigabytes(bytes / seconds)} GB/s\n` +
        `next: tilewright run ${quoteForShell(options.out)} --task hellaswag --data hellaswag_val.jsonl.gz`,
    );
  } catch (error) {
    line?.end();
    if (stop.signal.aborted) {
      process.stderr.write('stopped; what was written is removed\n');
      process.exitCode = INTERRUPTED;
      return;
    }
    if (!(error instanceof UserError)) throw error;
    process.stderr.write(`error: ${error.message}${error.hint === undefined ? '' : `\nhint: ${error.hint}`}\n`);
    process.exitCode = 1;
  }
}

await main();

/** The command line of the benchmark of techniques. */
import { parseArgs } from 'node:util';
import { describeRows, type TechniqueOptions } from './ablationRows.js';
import { BENCH_TARGETS, OptionReader, type BenchTarget } from './optionReader.js';

/** As `run` has them where a model's context is that long. */
const CALL_TOKENS: Readonly<Record<BenchTarget, string>> = { cpu: '4096', cuda: '8448' };
const DEFAULTS: TechniqueOptions = { sequences: 32, prefillTokens: 512 };

export const USAGE = `bench:ablation [--model llama-110m] [--target cpu|cuda] [--threads 2] [--questions 100]
      [--rounds 3] [--batch-tokens N] [--sequences 32] [--prefill 512] [--data FILE] [--tokenizer DIR]

What each technique of scoring gives, on the same kernels and weights. Prints for each the tokens that it computes, its
calls, the time of all questions in its fastest round, how many times as long that is as trees take, and whether every
log-probability is the same bits. On a CPU techniques are compared by the work of its processors (CPU seconds, of all
threads together), to which other programs add little.

  --model       folder of a config.json, or one below bench/models; weights are random
  --target      cpu or cuda
  --threads     threads that compute on a CPU
  --questions   questions to score: the first of the data set
  --rounds      times that every technique scores them, in turn
  --batch-tokens  tokens of the largest call (default: 4096, with --target cuda 8448)
  --sequences   sequences of a fixed batch
  --prefill     tokens of a call of contexts, where contexts are computed in small calls
  --data        HellaSwag as JSON lines (default: the real one if it is there, else the bundled questions)
  --tokenizer   folder of a tokenizer

The techniques, each a row:

${describeRows(DEFAULTS)}

A row that begins with … is the one of filled calls in two phases, with one change. No row has padding: a batch is as
many tokens as its sequences have.`;

export interface AblationOptions extends TechniqueOptions {
  readonly model: string;
  readonly target: BenchTarget;
  readonly threads: number;
  readonly questions: number;
  readonly rounds: number;
  readonly batchTokens: number;
  readonly data: string | undefined;
  readonly tokenizer: string | undefined;
}

/** `undefined` if help was asked for. Throws UserError. */
export function parseAblationOptions(args: readonly string[]): AblationOptions | undefined {
  const read = new OptionReader('bench:ablation');
  const { values } = read.parse(() =>
    parseArgs({
      args: [...args],
      options: {
        model: { type: 'string', default: 'llama-110m' },
        target: { type: 'string', default: 'cpu' },
        threads: { type: 'string', default: '2' },
        questions: { type: 'string', default: '100' },
        rounds: { type: 'string', default: '3' },
        'batch-tokens': { type: 'string' },
        sequences: { type: 'string', default: String(DEFAULTS.sequences) },
        prefill: { type: 'string', default: String(DEFAULTS.prefillTokens) },
        data: { type: 'string' },
        tokenizer: { type: 'string' },
        help: { type: 'boolean', default: false },
      },
    }),
  );
  if (values.help) return undefined;
  const target = read.oneOf('target', values.target, BENCH_TARGETS);
  return {
    model: values.model,
    target,
    threads: read.whole('threads', values.threads, 1, 1024),
    questions: read.whole('questions', values.questions, 1, 1_000_000),
    rounds: read.whole('rounds', values.rounds, 1, 1000),
    sequences: read.whole('sequences', values.sequences, 1, 4096),
    prefillTokens: read.whole('prefill', values.prefill, 1, 32_768),
    batchTokens: read.whole('batch-tokens', values['batch-tokens'] ?? CALL_TOKENS[target], 32, 32_768),
    data: values.data,
    tokenizer: values.tokenizer,
  };
}

/** The command line of the ablation of serving. */
import { parseArgs } from 'node:util';
import { UserError } from '../errors.js';
import { BENCH_TARGETS, OptionReader, type BenchTarget } from './optionReader.js';
import { describeServingRows } from './servingRows.js';

export const USAGE = `bench:serving --model DIR [--gptq DIR] [--target cpu|cuda] [--threads 2] [--requests 32]
      [--rounds 3] [--spread 1.1] [--context 2048] [--challenge FILE] [--easy FILE] [--limit N]

What an FP8 cache with a slot filter, grouped queries, and attention over valid blocks give a service, each alone and
all together, with weights of 16 bits and of GPTQ. All requests are made at once; their lengths are lognormal, with the
means of conversations (215 tokens of prompt, 198 of answer) and the same for every row. Prints a table: the mean time
of a request and its 95th percentile, new tokens a second, how many times as many as the baseline's, and the accuracy
with its standard error. Rows take turns; times are those of each one's fastest round. On a CPU a column counts tokens
for a second of its processors, to which other programs add little.

  --model      folder of a checkpoint of 16 bits, or one below bench/models, whose weights are made up
  --gptq       the same, quantized (tilewright quantize); --target cuda keeps its 4 bits, cpu decodes them
  --target     cpu or cuda
  --threads    threads that compute on a CPU
  --requests   requests, all at once
  --rounds     times that every row serves them
  --spread     standard deviation of the logarithm of a length
  --context    keys of a padded context, at most the model's context; longer requests are cut
  --challenge  questions of ARC-Challenge, for the accuracy
  --easy       questions of ARC-Easy
  --limit      questions of each (default: all)

The rows:

${describeServingRows()}`;

export interface ServingOptions {
  readonly model: string;
  readonly gptq: string | undefined;
  readonly target: BenchTarget;
  readonly threads: number;
  readonly requests: number;
  readonly rounds: number;
  readonly spread: number;
  readonly context: number;
  readonly challenge: string | undefined;
  readonly easy: string | undefined;
  readonly limit: number | undefined;
}

/** `undefined` if help was asked for. Throws UserError. */
export function parseServingOptions(args: readonly string[]): ServingOptions | undefined {
  const read = new OptionReader('bench:serving');
  const { values } = read.parse(() =>
    parseArgs({
      args: [...args],
      options: {
        model: { type: 'string' },
        gptq: { type: 'string' },
        target: { type: 'string', default: 'cpu' },
        threads: { type: 'string', default: '2' },
        requests: { type: 'string', default: '32' },
        rounds: { type: 'string', default: '3' },
        spread: { type: 'string', default: '1.1' },
        context: { type: 'string', default: '2048' },
        challenge: { type: 'string' },
        easy: { type: 'string' },
        limit: { type: 'string' },
        help: { type: 'boolean', default: false },
      },
    }),
  );
  if (values.help) return undefined;
  if (values.model === undefined) throw new UserError('--model is missing: the checkpoint to serve', read.hint);
  return {
    model: values.model,
    gptq: values.gptq,
    target: read.oneOf('target', values.target, BENCH_TARGETS),
    threads: read.whole('threads', values.threads, 1, 1024),
    requests: read.whole('requests', values.requests, 1, 10_000),
    rounds: read.whole('rounds', values.rounds, 1, 1000),
    spread: read.number('spread', values.spread, 0, 3),
    context: read.whole('context', values.context, 64, 1 << 20),
    challenge: values.challenge,
    easy: values.easy,
    limit: values.limit === undefined ? undefined : read.whole('limit', values.limit, 1, 1_000_000),
  };
}

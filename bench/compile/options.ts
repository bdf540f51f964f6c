/** The command line of the benchmark of planning. */
import { parseArgs } from 'node:util';
import { type Precision, PRECISIONS } from '../../driver/targets/precision.js';
import { OptionReader } from '../optionReader.js';

export const USAGE = `npm run bench:compile -- [--model NAME|PATH]… [--precision bf16]… [--function score|step]…
      [--target cuda:sm_90a] [--cache-tokens 65536] [--layers N]… [--rounds 3] [--detail] [--json]

How long models take to plan: from a config.json to kernels, memory and schedules, and to the sources of all kernels.
Nothing is compiled or loaded, and no GPU is needed. Each plan is made in a process of its own, as a command makes it;
figures are medians.

  plan     seconds of compileModel; cpu: processor time of that, which other programs disturb less
  emit     seconds for the sources of all kernels
  check    seconds in which a plan that was read is checked against its own kernels
  --detail adds, from a second plan in the same process, milliseconds by pass (each with the verification of what it
           leaves, which a command does at the end only), and by kind of kernel: signatures, default schedules, sources

  --model         folder of a config.json, or one below bench/models (default: llama-8b, llama-33b, qwen3-30b-a3b and
                  gemma-2-9b)
  --precision     as the commands' --precision and --quantize (default: bf16, fp8 and int4). int4 takes a model as if
                  its matrices were stored in 4 bits, in groups of 128
  --function      score alone, or score with step, which keeps keys and values (default: both)
  --target        cpu, cuda:sm_80 or cuda:sm_90a
  --cache-tokens  tokens that step keeps keys and values of
  --layers        as many layers instead of the model's own; given twice, growth with layers is printed
  --rounds        plans for each figure
  --json          one line of JSON for each row, for programs`;

export const FUNCTIONS = ['score', 'step'] as const;
export type Functions = (typeof FUNCTIONS)[number];
const TARGETS = ['cpu', 'cuda:sm_80', 'cuda:sm_90a'] as const;

export interface CompileBenchOptions {
  readonly models: readonly string[];
  readonly precisions: readonly Precision[];
  readonly functions: readonly Functions[];
  readonly target: (typeof TARGETS)[number];
  readonly cacheTokens: number;
  /** Empty: the model's own number. */
  readonly layers: readonly number[];
  readonly rounds: number;
  readonly hasDetail: boolean;
  readonly isJson: boolean;
}

/** `undefined` if help was asked for. Throws UserError. */
export function parseCompileOptions(args: readonly string[]): CompileBenchOptions | undefined {
  const read = new OptionReader('bench:compile');
  const { values } = read.parse(() =>
    parseArgs({
      args: [...args],
      options: {
        model: {
          type: 'string',
          multiple: true,
          default: ['llama-8b', 'llama-33b', 'qwen3-30b-a3b', 'gemma-2-9b'],
        },
        precision: { type: 'string', multiple: true, default: ['bf16', 'fp8', 'int4'] },
        function: { type: 'string', multiple: true, default: [...FUNCTIONS] },
        target: { type: 'string', default: 'cuda:sm_90a' },
        'cache-tokens': { type: 'string', default: '65536' },
        layers: { type: 'string', multiple: true, default: [] },
        rounds: { type: 'string', default: '3' },
        detail: { type: 'boolean', default: false },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    }),
  );
  if (values.help) return undefined;
  return {
    models: values.model,
    precisions: values.precision.map((text) => read.oneOf('precision', text, PRECISIONS)),
    functions: values.function.map((text) => read.oneOf('function', text, FUNCTIONS)),
    target: read.oneOf('target', values.target, TARGETS),
    cacheTokens: read.whole('cache-tokens', values['cache-tokens'], 32, 1 << 24),
    layers: values.layers.map((text) => read.whole('layers', text, 1, 1000)),
    rounds: read.whole('rounds', values.rounds, 1, 100),
    hasDetail: values.detail,
    isJson: values.json,
  };
}

/** The command line of the CPU benchmark. */
import { parseArgs } from 'node:util';
import { CPU_ISAS, type CpuIsa } from '../ir/plan.js';
import { OptionReader } from './optionReader.js';

export const USAGE = `bench [--model llama-1.1b|llama-110m|PATH]… [--precision auto|f32]… [--isa avx2] [--threads 2]
      [--seconds 15] [--questions 400] [--tune 0] [--batch-tokens 1024] [--data FILE] [--tokenizer DIR]

Scoring rates on real question trees, each as a share of the arithmetic peak measured in the same run, where the time
goes by kernel, and what each sharing mode gains over none.

  --model       folder of a config.json, or one below bench/models, with random weights (default: both of those);
                or a GGUF file with its own: auto multiplies its blocks, f32 decodes them
  --precision   arithmetic, may be given twice (default: auto and f32)
  --isa         micro-kernels: portable, avx2, avx512 or amx (default: the best this CPU has)
  --threads     threads that compute
  --seconds     seconds to spend scoring with each model and precision
  --questions   questions to score: the first of the data set
  --tune        seconds to tune schedules before; 0 measures the defaults
  --batch-tokens  tokens of the largest micro-batch
  --data        HellaSwag as JSON lines (default: the real one if it is there, else the bundled questions)
  --tokenizer   folder of a tokenizer`;

export type Precision = 'auto' | 'f32';

export interface BenchOptions {
  readonly models: readonly string[];
  readonly precisions: readonly Precision[];
  /** Default: the best that the CPU has. */
  readonly isa: CpuIsa | undefined;
  readonly threads: number;
  readonly seconds: number;
  readonly questions: number;
  /** 0 measures the defaults. */
  readonly tuneSeconds: number;
  readonly batchTokens: number;
  readonly data: string | undefined;
  readonly tokenizer: string | undefined;
}

const PRECISIONS: readonly Precision[] = ['auto', 'f32'];

/** `undefined` if help was asked for. Throws UserError. */
export function parseBenchOptions(args: readonly string[]): BenchOptions | undefined {
  const read = new OptionReader('bench');
  const { values } = read.parse(() =>
    parseArgs({
      args: [...args],
      options: {
        model: { type: 'string', multiple: true, default: ['llama-110m', 'llama-1.1b'] },
        precision: { type: 'string', multiple: true, default: ['auto', 'f32'] },
        isa: { type: 'string' },
        threads: { type: 'string', default: '2' },
        seconds: { type: 'string', default: '15' },
        questions: { type: 'string', default: '400' },
        tune: { type: 'string', default: '0' },
        'batch-tokens': { type: 'string', default: '1024' },
        data: { type: 'string' },
        tokenizer: { type: 'string' },
        help: { type: 'boolean', default: false },
      },
    }),
  );
  if (values.help) return undefined;
  return {
    models: values.model,
    precisions: values.precision.map((text) => read.oneOf('precision', text, PRECISIONS)),
    isa: values.isa === undefined ? undefined : read.oneOf('isa', values.isa, CPU_ISAS),
    threads: read.whole('threads', values.threads, 1, 1024),
    seconds: read.number('seconds', values.seconds, 0.1, 86_400),
    questions: read.whole('questions', values.questions, 1, 1_000_000),
    tuneSeconds: read.number('tune', values.tune, 0, 86_400),
    batchTokens: read.whole('batch-tokens', values['batch-tokens'], 32, 32_768),
    data: values.data,
    tokenizer: values.tokenizer,
  };
}

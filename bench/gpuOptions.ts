/** The command line of the GPU benchmark. */
import { parseArgs } from 'node:util';
import { defaultDatabasePath } from '../autotune/database.js';
import type { Finishing } from '../passes/fuseRowNorms.js';
import { defined } from '../system/defined.js';
import { parseTrial, type Trial } from './gpuSchedules.js';
import { modelPath, OptionReader } from './optionReader.js';

export const USAGE = `bench:gpu [--model DIR] [--tokens 1024,2048,3840,5760,7680] [--rounds 20] [--seconds 0.3]
          [--kernel NAME[,NAME]] [--try KERNEL[@TOKENS]:SCHEDULE]… [--all N] [--tuned] [--database FILE]
          [--mask path|tree] [--precision fp8|int4] [--finishing deep,all] [--no-check] [--json FILE]

Each contraction of a layer, epilogue included, against cuBLASLt's best bare product, its loops, and the layer against
the sum of those products and against their sequence; all in one process, in turn. Few tokens (--tokens 1,8,32,64) are
limited by memory: GB/s counts what a kernel must read and write, "of read" is its share of the rate at which a kernel
of this run only reads.

  --model     folder of a config.json, or one below bench/models; weights are random
  --tokens    sizes of micro-batches
  --rounds    turns of each side;  --seconds: counted seconds of each side, all its turns together
  --kernel    only kernels whose name contains one of these; head: the vocabulary; layer: the whole layer
  --try       another schedule of a kernel: its key, as the table prints it, or changes such as tm=192,stages=5;
              with --kernel layer the layer runs with it
  --all       the N schedules that the cost model ranks first
  --tuned     the tuner's schedules instead of the compiler's, from its database (--database)
  --mask      what attention groups keys by: path, by position (as a run does), or tree, by place in the micro-batch
  --precision what is multiplied: auto (16 bits) or fp8, against the library's products of the same numbers; int4:
              weights of 4 bits in groups, of a model that stores them (llama-33b-gptq), against products of 16 bits
  --finishing which products finish rows for the kernel behind them: deep (the compiler's choice), all, or deep,all:
              first one, then the other, a table each
  --no-check  do not compare results with those of CUDA cores before timing
  --json      writes the results to a file`;

export interface GpuOptions {
  /** Path of a folder that holds a config.json. */
  readonly model: string;
  /** Ascending. */
  readonly tokens: readonly number[];
  readonly rounds: number;
  readonly seconds: number;
  readonly kernels: readonly string[];
  readonly trials: readonly Trial[];
  readonly all: number;
  /** The tuner's database, if its schedules are asked for. */
  readonly database?: string;
  readonly mask?: 'path' | 'tree';
  readonly precision: (typeof KINDS)[number];
  /** Each has a plan and a table of its own. */
  readonly finishing: readonly Finishing[];
  readonly isChecked: boolean;
  readonly json?: string;
}

const MASKS = ['path', 'tree'] as const;
const FINISHING = ['deep', 'all'] as const;
const KINDS = ['auto', 'fp8', 'int4'] as const;

/** `undefined` if help was asked for. Throws UserError. */
export function parseGpuOptions(args: readonly string[]): GpuOptions | undefined {
  const read = new OptionReader('bench:gpu');
  const { values } = read.parse(() =>
    parseArgs({
      args: [...args],
      options: {
        model: { type: 'string', default: 'llama-33b' },
        tokens: { type: 'string', default: '1024,2048,3840,5760,7680' },
        rounds: { type: 'string', default: '20' },
        seconds: { type: 'string', default: '0.3' },
        kernel: { type: 'string', multiple: true, default: [] },
        try: { type: 'string', multiple: true, default: [] },
        all: { type: 'string', default: '0' },
        tuned: { type: 'boolean', default: false },
        database: { type: 'string' },
        mask: { type: 'string' },
        precision: { type: 'string', default: 'auto' },
        finishing: { type: 'string', default: 'deep' },
        'no-check': { type: 'boolean', default: false },
        json: { type: 'string' },
        help: { type: 'boolean', default: false },
      },
    }),
  );
  if (values.help) return undefined;
  const tokens = [...new Set(values.tokens.split(',').map((text) => read.whole('tokens', text, 1, 32_768)))].sort(
    (a, b) => a - b,
  );
  return {
    model: modelPath(values.model),
    tokens,
    rounds: read.whole('rounds', values.rounds, 1, 1000),
    seconds: read.number('seconds', values.seconds, 0.001, 60),
    kernels: values.kernel.flatMap((text) => text.split(',')).filter((text) => text !== ''),
    trials: values.try.map(parseTrial),
    all: read.whole('all', values.all, 0, 256),
    ...(values.mask === undefined ? {} : { mask: read.oneOf('mask', values.mask, MASKS) }),
    precision: read.oneOf('precision', values.precision, KINDS),
    finishing: [...new Set(values.finishing.split(',').map((text) => read.oneOf('finishing', text, FINISHING)))],
    isChecked: !values['no-check'],
    ...(values.tuned || values.database !== undefined ? { database: values.database ?? defaultDatabasePath() } : {}),
    ...defined({ json: values.json }),
  };
}

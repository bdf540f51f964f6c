/** The command line of the benchmark of techniques. */
import { parseArgs } from 'node:util';
import { UserError } from '../errors.js';
import { numberOption } from './numberOption.js';

export const USAGE = `bench:ablation [--model llama-110m] [--target cpu|cuda] [--threads 2] [--questions 100]
      [--rounds 3] [--max-tokens 4096] [--sequences 32] [--prefill 512] [--data FILE] [--tokenizer DIR]

What each technique of scoring gives: sequences in fixed or filled calls, contexts first and then choices on cached keys
and values, one forward over trees. Prints for each the tokens that it computes, its calls, the median time of all
questions, how many times as long it takes as trees, and whether every log-probability is the same bits.

  --model       folder of a config.json, or one below bench/models; weights are random
  --target      cpu or cuda
  --threads     threads that compute on a CPU
  --questions   questions to score: the first of the data set
  --rounds      times that every technique scores them, in turn
  --max-tokens  tokens of the largest call
  --sequences   sequences of a fixed batch
  --prefill     tokens of a call of contexts, where contexts are computed in small calls
  --data        HellaSwag as JSON lines (default: the real one if it is there, else the bundled questions)
  --tokenizer   folder of a tokenizer`;

export interface AblationOptions {
  readonly model: string;
  readonly target: 'cpu' | 'cuda';
  readonly threads: number;
  readonly questions: number;
  readonly rounds: number;
  readonly maxTokens: number;
  readonly sequences: number;
  readonly prefillTokens: number;
  readonly data: string | undefined;
  readonly tokenizer: string | undefined;
}

const HINT = 'look at the options: npm run bench:ablation -- --help';

const whole = (name: string, text: string, least: number, most: number): number =>
  numberOption(name, text, { least, most, isWhole: true }, HINT);

/** `undefined` if help was asked for. Throws UserError. */
export function parseAblationOptions(args: readonly string[]): AblationOptions | undefined {
  let values;
  try {
    ({ values } = parseArgs({
      args: [...args],
      options: {
        model: { type: 'string', default: 'llama-110m' },
        target: { type: 'string', default: 'cpu' },
        threads: { type: 'string', default: '2' },
        questions: { type: 'string', default: '100' },
        rounds: { type: 'string', default: '3' },
        'max-tokens': { type: 'string', default: '4096' },
        sequences: { type: 'string', default: '32' },
        prefill: { type: 'string', default: '512' },
        data: { type: 'string' },
        tokenizer: { type: 'string' },
        help: { type: 'boolean', default: false },
      },
    }));
  } catch (error) {
    throw new UserError(error instanceof Error ? error.message : String(error), HINT, { cause: error });
  }
  if (values.help) return undefined;
  const { target } = values;
  if (target !== 'cpu' && target !== 'cuda')
    throw new UserError(`--target ${JSON.stringify(target)}: expected cpu or cuda`, HINT);
  return {
    model: values.model,
    target,
    threads: whole('threads', values.threads, 1, 1024),
    questions: whole('questions', values.questions, 1, 1_000_000),
    rounds: whole('rounds', values.rounds, 1, 1000),
    maxTokens: whole('max-tokens', values['max-tokens'], 32, 32_768),
    sequences: whole('sequences', values.sequences, 1, 4096),
    prefillTokens: whole('prefill', values.prefill, 1, 32_768),
    data: values.data,
    tokenizer: values.tokenizer,
  };
}

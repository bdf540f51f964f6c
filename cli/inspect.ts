/** `tilewright inspect`: what the compiler made of a model. */
import type { Command } from 'commander';
import { UsageError } from '../errors.js';
import { addCheckpointFlag, addMaskFlag, addModelFlags, addVerifyFlag } from './modelFlags.js';
import { addSections, CHECKPOINT_HELP, EXIT_STATUSES, type Flags, isSet } from './options.js';
import { type Context, refuseHubName } from './work.js';

/** What decides about calls, devices and files, of which --error has none. */
const WITHOUT_EFFECT: Readonly<Record<string, string>> = {
  batchTokens: '--batch-tokens',
  cacheTokens: '--cache-tokens',
  draft: '--draft',
  database: '--database',
  dump: '--dump',
  checkpoint: '--checkpoint',
  verify: '--verify',
};
const VIEWS = ['passes', 'pass', 'diff', 'kernels', 'kernel', 'plan', 'memory', 'parallel', 'mask'] as const;

/** Whether errors are asked for; UsageError for flags that have no effect. */
function refuseErrorFlags(flags: Flags): boolean {
  if (isSet(flags, 'error')) {
    const other = VIEWS.find((view) => flags[view] !== undefined);
    if (other !== undefined) throw new UsageError(`--error and --${other}: one at a time`, 'leave one of the two out');
    const idle = Object.entries(WITHOUT_EFFECT).find(([name]) => flags[name] !== undefined)?.[1];
    if (idle !== undefined) throw new UsageError(`${idle} has no effect on --error`, `leave ${idle} out`);
    return true;
  }
  const given = (['data', 'limit', 'against'] as const).find((name) => flags[name] !== undefined);
  if (given !== undefined) throw new UsageError(`--${given} is for --error`, `add --error, or leave --${given} out`);
  return false;
}

export function addInspect(program: Command, context: Context): void {
  const command = program
    .command('inspect')
    .summary('look inside: graph after a pass, kernels, sources, plan, memory')
    .description(
      'Shows what the compiler made of a checkpoint or artifact. ' +
        'Reads no weights and needs no C compiler. Without a flag: one screen with the whole.',
    )
    .argument('<model>', 'checkpoint folder or .gguf file, config.json (with --init), or artifact folder')
    .option('--passes', 'the passes in order, why each stands there, and what it left')
    .option('--pass <name>', 'the graph after this pass (a name or number from --passes)')
    .option('--diff <name>', 'what this pass changed, as a unified diff (a name or number from --passes)')
    .option('--kernels', 'every fused kernel: shape, cost, time predicted and measured, the ops that went into it')
    .option('--kernel <name>', 'the generated source of a kernel, by name or path')
    .option('--headers', 'with --kernel: behind it the headers that it includes')
    .option('--plan', 'launches and schedules, for each size of micro-batch')
    .option('--memory', 'the arena over time, and where the weights go')
    .option('--parallel <how>', 'what each of several devices would do and hold: dp=N, pp=N, dpxpp=AxB')
    .option('--error', 'what rounding costs: error of every kernel and layer beside float64 (see below)')
    .option('--against <precision>', 'with --error: f32, bf16 or f16 (default: float64, without any rounding)')
    .option('--data <file>', 'with --error: prompts, one on each line, or JSON lines of questions')
    .option('--limit <n>', 'with --error: at most n prompts (default: 4)')
    .option('--tokens <n>', 'tokens of a micro-batch, for costs and schedules (default: the largest); of a prompt')
    .option('--database <file>', 'with --kernels: measurements of tilewright tune (default: in the cache folder)')
    .option('--cache-tokens <n>', 'with the function step, and memory for the keys and values of n tokens')
    .option('--draft <dir>', 'with --cache-tokens: also the function draft, of a draft model or head of this folder')
    .option('--json', 'print what was asked for as JSON and nothing else');
  addVerifyFlag(addCheckpointFlag(command));
  addMaskFlag(addModelFlags(command)).action(async (model: string, _options: unknown, self: Command) => {
    const flags = self.opts<Flags>();
    await refuseHubName(model);
    if (refuseErrorFlags(flags)) await (await import('./inspectError.js')).showError(context, model, flags);
    else await (await import('./inspectViews.js')).inspect(context, model, flags);
  });
  addSections(command, {
    'Error of activations': [
      '--error computes a few prompts twice: as --precision and --target say, with everything rounded',
      'that kernels store, and in float64 without any rounding, or as --against says. Of every kernel it',
      'shows the rms of the difference divided by the rms of the value, and for every layer that of the',
      'residual stream. Sums within a kernel are exact: what their order costs is not in it.',
      'It interprets the kernels: it needs neither a GPU nor matrix units, and is for small models.',
    ],
    'Times of kernels': [
      '--kernels shows seconds as the cost model predicts them, those that the tuner has measured on this',
      'machine for the schedule at hand, and the share of peak: the least time that the roofline allows,',
      'divided by the measured one. Where nothing was measured it shows –.',
    ],
    'About the input': CHECKPOINT_HELP,
    Examples: [
      'tilewright inspect models/demo',
      'tilewright inspect models/demo --pass canonicalizeMask | less',
      'tilewright inspect models/demo --diff recognizeAttention',
      'tilewright inspect models/demo --kernels --tokens 512',
      'tilewright inspect models/demo --kernel layers.3.ffn.down',
      'tilewright inspect models/demo --target cuda:sm_90a --kernel layers.3.ffn.down --headers | less',
      'tilewright inspect models/demo --error --precision bf16',
      'tilewright inspect models/demo/config.json --init random:1 --memory',
      'tilewright inspect models/demo/config.json --init random:1 --target cuda:sm_90a --parallel pp=2',
    ],
    'Exit status': EXIT_STATUSES,
  });
}

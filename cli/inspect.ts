/** `tilewright inspect`: what the compiler made of a model. */
import type { Command } from 'commander';
import {
  addCheckpointFlag,
  addMaskFlag,
  addModelFlags,
  addSections,
  addVerifyFlag,
  CHECKPOINT_HELP,
  EXIT_STATUSES,
} from './help.js';
import type { Flags } from './options.js';
import type { Context } from './work.js';

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
    .option('--kernels', 'every fused kernel: shape, cost, the ops that went into it')
    .option('--kernel <name>', 'the generated source of a kernel, by name or path')
    .option('--plan', 'launches and schedules, for each size of micro-batch')
    .option('--memory', 'the arena over time, and where the weights go')
    .option('--parallel <how>', 'what each of several devices would do and hold: dp=N, pp=N, dpxpp=AxB')
    .option('--tokens <n>', 'tokens of a micro-batch, for costs and schedules (default: the largest)')
    .option('--cache-tokens <n>', 'with the function step, and memory for the keys and values of n tokens')
    .option('--json', 'print what was asked for as JSON and nothing else');
  addVerifyFlag(addCheckpointFlag(command));
  addMaskFlag(addModelFlags(command)).action(async (model: string, _options: unknown, self: Command) => {
    await (await import('./inspectViews.js')).inspect(context, model, self.opts<Flags>());
  });
  addSections(command, {
    'About the input': CHECKPOINT_HELP,
    Examples: [
      'tilewright inspect models/demo',
      'tilewright inspect models/demo --pass canonicaliseMask | less',
      'tilewright inspect models/demo --kernels --tokens 512',
      'tilewright inspect models/demo --kernel layers.3.ffn.down',
      'tilewright inspect models/demo/config.json --init random:1 --memory',
      'tilewright inspect models/demo/config.json --init random:1 --target cuda:sm_90a --parallel pp=2',
    ],
    'Exit status': EXIT_STATUSES,
  });
}

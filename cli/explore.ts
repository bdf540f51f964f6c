/** `tilewright explore`: the compiler at work, as a page to look at. */
import type { Command } from 'commander';
import { isArtifact } from '../driver/names.js';
import { defined } from '../system/defined.js';
import { bytes, count, counted } from '../system/text.js';
import {
  addCheckpointFlag,
  addMaskFlag,
  addModelFlags,
  addVerifyFlag,
  artifactFlags,
  INSPECT_MASKS,
  modelFlags,
  refuseCompileFlags,
} from './modelFlags.js';
import { addSections, CHECKPOINT_HELP, EXIT_STATUSES, type Flags, isSet, text, wholeNumber } from './options.js';
import { noteLine, printText } from './print.js';
import { type Context, printJson, refuseHubName } from './work.js';

/** No plan takes more; a model's own says how many it takes. */
const MAX_TOKENS = 1 << 16;
const DEFAULT_OUTPUT = 'explore.html';

export function addExplore(program: Command, context: Context): void {
  const command = program
    .command('explore')
    .summary('the compiler at work, as a page to look at: graphs after every pass, kernels, sources')
    .description(
      'Writes one HTML file that shows how a model is compiled: the graph after every pass and what it changed, ' +
        'the kernels with the ops that went into them, their source, schedule, cost and place on the roofline. ' +
        'It opens from a disk and uses no network. Reads no weights and needs neither a GPU nor a compiler.',
    )
    .argument('<model>', 'checkpoint folder or .gguf file, config.json (with --init), or artifact folder')
    .option('-o, --output <file>', `the page (default: ${DEFAULT_OUTPUT})`)
    .option('--tokens <n>', 'tokens of a call, for costs and schedules (default: the largest)')
    .option('--cache-tokens <n>', 'with the function step, and memory for the keys and values of n tokens')
    .option('--registers', 'compile the kernels for a GPU, to know their registers and spills')
    .option('--database <file>', 'tuning records to take measured times from (default: where tune keeps them)')
    .option('--json', 'print what was written as JSON and nothing else');
  addVerifyFlag(addCheckpointFlag(command));
  addMaskFlag(addModelFlags(command)).action(async (model: string, _options: unknown, self: Command) => {
    const flags = self.opts<Flags>();
    await refuseHubName(model);
    const wanted = modelFlags(flags, INSPECT_MASKS);
    if (isArtifact(model)) refuseCompileFlags(flags, model);
    const [tokens, database] = [text(flags, 'tokens'), text(flags, 'database')];
    const { dump: _, ...request } = { model, ...wanted, ...artifactFlags(flags, model) };
    const { explore } = await import('../commands/explore.js');
    const explored = await explore({
      ...request,
      output: text(flags, 'output') ?? DEFAULT_OUTPUT,
      ...defined({ tokens: tokens === undefined ? undefined : wholeNumber('--tokens', tokens, 1, MAX_TOKENS, '256') }),
      ...defined({ database }),
      ...(isSet(flags, 'registers') ? { examines: true } : {}),
    });
    if (isSet(flags, 'json')) return printJson(context.io, explored);
    const lines = [
      ...explored.notes.map(noteLine),
      ...explored.functions.map(
        ({ name, stages, kernels }) => `${name}: ${counted(stages, 'stage')}, ${count(kernels)} kernels`,
      ),
      `${explored.path}: ${bytes(explored.bytes)}; open it in a browser`,
    ];
    printText(context.io, `${lines.join('\n')}\n`);
  });
  addSections(command, {
    'About the input': CHECKPOINT_HELP,
    Examples: [
      'tilewright explore models/demo',
      'tilewright explore models/demo/config.json --init random:1 --target cuda:sm_90a -o h100.html',
      'tilewright explore models/demo --cache-tokens 4096 --tokens 256',
    ],
    'Exit status': EXIT_STATUSES,
  });
}

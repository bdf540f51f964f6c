/** `tilewright serve`: answers over HTTP as OpenAI's servers do. */
import type { Command } from 'commander';
import type { ServeRequest } from '../commands/serve.js';
import { isArtifact } from '../driver/names.js';
import type { WithTargetChoice } from '../driver/precision.js';
import {
  addSteppingFlags,
  addVerboseFlag,
  artifactFlags,
  deviceFlags,
  modelFlags,
  refuseCompileFlags,
} from './modelFlags.js';
import {
  addSections,
  CHECKPOINT_HELP,
  EXIT_STATUSES,
  type Flags,
  seconds,
  text,
  texts,
  threads,
  wholeNumber,
} from './options.js';
import { printText } from './print.js';
import { faceOf } from './ui.js';
import { type Context, refuseHubName, sameCommand, withUi } from './work.js';

const collect = (value: string, before: readonly string[] = []): readonly string[] => [...before, value];

const DEFAULTS = { port: 8000, host: '127.0.0.1', shutdown: '30s' };

export function addServe(program: Command, context: Context): void {
  const command = program
    .command('serve')
    .summary("answer over HTTP as OpenAI's servers do")
    .description(
      'Serves a model over HTTP, for programs that speak to OpenAI. Requests are computed together, and none changes ' +
        'what another gets: the same request with a seed has the same answer, alone or among hundreds.',
    )
    .argument('<model>', 'checkpoint folder, GGUF file, or artifact folder written by compile --cache-tokens')
    .option('--port <n>', `port to listen at; 0: any that is free (default: ${DEFAULTS.port})`)
    .option('--host <address>', `address to listen at; 0.0.0.0: all of this machine (default: ${DEFAULTS.host})`)
    .option(
      '--served-model-name <name>',
      "what clients call the model; may be repeated (default: the folder's)",
      collect,
    )
    .option(
      '--shutdown-timeout <time>',
      `what runs has so long once it is told to stop (default: ${DEFAULTS.shutdown})`,
    );
  addSteppingFlags(command, 'requests').option('-q, --quiet', 'print the address and errors only');
  addVerboseFlag(command).action(async (model: string, _options: unknown, self: Command) => {
    await serve(context, model, self.opts<Flags>());
  });
  addSections(command, {
    'About the model': CHECKPOINT_HELP,
    Examples: ['tilewright serve models/demo', 'curl http://127.0.0.1:8000/v1/models'],
    'Exit status': EXIT_STATUSES,
  });
}

function parse(context: Context, model: string, flags: Flags): Omit<WithTargetChoice<ServeRequest>, 'signal'> {
  if (isArtifact(model)) refuseCompileFlags(flags, model);
  return {
    model,
    names: texts(flags, 'servedModelName'),
    http: {
      host: text(flags, 'host') ?? DEFAULTS.host,
      port: wholeNumber('--port', text(flags, 'port') ?? String(DEFAULTS.port), 0, 65_535, '8000'),
    },
    queue: { requests: 4096, tokens: 1 << 23 },
    shutdownMs: 1000 * seconds('--shutdown-timeout', text(flags, 'shutdownTimeout') ?? DEFAULTS.shutdown),
    ...deviceFlags(flags),
    ...modelFlags(flags),
    ...artifactFlags(flags, model),
    threads: threads(flags, context.io),
  };
}

async function serve(context: Context, model: string, flags: Flags): Promise<void> {
  const { io } = context;
  await refuseHubName(model);
  const face = faceOf(flags);
  const request = parse(context, model, flags);
  const advice = (): string => `nothing was served; the same command starts again:\n  ${sameCommand(context)}`;
  await withUi(context, { ...face, advice, resultsIn: 'serve', isStreamed: true }, async (ui, signal) => {
    const story = await import('../commands/serve.js');
    await story.serve({ ...request, signal }, ui, (address) => printText(io, `listening on ${address}\n`));
  });
}

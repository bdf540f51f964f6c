/** `tilewright route`: one address for several servers. */
import type { Command } from 'commander';
import type { CheckedConfig } from '../commands/route.js';
import { counted } from '../system/text.js';
import { listenForStop } from './io.js';
import { addSections, EXIT_STATUSES, type Flags, isSet, required } from './options.js';
import { printableLine, printText } from './print.js';
import { type Context, printJson } from './work.js';

export function addRoute(program: Command, context: Context): void {
  const command = program
    .command('route')
    .summary('one address for several servers')
    .description(
      'Stands before servers of tilewright serve (or others with the endpoints of vLLM) and sends each request to ' +
        'one of them: to one that holds its adapter, or the beginning of its prompt, and has little to do. Adapters ' +
        'that are asked for more are loaded by more servers; new revisions take over without a pause.',
    )
    .option('--config <file>', 'which servers and adapters there are: JSON, see below')
    .option('--check', 'read the file and the folders of adapters, say what is wrong, and end')
    .option('--json', 'print events and requests as lines of JSON on the standard error; with --check, what was read')
    .option('-q, --quiet', 'print the address and errors only')
    .action(async (_options: unknown, self: Command) => {
      const flags = self.opts<Flags>();
      if (isSet(flags, 'check')) await check(context, flags);
      else await route(context, flags);
    });
  addSections(command, {
    'The file': [
      '{"replicas": [{"url": "http://10.0.0.5:8000"}, {"url": "http://10.0.0.6:8000"}],',
      ' "adapters": {"sql": {"base": "demo", "path": "/srv/adapters/sql"}},',
      ' "listen": {"host": "127.0.0.1", "port": 8100}}',
      '',
      'replicas     url; name, weight (1), keyVariable: the environment variable with its key',
      'adapters     by the name that clients ask for: base, the model as servers list it first; path, the',
      '             folder as servers see it; folder, as the router does; revision, where it sees none',
      'listen       host (127.0.0.1), port (8100; 0: any that is free)',
      'clientKeyVariables, adminKeyVariable   environment variables with keys that are to be shown',
      'policy       epsilon (0.5): a server takes (1 + epsilon) times the mean at most; placementSeconds',
      '             (30); quietPeriods (3); running (256), what a server runs at a time; slots (8), where',
      '             metrics do not say how many adapters it has room for',
      'probe        periodSeconds (2), timeoutSeconds (2), failures (2) until a server counts as down',
      'limits       waitSeconds (30), attempts (4), drainSeconds (30), loadSeconds (120),',
      '             connectSeconds (3), stallSeconds (120), bodyMiB (32), heldMiB, connections, waiting',
    ],
    'What it answers': [
      'The endpoints of the servers: /v1/completions, /v1/chat/completions, /v1/models (all of them',
      'together), /tokenize, /pooling, /score and so on; /health, /metrics (Prometheus), /version, /load.',
      'GET /route/status says what it knows; POST /route/drain and /route/resume take {"replica": NAME}.',
      'docs/routing.md lists fields, statuses and metrics.',
    ],
    'When a server fails': [
      'A request goes elsewhere as long as nothing of its answer was sent: servers with equal models give',
      'equal answers, so that asking twice changes nothing. A stream that has begun ends with an error.',
    ],
    'A new revision of an adapter': [
      'Write it into a folder of its own, and set the link that path names to it. The router sees it',
      'within placementSeconds, has every holder load it, and then lets the name mean it; requests that',
      'run keep the old one. Servers must let adapters be loaded: see tilewright serve --help.',
    ],
    'To stop it': ['Ctrl-C, or SIGTERM: what runs has drainSeconds to end. A second signal ends it at once.'],
    Examples: [
      'tilewright route --config examples/route.json --check',
      'tilewright route --config examples/route.json',
      'tilewright route --config examples/route.json --json 2> requests.jsonl',
    ],
    'Exit status': EXIT_STATUSES,
  });
}

const fileOf = (flags: Flags): string =>
  required(flags, 'config', '--config', 'tilewright route --config examples/route.json');

async function route(context: Context, flags: Flags): Promise<void> {
  const { io } = context;
  const config = fileOf(flags);
  const [isJson, isQuiet] = [isSet(flags, 'json'), isSet(flags, 'quiet')];
  const [story, { lineOf }] = await Promise.all([import('../commands/route.js'), import('../route/proxy/events.js')]);
  const say = (line: string): void => void io.stderr.write(`${printableLine(line)}\n`);
  const stop = listenForStop(
    io,
    () => undefined,
    () => undefined,
  );
  try {
    await story.route(
      { config, signal: stop.signal },
      {
        onReady: (address) => printText(io, `listening on ${address}\n`),
        onDrain: (ms) => {
          if (!isJson && !isQuiet)
            say(`stopping: requests that run have ${Math.round(ms / 1000)} s; a second signal ends them at once`);
        },
        onEvent: (event) => {
          if (isJson) return void io.stderr.write(`${JSON.stringify({ time: new Date().toISOString(), ...event })}\n`);
          const line = isQuiet && event.event !== 'error' ? undefined : lineOf(event);
          if (line !== undefined) say(line);
        },
      },
    );
  } finally {
    stop.end();
  }
}

async function check(context: Context, flags: Flags): Promise<void> {
  const { io } = context;
  const file = fileOf(flags);
  const { checkRoute } = await import('../commands/route.js');
  const checked = await checkRoute(file);
  const bad = checked.adapters.filter(({ problem }) => problem !== undefined);
  if (isSet(flags, 'json')) printJson(io, withoutKeys(checked));
  else {
    const { replicas, adapters } = checked.config;
    printText(io, `${file}: ${counted(replicas.length, 'replica')}, ${counted(adapters.length, 'adapter')}\n`);
    for (const { name, revision, problem } of checked.adapters)
      printText(io, `  ${printableLine(name)}: ${printableLine(problem ?? `revision ${revision!}`)}\n`);
  }
  if (bad.length > 0) context.fail();
}

/** What a check prints: no key is shown. */
function withoutKeys({ config, adapters }: CheckedConfig): unknown {
  const { replicas, clientKeys, adminKeys, ...rest } = config;
  return {
    ...rest,
    replicas: replicas.map(({ key, ...replica }) => ({ ...replica, hasKey: key !== undefined })),
    adapters,
    clientKeys: clientKeys.length,
    adminKeys: adminKeys.length,
  };
}

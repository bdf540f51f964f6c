/** `tilewright serve`: answers over HTTP as OpenAI's servers do. */
import { resolve } from 'node:path';
import { type Command, Option } from 'commander';
import type { ServeRequest } from '../commands/serve.js';
import { isArtifact } from '../driver/names.js';
import type { WithTargetChoice } from '../driver/precision.js';
import { UsageError } from '../errors.js';
import { MAX_ADAPTER_RANK, MAX_ADAPTER_SLOTS } from '../ir/adapterRows.js';
import { CALL_STYLES, REASONING_STYLES } from '../models/chat/answerStyles.js';
import { readSettings } from '../settings.js';
import { defined } from '../system/defined.js';
import { decodeUtf8, readBounded } from '../system/read.js';
import { adaptersOf as namedAdapters } from './adapterFlags.js';
import { addDraftFlags, draftFlags } from './draftFlags.js';
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
  choice,
  EXIT_STATUSES,
  type Flags,
  seconds,
  text,
  texts,
  threads,
  wholeNumber,
} from './options.js';
import { printableLine, printText } from './print.js';
import { VERIFIERS } from './reward.js';
import { faceOf } from './ui.js';
import { type Context, refuseHubName, sameCommand, withUi } from './work.js';

/** A flag that may be given several times. */
const collect = (value: string, before: readonly string[] = []): readonly string[] => [...before, value];

const PORT = '8000';
const HOST = '127.0.0.1';
const SHUTDOWN = '30s';
const HANG = '5m';
const BODY_MIB = '32';
const QUEUE = '4096';
const QUEUE_TOKENS = '8388608';
const CONNECTIONS = '16384';
const ADAPTERS = 'folder of a LoRA adapter that requests may name as their model; may be repeated (docs/adapters.md)';
const SLOTS = 16;
const RANK = 16;

export function addServe(program: Command, context: Context): void {
  const command = program
    .command('serve')
    .summary("answer over HTTP as OpenAI's servers do")
    .description(
      'Serves a model over HTTP, for programs that speak to OpenAI. Requests are computed together, and none changes ' +
        'what another gets: the same request with a seed has the same answer, alone or among hundreds.',
    )
    .argument('<model>', 'checkpoint folder, GGUF file, or artifact folder written by compile --cache-tokens')
    .option('--port <n>', `port to listen at; 0: any that is free (default: ${PORT})`)
    .option('--host <address>', `address to listen at; 0.0.0.0: all of this machine (default: ${HOST})`)
    .option(
      '--served-model-name <name>',
      "what clients call the model; may be repeated (default: the folder's)",
      collect,
    )
    .option('--verifier <model>', 'a second model beside it, for /score and /pooling or for texts')
    .option('--verifier-name <name>', "what clients call the second model (default: the folder's)")
    .addOption(
      new Option('--verifier-kind <name>', 'what a verifier with the class of a language model was trained as').choices(
        VERIFIERS,
      ),
    )
    .option(
      '--api-key <key>',
      'a key that clients must show; may be repeated. Users of this machine can see it',
      collect,
    )
    .option('--api-key-file <file>', 'a file of keys, one a line')
    .option(
      '--allowed-origin <origin>',
      'lets pages of this origin ask, as https://example.org; *: all; may be repeated',
      collect,
    )
    .option('--adapter-folder <dir>', 'a folder of adapters: its folders are read when a request names one')
    .option('--adapter-updates', 'lets clients load and unload adapters, from paths of this machine')
    .option(
      '--adapter-slots <n>',
      `adapters that a device holds side by side (default: ${SLOTS}, or all that are given)`,
    )
    .option('--adapter-rank <r>', `largest rank of an adapter (default: of those given, at least ${RANK})`)
    .option(
      '--queue-requests <n>',
      `requests that may wait for their first token; more are told 429 (default: ${QUEUE})`,
    )
    .option('--queue-tokens <n>', `tokens of their prompts (default: ${QUEUE_TOKENS})`)
    .option('--max-body <MiB>', `largest body of a request in MiB (default: ${BODY_MIB})`)
    .option('--max-connections <n>', `connections at a time (default: ${CONNECTIONS})`)
    .option('--hang-timeout <time>', `/health says 503 when no step was computed for so long (default: ${HANG})`)
    .option(
      '--tool-call-parser <style>',
      `how the model writes calls of tools: ${listed(CALL_STYLES)} (default: found in its chat template)`,
    )
    .option(
      '--reasoning-parser <style>',
      `how it marks its thoughts: ${listed(REASONING_STYLES)} (default: found in its chat template)`,
    )
    .option(
      '--shutdown-timeout <time>',
      `what runs has so long once the server is told to stop (default: ${SHUTDOWN})`,
    );
  addSteppingFlags(addDraftFlags(command), 'requests', ADAPTERS).option(
    '-q, --quiet',
    'print the address and errors only',
  );
  addVerboseFlag(command).action(async (model: string, _options: unknown, self: Command) => {
    await serve(context, model, self.opts<Flags>());
  });
  addSections(command, {
    'About the model': CHECKPOINT_HELP,
    'What it answers': [
      '/v1/completions, /v1/chat/completions (with a verifier it searches, where a body has search),',
      '/v1/models; /tokenize, /detokenize, /tokenizer_info;',
      '/pooling, /score, /classify and /rerank for reward models; /health, /ping, /version, /load and',
      '/metrics (Prometheus). docs/serving.md lists every field, status and flag.',
    ],
    Adapters: [
      'With --adapter, --adapter-folder or --adapter-updates the model has slots for LoRA adapters. A',
      'request names one as its "model"; base and adapters share batches and change no bit of each other.',
      '/v1/load_lora_adapter and /v1/unload_lora_adapter need --adapter-updates: who may call them can',
      'have any folder of this machine read as an adapter. docs/adapters.md says what is read.',
    ],
    Keys: [
      'Without a key everybody who reaches the address is let in. A key in a file, or in the variable',
      'TILEWRIGHT_API_KEY, is not seen in lists of processes. Clients send Authorization: Bearer KEY.',
      '/health, /ping, /version, /load and /metrics need none.',
    ],
    'To stop it': [
      'Ctrl-C, or SIGTERM: new requests are told 503, those that run have the --shutdown-timeout to end.',
      'A second signal ends it at once.',
    ],
    Examples: [
      'tilewright serve models/demo',
      'tilewright serve models/demo --port 8080 --served-model-name small',
      'tilewright serve models/demo --host 0.0.0.0 --api-key-file keys.txt',
      'curl http://127.0.0.1:8000/v1/completions -H "Content-Type: application/json" \\',
      '     -d \'{"prompt": "Once upon a time", "max_tokens": 16}\'',
    ],
    'Exit status': EXIT_STATUSES,
  });
}

type Whole = (name: string, flag: string, most: number, usual: string, least?: number) => number;

/** What is said of adapters; undefined where the model needs no slots for any. */
function adaptersOf(flags: Flags, whole: Whole): ServeRequest['adapters'] {
  const given = namedAdapters(flags).map(({ name, path }) => ({
    ...{ name: nameOf('--adapter', name), path: resolve(path) },
  }));
  const folder = text(flags, 'adapterFolder');
  const allowsUpdates = flags['adapterUpdates'] === true;
  const number = (name: string, flag: string, most: number): number | undefined =>
    text(flags, name) === undefined ? undefined : whole(name, flag, most, '16');
  const slots = number('adapterSlots', '--adapter-slots', MAX_ADAPTER_SLOTS);
  const rank = number('adapterRank', '--adapter-rank', MAX_ADAPTER_RANK);
  if (given.length > 0 || folder !== undefined || allowsUpdates)
    return { given, allowsUpdates, ...defined({ folder, slots, rank }) };
  if (slots === undefined && rank === undefined) return undefined;
  throw new UsageError(
    '--adapter-slots, --adapter-rank: there are no adapters',
    'give some: --adapter NAME=DIR; or let clients load them: --adapter-updates',
  );
}

const KEY_FILE_BYTES = 1 << 20;

/** Keys of all three places. Throws UserError where the file cannot be read, or has none. */
function keysOf(flags: Flags): readonly string[] {
  const file = text(flags, 'apiKeyFile');
  const lines =
    file === undefined
      ? []
      : decodeUtf8(readBounded(file, KEY_FILE_BYTES), file)
          .split('\n')
          .map((line) => line.trim())
          .filter((line) => line !== '');
  if (file !== undefined && lines.length === 0)
    throw new UsageError(`--api-key-file ${file}: there is no key in it`, 'write one into it, a key a line');
  const given = texts(flags, 'apiKey');
  if (given.some((key) => key.trim() === ''))
    throw new UsageError('--api-key: the key is empty', 'leave the flag out to let everybody in');
  const own = readSettings().apiKey;
  return [...given, ...lines, ...(own === undefined ? [] : [own])];
}

const ORIGIN = /^(\*|[a-z][a-z0-9+.-]*:\/\/[^/\s,;]+)$/;

function originsOf(flags: Flags): readonly string[] {
  const origins = texts(flags, 'allowedOrigin');
  const stray = origins.find((origin) => !ORIGIN.test(origin));
  if (stray === undefined) return origins;
  throw new UsageError(
    `--allowed-origin ${stray}: expected the origin of a page, as browsers send it`,
    'for example: --allowed-origin https://example.org',
  );
}

const nameOf = (flag: string, name: string): string => {
  if (/^[^\p{Cc}\p{Zl}\p{Zp}]{1,200}$/u.test(name)) return name;
  throw new UsageError(`${flag}: expected 1 to 200 letters`, `for example: ${flag} small`);
};

const stylesOf = <Style extends string>(table: Readonly<Record<Style, unknown>>): readonly (Style | 'none')[] => [
  ...(Object.keys(table) as Style[]),
  'none',
];
const listed = (table: Readonly<Record<string, unknown>>): string => stylesOf(table).join(', ');

/** Throws UserError for a style that there is not. */
function styleFlag<Style extends string>(
  flag: string,
  value: string | undefined,
  table: Readonly<Record<Style, unknown>>,
): Style | 'none' | undefined {
  const found = stylesOf(table).find((each) => each === value);
  if (value !== undefined && found === undefined)
    throw new UsageError(`${flag} ${value}: there is no such style`, `give one of ${listed(table)}`);
  return found;
}

function parse(context: Context, model: string, flags: Flags): Omit<WithTargetChoice<ServeRequest>, 'signal'> {
  if (isArtifact(model)) refuseCompileFlags(flags, model);
  const whole = (name: string, flag: string, most: number, usual: string, least = 1): number =>
    wholeNumber(flag, text(flags, name) ?? usual, least, most, usual);
  const [verifier, verifierName, kind] = ['verifier', 'verifierName', 'verifierKind'].map((name) => text(flags, name));
  for (const [flag, value] of [['--verifier-name', verifierName] as const, ['--verifier-kind', kind] as const])
    if (verifier === undefined && value !== undefined)
      throw new UsageError(`${flag}: there is no second model`, 'give it: --verifier DIR');
  return {
    model,
    ...defined({
      verifier:
        verifier === undefined
          ? undefined
          : {
              model: verifier,
              ...defined({
                name: verifierName && nameOf('--verifier-name', verifierName),
                language: kind && choice('--verifier-kind', kind, VERIFIERS),
              }),
            },
    }),
    names: texts(flags, 'servedModelName').map((name) => nameOf('--served-model-name', name)),
    http: {
      host: text(flags, 'host') ?? HOST,
      port: whole('port', '--port', 65_535, PORT, 0),
      apiKeys: keysOf(flags),
      origins: originsOf(flags),
      maxBodyBytes: whole('maxBody', '--max-body', 1024, BODY_MIB) << 20,
      maxConnections: whole('maxConnections', '--max-connections', 1_000_000, CONNECTIONS),
      hangMs: 1000 * seconds('--hang-timeout', text(flags, 'hangTimeout') ?? HANG),
    },
    parsers: defined({
      toolCalls: styleFlag('--tool-call-parser', text(flags, 'toolCallParser'), CALL_STYLES),
      reasoning: styleFlag('--reasoning-parser', text(flags, 'reasoningParser'), REASONING_STYLES),
    }),
    ...defined({ adapters: adaptersOf(flags, whole) }),
    queue: {
      requests: whole('queueRequests', '--queue-requests', 1_000_000, QUEUE),
      tokens: whole('queueTokens', '--queue-tokens', 1_000_000_000, QUEUE_TOKENS),
    },
    shutdownMs: 1000 * seconds('--shutdown-timeout', text(flags, 'shutdownTimeout') ?? SHUTDOWN),
    ...draftFlags(flags),
    ...deviceFlags(flags),
    ...modelFlags(flags),
    ...artifactFlags(flags, model),
    threads: threads(flags, context.io),
  };
}

const LOOPBACK = /^(localhost|127\.\d+\.\d+\.\d+|::1)$/;

async function serve(context: Context, model: string, flags: Flags): Promise<void> {
  const { io } = context;
  await refuseHubName(model);
  const face = faceOf(flags);
  const request = parse(context, model, flags);
  const say = (line: string): void => void io.stderr.write(`${printableLine(line)}\n`);
  if (!face.isQuiet && request.http.apiKeys?.length === 0 && !LOOPBACK.test(request.http.host))
    say(`note: everybody who reaches ${request.http.host} is let in; --api-key-file FILE lets in who has a key`);
  // A key must not be shown again.
  const again = isSecret(flags) ? '' : `; the same command starts again:\n  ${sameCommand(context)}`;
  await withUi(context, { ...face, advice: () => `nothing was served${again}`, ...SERVING }, async (ui, signal) => {
    const story = await import('../commands/serve.js');
    await story.serve({ ...request, signal }, ui, {
      onReady: (address) => printText(io, `listening on ${address}\n`),
      onDrain: () => say(drainLine(request.shutdownMs)),
      onError: (error) => say(`error: ${error}`),
    });
  });
}

const SERVING = { resultsIn: 'serve', isStreamed: true };

const isSecret = (flags: Flags): boolean => texts(flags, 'apiKey').length > 0;

const drainLine = (ms: number): string =>
  `stopping: requests that run have ${Math.round(ms / 1000)} s to end; a second signal ends them at once`;

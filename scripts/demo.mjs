// `npm run demo`: builds what is missing, then compiles the bundled model, scores the bundled questions and
// writes the results as a page. Every step is a command that can be copied; everything it writes is under results/demo.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const out = join('results', 'demo');
const artifact = join(out, 'demo.tw');
const model = join('models', 'demo');
const page = join(out, 'report.html');
const data = join('examples', 'everyday.jsonl');
const tilewright = ['node', join('dist', 'cli', 'main.js')];

const built = ['dist/cli/main.js', 'dist/codegen/cpu/templates', 'build/Release/tilewright.node'];

/** What a step needs besides npm's packages, and how a user of a bare machine gets it. */
const tools = [
  {
    names: ['cmake'],
    install: 'apt-get install cmake (Debian, Ubuntu), dnf install cmake (Fedora)',
  },
  { names: ['c++', 'g++', 'clang++'], install: 'apt-get install g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora)' },
];

function fail(message, hint) {
  process.stderr.write(`error: ${message}\nhint: ${hint}\n`);
  process.exit(1);
}

/** Shows a command and runs it in the repository. If it fails, the demonstration ends with its message. */
function step(title, [command, ...args]) {
  const shown = [command, ...args].join(' ');
  process.stdout.write(`\n# ${title}\n$ ${shown}\n`);
  const program = command === 'node' ? process.execPath : command;
  const { status, signal, error } = spawnSync(program, args, { cwd: root, stdio: 'inherit' });
  if (error !== undefined)
    fail(`${command} cannot be started: ${error.message}`, 'see CONTRIBUTING.md for what has to be installed');
  if (signal !== null) process.exit(128 + constants.signals[signal]);
  if (status === 130 || status === 143) process.exit(status);
  if (status !== 0) {
    process.stderr.write(`\nThe demonstration stopped at: ${shown}\n`);
    process.exit(status ?? 1);
  }
}

const oldest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).engines.node.replace('>=', '');
const [[major, minor], [minMajor, minMinor]] = [process.versions.node, oldest].map((v) => v.split('.').map(Number));
if (major < minMajor || (major === minMajor && minor < minMinor))
  fail(`Node ${process.versions.node} is too old; ${oldest} or later is needed`, 'nvm install 22');
if (!existsSync(join(root, 'node_modules'))) fail('the packages are not installed', 'npm ci');
// The children report Ctrl-C themselves; this process only has to outlive them.
process.on('SIGINT', () => {});

if (built.some((path) => !existsSync(join(root, path)))) {
  for (const { names, install } of tools) {
    if (names.every((name) => spawnSync(name, ['--version'], { stdio: 'ignore' }).error !== undefined))
      fail(`none of ${names.join(', ')} is installed`, install);
  }
  step('Build the native addon and the TypeScript: about a minute', ['npm', 'run', '--silent', 'build']);
}
mkdirSync(join(root, out), { recursive: true });
step('What this machine has', [...tilewright, 'doctor']);
step('Compile the bundled 7.5M-parameter LLaMA to an artifact', [...tilewright, 'compile', model, '-o', artifact]);
step('Score 136 everyday questions, and write the results as a page', [
  ...tilewright,
  'run',
  artifact,
  '--task',
  'hellaswag',
  '--data',
  data,
  '--out',
  out,
  '--report',
  page,
]);
process.stdout.write(`
Done. Everything this wrote is under ${out}/ (ignored by git; delete it as you like).
The model is tiny and the questions are few: the numbers show that the pipeline works, not how good a model is.
Next:  open ${page} in a browser
       ${tilewright.join(' ')} generate ${model} "Once upon a time"
       ${tilewright.join(' ')} tune ${artifact} --budget 5m          # faster tiles for this machine
       ${tilewright.join(' ')} run path/to/llama --task hellaswag --data hellaswag_val.jsonl --out results
`);

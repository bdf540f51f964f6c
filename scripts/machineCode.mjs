/**
 * Machine code of the kernels of test/codegen/cuda/goldenKernels.ts, as nvcc makes it without a GPU: instructions by
 * class, registers, stack, spills, static shared memory and seconds to compile. With another checkout's figures beside
 * them: what a change of code generation costs.
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { rolldown } from 'rolldown';

const ROOT = dirname(import.meta.dirname);
const HELP = `Usage: npm run machine-code -- [options] [names]

Compiles kernels of every skeleton by nvcc and counts what their machine code is made of.
Names choose kernels that begin with them.

  --json FILE      write the figures, for --against
  --against FILE   figures of another checkout, printed before an arrow where they differ
  --print          print the units instead

For example, before and after a change:
  npm run machine-code -- --json build/before.json
  npm run machine-code -- --against build/before.json wgmma
`;

/** The lower nine bits of an instruction name its operation, whatever the kinds of its operands (sm_80 to sm_90a). */
const CLASSES = {
  tensor: [0x1f0, 0x03c],
  shared: [0x184, 0x188, 0x03b],
  global: [0x181, 0x186, 0x1ae],
  local: [0x183, 0x187],
  float: [0x020, 0x021, 0x023, 0x009, 0x00b, 0x008, 0x108],
  integer: [0x010, 0x011, 0x012, 0x016, 0x019, 0x007, 0x00c, 0x024, 0x025, 0x027],
  move: [0x002, 0x082, 0x0c2, 0x0ca],
  shuffle: [0x189],
  branch: [0x141, 0x144, 0x145, 0x147, 0x14d],
};
const NOP = 0x118;
const INSTRUCTION_BYTES = 16;

/** The kernels as text: the module and all that it imports, bundled, because Node reads no TypeScript. */
async function goldenKernels() {
  const folder = join(ROOT, 'build', 'machineCode');
  mkdirSync(folder, { recursive: true });
  const bundle = await rolldown({
    input: join(ROOT, 'test', 'codegen', 'cuda', 'goldenKernels.ts'),
    platform: 'node',
    tsconfig: false,
    external: (id) => !/^[./]/.test(id),
    resolve: { extensionAlias: { '.js': ['.ts', '.js'] } },
    onLog: () => undefined,
    plugins: [
      {
        name: 'places of sources',
        transform: (code, id) =>
          code
            .replaceAll('import.meta.url', JSON.stringify(pathToFileURL(id).href))
            .replaceAll('import.meta.dirname', JSON.stringify(dirname(id))),
      },
    ],
  });
  const file = join(folder, 'goldenKernels.mjs');
  await bundle.write({ file, format: 'esm', codeSplitting: false });
  await bundle.close();
  return (await import(pathToFileURL(file).href)).goldenKernels();
}

/** The machine code of `symbol` in a cubin, an ELF file. */
function codeOf(cubin, symbol) {
  const [headers, count, names] = [Number(cubin.readBigUInt64LE(40)), cubin.readUInt16LE(60), cubin.readUInt16LE(62)];
  const section = (i) => ({
    name: cubin.readUInt32LE(headers + 64 * i),
    offset: Number(cubin.readBigUInt64LE(headers + 64 * i + 24)),
    bytes: Number(cubin.readBigUInt64LE(headers + 64 * i + 32)),
  });
  const table = section(names).offset;
  for (let i = 0; i < count; i++) {
    const { name, offset, bytes } = section(i);
    const from = table + name;
    if (cubin.toString('latin1', from, cubin.indexOf(0, from)) === `.text.${symbol}`)
      return cubin.subarray(offset, offset + bytes);
  }
  throw new Error(`There is no machine code of ${symbol}.`);
}

function instructionsOf(code) {
  const counts = { all: 0 };
  for (let at = 0; at < code.length; at += INSTRUCTION_BYTES) {
    const operation = code.readUInt16LE(at) & 0x1ff;
    if (operation === NOP) continue;
    const found = Object.keys(CLASSES).find((name) => CLASSES[name].includes(operation)) ?? 'other';
    counts.all++;
    counts[found] = (counts[found] ?? 0) + 1;
  }
  return counts;
}

function compile({ symbol, source, arch }) {
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-code-'));
  try {
    writeFileSync(join(folder, 'unit.cu'), source);
    const number = arch.slice('sm_'.length);
    const flags = ['-cubin', `-gencode=arch=compute_${number},code=${arch}`, '--std=c++20', '-Xptxas', '-v'];
    const started = performance.now();
    const { status, error, stdout, stderr } = spawnSync(
      'nvcc',
      [...flags, '-I', join(ROOT, 'codegen', 'cuda'), '-o', 'unit.cubin', 'unit.cu'],
      { cwd: folder, encoding: 'utf8' },
    );
    const seconds = (performance.now() - started) / 1000;
    if (error !== undefined) throw new Error(`nvcc cannot be run (${error.message}); put a CUDA toolkit's bin on PATH`);
    const log = `${stdout}${stderr}`;
    if (status !== 0) throw new Error(log);
    const figure = (pattern) => Number(pattern.exec(log)?.[1] ?? 0);
    return {
      registers: figure(/Used (\d+) registers/),
      stack: figure(/(\d+) bytes stack frame/),
      spills: figure(/(\d+) bytes spill stores/) + figure(/(\d+) bytes spill loads/),
      static: figure(/(\d+) bytes smem/),
      seconds: Number(seconds.toFixed(2)),
      instructions: instructionsOf(codeOf(readFileSync(join(folder, 'unit.cubin')), symbol)),
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const COLUMNS = ['registers', 'stack', 'spills', 'static'];
const beside = (before, now) => (before === undefined || before === now ? `${now}` : `${before}→${now}`);

function lineOf(name, now, before) {
  const classes = Object.keys({ ...CLASSES, other: [] })
    .map((each) => [each, before?.instructions[each] ?? (before ? 0 : undefined), now.instructions[each] ?? 0])
    .filter(([, was, is]) => (before === undefined ? is > 0 : was !== is))
    .map(([each, was, is]) => `${each} ${beside(was, is)}`);
  const share = before ? ` (${((now.instructions.all / before.instructions.all - 1) * 100).toFixed(1)} %)` : '';
  return [
    name.padEnd(26),
    `${beside(before?.instructions.all, now.instructions.all)}${share}`.padEnd(24),
    ...COLUMNS.map((each) => beside(before?.[each], now[each]).padStart(each === 'static' ? 12 : 9)),
    ` ${classes.join(', ') || 'the same of each class'}`,
  ].join(' ');
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: 'string' },
    against: { type: 'string' },
    print: { type: 'boolean' },
    help: { type: 'boolean', short: 'h' },
  },
});
if (values.help) {
  process.stdout.write(HELP);
  process.exit(0);
}
const before = values.against === undefined ? {} : JSON.parse(readFileSync(values.against, 'utf8'));
const wanted = (await goldenKernels()).filter(
  ({ name }) => positionals.length === 0 || positionals.some((prefix) => name.startsWith(prefix)),
);
if (wanted.length === 0) {
  process.stderr.write(`error: no kernel begins with ${positionals.join(' or ')}\n`);
  process.exit(1);
}
if (values.print) {
  for (const { source } of wanted) process.stdout.write(`${source}\n`);
  process.exit(0);
}
const found = {};
console.log(`${'kernel'.padEnd(26)} ${'instructions'.padEnd(24)} registers     stack    spills static bytes  by class`);
for (const kernel of wanted) {
  found[kernel.name] = compile(kernel);
  console.log(lineOf(kernel.name, found[kernel.name], before[kernel.name]));
}
const sum = (figures) =>
  Object.keys(found)
    .reduce((all, name) => all + (figures[name]?.seconds ?? 0), 0)
    .toFixed(1);
const earlier = values.against === undefined ? '' : `${sum(before)} s before, `;
console.log(`${wanted.length} kernels, compiled in ${earlier}${sum(found)} s`);
if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(found)}\n`);

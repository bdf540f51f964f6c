// `npm run bundle [-- --node PATH] [-- --out FILE]`: packs everything that runs tilewright into
// build/tilewright-linux-x64.tar.gz, for hosts with no Node and no network: Node, dist, the packages it imports, the
// addon, the demo checkpoint and examples, the GPU tests and benchmark. It copies what is built; it builds nothing but
// its unpacker.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { parseArgs } from 'node:util';

const ROOT = join(import.meta.dirname, '..');
const NAME = 'tilewright-linux-x64';
/** The size that hosts which take bundles commonly accept. */
const MAX_BYTES = 48e6;
/** Needed to build the addon or by a package's own command, but never to run tilewright. */
const NEVER_LOADED = new Set(['node-addon-api', 'node-api-headers', 'uglify-js']);
/** Parts of packages that are never loaded: declarations, maps, sources and texts. Licences stay. */
const UNUSED_FILE = /\.(map|d\.ts|d\.mts|d\.cts|ts|mts|cts|flow|md|markdown|html|cc|hh|h|S|asm)$/i;
/** Folders of a package that are never loaded. Deeper ones of these names may be code: yaml has dist/doc/. */
const UNUSED_FOLDER = /^node_modules\/(@[^/]+\/)?[^/]+\/(test|tests|doc|docs|vendor|typings)$/;
const OTHER_PLATFORM = /(android|darwin|win32|freebsd|musl|arm|loong|riscv|ppc|ia32)/;
/** Builds for browsers, bundlers and CommonJS, beside one that is loaded. */
const UNUSED_PATH = new RegExp(
  '^node_modules/(handlebars/(dist/(amd/|handlebars)|lib/handlebars/|bin/)|zod/(src/|.*[.]cjs$)|yaml/browser/|' +
    'chevrotain/(src|diagrams)/)',
);
/** How hard xz tries to compress Node. */
const LEVEL = '-2';
const NATIVE = join('build', 'Release', 'tilewright.node');

function fail(message, hint) {
  process.stderr.write(`error: ${message}\nhint: ${hint}\n`);
  process.exit(1);
}

/** Runs a program to its end and returns its standard output. If it fails, the bundle fails with its message. */
function run(program, args, hint, options = {}) {
  const { status, error, stdout, stderr } = spawnSync(program, args, { maxBuffer: 2 ** 30, ...options });
  if (error !== undefined || status !== 0)
    fail(`${program} ${args.join(' ')}: ${error?.message ?? String(stderr).trim()}`, hint);
  return stdout;
}

const isRunnable = (program) => spawnSync(program, ['--version'], { stdio: 'ignore' }).status === 0;

function options() {
  const { values } = parseArgs({
    options: {
      node: { type: 'string', default: process.execPath },
      out: { type: 'string', default: join(ROOT, 'build', `${NAME}.tar.gz`) },
    },
  });
  return { node: resolve(values.node), out: resolve(values.out) };
}

/** Copies a tree of the repository to the same place in the bundle. */
function copy(bundle, path, filter = () => true) {
  const from = join(ROOT, path);
  if (!existsSync(from)) fail(`${path} is missing`, 'npm run build');
  cpSync(from, join(bundle, path), {
    recursive: true,
    dereference: true,
    filter: (each) => filter(relative(ROOT, each)),
  });
}

const manifest = (folder) => JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));

/** False if a package says that it is for another system. */
const isForLinuxX64 = ({ os, cpu, libc }) =>
  [
    [os, 'linux'],
    [cpu, 'x64'],
    [libc, 'glibc'],
  ].every(([list, mine]) => list === undefined || [list].flat().includes(mine));

/** Folders of the packages that a package imports, directly or not, from the root: `node_modules/a/node_modules/b`. */
function packagesOf(folder, found = new Set()) {
  const { dependencies = {}, optionalDependencies = {} } = manifest(folder);
  for (const name of Object.keys({ ...dependencies, ...optionalDependencies })) {
    if (NEVER_LOADED.has(name)) continue;
    let at = folder;
    while (!existsSync(join(at, 'node_modules', name)) && at !== ROOT) at = dirname(at);
    const path = join(at, 'node_modules', name);
    if (!existsSync(path)) {
      if (name in optionalDependencies) continue;
      fail(`the package ${name} is not installed`, 'npm ci');
    }
    if (!isForLinuxX64(manifest(path)) || found.has(path)) continue;
    found.add(path);
    packagesOf(path, found);
  }
  return found;
}

function isUsed(path) {
  if (statSync(join(ROOT, path)).isDirectory()) {
    // A nested package is listed by itself.
    return !UNUSED_FOLDER.test(path) && !UNUSED_PATH.test(`${path}/`) && !path.endsWith('/node_modules');
  }
  if (path.endsWith('.node'))
    return !OTHER_PLATFORM.test(basename(path)) && !OTHER_PLATFORM.test(basename(dirname(path)));
  return /licen[cs]e|notice/i.test(basename(path)) || !(UNUSED_FILE.test(path) || UNUSED_PATH.test(path));
}

/**
 * Node without its symbols, compressed. It is made once for each Node, because it takes most of the time. Returns the
 * file and its uncompressed size.
 */
function compressNode(node) {
  const data = readFileSync(node);
  if (data.length < 64 || data.readUInt32BE(0) !== 0x7f454c46 || data.readUInt16LE(18) !== 62)
    fail(`${node} is no program for Linux x64`, 'name one: npm run bundle -- --node /path/to/node');
  const made = join(ROOT, 'build', `node-${createHash('sha256').update(data).digest('hex').slice(0, 16)}${LEVEL}`);
  const [packed, size] = [`${made}.lzma`, `${made}.size`];
  if (!existsSync(packed) || !existsSync(size)) {
    mkdirSync(dirname(made), { recursive: true });
    const plain = `${made}.${process.pid}`;
    try {
      writeFileSync(plain, data);
      if (isRunnable('strip')) run('strip', [plain], 'apt-get install binutils');
      writeFileSync(size, String(statSync(plain).size));
      // A low level: the higher ones save 8 % and take ten times as long.
      run(
        'xz',
        ['--format=lzma', LEVEL, '--keep', '--force', plain],
        'apt-get install xz-utils (to make the bundle; using it needs no xz)',
      );
      renameSync(`${plain}.lzma`, packed);
    } finally {
      rmSync(plain, { force: true });
    }
  }
  return { packed, size: Number(readFileSync(size, 'utf8')) };
}

/** Adds Node, compressed, and the program that unpacks it when the bundle is first used. */
function packNode(bundle, node) {
  const folder = join(bundle, 'node');
  mkdirSync(folder);
  const { packed, size } = compressNode(node);
  const version = run(node, ['--version'], 'name a Node that runs here: npm run bundle -- --node /path/to/node', {
    encoding: 'utf8',
  }).trim();
  cpSync(packed, join(folder, 'node.lzma'));
  const unpacker = ['-O2', '-s', '-o', join(folder, 'unpack'), join(ROOT, 'scripts', 'bundle', 'unpack.c')];
  // Linked statically if possible: then it runs on systems older than this one, and Node itself can say what is wrong.
  if (spawnSync('cc', ['-static', ...unpacker], { stdio: 'ignore' }).status !== 0)
    run('cc', unpacker, 'apt-get install gcc libc6-dev');
  const licence = ['../LICENSE', '../share/doc/nodejs/LICENSE', '../share/doc/nodejs/copyright']
    .map((path) => join(dirname(node), path))
    .find(existsSync);
  if (licence !== undefined) cpSync(licence, join(folder, 'LICENSE'), { dereference: true });
  return { version, size, hasLicence: licence !== undefined };
}

/** A script that starts the bundle's own Node, wherever the bundle lies and whatever link it is called through. */
const launcher = (nodeBytes, command) => `#!/bin/sh
# Node is unpacked beside this script when it is first needed.
self=$0
while [ -h "$self" ]; do
  link=$(readlink "$self")
  case $link in /*) self=$link ;; *) self=\${self%/*}/$link ;; esac
done
case $self in */*) here=\${self%/*} ;; *) here=. ;; esac
if [ ! -x "$here/node/node" ]; then
  "$here/node/unpack" "$here/node/node.lzma" "$here/node/node" ${nodeBytes} || exit 1
  "$here/node/node" --version > /dev/null || {
    echo "hint: this system is too old for the bundle: see $here/REQUIREMENTS.txt" >&2
    exit 1
  }
fi
exec "$here/node/node" "$here/${command}" "$@"
`;

function writeProgram(path, text) {
  writeFileSync(path, text);
  chmodSync(path, 0o755);
}

/** The newest version of a system library's symbols that one of these programs needs. */
function newest(programs, library) {
  const versions = programs.flatMap((path) =>
    [...readFileSync(path, 'latin1').matchAll(new RegExp(`\\0${library}_([0-9.]+)(?=\0)`, 'g'))].map(
      ([, version]) => version,
    ),
  );
  return versions.sort((a, b) => a.localeCompare(b, 'en', { numeric: true })).at(-1) ?? 'of any version';
}

/** What a host must have, in words. */
function requirements(bundle, node) {
  const addons = readdirSync(join(bundle, 'node_modules'), { recursive: true })
    .filter((path) => path.endsWith('.node'))
    .map((path) => join('node_modules', path));
  const programs = [node, ...[NATIVE, ...addons].map((path) => join(bundle, path))];
  return `glibc ${newest(programs, 'GLIBC')} and libstdc++ ${newest(programs, 'GLIBCXX')} symbols or later`;
}

/** Bytes of each entry of the bundle, largest first: what to look at if the bundle is too big. */
const sizes = (bundle) =>
  readdirSync(bundle, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .map((path) => ({ path: relative(bundle, path), bytes: statSync(path).size }))
    .sort((a, b) => b.bytes - a.bytes);

function main() {
  if (process.platform !== 'linux' || process.arch !== 'x64')
    fail(`a bundle for Linux x64 cannot be made on ${process.platform}-${process.arch}`, 'make it on Linux x64');
  const { node, out } = options();
  const work = mkdtempSync(join(tmpdir(), 'tilewright-bundle-'));
  try {
    const bundle = join(work, NAME);
    mkdirSync(bundle);
    // Stacks of a bundle name chunks and functions: maps to the lines of sources that are not here would be 1 MB.
    copy(bundle, 'dist', (path) => !/\.(d\.ts|map)$/.test(path));
    for (const path of [
      NATIVE,
      join('models', 'demo'),
      join('bench', 'models'),
      'examples',
      'README.md',
      'LICENSE',
      'package.json',
      join('scripts', 'testGpu.mjs'),
    ])
      copy(bundle, path);
    if (!existsSync(join(bundle, 'dist', 'test', 'gpu'))) fail('the GPU tests are not built', 'npm run build');
    for (const folder of packagesOf(ROOT))
      copy(bundle, relative(ROOT, folder), (path) => path === relative(ROOT, folder) || isUsed(path));
    const packed = packNode(bundle, node);
    writeProgram(join(bundle, 'tilewright'), launcher(packed.size, 'dist/cli/main.js'));
    writeProgram(join(bundle, 'test-gpu.sh'), launcher(packed.size, 'scripts/testGpu.mjs'));
    writeProgram(join(bundle, 'bench-gpu.sh'), launcher(packed.size, 'dist/bench/gpu.js'));
    writeProgram(join(bundle, 'bench-two-models.sh'), launcher(packed.size, 'dist/bench/twoModels.js'));
    writeProgram(join(bundle, 'checkpoint-make.sh'), launcher(packed.size, 'dist/bench/checkpoint.js'));

    const needs = requirements(bundle, node);
    writeFileSync(
      join(bundle, 'REQUIREMENTS.txt'),
      [
        `This bundle needs Linux x64 with ${needs} (\`ldd --version\` names glibc's version).`,
        'The CPU target also needs a C compiler (cc, gcc or clang), the CUDA target a driver and NVRTC or nvcc.',
        `Node ${packed.version} is inside. ./tilewright doctor says what else is missing; ./test-gpu.sh tests a GPU.`,
        '',
      ].join('\n'),
    );
    const tar = join(work, 'bundle.tar');
    run(
      'tar',
      [
        '--create',
        '--file',
        tar,
        '--sort=name',
        '--mtime=@0',
        '--owner=0',
        '--group=0',
        '--numeric-owner',
        '--directory',
        work,
        NAME,
      ],
      'apt-get install tar',
    );
    run('gzip', ['-9', '-n', tar], 'apt-get install gzip');
    const { size } = statSync(`${tar}.gz`);
    if (size > MAX_BYTES) {
      const largest = sizes(bundle)
        .slice(0, 8)
        .map(({ path, bytes }) => `  ${(bytes / 1e6).toFixed(1)} MB ${path}`)
        .join('\n');
      fail(
        `the bundle has ${(size / 1e6).toFixed(1)} MB; at most ${MAX_BYTES / 1e6} fit\n${largest}`,
        'choose a smaller Node: npm run bundle -- --node /path/to/node',
      );
    }
    mkdirSync(dirname(out), { recursive: true });
    cpSync(`${tar}.gz`, `${out}.part`);
    renameSync(`${out}.part`, out);
    const licenceNote = packed.hasLicence
      ? ''
      : `note: no licence text was found beside ${node}; add it before you pass the bundle on\n`;
    process.stdout.write(
      `${relative(process.cwd(), out)}: ` +
        `${(size / 1e6).toFixed(1)} MB with Node ${packed.version}; for hosts with ${needs}\n` +
        licenceNote +
        `Use it: tar -xzf ${basename(out)} && ${NAME}/tilewright doctor\n`,
    );
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

main();

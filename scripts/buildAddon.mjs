/**
 * Builds the native addon into build/Release/tilewright.node with cmake and a C++ compiler. It uses no network: all
 * headers come from npm packages.
 *
 *     node scripts/buildAddon.mjs [--if-needed]
 *
 * With --if-needed, which is what installing the package runs, an addon that is here and loads on this machine is kept,
 * and a checkout is left to `npm run build`.
 */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
const ADDON = join(ROOT, 'build', 'Release', 'tilewright.node');
const require = createRequire(import.meta.url);

function fail(message, hint) {
  process.stderr.write(`error: ${message}\nhint: ${hint}\n`);
  process.exit(1);
}

/** Loads the addon in a separate process, because an addon for another machine may crash it. */
const doesLoad = () =>
  existsSync(ADDON) &&
  spawnSync(process.execPath, ['-e', `require(${JSON.stringify(ADDON)})`], { stdio: 'ignore' }).status === 0;

function run(args) {
  const { status, error } = spawnSync('cmake', args, { cwd: ROOT, stdio: ['ignore', 'ignore', 'inherit'] });
  if (error?.code === 'ENOENT')
    fail(
      'cmake is not installed, and the addon has to be built',
      'apt-get install cmake g++ (Debian, Ubuntu), or dnf install cmake gcc-c++ (Fedora)',
    );
  if (error !== undefined) fail(`cmake: ${error.message}`, 'see the lines above');
  if (status !== 0)
    fail(`cmake ${args[0]} ended with status ${status}`, 'see the lines above; the addon needs a C++17 compiler');
}

/** The folder of headers that a package declares. */
const headers = (name, folder) => join(dirname(require.resolve(`${name}/package.json`)), folder);

const say = (line) => process.stderr.write(`tilewright: ${line}\n`);
const isInstall = process.argv.includes('--if-needed');
const isCheckout = existsSync(join(ROOT, 'tsconfig.json'));
if (isInstall && isCheckout)
  say('the packages are here; npm run demo, or npm run build, compiles the rest, in about a minute');
else if (isInstall && doesLoad()) say('the native addon is here and loads');
else {
  say('compiling the native addon with cmake, about a minute');
  run([
    ...['-S', '.', '-B', 'build/native', '-DCMAKE_BUILD_TYPE=Release', '-DCMAKE_UNITY_BUILD=ON'],
    `-DNODE_API_HEADERS=${headers('node-api-headers', 'include')}`,
    `-DNODE_ADDON_API=${headers('node-addon-api', '.')}`,
  ]);
  run(['--build', 'build/native', '--parallel', String(Math.min(4, availableParallelism()))]);
  if (!doesLoad()) fail(`${ADDON} was built and cannot be loaded`, `node -e 'require(${JSON.stringify(ADDON)})'`);
}

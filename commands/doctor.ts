/** Reports what this machine has, what is missing, and the command that fixes it. */
import {
  accessSync,
  closeSync,
  constants,
  lstatSync,
  mkdtempSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { totalmem } from 'node:os';
import { delimiter, join } from 'node:path';
import { detectMachine, type Machine } from '../driver/targets/cpuDevice.js';
import { archOf } from '../driver/targets/cudaDevice.js';
import { UserError } from '../errors.js';
import type { CudaArch } from '../ir/cuda.js';
import { glibcVersion } from '../runtime/addon.js';
import { findCompiler, type SystemCompiler } from '../runtime/cpu/systemCompiler.js';
import { cudaAvailable } from '../runtime/cuda/addon.js';
import { compilerName, findCudaCompiler } from '../runtime/cuda/compiler.js';
import type { CudaAvailability } from '../runtime/cuda/native.js';
import { cacheLimitBytes, requireCacheDir } from '../runtime/kernelCache.js';
import { readSettings } from '../settings.js';
import { defined } from '../system/defined.js';
import { intruder } from '../system/read.js';
import { bytes, counted } from '../system/text.js';
import { makeFolder } from '../system/write.js';

/** Oldest supported version of Node, as package.json states it. */
export const OLDEST_NODE = [20, 19] as const;
/** A number of bytes that may be unknown. */
const cacheSize = (size: number): string => (size === 0 ? 'unknown' : bytes(size));

function checkNode({ nodeVersion, platform, glibcVersion: glibc }: Probes): Check {
  const [major = 0, minor = 0] = nodeVersion.split('.').map(Number);
  const isRecent = major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1]);
  if (!isRecent)
    return {
      name: 'Node',
      status: 'missing',
      detail: `${nodeVersion}; ${OLDEST_NODE.join('.')} or later is needed`,
      fix: 'nvm install 22, or nodejs.org/en/download',
    };
  return {
    name: 'Node',
    status: 'ok',
    detail: `${nodeVersion} (${platform}${glibc === undefined ? '' : `, glibc ${glibc}`})`,
  };
}

/** Needed to build the addon, not to run a built one. */
function checkBuildTools({ hasProgram: has }: Probes): Check[] {
  const tools = [
    {
      name: 'cmake',
      programs: ['cmake'],
      fix: 'apt install cmake (Debian, Ubuntu), dnf install cmake (Fedora), apk add cmake (Alpine)',
    },
    {
      name: 'C++ compiler',
      programs: ['c++', 'g++', 'clang++'],
      fix: 'apt install g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora), apk add g++ (Alpine)',
    },
  ];
  return tools
    .filter(({ programs }) => !programs.some(has))
    .map(({ name, programs, fix }) => ({
      name,
      status: 'missing',
      detail: `${programs.join(', ')}: not on PATH; needed to build the addon`,
      fix,
    }));
}

function checkMachine(probes: Probes): Check[] {
  let machine: Machine;
  try {
    machine = probes.machine();
  } catch (error) {
    return [missing('native addon', error), ...checkBuildTools(probes)];
  }
  const { cpu, isas } = machine;
  const best = isas.at(-1) ?? 'portable';
  const arithmetic = best === 'amx' ? 'bf16 inputs in matrix units' : 'no AMX: --precision auto computes in f32';
  return [
    { name: 'native addon', status: 'ok', detail: 'built, and it loads' },
    {
      name: 'CPU',
      status: 'ok',
      detail: `${cpu.model}, ${cpu.cores} ${cpu.cores === 1 ? 'processor' : 'processors'} for this process`,
    },
    {
      name: 'micro-kernels',
      status: best === 'amx' ? 'ok' : 'note',
      detail: `${isas.join(', ')} (${best} is used; ${arithmetic})`,
    },
    {
      name: 'caches',
      status: 'ok',
      detail: `L1 ${cacheSize(cpu.l1dBytes)}, L2 ${cacheSize(cpu.l2Bytes)}, L3 ${cacheSize(cpu.l3Bytes)}`,
    },
  ];
}

async function checkCompiler(probes: Probes): Promise<Check> {
  try {
    const { path, version } = await probes.compiler();
    return { name: 'C compiler', status: 'ok', detail: `${path}: ${version}` };
  } catch (error) {
    return missing('C compiler', error);
  }
}

function checkMemory(probes: Probes): Check {
  const { totalBytes, freeBytes } = probes.memory();
  return { name: 'memory', status: 'ok', detail: `${bytes(totalBytes)}, ${bytes(freeBytes)} free` };
}

/** Checks of a GPU. On a machine without one, nothing counts as missing. */
async function checkGpu(probes: Probes): Promise<Check[]> {
  let found: CudaAvailability;
  try {
    found = probes.gpu();
  } catch (error) {
    found = { ok: false, reason: error instanceof Error ? error.message : String(error) };
  }
  const version = (n: number): string => `${Math.floor(n / 1000)}.${Math.floor((n % 1000) / 10)}`;
  const gpus: Check[] = found.ok
    ? found.devices.map((device) => ({
        name: `GPU ${device.ordinal}`,
        status: archOf(device) === undefined ? 'note' : 'ok',
        detail:
          `${device.name}, ${bytes(device.totalBytes)}, ${device.multiprocessors} multiprocessors, ` +
          `${archOf(device) ?? `compute capability ${device.capability.join('.')}: older than 8.0, not supported`}; ` +
          `driver for CUDA ${version(found.driverVersion)}`,
      }))
    : [{ name: 'GPU', status: 'note', detail: `${found.reason}; --target cuda:sm_90a compiles without one` }];
  const arch = (found.ok ? found.devices.map(archOf).find((each) => each !== undefined) : undefined) ?? 'sm_90a';
  try {
    return [
      ...gpus,
      {
        name: 'CUDA compiler',
        status: 'ok',
        detail: await probes.cudaCompiler(arch, found.ok ? found.driverVersion : undefined),
      },
    ];
  } catch (error) {
    const { detail, fix } = missing('CUDA compiler', error);
    // Without a GPU this is not needed.
    return [
      ...gpus,
      {
        name: 'CUDA compiler',
        status: found.ok ? 'missing' : 'note',
        detail,
        ...(found.ok && fix !== undefined ? { fix } : {}),
      },
    ];
  }
}

/** All checks, in order of importance. Never throws for something that is missing. */
export async function doctor(probes: Probes = hereAndNow()): Promise<readonly Check[]> {
  const compiler = await checkCompiler(probes);
  return [
    checkNode(probes),
    ...checkMachine(probes),
    compiler,
    checkCache(probes),
    checkMemory(probes),
    ...(await checkGpu(probes)),
  ];
}

/** `missing`: something cannot work without it. `note`: information only. */
export interface Check {
  readonly name: string;
  readonly status: 'ok' | 'missing' | 'note';
  readonly detail: string;
  /** A command, or another remedy. */
  readonly fix?: string;
}

/** The sources of the answers; tests provide their own. */
export interface Probes {
  readonly nodeVersion: string;
  readonly platform: string;
  /** Undefined if the C library is not glibc. */
  readonly glibcVersion: string | undefined;
  machine(): Machine;
  /** Whether a program of that name is on PATH. */
  hasProgram(name: string): boolean;
  compiler(): Promise<SystemCompiler>;
  /** Undefined if there is no home folder. */
  readonly cacheDir: string | undefined;
  /** Limit on the bytes of compiled kernels there. Throws UserError if the setting is wrong. */
  cacheLimit(): number;
  /** Bytes of memory this process may use, and how many of them are free. */
  memory(): { readonly totalBytes: number; readonly freeBytes: number };
  gpu(): CudaAvailability;
  /** For the GPU's architecture and its driver, if there is one. */
  cudaCompiler(arch: CudaArch, driverVersion: number | undefined): Promise<string>;
}

/** The limit of a control group takes precedence. */
function memory(): { totalBytes: number; freeBytes: number } {
  const limit = process.constrainedMemory();
  return { totalBytes: limit > 0 && limit < totalmem() ? limit : totalmem(), freeBytes: process.availableMemory() };
}

const hasProgram = (name: string): boolean =>
  readSettings()
    .path.split(delimiter)
    .some((folder) => {
      try {
        accessSync(join(folder, name), constants.X_OK);
        return folder !== '';
      } catch {
        return false;
      }
    });

/** The answers of this machine. */
export const hereAndNow = (): Probes => ({
  nodeVersion: process.versions.node,
  hasProgram,
  platform: `${process.platform}-${process.arch}`,
  glibcVersion: glibcVersion(),
  machine: detectMachine,
  compiler: () => findCompiler(),
  cacheDir: readSettings().cacheDir,
  cacheLimit: () => cacheLimitBytes(),
  memory,
  gpu: () => cudaAvailable(),
  cudaCompiler: async (arch, driverVersion) => compilerName(await findCudaCompiler(arch, driverVersion)),
});

/** The message of what was thrown. */
export const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** A failed probe as a check: the message, and its hint as the fix. */
export function missing(name: string, error: unknown): Check {
  const fix = error instanceof UserError ? error.hint : undefined;
  return { name, status: 'missing', detail: reasonOf(error), ...defined({ fix }) };
}

const MAX_ENTRIES = 100_000;

/** Bytes of all files below a folder. Stops counting at MAX_ENTRIES. Links are not followed. */
export function folderBytes(folder: string): { bytes: number; files: number } {
  let total = 0,
    files = 0,
    seen = 0;
  const queue = [folder];
  for (let at = queue.pop(); at !== undefined && seen < MAX_ENTRIES; at = queue.pop()) {
    let entries;
    try {
      entries = readdirSync(at, { withFileTypes: true });
    } catch {
      continue; // It was removed meanwhile, or cannot be read.
    }
    for (const entry of entries) {
      seen++;
      const path = join(at, entry.name);
      if (entry.isDirectory()) queue.push(path);
      else if (entry.isFile()) {
        try {
          total += lstatSync(path).size;
          files++;
        } catch {
          // It was removed meanwhile.
        }
      }
    }
  }
  return { bytes: total, files };
}

/** Makes the cache folder where there is none, writes into it, and counts what it holds. */
export function checkCache({ cacheLimit, ...probes }: Probes): Check {
  let limit: number;
  let cacheDir: string;
  try {
    limit = cacheLimit();
    cacheDir = requireCacheDir(probes);
  } catch (error) {
    return missing('cache folder', error);
  }
  try {
    makeFolder(cacheDir, 0o700);
    const trial = mkdtempSync(join(cacheDir, '.doctor-'));
    try {
      const file = openSync(join(trial, 'probe'), 'wx');
      try {
        writeSync(file, 'probe');
      } finally {
        closeSync(file);
      }
    } finally {
      rmSync(trial, { recursive: true, force: true });
    }
  } catch (error) {
    return {
      name: 'cache folder',
      status: 'missing',
      detail: `${cacheDir}: ${reasonOf(error)}`,
      fix: 'make it writable, or choose another: export TILEWRIGHT_CACHE=/path',
    };
  }
  const problem = intruder(statSync(cacheDir));
  if (problem !== undefined)
    return {
      name: 'cache folder',
      status: 'missing',
      detail: `${cacheDir}: ${problem}, and what lies there is run`,
      fix: 'choose a folder of your own: export TILEWRIGHT_CACHE=/path',
    };
  const { bytes: used, files } = folderBytes(cacheDir);
  return {
    name: 'cache folder',
    status: 'ok',
    detail:
      `${cacheDir}: writable, ${bytes(used)} in ${counted(files, 'file')} (safe to delete; ` +
      `compiled kernels: ${limit === Infinity ? 'no limit' : `at most ${bytes(limit)}, TILEWRIGHT_CACHE_LIMIT`})`,
  };
}

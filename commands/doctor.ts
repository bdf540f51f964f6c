/** Reports what this machine has, what is missing, and the command that fixes it. */
import type { Machine } from '../driver/targets/cpuDevice.js';
import { archOf } from '../driver/targets/cudaDevice.js';
import type { CudaAvailability } from '../runtime/cuda/native.js';
import { bytes } from '../system/text.js';
import { checkCache } from './doctorCache.js';
import { type Check, hereAndNow, missing, type Probes } from './doctorProbes.js';

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

/** Names what a measurement depends on besides the kernel: records of another target are never used. */
import { arch } from 'node:os';
import { templatesHash } from '../codegen/cpu/index.js';
import type { CpuIsa } from '../ir/plan.js';
import { loadAddon } from '../runtime/cpu/addon.js';
import { findCompiler } from '../runtime/cpu/systemCompiler.js';
import { readSettings, type Settings } from '../settings.js';
import type { TuningTarget } from './database.js';

/** This machine, its compiler and the kernel ABI. Throws UserError where the addon or a compiler is missing. */
export async function currentTarget(
  isa: CpuIsa,
  threads: number,
  settings: Settings = readSettings(),
): Promise<TuningTarget> {
  const addon = loadAddon();
  const compiler = await findCompiler(settings);
  const short = (text: string): string => text.slice(0, 200) || 'unknown';
  return {
    isa: `${arch()}/${isa}`,
    cpu: short(addon.cpuInfo().model),
    threads,
    compiler: short(compiler.version),
    abi: addon.abi,
    codegen: templatesHash(),
  };
}

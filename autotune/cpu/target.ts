/** What a measurement on a CPU depends on besides the kernel. Records of another machine are never used. */
import { arch } from 'node:os';
import { z } from 'zod';
import { templatesHash } from '../../codegen/cpu/index.js';
import { cpuScheduling } from '../../codegen/cpu/scheduling.js';
import type { CpuIsa, CpuSchedule } from '../../ir/plan.js';
import { loadAddon } from '../../runtime/addon.js';
import { findCompiler } from '../../runtime/cpu/systemCompiler.js';
import { readSettings, type Settings } from '../../settings.js';
import { recordDigest, recordText, recordVersion, type RecordFormat } from '../recordSchemas.js';

const schema = z.strictObject({
  /** Architecture and the strongest instruction set in the plan: `x64/avx512`. */
  isa: recordText,
  cpu: recordText,
  threads: z.int().min(1).max(4096),
  /** First line of the compiler's --version. */
  compiler: recordText,
  /** TW_ABI of generated kernels. */
  abi: recordVersion,
  /** Digest of the templates that kernels are printed from. */
  codegen: recordDigest,
});
export type CpuTuningTarget = z.infer<typeof schema>;

export const CPU_RECORDS: RecordFormat<CpuSchedule, CpuTuningTarget> = {
  field: 'target',
  target: schema,
  scheduling: cpuScheduling,
};

const short = (text: string): string => text.slice(0, 200) || 'unknown';

/** What a measurement depends on that does not change from run to run: not the compiler, and not the threads. */
export function thisCpu(isa: CpuIsa): Pick<CpuTuningTarget, 'isa' | 'cpu' | 'abi' | 'codegen'> {
  const addon = loadAddon();
  return { isa: `${arch()}/${isa}`, cpu: short(addon.cpuInfo().model), abi: addon.abi, codegen: templatesHash() };
}

/** This machine, its compiler and the kernel ABI. Throws UserError if the addon or a compiler is missing. */
export async function currentTarget(
  isa: CpuIsa,
  threads: number,
  settings: Settings = readSettings(),
): Promise<CpuTuningTarget> {
  const compiler = await findCompiler(settings);
  return { ...thisCpu(isa), threads, compiler: short(compiler.version) };
}

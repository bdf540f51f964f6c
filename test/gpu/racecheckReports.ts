/**
 * What racecheck reports, without what is known to be false: a write and a read of shared memory within one kernel of
 * skinnyWgmma with tiles of 64 rows. These are the products of its warpgroups, read by the epilogue. A barrier of the
 * whole block lies between them in source, PTX and machine code, and vector clocks of every emulated thread
 * (`npm run test:slow -- races`) find no race; docs/log/decode.md has what was tried. Every other report counts.
 */
import type { CudaFacts } from '../../codegen/cuda/index.js';
import { compileModel } from '../../driver/compile/compile.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice } from '../../driver/targets/cudaDevice.js';
import { emitCudaPlan } from '../../driver/targets/cudaKernels.js';
import { STEP } from '../../ir/function.js';
import { linkFunction } from '../../ir/plan.js';
import { openCheckpoint } from '../../models/checkpoint.js';
import { DEMO } from './command.js';

/** Symbols of the demo's kernels of step whose reports are known. */
export function knownKernels(facts: CudaFacts, demo = DEMO): ReadonlySet<string> {
  const { plan } = compileModel(openCheckpoint(demo), cuda, cudaDevice(facts, 'bf16'), {
    batchTokens: 256,
    cacheTokens: 1024,
  });
  const step = linkFunction(plan, STEP);
  const texts = emitCudaPlan(plan).kernels[STEP]!;
  const found = step.buckets.flatMap((_, bucket) =>
    step.launches.flatMap(({ kernel, signature }, launch) => {
      const schedule = step.schedules[bucket]![signature]!;
      const isProduct = step.kernels.some(({ name, anchor }) => name === kernel && anchor === 'gemm');
      const isKnown =
        isProduct && schedule.kind === 'gemm' && schedule.skeleton === 'skinnyWgmma' && schedule.tm === 64;
      return isKnown ? [texts[bucket]![launch]!.symbol] : [];
    }),
  );
  return new Set(found);
}

const FIRST = /^Error: Race reported between (Write|Read) access at (\w+)\+0x[0-9a-f]+$/;
const OTHER = /^and (Write|Read) access at (\w+)\+0x[0-9a-f]+ \[\d+ hazards?\]$/;
const SUMMARY = /^RACECHECK SUMMARY: (\d+) hazards? displayed \((\d+) errors?, 0 warnings\)$/;

/** Whether a report, a line for each place, is one of a write and reads, or of a read and writes, of a known kernel. */
function isKnown([first = '', ...others]: readonly string[], known: ReadonlySet<string>): boolean {
  const [, kind, symbol = ''] = FIRST.exec(first) ?? [];
  return (
    known.has(symbol) &&
    others.length > 0 &&
    others.every((line) => {
      const [, otherKind, otherSymbol] = OTHER.exec(line) ?? [];
      return otherSymbol === symbol && otherKind !== undefined && otherKind !== kind;
    })
  );
}

/**
 * Reports and summaries in the output of racecheck that are not explained by known kernels; none where all are. A line
 * in a form that is not known is reported as it is, and so is a summary that counts other reports than there are.
 */
export function unknownReports(output: string, known: ReadonlySet<string>): readonly string[] {
  const lines = output
    .split('\n')
    .filter((line) => line.startsWith('========='))
    .map((line) => line.slice('========='.length).trim());
  const unknown: string[] = [];
  let [report, count]: [string[], number] = [[], 0];
  const end = (): void => {
    if (report.length > 0 && !isKnown(report, known)) unknown.push(report.join('\n'));
    report = [];
  };
  for (const line of lines) {
    const summary = SUMMARY.exec(line);
    if (line === '' || line === 'COMPUTE-SANITIZER') end();
    else if (summary !== null) {
      end();
      if (summary.slice(1).some((said) => Number(said) !== count)) unknown.push(line);
      count = 0;
    } else {
      if (line.startsWith('Error: ')) {
        end();
        count++;
      }
      report.push(line);
    }
  }
  end();
  return unknown;
}

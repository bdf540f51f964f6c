/** All targets. To add one, add its record here and its names to driver/precision.ts for the command line. */
import { UsageError } from '../../errors.js';
import { cpu } from './cpu.js';
import { cuda } from './cuda.js';
import type { AnyTarget } from './target.js';

export type { AnyTarget, CompiledModel, Rebuild, Target } from './target.js';

export const TARGET_RECORDS: readonly AnyTarget[] = [cpu, cuda];

/** The target that `--target` names. Throws UsageError if there is no such name. */
export function targetOf(name: string, targets: readonly AnyTarget[] = TARGET_RECORDS): AnyTarget {
  const found = targets.find(({ names }) => names.includes(name));
  if (found === undefined)
    throw new UsageError(
      `--target ${JSON.stringify(name)}: there is no such target`,
      `use one of ${targets.flatMap(({ names }) => names).join(', ')}`,
    );
  return found;
}

/**
 * Whether a call of `step` is to begin while another runs, where devices compute beside the host. On a CPU, planning
 * takes time from what is computed.
 */
export const mayFeed = ({ target }: { readonly target?: string }): boolean => !targetOf(target ?? 'cpu').devices.isHost;

/** How a finished run is computed again here: its own request, with what lies elsewhere, on the device that suits. */
import { existsSync } from 'node:fs';
import { chooseTarget } from '../../driver/devices/chooseTarget.js';
import { isArtifact } from '../../driver/names.js';
import type { TargetName } from '../../driver/precision.js';
import type { LoadRequest } from '../../driver/requests.js';
import { detectMachine } from '../../driver/targets/cpuDevice.js';
import { runsOn } from '../../driver/targets/cudaDevice.js';
import { UserError } from '../../errors.js';
import { OVERLONG } from '../../evaluate/pathLengths.js';
import { type FinishedRun, own } from '../../evaluate/verify/readRun.js';
import { CUDA_ARCHS } from '../../ir/cuda.js';
import { CPU_ISAS } from '../../ir/plan.js';
import { cudaAvailable } from '../../runtime/cuda/addon.js';
import { defined } from '../../system/defined.js';
import { isRecord } from '../../system/json.js';
import { requestOf } from '../runRecord.js';
import type { RunRequest, TasksRequest } from '../runRequest.js';

export interface VerifyRequest extends Pick<LoadRequest, 'threads' | 'devices' | 'parallel' | 'signal'> {
  /** A folder of results, or a results_*.json. */
  readonly results: string;
  /** Documents to compute again; Infinity for all. */
  readonly sample: number;
  /** Which ones are drawn. */
  readonly seed: number;
  /** Where things are, if not where the run found them: the model, the file of questions, data sets, task files. */
  readonly model?: string;
  readonly data?: string;
  readonly dataRoot?: string;
  readonly includePaths?: readonly string[];
  /** Default: the kind of device that made the results, if it is here. */
  readonly target?: TargetName;
}

/** A file or folder that is read beside the results. */
export interface Opened {
  readonly what: string;
  readonly path: string;
}

interface Place extends Pick<LoadRequest, 'target' | 'isa' | 'precision' | 'mask'> {}

type Recorded = ReturnType<typeof requestOf>;

/** The device on which the bits of the results can be expected, or another one where that is not here. */
async function placeOf({ record }: FinishedRun, asked: Recorded, wanted: TargetName | undefined): Promise<Place> {
  const { target: kind, isa } = record.device;
  const arch = CUDA_ARCHS.find((each) => isa === `cuda:${each}`);
  const available = arch === undefined ? undefined : cudaAvailable();
  const hasGpu =
    arch !== undefined && available?.ok === true && available.devices.some((device) => runsOn(arch, device));
  const isOfGpu = kind === 'cuda';
  if ((wanted ?? 'cuda').startsWith('cuda') && isOfGpu && hasGpu) return { target: 'cuda', ...arithmeticOf(asked) };
  if (wanted !== 'cpu' && isOfGpu) {
    const { model, init } = asked;
    const { target } = await chooseTarget({ model, init, target: wanted ?? 'auto' });
    // Another kind of device has its own arithmetic.
    return { ...defined({ target }), precision: 'auto' };
  }
  if (wanted?.startsWith('cuda') === true) return { target: wanted, precision: 'auto' };
  const own = CPU_ISAS.find((each) => each === isa && detectMachine().isas.includes(each));
  if (isOfGpu || own === undefined) return { target: 'cpu', precision: 'auto' };
  return { target: 'cpu', isa: own, ...arithmeticOf(asked) };
}

const arithmeticOf = ({ precision, mask }: Recorded): Pick<LoadRequest, 'precision' | 'mask'> => ({
  precision,
  ...defined({ mask }),
});

/** Throws UserError that names the flag which says where it is. */
function requireThere(what: string, path: string, flag: string): void {
  if (existsSync(path)) return;
  throw new UserError(
    `${path}: ${what} of the run is not there, as its results name it`,
    `say where it is: ${flag}; or type the command where the run was started`,
  );
}

export type Again = RunRequest | TasksRequest;

/** Throws UserError for what is not there, before anything is read. */
export async function requestAgain(
  run: FinishedRun,
  request: VerifyRequest,
): Promise<{ readonly again: Again; readonly opened: readonly Opened[] }> {
  const asked = requestOf(run.record);
  const { threads, devices, parallel, signal } = request;
  const model = request.model ?? asked.model;
  requireThere('the model', model, '--model DIR');
  const provenance = own(run.content, 'provenance');
  const overlong = OVERLONG.find((each) => isRecord(provenance) && provenance['overlong'] === each);
  const { precision: _, mask: __, checkpoint, ...kept } = asked;
  const place = isArtifact(model) ? arithmeticOf(asked) : await placeOf(run, { ...asked, model }, request.target);
  const shared = {
    ...{ model, threads, ...place },
    ...defined({ devices, parallel, signal, overlong }),
    // Another model lies where its own checkpoint is.
    ...(request.model === undefined ? defined({ checkpoint }) : {}),
  };
  if (kept.kind === 'file') {
    const data = request.data ?? kept.data;
    requireThere('the file of questions', data, '--data FILE');
    return { again: { ...kept, ...shared, data }, opened: [of('model', model), of('data', data)] };
  }
  const dataRoot = request.dataRoot ?? kept.dataRoot;
  if (dataRoot !== undefined) requireThere('the folder of data sets', dataRoot, '--data-root DIR');
  const includePaths = request.includePaths ?? kept.includePaths;
  for (const folder of includePaths) requireThere('a folder of task files', folder, '--include-path DIR');
  const files = kept.tasks.filter((name) => /[/\\]/.test(name) || /\.ya?ml$/.test(name));
  return {
    again: { ...kept, ...shared, includePaths, ...defined({ dataRoot }) },
    opened: [
      of('model', model),
      of('data sets', dataRoot ?? "the hub's cache"),
      ...[...includePaths, ...files].map((path) => of('task files', path)),
    ],
  };
}

const of = (what: string, path: string): Opened => ({ what, path });

/**
 * Divides the loading of weights into steps that fit the staging buffers. Pure: touches neither files nor the device.
 */
import { UserError } from '../../errors.js';
import type { GroupSize } from '../../ir/groups.js';
import type { WeightDecl } from '../../ir/kernel.js';
import { packedDepth, rowMaps } from '../../ir/packing.js';
import { FORMATS, isCodeFormat } from '../../ir/storage.js';
import { roundUp } from '../../ir/types.js';
import { defined } from '../../system/defined.js';
import { type EncodedPart, encodedRow, encodedRuns, type EncodedSource, type TensorSource } from '../tensorSource.js';
import type { PackedWeight, WeightPlan } from '../weightPlan.js';
import { encodedJob, encodedStaging, isDecodable, stagedBytesOf, type StagedPart, stretchesOf } from './encodedJob.js';
import {
  codesJob,
  type DeviceJob,
  endOf,
  groupColumns,
  groupJob,
  type GroupPart,
  matrixColumns,
  microscaledJob,
  type PackColumns,
  packJob,
  type PackRange,
  wholeRows,
} from './packJob.js';

interface StagedRange {
  readonly offset: number;
  readonly bytes: number;
}

/** Bytes that are copied to a step's staging buffer. */
export interface Copy {
  /** An encoded matrix that the host decodes is copied as f32; the offset is that of its rows as f32. */
  readonly file: string | EncodedSource;
  /** Its tensor, for messages. */
  readonly name: string;
  readonly offset: number;
  readonly bytes: number;
  readonly stagedAt: number;
}

/** A job that lays out whole rows of a source. */
export interface Laying {
  readonly job: DeviceJob;
  /** Byte offset of the job in the memory of all jobs. */
  readonly jobOffset: number;
  /** What it reads of the staging buffer; absent if values are made up. */
  readonly staged?: StagedRange;
  /** What it writes: a weight, or the f32 factors of columns. */
  readonly target: StagedRange & { readonly memory: 'weights' | 'scales' };
  /** f32[k] in the memory of scales. */
  readonly scale?: StagedRange;
  /** Of tw_pack_codes: where in the memory of weights the scales of rows lie; the target if only scales are made. */
  readonly rowScales?: StagedRange;
}

/** Copies to one staging buffer, and what is made of them. Bytes that several weights are made of are copied once. */
export interface LoadStep {
  readonly copies: readonly Copy[];
  readonly layings: readonly Laying[];
  readonly stagedBytes: number;
  /** Index of the staging buffer; 0 if nothing is staged. */
  readonly staging: number;
  /** Steps that must have been laid out before anything is staged: those up to the last that used the same buffer. */
  readonly after: number;
  /** Bytes of weights that this step completes or fills, for progress reports. */
  readonly weightBytes: number;
  /** The last weight that it works on. */
  readonly weight: string;
}

export interface LoadPlan {
  readonly steps: readonly LoadStep[];
  /** Size of a staging buffer: that of the largest step; 0 if nothing is read from files. */
  readonly stagingBytes: number;
  /** How many there are. */
  readonly stagings: number;
  readonly scaleBytes: number;
  readonly jobBytes: number;
  /** Tensors that the device decodes if their columns are in the order of their groups, which their files say. */
  readonly ordered: readonly EncodedSource[];
  /** Ranges of the weights' memory that are zero: rows that pad a weight, and slots. Set before any step. */
  readonly zeros: readonly StagedRange[];
}

/** Bytes of a staging buffer: what is copied in may be laid out while it is still in the L2 of the device. */
const STAGING = 32 << 20;
/**
 * One buffer on the bus, one being laid out (which takes less time), and a third so that neither waits for the other's
 * last bytes.
 */
const STAGINGS = 3;
/** Alignment of pieces in it: a piece starts on an L2 line. */
const ALIGNMENT = 256;
/** Staging buffers that an encoded matrix may be as large as where no range of its rows lies together. */
const WHOLE = 4;
/** Limit on the launches of a step that stages nothing. */
const MAX_LAYINGS = 64;
const MAX_ROWS = 2 ** 31 - 1;

/** One weight that is made of a tensor, or a part of it. */
interface TensorUse extends Pick<Laying, 'target' | 'scale' | 'rowScales'> {
  readonly weight: WeightDecl;
  /** The tensor's first row among the stacked sources. */
  readonly sourceRow: number;
  readonly added?: number;
  /** Of weights in groups. */
  readonly part?: GroupPart;
  /** Of an encoded tensor, where it is not its values. */
  readonly reads?: EncodedPart;
}

/** A tensor that is read once, and all that is made of it. */
interface TensorReading {
  readonly tensor: TensorSource;
  readonly name: string;
  readonly rows: number;
  readonly columns: number;
  /** An encoded tensor is staged as its files have it, and the device decodes it. Else the host does. */
  readonly isRaw: boolean;
  readonly uses: readonly TensorUse[];
}

/** Whether values are rounded to codes while they are laid out, or their scales found. */
const isRounded = ({ format, from, scalesOf }: WeightDecl): boolean =>
  from !== 'codes' && (scalesOf !== undefined || isCodeFormat(format));

function jobOf(use: TensorUse, tensor: TensorSource, range: Pick<PackRange, 'firstRow' | 'rows' | 'view'>): DeviceJob {
  const { weight, sourceRow, part, scale, rowScales, added = 0, target } = use;
  const whole = { tensor, ...range, sourceRow, isScaled: scale !== undefined, added };
  if (part !== undefined) return groupJob(weight, whole, part, target.bytes);
  if (weight.format === 'mxfp4') return microscaledJob(weight, whole, target.bytes);
  if (!isRounded(weight)) return packJob(weight, whole);
  const parts = [weight.scalesOf === undefined ? 'codes' : undefined, rowScales === undefined ? undefined : 'scales'];
  return codesJob(
    weight,
    whole,
    (['codes', 'scales'] as const).filter((each) => parts.includes(each)),
  );
}

/** Bytes of weights that a job writes, for progress reports: words of scales in groups count with the codes. */
function writtenBytes(
  { weight, part, target, rowScales }: TensorUse,
  rows: number,
  view: PackColumns | undefined,
): number {
  if (target.memory !== 'weights' || part === 'scales') return 0;
  const { bytes } = FORMATS[weight.format];
  if (weight.scalesOf !== undefined) return bytes(rows, 1);
  return bytes(rows, writtenColumns(weight, view)) + (rowScales === undefined ? 0 : 4 * rows);
}

class StepBuilder {
  readonly steps: LoadStep[] = [];
  jobBytes = 0;
  private copies: Copy[] = [];
  private layings: Laying[] = [];
  private stagedBytes = 0;
  private weightBytes = 0;
  private weight = '';
  private readonly staging: number;
  /** For each staging buffer, the number of steps up to the last that used it. */
  private readonly usedBy: number[] = [];
  private staged = 0;

  constructor(staging: number) {
    this.staging = staging;
  }

  /** Staging buffers in use. */
  get stagings(): number {
    return this.usedBy.length;
  }

  /** Cuts the lines of a tensor into pieces that fit a staging buffer. */
  add(reading: TensorReading): void {
    const { tensor, name, rows, columns, uses } = reading;
    if (tensor.kind === 'encoded' && reading.isRaw) return this.addEncoded(tensor, reading);
    for (const { lines, stored, range } of stretchesOf(tensor, rows, columns)) {
      const { stepBytes = 0, lineBytes = 0 } = stored ?? {};
      if (lineBytes > this.staging)
        throw new UserError(
          `Weight ${uses[0]!.weight.name}: a row of ${columns} elements exceeds the ${this.staging} bytes of a ` +
            'staging buffer.',
          'config.json describes no model that this program knows.',
        );
      for (let first = 0; first < lines;) {
        if (this.layings.length + uses.length > MAX_LAYINGS || this.room() < lineBytes) this.flush();
        const fitting = stored === undefined ? lines : Math.floor((this.room() - lineBytes) / stepBytes) + 1;
        const count = Math.min(lines - first, fitting);
        const offset = roundUp(this.stagedBytes, ALIGNMENT);
        const bytes = (count - 1) * stepBytes + lineBytes;
        if (stored !== undefined) {
          const { file } = stored;
          this.copies.push({ file, name, offset: stored.offset + first * stepBytes, bytes, stagedAt: offset });
          this.stagedBytes = offset + bytes;
        }
        const own = range(first, count);
        this.lay(uses, own, stored && { offset, bytes }, (use) => jobOf(use, tensor, own));
        first += count;
      }
    }
  }

  /** Rows of an encoded matrix as its files have them. */
  private addEncoded(tensor: EncodedSource, { name, rows, uses }: TensorReading): void {
    const { isWhole, of } = encodedStaging(tensor);
    const { block, step } = encodedRuns(tensor, rows);
    const span = (count: number): number => (count - 1) * step + 1;
    let staged = isWhole ? this.stage(of(0, tensor.rows), name, uses.length) : undefined;
    for (let begin = 0; begin < rows; begin += block) {
      const lines = Math.min(block, rows - begin);
      for (let first = 0, count = lines; first < lines; first += count, count = lines - first) {
        const row = encodedRow(tensor, begin) + first * step;
        if (!isWhole) {
          count = this.fitting(count, (n) => stagedBytesOf(of(row, span(n))));
          staged = this.stage(of(row, span(count)), name, uses.length);
        }
        const range = { firstRow: begin + first, rows: count };
        const { parts, ...place } = staged!;
        this.lay(uses, range, place, (use) => encodedJob(jobOf(use, tensor, range), tensor, parts, row, use.reads));
      }
    }
  }

  /** The most of `count` rows that there is room for, in the buffer of another step where too few fit this one. */
  private fitting(count: number, bytesOf: (rows: number) => number): number {
    const most = (room: number): number => {
      let [low, high] = [0, count];
      while (low < high) {
        const middle = Math.ceil((low + high) / 2);
        if (bytesOf(middle) <= room) low = middle;
        else high = middle - 1;
      }
      return low;
    };
    const own = most(this.room());
    if (own === count || own * 4 > most(this.staging)) return own;
    this.flush();
    return Math.max(1, most(this.staging));
  }

  private stage(
    parts: readonly StagedPart[],
    name: string,
    uses: number,
  ): StagedRange & { readonly parts: readonly StagedPart[] } {
    const bytes = stagedBytesOf(parts);
    if (this.layings.length + uses > MAX_LAYINGS || this.room() < bytes) this.flush();
    const offset = roundUp(this.stagedBytes, ALIGNMENT);
    for (const { file, offset: from, bytes: own, at } of parts)
      this.copies.push({ file, name, offset: from, bytes: own, stagedAt: offset + at });
    this.stagedBytes = offset + bytes;
    return { offset, bytes, parts };
  }

  private lay(
    uses: readonly TensorUse[],
    { rows, view }: Pick<PackRange, 'rows' | 'view'>,
    staged: StagedRange | undefined,
    jobFor: (use: TensorUse) => DeviceJob,
  ): void {
    for (const use of uses) {
      const { target, scale, rowScales } = use;
      const job = jobFor(use);
      this.layings.push({
        job,
        jobOffset: this.jobBytes,
        target,
        ...defined({ staged, scale, rowScales }),
      });
      this.jobBytes += roundUp(job.bytes.length, 16);
      this.weightBytes += writtenBytes(use, rows, view);
      this.weight = use.weight.name;
    }
  }

  /** Ends a step. */
  flush(): void {
    if (this.layings.length === 0) return;
    const isStaged = this.stagedBytes > 0;
    const staging = isStaged ? this.staged++ % STAGINGS : 0;
    const after = isStaged ? (this.usedBy[staging] ?? 0) : 0;
    this.steps.push({
      copies: this.copies,
      layings: this.layings,
      stagedBytes: this.stagedBytes,
      staging,
      after,
      weightBytes: this.weightBytes,
      weight: this.weight,
    });
    if (isStaged) this.usedBy[staging] = this.steps.length;
    this.copies = [];
    this.layings = [];
    this.stagedBytes = this.weightBytes = 0;
  }

  private room(): number {
    return this.staging - roundUp(this.stagedBytes, ALIGNMENT);
  }
}

/** An encoded tensor of which a part is staged in place of its values. */
const reading = (tensor: TensorSource, reads: EncodedPart): TensorSource =>
  tensor.kind === 'encoded' ? { ...tensor, reads } : tensor;

/** Of weights in groups. */
const partOf = (part: GroupPart, group: GroupSize): EncodedPart =>
  part === 'codes' ? { kind: part } : { kind: part, group };

/** What is read of a weight's tensors, where it is not their values. */
const storedPart = ({ from, scalesOf }: WeightDecl): EncodedPart | undefined =>
  from === 'codes' ? { kind: scalesOf === undefined ? 'codes' : 'row scales' } : undefined;

/** Columns that a job writes; what pads a row belongs to the last of it. */
const writtenColumns = (weight: WeightDecl, view: PackColumns = wholeRows(weight)): number =>
  endOf(weight, view) - view.column;

const scaleKey = ({ weight }: PackedWeight): string =>
  `${weight.columnScale} ${weight.columnOffset ?? 0} ${matrixColumns(weight)}`;

/** Factors of columns, once each, as f32 vectors. */
function addScales(
  weights: readonly PackedWeight[],
  builder: StepBuilder,
): { readonly places: ReadonlyMap<string, { offset: number; bytes: number }>; readonly bytes: number } {
  const places = new Map<string, StagedRange>();
  let end = 0;
  for (const weight of weights) {
    const key = scaleKey(weight);
    if (weight.columnScale === undefined || places.has(key)) continue;
    const { columnScale, columnOffset: added = 0 } = weight.weight;
    const k = matrixColumns(weight.weight);
    const place = { offset: end, bytes: k * 4 };
    places.set(key, place);
    end = roundUp(end + place.bytes, ALIGNMENT);
    const vector: WeightDecl = {
      name: columnScale!,
      layout: 'rows',
      format: 'f32',
      sources: [{ tensor: columnScale!, rows: 1 }],
      k,
      pairing: { kind: 'none' },
    };
    const use = { weight: vector, sourceRow: 0, added, target: { memory: 'scales', ...place } } as const;
    builder.add({ tensor: weight.columnScale, name: columnScale!, rows: 1, columns: k, isRaw: false, uses: [use] });
  }
  builder.flush();
  return { places, bytes: end };
}

/** Which uses of a tensor read the same: its values or a part of what is encoded, as rows of so many columns. */
const readKey = (columns: number, stored: EncodedPart | undefined): string =>
  stored === undefined ? `${columns}` : `${columns} ${stored.kind} ${stored.kind === 'scales' ? stored.group : ''}`;

/** The tensors of weights in order of first use, each once. `placeOf`: the factors of a weight's columns. */
function readingsOf(
  weights: readonly PackedWeight[],
  placeOf: (weight: PackedWeight) => StagedRange | undefined,
  isRawHere: (tensor: EncodedSource, reads: EncodedPart | undefined) => boolean,
): readonly TensorReading[] {
  const readings: (TensorReading & { readonly uses: TensorUse[] })[] = [];
  const known = new Map<TensorSource, Map<string, TensorUse[]>>();
  const add = (
    tensor: TensorSource,
    name: string,
    rows: number,
    use: TensorUse,
    stored: EncodedPart | undefined,
  ): void => {
    const columns = use.part === undefined ? matrixColumns(use.weight) : groupColumns(use.weight, use.part);
    const isRaw = tensor.kind === 'encoded' && isRawHere(tensor, stored);
    const key = isRaw ? 'raw' : readKey(columns, stored);
    const ofTensor = known.get(tensor) ?? new Map<string, TensorUse[]>();
    known.set(tensor, ofTensor);
    const uses = ofTensor.get(key);
    const own = isRaw && stored !== undefined ? { ...use, reads: stored } : use;
    if (uses !== undefined) return void uses.push(own);
    const made = [own];
    ofTensor.set(key, made);
    const read = isRaw || stored === undefined ? tensor : reading(tensor, stored);
    readings.push({ tensor: read, name, rows, columns, isRaw, uses: made });
  };
  for (const packed of weights) {
    const { weight, sources, offset, bytes } = packed;
    const scale = placeOf(packed);
    const { experts = 1 } = weight;
    // The matrices of an expert lie together, as if they were all.
    const own = { sources: sources.length / experts, bytes: bytes / experts };
    let sourceRow = 0;
    sources.forEach((tensor, i) => {
      const { rows, tensor: name } = weight.sources[i]!;
      if (i % own.sources === 0) sourceRow = 0;
      const use: TensorUse = {
        weight,
        sourceRow,
        target: { memory: 'weights', offset: offset + Math.floor(i / own.sources) * own.bytes, bytes: own.bytes },
        ...defined({ scale }),
      };
      if (weight.group !== undefined)
        for (const part of ['codes', 'scales'] as const)
          add(tensor, name, rows, { ...use, part }, partOf(part, weight.group));
      else add(tensor, name, rows, use, storedPart(weight));
      sourceRow += rows;
    });
  }
  return readings.map((each) => ({ ...each, uses: withScales(each.uses) }));
}

/** Whether `scales` are those of the rows of `codes`. Both have the same tensor. */
const areScalesOf = ({ weight: scales }: TensorUse, { weight: codes }: TensorUse): boolean =>
  isRounded(codes) &&
  codes.format === scales.scalesOf?.format &&
  codes.columnScale === scales.columnScale &&
  (codes.columnOffset ?? 0) === (scales.columnOffset ?? 0) &&
  JSON.stringify(codes.sources[0]!.order) === JSON.stringify(scales.sources[0]!.order);

/** Codes with the scales of their rows, where both are made of the tensor: one job finds them. */
function withScales(uses: readonly TensorUse[]): readonly TensorUse[] {
  const scales = uses.filter(({ weight }) => weight.scalesOf !== undefined && isRounded(weight));
  const others = uses.filter((use) => !scales.includes(use));
  const placeOf = ({ target: { offset, bytes } }: TensorUse): StagedRange => ({ offset, bytes });
  const joined = others.map((codes) => {
    const found = scales.findIndex((each) => areScalesOf(each, codes));
    return found < 0 ? codes : { ...codes, rowScales: placeOf(scales.splice(found, 1)[0]!) };
  });
  return [...joined, ...scales.map((each) => ({ ...each, rowScales: placeOf(each) }))];
}

/**
 * Steps that load the packed weights of a plan, factors of columns first. `staging`: bytes of a staging buffer.
 * `isOnHost`: encoded tensors that the host decodes, besides those that the device cannot.
 * Throws UserError for a tensor whose rows are too long, Error for layouts that are not a GPU's.
 */
export function planLoading(
  plan: WeightPlan,
  staging = STAGING,
  isOnHost: (tensor: EncodedSource) => boolean = () => false,
): LoadPlan {
  const packed = plan.weights.filter((weight) => weight.kind === 'packed');
  const builder = new StepBuilder(staging);
  const scales = addScales(packed, builder);
  const rowMap = rowMaps();
  const zeros: StagedRange[] = [];
  for (const { weight, offset, bytes } of packed) {
    if (matrixColumns(weight) > MAX_ROWS || bytes / FORMATS[weight.format].bytes(1, weight.k) > MAX_ROWS)
      throw new Error(`Weight ${weight.name} has too many rows or columns.`);
    const padding = rowMap(weight).indexOf(-1);
    const rowBytes = FORMATS[weight.format].bytes(1, packedDepth(weight));
    // Padding rows of a weight in blocks lie among others.
    if (padding >= 0 && (weight.group !== undefined || weight.format === 'mxfp4')) zeros.push({ offset, bytes });
    else if (padding >= 0) zeros.push({ offset: offset + padding * rowBytes, bytes: bytes - padding * rowBytes });
  }
  for (const weight of plan.weights) if (weight.kind === 'slots') zeros.push(weight);
  const placeOf = (weight: PackedWeight): StagedRange | undefined =>
    weight.columnScale === undefined ? undefined : scales.places.get(scaleKey(weight));
  const isRaw = (tensor: EncodedSource, reads: EncodedPart | undefined): boolean => {
    if (isOnHost(tensor) || !isDecodable(tensor, reads)) return false;
    const { isWhole, of } = encodedStaging(tensor);
    return stagedBytesOf(isWhole ? of(0, tensor.rows) : of(0, 1)) <= (isWhole ? WHOLE * staging : staging);
  };
  const readings = readingsOf(packed, placeOf, isRaw);
  for (const each of readings) builder.add(each);
  builder.flush();
  return {
    ordered: readings.flatMap(({ tensor, isRaw: isDecodedThere }) =>
      isDecodedThere && tensor.kind === 'encoded' && tensor.parts.groups !== undefined ? tensor : [],
    ),
    steps: builder.steps,
    stagingBytes: Math.max(0, ...builder.steps.map((step) => step.stagedBytes)),
    stagings: builder.stagings,
    scaleBytes: scales.bytes,
    jobBytes: builder.jobBytes,
    zeros,
  };
}
